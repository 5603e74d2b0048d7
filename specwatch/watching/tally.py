"""What the daemon counts while it works: plain numbers that another thread may look at.

The loop writes, the metrics read. Only whole values are exchanged (a number, a copy of a dictionary), so neither waits
for the other. Nothing here holds text of a log: the labels are names of servers, rules and severities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specwatch.sources.once import LINE_CAP, Raw

RAISED = frozenset({"finding_raised", "finding_returned", "finding_revised"})
MOST_SERIES = 5000
"""Series of one metric that are kept at most: servers and rules come from the configuration, so that is many."""


@dataclass(slots=True)
class Tally:
    """The counts since the start. Wall times are seconds since 1970, `turned` is of the daemon's own clock."""

    started: float = 0.0
    turned: float = -1.0
    turned_wall: float = 0.0
    lines: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    capped: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
    findings: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    resolved: Counter[str] = field(default_factory=Counter)
    last_line: dict[str, float] = field(default_factory=dict)
    behind_since: dict[str, float] = field(default_factory=dict)
    """Since when (wall) there has been more to read of a server than was read; absent where everything is."""
    up: dict[str, bool] = field(default_factory=dict)
    """What the health endpoint of a server last said."""
    commit_errors: int = 0
    inspection_failures: int = 0
    storing: bool = True

    def read(self, server: str, raws: Iterable[Raw], wall: float) -> None:
        """Lines of a server were read."""
        lines = size = cut = 0
        for raw in raws:
            text = raw.text
            length = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            lines, size, cut = lines + 1, size + length + 1, cut + (length > LINE_CAP)
        if lines:
            self.lines[server] += lines
            self.bytes[server] += size
            self.last_line[server] = wall
        if cut:
            self.capped[server] += cut

    def reached(self, behind: Iterable[str], wall: float) -> None:
        """These servers have more to read; all others are read to their ends."""
        self.behind_since = {name: self.behind_since.get(name, wall) for name in behind}

    def said(self, event: str, body: Mapping[str, object]) -> None:
        """Our own log said something; findings are said once they are committed."""
        server = str(body.get("server") or "")
        if event in RAISED:
            key = (server, str(body.get("rule") or "unknown"), str(body.get("severity") or "unknown"))
            if key in self.findings or len(self.findings) < MOST_SERIES:
                self.findings[key] += 1
        elif event == "finding_resolved":
            self.resolved[server] += 1
        elif event == "source_troubled":
            self.troubles[server] += 1
        elif event == "inspection_failed":
            self.inspection_failures += 1
        elif event == "store_unwritable":
            self.commit_errors += 1
