"""One watched stream, and one server: what `daemon` keeps of each, and how changes of a live log become facts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import cast

from specwatch.config import Server
from specwatch.domain import Finding, Severity, Status, Verdict
from specwatch.health import Probe, Pulse
from specwatch.log.incidents import Known
from specwatch.report import redact
from specwatch.report.as_json import finding_object
from specwatch.sources.base import Source
from specwatch.sources.once import Raw
from specwatch.storage.store import Seen
from specwatch.watching.excerpt import excerpt
from specwatch.watching.inspection import Document
from specwatch.watching.live import Change, Live, Told


@dataclass(slots=True, eq=False)
class Watched:
    """A stream with its live state. `open` are the keys of incidents that are still being diagnosed."""

    server: Server
    source: Source
    live: Live
    context: list[Raw] = field(default_factory=list)
    place: int = -1
    open: set[str] = field(default_factory=set)
    moved: bool = False
    fed_at: float = 0.0
    fresh: list[Raw] = field(default_factory=list)
    """The lines of the last `read`."""
    _saved: str = ""

    @classmethod
    def of(
        cls, server: Server, source: Source, role_of: Known, saved: Document | None, keys: dict[str, int]
    ) -> Watched:
        """Go on where the stored position says; `keys` are the incidents that were told, with their places."""
        context = [Raw(*one) for one in cast("list[tuple[str, int, int, str]]", (saved or {}).get("context", []))]
        place = int(cast("int", (saved or {}).get("place", -1)))
        unsettled = [(key, at) for key, at in keys.items() if at > place]
        live = Live(source.stream, role_of, context=context, known=unsettled)
        return cls(server=server, source=source, live=live, context=context, place=place)

    def read(self, now: float) -> list[Change]:
        """Take in what is new."""
        raws = self.fresh = self.source.read(now)
        changes = self.live.restart(now) if self.source.broke() else []
        for raw in raws:
            self.live.feed(raw, now)
        if raws:
            self.fed_at = now
            self.moved = True
        return changes

    def look(self, now: float) -> list[Change]:
        """What can be said now."""
        return self.live.look(now, self.source.rest())

    def mark(self) -> None:
        """Everything so far is understood, if it is. To be called right after `look`."""
        if self.live.safe and not self.open:
            self.source.mark()
            self.context, self.place = self.live.context, self.live.last_place

    def save(self) -> str | None:
        """The position as JSON, None when it is what it was at the last call."""
        self.moved = False
        context = [raw._replace(text=_without_secrets(raw.text)) for raw in self.context]
        saved = json.dumps({"source": self.source.position(), "context": context, "place": self.place})
        if saved == self._saved:
            return None
        self._saved = saved
        return saved


@lru_cache(maxsize=256)
def _without_secrets(text: str) -> str:
    """A line of the context as it may be stored: the same few lines are saved once a second."""
    return redact.text(text)


@dataclass(slots=True, eq=False)
class Patient:
    """What is known of one server beside its logs."""

    server: Server
    pulse: Pulse
    probe: Probe | None = None
    next_probe: float = 0.0
    place: int = 0


def seen(watched: Watched, told: Told, document: Document, *, wall: float) -> Seen | None:
    """The fact of a diagnosed incident; None for what is not worth keeping (an advice, a notice of a known rule)."""
    verdict = cast("dict[str, str]", document["verdict"])
    refuted = verdict["status"] == "refuted"
    if document["severity"] == "notice" and document["rule"] is not None and not refuted:
        return None
    root = cast("dict[str, str | None]", document.get("root") or {})
    state = "refuted" if refuted else "resolved" if told.before_ready else "firing"
    return Seen(
        key=told.key,
        server=watched.server.name,
        stream=watched.source.stream,
        place=told.incident.root.offset,
        at=moment(root.get("time"), wall),
        fingerprint=str(document["id"]),
        severity=str(document["severity"]),
        document=json.dumps(document),
        state=state,
        because=verdict["because"] if refuted else "the server was ready again afterwards" if told.before_ready else "",
        excerpt="" if refuted else excerpt(told.incident, told.around, watched.source.where),
    )


def moment(at: str | None, wall: float) -> float:
    """A log's clock in seconds since 1970 (local time where it names no zone), else the time at which it was read."""
    try:
        return datetime.fromisoformat(at).timestamp() if at else wall
    except (ValueError, OverflowError, OSError):
        return wall


def condition(server: str, kind: str, because: str) -> Document:
    """A finding that no line of a log tells: a server that hangs, or is a zombie."""
    titles = {
        "hang": "the server hangs: its log is silent and its health endpoint does not answer",
        "zombie": "the server is dead and its health endpoint says that it lives",
    }
    finding = Finding(
        rule=None,
        title=titles[kind],
        severity=Severity.DEGRADED,
        cause=kind,
        says=because,
        verdict=Verdict(check="", status=Status.UNKNOWN, because="seen from outside; no model file can prove it"),
        incident=None,
    )
    return cast("Document", {**finding_object(finding), "server": server})
