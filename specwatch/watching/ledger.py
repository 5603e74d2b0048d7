"""Carries facts into the store, and what it says of them into our own log; survives a store that cannot write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

from specwatch.storage.store import DAY, Fact, Reached, Seen, Store
from specwatch.watching.casework import Say
from specwatch.watching.watched import Watched

COMMIT_EVERY = 1.0
"""Seconds between commits of mere positions; facts are committed at once."""
RETRY_AFTER = 5.0
MOST_FACTS = 10_000
LOUD = frozenset({"finding_raised", "finding_returned", "finding_revised", "crash_loop_recognised"})


class Ledger:
    """The facts that are not committed yet. `stored` is called with those that the store took in."""

    def __init__(self, store: Store, say: Say, stored: Callable[[Sequence[Fact]], None] = lambda _: None) -> None:
        self._store, self._say, self._stored = store, say, stored
        self._facts: list[Fact] = []
        self._unstored: list[Seen] = []
        self._broken = False
        self._committed_at = self._retry_at = self._prune_at = 0.0

    @property
    def storing(self) -> bool:
        """Whether the store took what was last given to it."""
        return not self._broken

    def add(self, fact: Fact) -> None:
        """To be committed by the next `commit`."""
        self._facts.append(fact)

    def due(self, now: float, *, moved: bool) -> float | None:
        """Seconds until `commit` has something to do; `moved` says that a stream has been read on."""
        if self._broken:
            return max(0.0, self._retry_at - now)
        return max(0.0, self._committed_at + COMMIT_EVERY - now) if moved else None

    def commit(self, streams: Iterable[Watched], now: float, wall: float, *, final: bool = False) -> None:
        """Commit the facts with the positions of the streams, and say what there is to say."""
        if self._broken and now < self._retry_at and not final:
            return
        moved = [one for one in streams if one.moved]
        if not self._facts and not (moved and (final or now - self._committed_at >= COMMIT_EVERY)):
            return
        facts = list(self._facts)
        for watched in moved:
            saved = watched.save()
            if saved is not None:
                facts.append(Reached(stream=watched.source.stream, position=saved))
        self._committed_at = now
        if not facts:
            return
        try:
            said = self._store.commit(facts, wall)
        except sqlite3.Error as error:
            self._could_not(facts, error, now)
            return
        self._facts.clear()
        if self._broken:
            self._broken = False
            self._say("info", "store_recovered")
        for one in said:
            self._say("warning" if one.event in LOUD else "info", one.event, **one.body)
        if said:
            try:
                self._store.said(one.id for one in said)
            except sqlite3.Error as error:  # said once more after the next commit: better than never
                self._say("error", "store_unwritable", because=str(error))
        self._stored(facts)

    def prune(self, now: float, wall: float, keep_days: int) -> None:
        """Once a day, forget what is old."""
        if now < self._prune_at:
            return
        self._prune_at = now + DAY
        try:
            gone = self._store.prune(wall, keep_days)
        except sqlite3.Error as error:
            self._say("error", "store_unwritable", because=str(error))
            return
        if gone:
            self._say("info", "state_pruned", rows=gone)

    def _could_not(self, facts: Sequence[Fact], error: sqlite3.Error, now: float) -> None:
        """Nothing is forgotten: everything is committed when the disk has room again, and said already now."""
        self._retry_at = now + RETRY_AFTER
        for fact in facts:
            if isinstance(fact, Seen) and fact not in self._unstored:
                self._say("warning", "finding_unstored", server=fact.server, finding=fact.fingerprint)
        self._unstored = [fact for fact in facts if isinstance(fact, Seen)]
        if not self._broken:
            self._say("error", "store_unwritable", because=str(error), says="reading goes on; nothing is written")
        self._broken = True
        latest = {fact.stream: fact for fact in facts if isinstance(fact, Reached)}
        kept: list[Fact] = [fact for fact in facts if not isinstance(fact, Reached)]
        self._facts = [*kept[-MOST_FACTS:], *latest.values()]
