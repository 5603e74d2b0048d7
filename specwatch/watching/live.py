"""The path of `pipeline.find` for a log that goes on: what can be said now, what of it changed, where to go on reading.

`pipeline.find` speaks once a run is over. A daemon has to speak while it goes on, so `Live.look` asks a *copy* of the
assembler how the log would end if it ended here; the assembler itself reads on. What a copy says may change: another
rank names the cause, or the server turns out to live. Each look therefore gives only differences.

**When something is said**: as soon as the log has been quiet for `QUIET` seconds (`QUIET_SERVING` once the server has
listened, as a client could have written the block, and the answers that deny it come in that time), or when two looks
agree; so never later than 2 s after its last line.

**Where to go on after a restart.** `safe` is true when nothing is pending: no open block, no candidate, no half line.
Lines after the last safe point are read again; what the run before it told (its arguments, that it serves, the steps of
its start) is kept as `context`, a few raw lines that are fed again first.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specwatch.domain import Frame, Incident, Launch, LogLine
from specwatch.log import echoes
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler, Known
from specwatch.sources.once import Raw

QUIET = 0.3
QUIET_SERVING = 1.2
LOOK_EVERY = 0.5
SETTLE_AFTER = 180.0
"""Seconds of quiet after which what is pending is taken for final; a death may still come 120 s after its cause."""
WINDOW = 8 * 1024 * 1024
"""Characters after the last safe point beyond which what was said is taken for final, to bound a restart's work."""
_MOST_CONTEXT = 48
READY = "The server is fired up"
_MOST_KEPT = 96 * 1024
"""Characters of the latest lines that are kept to be shown around a crash; each line counts 100 more."""
_LONGEST_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An incident that is new, or known by its key and changed."""

    key: str
    incident: Incident
    before_ready: bool
    """Whether the server became ready after it, in the same log."""
    around: tuple[Raw, ...] = ()
    """The latest lines of the log, long ones cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """An incident that no longer stands: another one is its cause."""

    key: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The server of this log is ready for requests, from the line at `place` on. `at` is that line's clock."""

    place: int
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A run of the server began: it logged its arguments in the line at `place`. `at` is that line's clock."""

    place: int
    at: str | None = None


Change = Told | Dropped | Ready | Began


class Live:
    """One live log. `known` are the keys of incidents that an earlier process told and that may still change."""

    def __init__(
        self, stream: str, role_of: Known, *, context: Sequence[Raw] = (), known: Iterable[tuple[str, int]] = ()
    ) -> None:
        self._stream = stream
        self._role_of = role_of
        self._begin()
        self._context: list[Raw] = []
        self._told: dict[str, tuple[str, int]] = {key: ("", place) for key, place in known}
        self._looked: dict[str, str] = {}
        self._over: list[Incident] = []
        self._changes: list[Change] = []
        self._ready_at = -1
        self._crashed = False
        self._dirty = False
        self._serving = False
        self._last_at = self._looked_at = 0.0
        self._last_place = -1
        self._window = 0
        self._latest: deque[Raw] = deque()
        self._latest_size = 0
        self._around: dict[int, tuple[Raw, ...]] = {}
        self.safe = True
        for raw in context:
            self.feed(raw, 0.0)
        self._changes.clear()
        self._over.clear()
        self._latest.clear()
        self._around.clear()
        self._window, self._dirty, self._latest_size = 0, False, 0

    @property
    def last_place(self) -> int:
        """The place of the last line, -1 before the first."""
        return self._last_place

    @property
    def context(self) -> list[Raw]:
        """The lines to begin with when reading on from the last safe point."""
        return list(self._context)

    def feed(self, raw: Raw, now: float) -> None:
        """Take one line in."""
        for line in self._framer.feed(raw):
            text = line.text
            if line.headed and not text.startswith(echoes.BATCH):
                self._note(raw, line)
            elif line.headed and not self._serving:
                self._remember(raw)
                self._serving = True
            elif text.startswith("usage: ") and self._crashed:
                self._begin()
            if over := self._assembler.feed(line):
                self._over += over
                self._around |= dict.fromkeys((one.root.offset for one in over), tuple(self._latest))
        self._last_at, self._last_place, self._dirty = now, max(raw.offset, self._last_place), True
        self._window += len(raw.text)
        self._keep(raw)

    def restart(self, now: float) -> list[Change]:
        """Another run of the server begins for certain: what was pending is final."""
        changes = self._settle(now)
        self._begin()
        self._context.clear()
        return changes

    def due(self, now: float) -> float | None:
        """Seconds until the next `look`, None when there is nothing to look for."""
        if self._dirty:
            quiet = self._last_at + self._quiet - now
            return max(0.0, min(quiet, self._looked_at + LOOK_EVERY - now))
        if not self.safe:
            return max(0.0, self._last_at + SETTLE_AFTER - now)
        return None

    def look(self, now: float, rest: Raw | None = None) -> list[Change]:
        """What can be said now; `rest` is the line whose end is not written yet."""
        quiet = now - self._last_at >= self._quiet - 1e-6
        if not self.safe and not self._dirty and now - self._last_at >= SETTLE_AFTER:
            return self._settle(now)
        framer, assembler = _copy((self._framer, self._assembler), self._role_of)
        held = framer.flush()
        lines = [*held, *(framer.feed(rest) if rest is not None else [])]
        standing = [incident for line in lines for incident in assembler.feed(line)] + assembler.flush()
        self._dirty = not quiet
        self._looked_at = now
        changes = self._compare(standing, quiet)
        self.safe = not standing and not held and not self._told_pending()
        if self.safe:
            self._window = 0
        elif self._window > WINDOW:
            changes += self._settle(now)
        return changes

    def finish(self, now: float, rest: Raw | None = None) -> list[Change]:
        """The log is at its end."""
        if rest is not None:
            self.feed(rest, now)
        return self._settle(now)

    # what happens inside

    @property
    def _quiet(self) -> float:
        return QUIET_SERVING if self._serving else QUIET

    def _begin(self) -> None:
        self._framer = Framer(self._stream)
        self._assembler = Assembler(self._role_of)
        self._crashed = False
        self._serving = False

    def _keep(self, raw: Raw) -> None:
        """Keep a line for what may have to be shown around it."""
        if len(raw.text) > _LONGEST_KEPT:
            raw = raw._replace(text=shortened(raw.text, _LONGEST_KEPT))
        self._latest.append(raw)
        self._latest_size += len(raw.text) + 100
        while self._latest_size > _MOST_KEPT:
            self._latest_size -= len(self._latest.popleft().text) + 100

    def _note(self, raw: Raw, line: LogLine) -> None:
        """Keep what a later crash has to know of this run."""
        text = line.text
        if text.startswith("server_args="):
            if self._crashed:
                framer = self._framer
                self._begin()
                self._framer = framer
            if self._serving or len(self._context) > 8:
                self._context.clear()
            self._serving = False
            self._remember(raw)
            self._changes.append(Began(place=raw.offset, at=line.at))
        elif text.startswith(READY):
            self._ready_at = raw.offset
            self._changes.append(Ready(place=raw.offset, at=line.at))
            self._serving = True
            self._remember(raw)
        elif echoes.is_progress(text) or (not self._serving and echoes.shows_listening(text)):
            self._serving = self._serving or echoes.shows_listening(text)
            self._remember(raw)

    def _remember(self, raw: Raw) -> None:
        if len(self._context) < _MOST_CONTEXT:
            self._context.append(raw)

    def _settle(self, now: float) -> list[Change]:
        """Take what is pending for final."""
        final = self._framer.flush()
        for line in final:
            self._over += self._assembler.feed(line)
        self._over += self._assembler.flush()
        self._crashed = self._crashed or any(not incident.outlived for incident in self._over)
        changes = self._compare([], quiet=True)
        self.safe, self._dirty, self._window, self._looked_at = True, False, 0, now
        return changes

    def _told_pending(self) -> bool:
        return any(place > self._last_place for _, place in self._told.values())

    def _compare(self, standing: list[Incident], quiet: bool) -> list[Change]:
        """The differences between what was told and what is so now."""
        changes, self._changes = self._changes, []
        over, self._over = self._over, []
        looked: dict[str, str] = {}
        found: set[str] = set()
        for incident, final in [*((one, True) for one in over), *((one, False) for one in standing)]:
            key, version = self._key(incident), _version(incident)
            found.add(key)
            looked[key] = version
            told = self._told.get(key, ("?", 0))[0]
            if told != version and (final or quiet or self._looked.get(key) == version):
                ready = self._ready_at > incident.root.offset
                around = self._around.get(incident.root.offset) or tuple(self._latest)
                changes.append(Told(key=key, incident=incident, before_ready=ready, around=around))
                told = version
            if told != "?":
                self._told[key] = (told, incident.root.offset)
        for key, (_, place) in list(self._told.items()):
            if key not in found and place <= self._last_place and (quiet or key in self._looked):
                changes.append(Dropped(key=key, because="another failure of the same run is its cause"))
                del self._told[key]
        for incident in over:
            self._told.pop(self._key(incident), None)
        self._around.clear()
        self._looked = looked
        return changes

    def _key(self, incident: Incident) -> str:
        what = f"{self._stream}\0{incident.root.offset}\0{incident.error}"
        return hashlib.sha256(what.encode("utf-8", "replace")).hexdigest()[:32]


def shortened(text: str, most: int) -> str:
    """A line cut to `most` characters, which says how long it was; one that was cut before goes on saying that."""
    at = text.rfind(" … [cut")
    note = text[at:] if at >= max(0, len(text) - 100) else f" … [cut: the line has {len(text)} characters]"
    return text[:most] + note


def _version(incident: Incident) -> str:
    launches = tuple(launch.argv for launch in incident.launches)
    what = (incident.error, incident.chain, incident.outlived, incident.frames, incident.ranks, launches)
    return hashlib.sha256(repr(what).encode("utf-8", "replace")).hexdigest()[:16]


def located(incident: Incident, where: Callable[[int, int], tuple[int, int]]) -> Incident:
    """An incident whose root line stands where people find it in the file, rather than at its place in the stream."""
    root = incident.root
    number, offset = where(root.offset, root.number)
    return incident._replace(root=root._replace(number=number, offset=offset))


_SHARED = (LogLine, Launch, Frame, Raw)


def _copy(state: Any, role_of: Known) -> Any:
    """A copy of everything that changes; what never does (lines, launches, the rule book) is shared."""
    shared: list[object] = []

    class Packer(pickle.Pickler):
        def persistent_id(self, thing: object) -> int | None:
            if isinstance(thing, _SHARED) or thing is role_of:
                shared.append(thing)
                return len(shared) - 1
            return None

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, number: int) -> object:
            return shared[number]

    packed = io.BytesIO()
    Packer(packed, pickle.HIGHEST_PROTOCOL).dump(state)
    packed.seek(0)
    return Unpacker(packed).load()
