"""The incidents that wait for a look at the model files: one child process at a time, and a deadline for each.

What no model file could tell is recorded at once. What one could is recorded when the child has answered, or at its
deadline without an answer, and then again when the answer comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specwatch.config import Watch
from specwatch.rulebook.book import Rulebook
from specwatch.watching.inspection import Ask, Child, Document, Limits, Memory, without_models
from specwatch.watching.live import Told, located
from specwatch.watching.watched import Watched

DEADLINE = 1.7
"""Seconds after the last line of an incident at which it is said, whether the model files have been read or not."""
MOST_WAITING = 256
_POLL = 0.02
_OWN = ("root", "first_seen", "last_seen", "echoes")
"""What an incident does not share with another one that gets the same answer."""

Record = Callable[[Watched, Told, Document], None]


class Say(Protocol):
    """Writes one canonical line of our own log."""

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """`level` is info, warning or error; `event` a noun and a verb in the past tense."""


@dataclass(slots=True, eq=False)
class _Case:
    """An incident whose models are being read, or wait to be. `until` is its deadline."""

    watched: Watched
    told: Told
    ask: Ask
    fallback: Document
    until: float
    memory: object
    child: Child | None = None
    said: bool = False


class Casework:
    """All cases of the daemon. `record` is called with each diagnosis."""

    def __init__(self, book: Rulebook, watch: Watch, record: Record, say: Say) -> None:
        self._record, self._say = record, say
        self._cases: list[_Case] = []
        self.configure(book, watch)

    def configure(self, book: Rulebook, watch: Watch) -> None:
        """From now on diagnose with these rules and limits."""
        self._book, self._watch = book, watch
        self._memory = Memory()

    @property
    def busy(self) -> bool:
        """Whether a case is open."""
        return bool(self._cases)

    def filenos(self) -> list[int]:
        """Descriptors that become readable when a child has answered."""
        return [case.child.fileno() for case in self._cases if case.child]

    def due(self, now: float) -> float | None:
        """Seconds until `work` has to be called; None when no case is open."""
        waits = [_POLL if case.child else max(0.0, case.until - now) for case in self._cases]
        return min(waits, default=None)

    def take(self, watched: Watched, told: Told, now: float) -> None:
        """Diagnose an incident, now or soon. A case of the same incident that is open is given up for it."""
        server = watched.server
        self.forget(told.key)
        ask = Ask(
            incident=located(told.incident, watched.source.where),
            path_maps=server.path_map,
            models_dirs=server.models,
            launch=server.launch,
            target=server.target,
            sglang=server.sglang,
            gpu=server.gpu,
            rules=self._watch.rules,
        )
        fallback, needed = without_models(ask, self._book, "the model files were not read in time")
        memory = Memory.key(server.name, told.incident)
        known = self._memory.get(memory, now)
        if known is not None or not needed:
            self._record(watched, told, fallback if known is None else _moved(known, fallback))
            return
        case = _Case(watched, told, ask, fallback, max(now, watched.fed_at + DEADLINE), memory)
        watched.open.add(told.key)
        self._cases.append(case)
        if len(self._cases) > MOST_WAITING:
            self._fall_back(self._cases[0])
            self._close(self._cases[0])

    def work(self, now: float, *, final: bool = False) -> None:
        """Take in answers, begin the next inspection, keep deadlines (none when `final`: everything is waited for)."""
        for case in list(self._cases):
            known = self._memory.get(case.memory, now) if case.child is None else None
            if known is not None:
                self._record(case.watched, case.told, _moved(known, case.fallback))
                self._close(case)
            elif case.child is None and not any(other.child for other in self._cases):
                limits = Limits(memory=self._watch.inspect_memory, time=self._watch.inspect_time)
                case.child = Child(case.ask, limits, now)
            self._answer(case, now)
            if case in self._cases and not final and now >= case.until:
                self._fall_back(case)

    def forget(self, key: str) -> None:
        """An incident no longer stands."""
        for case in [case for case in self._cases if case.told.key == key]:
            self._close(case)

    def stop(self) -> None:
        """End the children; what is open is read again after a restart."""
        for case in self._cases:
            if case.child:
                case.child.stop()

    def _answer(self, case: _Case, now: float) -> None:
        answer = case.child.answer(now) if case.child is not None and case in self._cases else None
        if answer is None:
            return
        document, why = answer
        if document is not None:
            self._memory.put(case.memory, document, now)
        else:
            self._say("warning", "inspection_failed", server=case.watched.server.name, because=why)
            document = without_models(case.ask, self._book, why)[0]
        self._record(case.watched, case.told, document)
        self._close(case)

    def _fall_back(self, case: _Case) -> None:
        if not case.said:
            case.said = True
            self._record(case.watched, case.told, {**case.fallback, "looking": True})

    def _close(self, case: _Case) -> None:
        if case.child:
            case.child.stop()
        self._cases.remove(case)
        watched = case.watched
        watched.open.discard(case.told.key)
        watched.moved = True
        if watched.live.due(now=0.0) is None:  # nothing was read since the last look
            watched.mark()


def _moved(known: Document, own: Document) -> Document:
    return {**known, **{name: own[name] for name in _OWN}}
