"""After a restart: until the server is healthy, or has crashed again, or its time is up."""

from __future__ import annotations

from dataclasses import dataclass, field

from specwatch.acting.base import Edges
from specwatch.acting.following import Tail
from specwatch.acting.looking import answers
from specwatch.rulebook.book import Rulebook
from specwatch.runtime.base import Life, Runtime, State
from specwatch.settings import Server
from specwatch.watching.inspection import Ask, without_models
from specwatch.watching.live import Began, Dropped, Ready, Told

EVERY = 1.0
"""Seconds between two looks."""
SETTLE = 3.0
"""Seconds that a server has to stay healthy."""
TELL = 3.0
"""Seconds that the log of a server that died gets to say why."""


@dataclass(slots=True)
class Waiting:
    """One wait. `before` is the state at which the restart was asked for; what is still as then counts for nothing.

    `error` is the first line of what the server crashed with before.
    """

    server: Server
    runtime: Runtime
    before: State
    tail: Tail
    book: Rulebook
    edges: Edges
    error: str = ""
    _told: dict[str, str] = field(default_factory=dict)
    _ready: bool = False
    _fresh: bool = False
    _starts: int = 0
    _healthy_since: float = -1.0
    _dead_since: float = -1.0
    _why: str = "nothing was seen of it yet"

    def until(self, deadline: float) -> tuple[bool, str]:
        """Whether the server became healthy before `deadline` (of the clock's `now`), and what was seen."""
        clock = self.edges.clock
        while True:
            self._listen()
            state = self.runtime.state()
            now = clock.now()
            if self._told:
                return False, next(iter(self._told.values()))
            if (dead := self._dead(state, now)) is not None:
                return False, dead
            if (well := self._healthy(state, now)) is not None:
                return True, well
            if now >= deadline:
                return False, f"it was not healthy in time: {self._why}"
            clock.sleep(EVERY)

    def _listen(self) -> None:
        for change in self.tail.changes(self.edges.clock.now()):
            if isinstance(change, Ready):
                self._ready = True
            elif isinstance(change, Dropped):
                self._told.pop(change.key, None)
            elif isinstance(change, Began):
                continue
            elif said := self._said(change):
                self._told[change.key] = said
            else:
                self._told.pop(change.key, None)

    def _said(self, told: Told) -> str:
        """What a fatal crash says; empty for anything less, and for what the log itself refutes."""
        if told.before_ready:
            return ""
        ask = Ask(incident=told.incident, sglang=self.server.sglang)
        document, _ = without_models(ask, self.book, "not read while waiting")
        if document["severity"] != "fatal":
            return ""
        error = told.incident.error.split("\n")[0]
        same = ", with the very same words; make sure that the target is what starts this server"
        rule = document["rule"] or "no rule knows it"
        return f"it crashed again ({rule}){same if error == self.error else ''}: {error[:300]}"

    def _dead(self, state: State, now: float) -> str | None:
        """What a death since the restart says, once its log had the time to say more."""
        self._see(state)
        again = state.starts > self._starts and not state.blind
        if not self._fresh or not (state.life is Life.DOWN or again):
            self._dead_since = -1.0
            return None
        self._dead_since = now if self._dead_since < 0 else self._dead_since
        return f"it died again: {state.because}" if now - self._dead_since >= TELL else None

    def _see(self, state: State) -> None:
        """Whether this is no longer the start that was there before the restart."""
        if self._fresh:
            self._starts = min(state.starts, self._starts)
            return
        self._fresh = not self.before.identity or (bool(state.identity) and state.identity != self.before.identity)
        if self._fresh and self.before.life is Life.UP and self.before.identity:
            self.tail.close()  # what the old process said when it was ended is no crash of the new one
            self.tail = Tail(self.server, self.book.role_of)
        if self._fresh:
            # a restart of the crash loop that was due at the same moment is merged with ours, and counted: no death
            self._starts = state.starts

    def _healthy(self, state: State, now: float) -> str | None:
        said, why = self._health(state)
        if why:
            self._healthy_since, self._why = -1.0, why
            return None
        self._healthy_since = now if self._healthy_since < 0 else self._healthy_since
        self._why = f"{said}, for less than {SETTLE:.0f} s"
        return said if now - self._healthy_since >= SETTLE else None

    def _health(self, state: State) -> tuple[str, str]:
        """What shows that the server is healthy, or why it is not."""
        if not self._fresh:
            return "", f"it was not started anew yet: {state.because}"
        if not _runs(state):
            return "", f"it does not run, whoever answers: {state.because}"
        if self.server.health:
            failed = answers(self.server.health, self.edges.clock)
            return f"{self.server.health} answers", f"{self.server.health}: {failed}" if failed else ""
        if state.ready is not None:
            return state.because, "" if state.ready else state.because
        if self._ready:
            return "its log says that it is ready", ""
        return "", f"its log does not say that it is ready, and no health endpoint is configured; {state.because}"


def _runs(state: State) -> bool:
    """Whether the server may be the one that answers: another process could have taken its port.

    A unit or container that was stopped, or ended without an error, is UNKNOWN, and known by its identity; without one
    the runtime cannot tell.
    """
    return state.life is Life.UP or (state.life is Life.UNKNOWN and (state.blind or not state.identity))
