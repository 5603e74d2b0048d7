"""`specwatch watch`: live logs to findings, for months, losing nothing. One thread, one loop, one store.

A turn of the loop: wait for the first of (a wake, a timer) - read what is new - look at the logs that are due - take in
what the inspections answered - ask the health endpoints - commit - say what was committed. Only what passed through the
store is said, so that a restart repeats nothing; only a finished turn feeds systemd's watchdog.
"""

from __future__ import annotations

import json
import selectors
from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from specwatch.config import Server, Settings
from specwatch.health import Probe, Pulse
from specwatch.rulebook.book import Rulebook
from specwatch.sources import container
from specwatch.sources.base import Source
from specwatch.sources.files import Files, Pattern
from specwatch.sources.journal import Journal
from specwatch.storage.store import Fact, Recovered, Seen, Store, Turned, Withdrawn
from specwatch.watching.casework import Casework, Say
from specwatch.watching.inspection import Document
from specwatch.watching.ledger import Ledger
from specwatch.watching.live import Began, Change, Dropped, Ready, Told
from specwatch.watching.proposing import Proposer
from specwatch.watching.tally import Tally
from specwatch.watching.watched import Patient, Watched, condition, moment, seen


class Clock(Protocol):
    """The time: `now` for what lasts, `wall` (seconds since 1970) for what is stored."""

    def now(self) -> float:
        """Seconds that never go back."""

    def wall(self) -> float:
        """Seconds since 1970."""


class Daemon:
    """Everything that runs. `sources` are streams beside those that the settings name (stdin, a child).

    `wake` is a descriptor that ends a wait when it becomes readable; whoever gives it empties it. `proposer` leaves
    what may be applied without a person for the one that may act; without it nothing is proposed to anybody.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        book: Rulebook,
        say: Say,
        clock: Clock,
        sources: Iterable[tuple[Server, Source]] = (),
        *,
        listen: bool = True,
        wake: int | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        self._settings, self._store, self._book, self._clock = settings, store, book, clock
        self.tally = Tally(started=clock.wall())

        def counted(level: str, event: str, **fields: object) -> None:
            self.tally.said(event, fields)
            say(level, event, **fields)

        self._say: Say = counted
        self._proposer = proposer
        self._ledger = Ledger(store, self._say, self._stored)
        self._casework = Casework(book, settings.watch, self._record, self._say)
        self._selector = selectors.DefaultSelector()
        self._registered: set[int] = set()
        self._watched: dict[str, Watched] = {}
        self._patients: dict[str, Patient] = {}
        self._busy: set[str] = set()
        self._files = Files(self._restore_source, listen=listen)
        if (fd := self._files.fileno()) is not None:
            self._selector.register(fd, selectors.EVENT_READ, None)
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ, None)
        self._extra = list(sources)
        self.configure(settings, book)
        for server, source in self._extra:
            self._add(server, source)

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._settings

    def status_of(self, rule: str) -> str | None:
        """The status of a rule that is in force, None where there is none of that name."""
        return self._book.rules[rule].status if rule in self._book.rules else None

    @property
    def reading(self) -> bool:
        """Whether there is more to read right now."""
        return bool(self._busy)

    @property
    def all_ended(self) -> bool:
        """Whether no stream can give a line any more."""
        return bool(self._watched) and all(one.source.ended for one in self._watched.values())

    def configure(self, settings: Settings, book: Rulebook) -> None:
        """Follow what the settings name from now on; everything that is named as before goes on undisturbed."""
        self._settings, self._book = settings, book
        self._casework.configure(book, settings.watch)
        patterns: list[Pattern] = []
        journals: dict[str, tuple[Server, str]] = {}
        for server in settings.servers:
            for log in server.logs:
                kind, _, rest = log.partition(":")
                if log.startswith("/"):
                    patterns.append(Pattern(server.name, log))
                elif kind == "docker":
                    patterns.append(container.docker(server.name, rest))
                elif kind == "pods":
                    patterns.append(container.pods(server.name, rest))
                elif kind == "journal":
                    journals[f"{server.name}|{log}"] = (server, rest)
        self._files.follow(patterns)
        named = {server.name: server for server in settings.servers}
        kept = {server.name for server, _ in self._extra}
        for name in [name for name in self._patients if name not in named and name not in kept]:
            del self._patients[name]
        for stream, watched in list(self._watched.items()):
            if watched.server.name in named:
                watched.server = named[watched.server.name]
            gone = stream in self._watched and isinstance(watched.source, Journal) and stream not in journals
            if gone or (stream not in self._files.followed and not isinstance(watched.source, Journal)
                        and watched.server.name not in kept):  # fmt: skip
                watched.source.close()
                del self._watched[stream]
        for server in settings.servers:
            self._patient(server)
        for stream, (server, unit) in journals.items():
            if stream not in self._watched:
                self._add(server, Journal(unit, stream, self._restore_source(stream)))
        self._register()

    # the loop

    def turn(self, most: float = 60.0) -> None:
        """One turn, waiting for at most that many seconds."""
        events = self._selector.select(max(0.0, min(most, self._due())))
        now = self._clock.now()
        self._read(now, {key.data for key, _ in events if isinstance(key.data, str)})
        self._look(now)
        self._casework.work(now)
        self._care(now)
        self._commit(now)
        if self._proposer:
            self._proposer.work(now, self._clock.wall())
        self._ledger.prune(now, self._clock.wall(), self._settings.state.keep_days)
        self._register()
        self._count()

    def _count(self) -> None:
        """The turn is over: note what is true now."""
        wall = self._clock.wall()
        self.tally.reached({self._watched[one].server.name for one in self._busy if one in self._watched}, wall)
        self.tally.storing = self._ledger.storing
        self.tally.turned, self.tally.turned_wall = self._clock.now(), wall

    def finish(self) -> None:
        """The end of all logs that there are: say what is pending. For `--once`, and when all streams have ended."""
        now = self._clock.now()
        for watched in self._watched.values():
            self._changes(watched, watched.live.finish(now, watched.source.rest()), now)
        while self._casework.busy:
            self._casework.work(self._clock.now(), final=True)
            if self._casework.filenos():
                self._selector.select(0.02)
        for watched in self._watched.values():
            watched.mark()
            watched.moved = True
        self._commit(self._clock.now(), final=True)

    def close(self) -> None:
        """Commit what can be committed, and let go of everything."""
        self._commit(self._clock.now(), final=True)
        self._casework.stop()
        for watched in self._watched.values():
            watched.source.close()
        for patient in self._patients.values():
            if patient.probe:
                patient.probe.close()
        self._files.close()
        self._selector.close()

    def _due(self) -> float:
        """Seconds until something has to be done without a wake."""
        now = self._clock.now()
        due = [self._files.due(now)]
        if self._busy:
            return 0.0
        for watched in self._watched.values():
            at = watched.live.due(now)
            if at is not None:
                due.append(at)
            if isinstance(watched.source, Journal) and (again := watched.source.due(now)) is not None:
                due.append(again)
        moved = any(watched.moved for watched in self._watched.values())
        proposals = self._proposer.due(now) if self._proposer else None
        due += [at for at in (self._ledger.due(now, moved=moved), self._casework.due(now), proposals) if at is not None]
        for patient in self._patients.values():
            if patient.server.health:
                due.append(0.1 if patient.probe else max(0.0, patient.next_probe - now))
        return max(0.0, min(due))

    def _read(self, now: float, woken: set[str]) -> None:
        woken |= self._busy | self._files.wake(now)
        for stream, (name, source) in self._files.followed.items():
            if stream not in self._watched:
                server = next(one for one in self._settings.servers if one.name == name)
                self._add(server, source)
        for stream, watched in self._watched.items():
            if isinstance(watched.source, Journal) and watched.source.due(now) == 0.0:
                woken.add(stream)
        self._busy.clear()
        for stream in woken:
            watched_one = self._watched.get(stream)
            if watched_one is None:
                continue
            before = watched_one.fed_at
            self._changes(watched_one, watched_one.read(now), now)
            if watched_one.fed_at != before:
                self._patient(watched_one.server).pulse.saw_line(now)
                self.tally.read(watched_one.server.name, watched_one.fresh, self._clock.wall())
            watched_one.fresh = []
            if watched_one.source.more:
                self._busy.add(stream)
            for note in watched_one.source.notes():
                self._say("warning", "source_troubled", server=watched_one.server.name, says=note)
        for note in self._files.notes():
            self._say("warning", "source_troubled", says=note)

    def _look(self, now: float) -> None:
        for watched in self._watched.values():
            due = watched.live.due(now)
            if due is not None and due <= 0.001:
                self._changes(watched, watched.look(now), now)
                watched.mark()

    def _changes(self, watched: Watched, changes: Iterable[Change], now: float) -> None:
        for change in changes:
            watched.moved = True
            if isinstance(change, Told):
                self._casework.take(watched, change, now)
            elif isinstance(change, Dropped):
                self._casework.forget(change.key)
                self._ledger.add(Withdrawn(key=change.key, state="superseded", because=change.because))
            else:
                self._turned(watched, change)

    def _turned(self, watched: Watched, change: Ready | Began) -> None:
        """Remember the turns of a server's runs, and what its readiness resolves."""
        server, at = watched.server.name, moment(change.at, self._clock.wall())
        kind = "ready" if isinstance(change, Ready) else "started"
        self._ledger.add(Turned(server=server, stream=watched.source.stream, place=change.place, kind=kind, at=at))
        if isinstance(change, Ready):
            self._ready(watched, change)

    def _ready(self, watched: Watched, change: Ready) -> None:
        self._patient(watched.server).pulse.saw_ready()
        self._ledger.add(
            Recovered(
                server=watched.server.name,
                stream=watched.source.stream,
                place=change.place,
                at=self._clock.wall(),
                because="the server is ready again",
            )
        )

    def _record(self, watched: Watched, told: Told, document: Document) -> None:
        fact = seen(watched, told, document, wall=self._clock.wall())
        if fact is None:
            return
        self._ledger.add(fact)
        if fact.state == "firing" and fact.severity == "fatal":
            self._patient(watched.server).pulse.saw_crash(self._clock.now())

    # health

    def _care(self, now: float) -> None:
        for patient in self._patients.values():
            if not patient.server.health:
                continue
            pulse = patient.pulse
            if patient.probe is None and now >= patient.next_probe:
                patient.probe = Probe(patient.server.health, now)
                patient.next_probe = now + self._settings.watch.health_every
            if patient.probe is not None and (failed := patient.probe.poll(now)) is not None:
                started, patient.probe = patient.probe.started, None
                self.tally.up[patient.server.name] = not failed
                if pulse.saw_answer(started, failed):
                    at = self._clock.wall() - (now - started)
                    because = "the health endpoint answers again"
                    self._ledger.add(Recovered(server=patient.server.name, at=at, because=because))
                    pulse.crashed_at = -1.0
            self._judge(patient, "hang", pulse.hung_at >= 0, pulse.is_hung(now), now)
            self._judge(patient, "zombie", pulse.zombie_at >= 0, pulse.is_zombie(now), now)

    def _judge(self, patient: Patient, kind: str, before: bool, is_so: bool, now: float) -> None:
        """Report a condition when it begins, and resolve it when it ends."""
        if before == is_so:
            return
        pulse, name, wall = patient.pulse, patient.server.name, self._clock.wall()
        silent = f"no line for {now - pulse.last_line:.0f} s"
        because = {
            "hang": f"{silent}, and {patient.server.health} fails since {now - pulse.failing_since:.0f} s: {pulse.why}",
            "zombie": f"{silent} since it crashed, and {patient.server.health} still answers",
        }[kind]
        document = condition(name, kind, because)
        if kind == "hang":
            pulse.hung_at = now if is_so else -1.0
        else:
            pulse.zombie_at = now if is_so else -1.0
        if is_so:
            self._ledger.add(
                Seen(
                    key=f"{name} {kind} {wall:.0f}",
                    server=name,
                    stream="",
                    place=0,
                    at=wall,
                    fingerprint=str(document["id"]),
                    severity="degraded",
                    document=json_of(document),
                )
            )
        else:
            why = "its log goes on, or its endpoint answers" if kind == "hang" else "it is no longer so"
            self._ledger.add(Recovered(server=name, at=wall, because=why, only=str(document["id"])))

    def _stored(self, facts: Sequence[Fact]) -> None:
        if self._proposer:
            self._proposer.consider(facts, self._settings, self._clock.now(), self._clock.wall())

    def _commit(self, now: float, *, final: bool = False) -> None:
        self._ledger.commit(self._watched.values(), now, self._clock.wall(), final=final)

    # what there is

    def _restored(self, stream: str) -> Document | None:
        saved = self._store.position(stream)
        return cast("Document", parsed(saved)) if saved else None

    def _restore_source(self, stream: str) -> Document | None:
        saved = self._restored(stream)
        return cast("Document | None", saved.get("source")) if saved else None

    def _add(self, server: Server, source: Source) -> None:
        stream = source.stream
        watched = Watched.of(server, source, self._book.role_of, self._restored(stream), self._store.unsettled(stream))
        watched.moved = True  # stored at once: what is rotated away from here on is ours to read
        self._watched[stream] = watched
        self._busy.add(stream)
        self._patient(server)
        self._say("info", "stream_followed", server=server.name, stream=stream)

    def _patient(self, server: Server) -> Patient:
        if server.name not in self._patients:
            now = self._clock.now()
            pulse = Pulse(silence=self._settings.watch.silence, last_line=now)
            for kept in self._store.findings(server=server.name, state="firing"):  # what we knew before a restart
                cause = kept.document.get("cause")
                pulse.hung_at = now if cause == "hang" else pulse.hung_at
                pulse.zombie_at = now if cause == "zombie" else pulse.zombie_at
                pulse.was_ready = pulse.was_ready or cause == "hang"
                pulse.crashed_at = now if kept.severity == "fatal" else pulse.crashed_at
            self._patients[server.name] = Patient(server=server, pulse=pulse, next_probe=now)
        self._patients[server.name].server = server
        return self._patients[server.name]

    def _register(self) -> None:
        """Wait for the descriptors that there are now."""
        wanted = {fd: one.source.stream for one in self._watched.values() for fd in one.source.filenos()}
        wanted |= dict.fromkeys(self._casework.filenos(), "")
        for fd in self._registered - set(wanted):
            self._selector.unregister(fd)
        for fd in set(wanted) - self._registered:
            self._selector.register(fd, selectors.EVENT_READ, wanted[fd] or None)
        self._registered = set(wanted)


def parsed(text: str) -> object:
    """JSON that we stored; an empty object for what is none."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


def json_of(document: Document) -> str:
    """A document as text."""
    return json.dumps(document)
