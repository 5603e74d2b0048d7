"""The log around the root line of an incident, as it is kept beside its finding: few lines, without secrets.

A store that holds only the conclusion cannot be argued with. So 40 lines before the crash, its own lines, and what came
up to 20 lines after it are kept, at most `MOST` characters; what other ranks and other processes echoed is marked, so
that a reader can fold it away. Text is redacted before it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from specwatch.domain import Incident, LogLine
from specwatch.log import echoes, traceback
from specwatch.log.framing import Framer
from specwatch.report import redact
from specwatch.sources.once import Raw
from specwatch.watching.live import shortened

BEFORE = 40
AFTER = 20
MOST = 64 * 1024
"""Characters of an excerpt."""
LONGEST = 2000
"""Characters of one line of it."""
_KEY = "PRIVATE KEY-----"
_BEGIN = "-----BEGIN"
_BLOCK = 200
_NOTE = 100
"""Characters that the note of a cut line may have."""

Line = dict[str, object]
"""`line` (its number in the file), `kind` (root, cause, echo or context), `ranks`, `time`, `text`."""


def excerpt(incident: Incident, raws: Sequence[Raw], where: Callable[[int, int], tuple[int, int]]) -> str:
    """The excerpt as JSON, empty where the lines do not hold the root. `where` is that of the source.

    `incident.root.offset` and the offsets of `raws` are places of the same stream.
    """
    own = {line.offset for line in incident.lines} | {incident.root.offset}
    rows = _kinds(list(Framer(incident.root.source).frames(raws)), incident, own)
    at = next((n for n, (_, kind) in enumerate(rows) if kind == "root"), None)
    if at is None:
        return ""
    low, high = _run(rows, at)
    first = min(
        (n for n in range(max(low, at - _BLOCK), at) if rows[n][1] == "cause" and _begins(rows[n][0])), default=at
    )
    last = max((n for n in range(at, high) if rows[n][1] != "context"), default=at)
    first, last = max(low, first - BEFORE), min(high, last + 1 + AFTER)
    shown = _shown([line.text for line, _ in rows[first:last]])
    lines: list[Line] = []
    ranks: dict[str, tuple[str, ...]] = {}  # of the record that a line without a header goes on
    for (line, kind), text in zip(rows[first:last], shown, strict=True):
        number, _ = where(line.offset, line.number)
        record = "own" if kind in ("root", "cause") else kind
        if line.headed or kind == "context":
            ranks[record] = line.ranks
        whose = list(line.ranks or ranks.get(record, ()))
        lines.append({"line": number, "kind": kind, "ranks": whose, "time": line.at, "text": text})
    return json.dumps(_capped(lines, at - first), ensure_ascii=True)


def _run(rows: Sequence[tuple[LogLine, str]], at: int) -> tuple[int, int]:
    """From where to where the lines are of the same run: a crash loop has the next crash close behind."""
    starts = [n for n, (line, _) in enumerate(rows) if line.headed and line.text.startswith("server_args=")]
    return max((n for n in starts if n <= at), default=0), min((n for n in starts if n > at), default=len(rows))


def _begins(line: LogLine) -> bool:
    return line.text.endswith(traceback.START)


def _kinds(lines: Sequence[LogLine], incident: Incident, own: set[int]) -> list[tuple[LogLine, str]]:
    """Each line with what it is: the root, a line of the cause, an echo of it, or neither."""
    rows: list[tuple[LogLine, str]] = []
    record = "context"
    rooted = False
    at = [n for n, line in enumerate(lines) if line.offset == incident.root.offset]  # several in a record of lines
    root = next((n for n in at if lines[n].text == incident.root.text), at[0] if at else -1)
    for number, line in enumerate(lines):
        if line.headed or line.text == traceback.START:
            noise = echoes.is_echo(line.text) or echoes.is_weak_cause(line.text)
            crash = line.text.endswith(traceback.START) or (rooted and noise)
            record = "echo" if crash else "context"
        if number == root:
            kind, rooted = "root", True
        elif line.offset in own and not echoes.is_progress(line.text):
            kind = "cause"
        elif echoes.is_echo(line.text):
            kind = "echo"
        else:
            kind = record
        rows.append((line, kind))
    return rows


def _shown(texts: Sequence[str]) -> list[str]:
    """The lines without secrets, also those that only several lines make up; long ones are cut."""
    out = []
    inside = False
    for text in texts:
        marks = text.count(_KEY)
        if inside or marks:
            before = "" if inside else redact.text(text.partition(_BEGIN)[0])[:LONGEST]
            inside = inside != (marks % 2 == 1)
            out.append(before + redact.HIDDEN)
            continue
        text = redact.text(text)
        out.append(text if len(text) <= LONGEST + _NOTE else shortened(text, LONGEST))
    return out


def _capped(lines: list[Line], root: int) -> dict[str, object]:
    """As many lines as there is room for, those next to the root first."""
    room = MOST - len(str(lines[root]["text"]))
    low = high = root
    grows = True
    while grows:
        grows = False
        for at in (high + 1, low - 1):
            if 0 <= at < len(lines) and at not in range(low, high + 1):
                room -= len(str(lines[at]["text"])) + 1
                if room < 0:
                    return {"cut": True, "lines": lines[low : high + 1]}
                low, high, grows = min(low, at), max(high, at), True
    return {"cut": False, "lines": lines}
