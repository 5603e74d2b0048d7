"""What the daemon remembers, in one SQLite file: how far each log was read, and what was found up to there.

**The one promise**: a position and the findings of the lines before it are committed together (`Store.commit`). Killed
at any instant, the daemon reads again from the last committed position; what it finds a second time has the same key
(stream, file generation, offset, error) and changes nothing. What has to be said to somebody is put into the `outbox`
by the same transaction and taken out once it was said, so that it is said at least once and stored exactly once.

A file that is damaged, or from a later version, is set aside under another name, and work goes on with a new one. When
the disk is full nothing is written and nothing is forgotten: the caller keeps its facts and commits them later.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from specwatch.errors import ConfigError
from specwatch.storage import owing
from specwatch.storage.reserve import Reserve, is_full

DAY = 86400.0

_MIGRATIONS = (
    """
    CREATE TABLE stream (name TEXT PRIMARY KEY, position TEXT NOT NULL, changed REAL NOT NULL) STRICT;
    CREATE TABLE incident (
        key TEXT PRIMARY KEY, server TEXT NOT NULL, fingerprint TEXT NOT NULL, stream TEXT NOT NULL,
        place INTEGER NOT NULL, at REAL NOT NULL, seen REAL NOT NULL,
        state TEXT NOT NULL) STRICT;
    CREATE INDEX incident_finding ON incident (server, fingerprint, at);
    CREATE TABLE finding (
        server TEXT NOT NULL, fingerprint TEXT NOT NULL, document TEXT NOT NULL, severity TEXT NOT NULL,
        state TEXT NOT NULL, because TEXT NOT NULL, occurrences INTEGER NOT NULL, first_seen REAL NOT NULL,
        last_seen REAL NOT NULL, stream TEXT NOT NULL, place INTEGER NOT NULL, changed REAL NOT NULL,
        PRIMARY KEY (server, fingerprint)) STRICT;
    CREATE TABLE outbox (id INTEGER PRIMARY KEY, event TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    """,
    "ALTER TABLE finding ADD COLUMN looping INTEGER NOT NULL DEFAULT 0;",
    """
    CREATE TABLE excerpt (
        server TEXT NOT NULL, fingerprint TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (server, fingerprint)) STRICT;
    CREATE TABLE turn (
        stream TEXT NOT NULL, place INTEGER NOT NULL, kind TEXT NOT NULL, server TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (stream, place, kind)) STRICT;
    CREATE INDEX turn_server ON turn (server, at);
    """,
    owing.SCHEMA,
)
"""How to come from each schema version to the next; `PRAGMA user_version` holds how many were run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An incident with its diagnosis. Of a `key` that is known it replaces the diagnosis, where that changed.

    `place` orders the lines of a stream, `at` is seconds since 1970. `state`: `firing`, `resolved` where the log itself
    shows that the server became ready afterwards, or `refuted` (kept as a key only: never a finding).
    """

    key: str
    server: str
    stream: str
    place: int
    at: float
    fingerprint: str
    severity: str
    document: str
    state: str = "firing"
    because: str = ""
    excerpt: str = ""
    """The log around the root line as JSON (`watching.excerpt`), kept beside the finding; empty: as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """What was said of an incident does not hold: `state` is `refuted` or `superseded` (by another cause)."""

    key: str
    state: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A server is ready, or healthy, again: resolves its findings that lie before `place` of `stream`.

    An empty `stream` resolves all that were last seen before `at`; `only` is the fingerprint to resolve, if given.
    """

    server: str
    at: float
    because: str
    stream: str = ""
    place: int = 0
    only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """A run of a server turned: `kind` is `started` (its arguments were logged) or `ready`. `at` as in `Seen`."""

    server: str
    stream: str
    place: int
    kind: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A stream has been read, and settled, up to a position (JSON)."""

    stream: str
    position: str


Fact = Seen | Withdrawn | Recovered | Turned | Reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Something to be said to somebody: an event's name and its JSON body."""

    id: int
    event: str
    body: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One finding of the store with its history. Times are seconds since 1970."""

    server: str
    fingerprint: str
    document: dict[str, object]
    severity: str
    state: str
    because: str
    occurrences: int
    first_seen: float
    last_seen: float
    looping: bool
    began: float = 0.0
    """When it began to fire, the last time that it began."""
    changed: float = 0.0
    """When it was last seen or ended, by our clock."""


KEPT = (
    "server, fingerprint, document, severity, state, because, occurrences, first_seen, last_seen, looping, began,"
    " changed"
)
"""The columns of a finding that `kept` takes."""


def kept(row: Sequence[Any]) -> Kept:
    """A finding from the columns of KEPT."""
    return Kept(
        server=row[0],
        fingerprint=row[1],
        document=json.loads(row[2]),
        severity=row[3],
        state=row[4],
        because=row[5],
        occurrences=row[6],
        first_seen=row[7],
        last_seen=row[8],
        looping=bool(row[9]),
        began=row[10],
        changed=row[11],
    )


class Store:
    """One open store. Not for several threads; readers of other processes may look at the file meanwhile.

    `loop_starts` incidents of one finding within `loop_within` seconds are a crash loop. `read_only` is for looking at
    the store of a daemon that runs.
    """

    def __init__(
        self,
        directory: Path,
        say: Callable[[str], None],
        *,
        loop_starts: int = 3,
        loop_within: float = 3600.0,
        read_only: bool = False,
    ) -> None:
        self.path = directory / "specwatch.db"
        self._loop = (loop_starts, loop_within)
        self._say, self._reserve = say, Reserve(directory)
        self._receivers: tuple[owing.Receiver, ...] = ()
        self._changed: dict[tuple[str, str], None] = {}
        if read_only:
            self._db = sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True, timeout=5.0)
            return
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        except OSError as error:
            raise ConfigError(f"{directory}: the state directory cannot be made: {error}") from None
        self._db = self._open(say)
        self._reserve.keep()

    def close(self) -> None:
        """Give the file free."""
        self._db.close()

    def position(self, stream: str) -> str | None:
        """How far a stream was read, None for a new one."""
        row = self._db.execute("SELECT position FROM stream WHERE name = ?", (stream,)).fetchone()
        return row[0] if row else None

    def streams(self) -> Iterator[tuple[str, str]]:
        """All streams with their positions."""
        yield from self._db.execute("SELECT name, position FROM stream ORDER BY name").fetchall()

    def unsettled(self, stream: str) -> dict[str, int]:
        """The latest incidents of a stream that are held for true, each with its place."""
        rows = self._db.execute(
            "SELECT key, place FROM incident WHERE stream = ? AND state IN ('firing', 'resolved')"
            " ORDER BY place DESC LIMIT 2000",
            (stream,),
        )
        return dict(rows.fetchall())

    def commit(self, facts: Sequence[Fact], now: float) -> list[Said]:
        """Take the facts in, all or none, and give what there is to say. Raises sqlite3.Error where it cannot.

        On a full disk the room that was kept is given free for what somebody has to be told.
        """
        try:
            self._take(facts, now)
        except sqlite3.Error as error:
            news = any(isinstance(fact, Seen | Recovered) for fact in facts)
            if not (news and is_full(error) and self._reserve.release()):
                raise
            self._say(f"{self.path}: the disk is full; what was kept free for findings is used now: make room")
            self._take(facts, now)
        return self.unsaid()

    def _take(self, facts: Sequence[Fact], now: float) -> None:
        self._changed.clear()
        with self._transaction():
            for fact in facts:
                if isinstance(fact, Seen):
                    self._seen(fact, now)
                elif isinstance(fact, Withdrawn):
                    self._withdrawn(fact, now)
                elif isinstance(fact, Recovered):
                    self._recovered(fact, now)
                elif isinstance(fact, Turned):
                    self._db.execute(
                        "INSERT OR IGNORE INTO turn VALUES (?, ?, ?, ?, ?)",
                        (fact.stream, fact.place, fact.kind, fact.server, fact.at),
                    )
                else:
                    self._db.execute(
                        "INSERT INTO stream VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
                        " SET position = excluded.position, changed = excluded.changed",
                        (fact.stream, fact.position, now),
                    )
            for server, fingerprint in self._changed:
                owing.owe(self._db, self._receivers, server, fingerprint, now)

    def serve(self, receivers: Sequence[owing.Receiver], now: float, routes: Sequence[str] = ()) -> None:
        """From now on these receivers are owed what changes, and what fires already. Raises sqlite3.Error.

        `routes` are the names of those to whom alerts of others are sent on.
        """
        self._receivers = tuple(receivers)
        with self._transaction():
            owing.catch_up(self._db, self._receivers, routes, now)

    def unsaid(self) -> list[Said]:
        """What was committed and not yet said."""
        rows = self._db.execute("SELECT id, event, body FROM outbox ORDER BY id").fetchall()
        return [Said(id=number, event=event, body=json.loads(body)) for number, event, body in rows]

    def said(self, numbers: Iterable[int]) -> None:
        """These were said."""
        with self._transaction():
            self._db.executemany("DELETE FROM outbox WHERE id = ?", [(number,) for number in numbers])

    def findings(self, *, server: str | None = None, state: str | None = None) -> list[Kept]:
        """The findings, the one that was seen last first."""
        rows = self._db.execute(
            f"SELECT {KEPT} FROM finding WHERE (?1 IS NULL OR server = ?1) AND (?2 IS NULL OR state = ?2)"  # noqa: S608
            " ORDER BY last_seen DESC, server, fingerprint",
            (server, state),
        )
        return [kept(row) for row in rows]

    def prune(self, now: float, keep_days: float) -> int:
        """Forget what was resolved, and streams that were not read, for longer than that; gives how many rows."""
        before = now - keep_days * DAY
        with self._transaction():
            gone = self._db.execute("DELETE FROM finding WHERE state != 'firing' AND changed < ?", (before,)).rowcount
            gone += self._db.execute(
                "DELETE FROM incident WHERE seen < ? AND NOT EXISTS (SELECT 1 FROM finding f WHERE f.state = 'firing'"
                " AND f.server = incident.server AND f.fingerprint = incident.fingerprint)",
                (before,),
            ).rowcount
            gone += self._db.execute("DELETE FROM stream WHERE changed < ?", (before,)).rowcount
            self._db.execute("DELETE FROM turn WHERE at < ?", (before,))
            owing.forget(self._db, before)
            self._db.execute(
                "DELETE FROM excerpt WHERE NOT EXISTS (SELECT 1 FROM finding f"
                " WHERE f.server = excerpt.server AND f.fingerprint = excerpt.fingerprint)"
            )
        self._reserve.keep()
        return gone

    # how facts change the tables

    def _seen(self, fact: Seen, now: float) -> None:
        known = self._db.execute("SELECT fingerprint, state FROM incident WHERE key = ?", (fact.key,)).fetchone()
        if fact.excerpt and fact.state != "refuted":
            # of the same crash the fuller one: after a restart what came before it is not read again
            self._db.execute(
                "INSERT INTO excerpt VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET body = ?3"
                " WHERE ?4 OR length(?3) >= length(body)",
                (fact.server, fact.fingerprint, fact.excerpt, known is None),
            )
        if known is not None and known[1] == "superseded":
            known = None  # it was taken back, and stands after all
        if known is not None and (known[0] == fact.fingerprint or known[1] == "refuted"):
            if fact.state == "refuted" and known[1] != "refuted":
                self._withdrawn(Withdrawn(key=fact.key, state="refuted", because=fact.because), now)
            elif known[1] != "refuted":
                self._changed[fact.server, fact.fingerprint] = None
                self._db.execute(
                    "UPDATE finding SET document = ? WHERE server = ? AND fingerprint = ?",
                    (fact.document, fact.server, fact.fingerprint),
                )
            return
        if known is not None:  # the diagnosis changed: the same incident under another name
            self._take_from(fact.server, known[0], now, "superseded", "a later diagnosis of it")
        self._db.execute(
            "INSERT OR REPLACE INTO incident VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (fact.key, fact.server, fact.fingerprint, fact.stream, fact.place, fact.at, now, fact.state),
        )
        if fact.state == "refuted":
            self._tell("claim_refuted", fact.server, fact.fingerprint, fact.because, json.loads(fact.document))
            return
        self._raise(fact, now, revised=known is not None)

    def _raise(self, fact: Seen, now: float, *, revised: bool) -> None:
        old = self._db.execute(
            "SELECT state, looping FROM finding WHERE server = ? AND fingerprint = ?", (fact.server, fact.fingerprint)
        ).fetchone()
        self._db.execute(
            "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, 0, ?)"
            " ON CONFLICT (server, fingerprint) DO UPDATE SET document = excluded.document,"
            " severity = excluded.severity, state = excluded.state, because = excluded.because,"
            " began = CASE WHEN finding.state = 'firing' THEN min(began, excluded.began) ELSE excluded.began END,"
            " occurrences = occurrences + 1, first_seen = min(first_seen, excluded.first_seen),"
            " last_seen = max(last_seen, excluded.last_seen), stream = excluded.stream, place = excluded.place,"
            " changed = excluded.changed",
            (
                *(fact.server, fact.fingerprint, fact.document, fact.severity, fact.state, fact.because),
                *(fact.at, fact.at, fact.stream, fact.place, now, fact.at),
            ),
        )
        if old is None or old[0] != "firing":
            event = "finding_revised" if revised else "finding_raised" if old is None else "finding_returned"
            self._tell(event, fact.server, fact.fingerprint, fact.because, json.loads(fact.document), fact.state)
        self._changed[fact.server, fact.fingerprint] = None
        starts, within = self._loop
        (lately,) = self._db.execute(
            "SELECT count(*) FROM incident WHERE server = ? AND fingerprint = ? AND at > ? AND at <= ?"
            " AND state IN ('firing', 'resolved')",
            (fact.server, fact.fingerprint, fact.at - within, fact.at),
        ).fetchone()
        if lately >= starts and fact.state == "firing" and not (old and old[1] and old[0] == "firing"):
            self._db.execute(
                "UPDATE finding SET looping = 1 WHERE server = ? AND fingerprint = ?", (fact.server, fact.fingerprint)
            )
            because = f"{lately} times within {within:.0f} s"
            self._tell("crash_loop_recognised", fact.server, fact.fingerprint, because, {})

    def _withdrawn(self, fact: Withdrawn, now: float) -> None:
        row = self._db.execute("SELECT server, fingerprint, state FROM incident WHERE key = ?", (fact.key,)).fetchone()
        if row is None or row[2] in ("refuted", "superseded"):
            return
        self._db.execute("UPDATE incident SET state = ? WHERE key = ?", (fact.state, fact.key))
        self._take_from(row[0], row[1], now, fact.state, fact.because)
        self._tell("finding_withdrawn", row[0], row[1], fact.because, {}, fact.state)

    def _take_from(self, server: str, fingerprint: str, now: float, state: str, because: str) -> None:
        """One occurrence less; a finding without any is no longer one, and stays as what became of it."""
        self._db.execute(
            "UPDATE finding SET occurrences = occurrences - 1 WHERE server = ? AND fingerprint = ?",
            (server, fingerprint),
        )
        self._changed[server, fingerprint] = None
        self._db.execute(
            "UPDATE finding SET state = ?, because = ?, changed = ?"
            " WHERE server = ? AND fingerprint = ? AND occurrences <= 0",
            (state, because, now, server, fingerprint),
        )

    def _recovered(self, fact: Recovered, now: float) -> None:
        rows = self._db.execute(
            "SELECT fingerprint FROM finding WHERE server = ?1 AND state = 'firing' AND (?4 = '' OR fingerprint = ?4)"
            " AND CASE WHEN ?2 != '' AND stream = ?2 THEN place < ?3 ELSE last_seen <= ?5 END",
            (fact.server, fact.stream, fact.place, fact.only, fact.at),
        ).fetchall()
        for (fingerprint,) in rows:
            self._db.execute(
                "UPDATE finding SET state = 'resolved', because = ?, changed = ?, looping = 0"
                " WHERE server = ? AND fingerprint = ?",
                (fact.because, now, fact.server, fingerprint),
            )
            self._tell("finding_resolved", fact.server, fingerprint, fact.because, {})

    def _tell(
        self, event: str, server: str, fingerprint: str, because: str, document: dict[str, object], state: str = ""
    ) -> None:
        self._changed[server, fingerprint] = None
        names = ("rule", "severity", "cause", "says", "root", "fixes")
        body = {"server": server, "finding": fingerprint, "state": state, "because": because}
        body = {name: value for name, value in body.items() if value}
        self._db.execute(
            "INSERT INTO outbox (event, body) VALUES (?, ?)",
            (event, json.dumps({**body, **{name: document[name] for name in names if name in document}})),
        )

    # the file

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _open(self, say: Callable[[str], None]) -> sqlite3.Connection:
        try:
            return self._connect()
        except (sqlite3.DatabaseError, _LaterSchemaError) as error:
            if isinstance(error, sqlite3.OperationalError):
                raise ConfigError(f"{self.path}: cannot be opened: {error}") from None
            aside = self._set_aside()
            say(f"{self.path}: {error}; set aside as {aside.name}, a new one is begun and all logs are read again")
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, timeout=5.0)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")  # a power cut may undo whole commits, never half of one
            if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("is damaged")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > len(_MIGRATIONS):
                raise _LaterSchemaError(
                    f"was written by a later specwatch (schema {version}, this one has {len(_MIGRATIONS)})"
                )
            for step in range(version, len(_MIGRATIONS)):
                db.executescript(f"BEGIN IMMEDIATE; {_MIGRATIONS[step]} PRAGMA user_version = {step + 1}; COMMIT;")
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self) -> Path:
        number = 1
        while (aside := self.path.with_name(f"specwatch.db.damaged-{number}")).exists():
            number += 1
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        return aside


class _LaterSchemaError(Exception):
    """The schema is newer than this program."""
