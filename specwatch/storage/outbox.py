"""What is still to be sent, read and ticked off by whoever sends it, over a connection of its own.

Two kinds of post. A `Notice` is a finding of which a receiver has heard something else than what is so (see
`storage.owing`); it holds no text: what is sent is what the store knows when it is sent. A `Forward` is the body of
somebody else's alert that was accepted for a receiver, and is kept until the receiver has taken it.

Post whose receiver refuses it for good, or that could not be delivered for a day, is dead: kept, shown, not sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from specwatch.storage.store import DAY, KEPT, Kept, kept

MOST_FORWARDS = 10_000
"""Forwards that may wait for one receiver; more are not accepted, and whoever sends them tries again."""
MOST_BYTES = 64 * 1024 * 1024
"""Bytes that may."""
LEAST_TRIES = 9
"""Attempts before post is given up for its age: some minutes."""
SILENCED = "silenced until "
"""How the reason of what a silence holds back begins."""
_OWED = "n.wanted != n.heard AND n.dead = 0"
_FINDING = ", ".join(f"f.{name.strip()}" for name in KEPT.split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A finding that one receiver has to be told of.

    `wanted` and `heard` as in `storage.owing`; `began` is when it began to fire, `since` since when this is owed.
    """

    receiver: str
    wanted: str
    heard: str
    began: float
    since: float
    attempts: int
    finding: Kept

    @property
    def firing(self) -> bool:
        """Whether it fires, in a crash loop or not."""
        return self.wanted != "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The body of somebody else's alert on its way to one receiver."""

    id: int
    receiver: str
    body: bytes
    since: float
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much waits for one receiver, how much is dead, and since when the oldest waits (seconds since 1970)."""

    pending: int
    dead: int
    oldest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The receivers of a configuration by name: who is told of findings, and to whom alerts of others are sent on."""

    told: frozenset[str]
    forwarded: frozenset[str]

    def gets(self, row: Row) -> bool:
        """Whether anybody would send this."""
        return row.receiver in (self.forwarded if row.state == "forward" else self.told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the outbox as `specwatch alerts list` shows it. `what` names the finding or the forward."""

    receiver: str
    what: str
    state: str
    since: float
    due: float
    attempts: int
    dead: bool
    error: str


class Outbox:
    """One connection to the post of a store. Every method that writes may raise sqlite3.Error.

    A store that is not there is never made: that is for `storage.store`. Raises sqlite3.Error then.
    """

    def __init__(self, store: Path, *, timeout: float = 5.0, read_only: bool = False) -> None:
        mode = "ro" if read_only else "rw"
        self._db = sqlite3.connect(
            f"file:{quote(str(store))}?mode={mode}", uri=True, isolation_level=None, timeout=timeout
        )
        self._db.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Give the file free."""
        self._db.close()

    def version(self) -> int:
        """A number that changes when another connection has committed something."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    # notices

    def owed(self, receiver: str, now: float, most: int) -> list[Notice]:
        """Notices that are due, those of one server together; `most` at a time."""
        return self._notices(f"n.receiver = ? AND {_OWED} AND n.due <= ?", (receiver, now), most)

    def told(self, receiver: str) -> list[Notice]:
        """Notices of what fires and the receiver knows: to be refreshed where a receiver forgets."""
        return self._notices("n.receiver = ? AND n.wanted = n.heard AND n.wanted != 'resolved'", (receiver,), -1)

    def _notices(self, where: str, values: Sequence[object], most: int) -> list[Notice]:
        rows = self._db.execute(
            f"SELECT n.receiver, n.wanted, n.heard, n.began, n.since, n.attempts, {_FINDING} FROM notice n"  # noqa: S608
            " JOIN finding f ON f.server = n.server AND f.fingerprint = n.fingerprint"
            f" WHERE {where} ORDER BY n.server, n.since LIMIT ?",
            (*values, most),
        ).fetchall()
        return [
            Notice(
                receiver=row[0],
                wanted=row[1],
                heard=row[2],
                began=row[3],
                since=row[4],
                attempts=row[5],
                finding=kept(row[6:]),
            )
            for row in rows
        ]

    def heard(self, notices: Iterable[Notice], now: float) -> None:
        """The receiver took these. What changed while they were on their way is owed from now on."""
        with self._transaction():
            for one in notices:
                self._db.execute(
                    "UPDATE notice SET heard = ?, since = ?, attempts = 0, error = ''"
                    " WHERE receiver = ? AND server = ? AND fingerprint = ?",
                    (one.wanted, now, *_key(one)),
                )

    def failed(self, notices: Iterable[Notice], due: float, error: str) -> None:
        """The receiver could not take these; they are tried again when they are `due`."""
        with self._transaction():
            for one in notices:
                self._db.execute(
                    "UPDATE notice SET due = ?, attempts = attempts + 1, error = ?"
                    " WHERE receiver = ? AND server = ? AND fingerprint = ?",
                    (due, error, *_key(one)),
                )

    def put_off(self, notices: Iterable[Notice], due: float, why: str) -> None:
        """These are not to be sent before they are `due` (a silence)."""
        with self._transaction():
            for one in notices:
                self._db.execute(
                    "UPDATE notice SET due = ?, error = ? WHERE receiver = ? AND server = ? AND fingerprint = ?",
                    (due, why, *_key(one)),
                )

    def bury(self, notices: Iterable[Notice], error: str) -> None:
        """These will not be sent."""
        with self._transaction():
            for one in notices:
                self._db.execute(
                    "UPDATE notice SET dead = 1, attempts = attempts + 1, error = ?"
                    " WHERE receiver = ? AND server = ? AND fingerprint = ?",
                    (error, *_key(one)),
                )

    # forwards

    def accept(self, receivers: Sequence[str], body: bytes, now: float, *, most: int = MOST_FORWARDS) -> bool:
        """Keep a body for each of them, all or none; False when one has too many waiting. Waits for it, it is there."""
        digest = hashlib.sha256(body).hexdigest()
        with self._transaction():
            for receiver in receivers:
                waiting, size, same = self._db.execute(
                    "SELECT count(*), total(length(body)), total(digest = ?) FROM forward"
                    " WHERE receiver = ? AND dead = 0",
                    (digest, receiver),
                ).fetchone()
                if same:
                    continue
                if waiting >= most or size + len(body) > MOST_BYTES:
                    self._db.execute("ROLLBACK")
                    return False
                self._db.execute(
                    "INSERT INTO forward (receiver, digest, body, since, due, attempts, dead, error)"
                    " VALUES (?, ?, ?, ?, ?, 0, 0, '')",
                    (receiver, digest, body, now, now),
                )
        return True

    def next_forward(self, receiver: str, now: float) -> Forward | None:
        """The oldest forward, when it is due: what came later never overtakes it."""
        row = self._db.execute(
            "SELECT id, receiver, body, since, attempts, due FROM forward WHERE receiver = ? AND dead = 0"
            " ORDER BY id LIMIT 1",
            (receiver,),
        ).fetchone()
        if row is None or row[5] > now:
            return None
        return Forward(id=row[0], receiver=row[1], body=row[2], since=row[3], attempts=row[4])

    def forwarded(self, one: Forward) -> None:
        """The receiver took it."""
        self._db.execute("DELETE FROM forward WHERE id = ?", (one.id,))

    def forward_failed(self, one: Forward, due: float, error: str) -> None:
        """To be tried again when it is `due`."""
        self._db.execute(
            "UPDATE forward SET due = ?, attempts = attempts + 1, error = ? WHERE id = ?", (due, error, one.id)
        )

    def bury_forward(self, one: Forward, error: str) -> None:
        """It will not be sent."""
        self._db.execute(
            "UPDATE forward SET dead = 1, attempts = attempts + 1, error = ? WHERE id = ?", (error, one.id)
        )

    # both

    def next_due(self, receiver: str) -> float | None:
        """When the next post of a receiver is due, None when there is none."""
        row = self._db.execute(
            f"SELECT min(at) FROM (SELECT min(due) AS at FROM notice n WHERE receiver = ?1 AND {_OWED}"  # noqa: S608
            " UNION ALL SELECT * FROM (SELECT due FROM forward WHERE receiver = ?1 AND dead = 0 ORDER BY id LIMIT 1))",
            (receiver,),
        ).fetchone()
        return None if row[0] is None else float(row[0])

    def depth(self) -> dict[str, Depth]:
        """How much waits and how much is dead, by receiver. What a silence holds back does not wait for a receiver."""
        rows = self._db.execute(
            "SELECT receiver, sum(dead = 0), sum(dead), min(CASE WHEN dead = 0 THEN since END) FROM"
            " (SELECT receiver, dead, since FROM notice"
            "   WHERE (dead = 1 OR wanted != heard) AND NOT (dead = 0 AND error LIKE ? || '%')"
            "  UNION ALL SELECT receiver, dead, since FROM forward) GROUP BY receiver",
            (SILENCED,),
        ).fetchall()
        return {row[0]: Depth(pending=row[1], dead=row[2], oldest=row[3]) for row in rows}

    def rows(self) -> list[Row]:
        """Everything that waits or is dead, the oldest first."""
        found = self._db.execute(
            "SELECT receiver, server || '/' || fingerprint, wanted, since, due, attempts, dead, error FROM notice"
            " WHERE dead = 1 OR wanted != heard UNION ALL"
            " SELECT receiver, 'alert ' || id, 'forward', since, due, attempts, dead, error FROM forward ORDER BY 4"
        ).fetchall()
        return [
            Row(
                receiver=row[0],
                what=row[1],
                state=row[2],
                since=row[3],
                due=row[4],
                attempts=row[5],
                dead=bool(row[6]),
                error=row[7],
            )
            for row in found
        ]

    def set_back(self, now: float) -> None:
        """The clock was set back: what would wait for the time that it showed is due now."""
        with self._transaction():
            for table in ("notice", "forward"):
                self._db.execute(f"UPDATE {table} SET due = min(due, ?1), since = min(since, ?1)", (now,))  # noqa: S608

    def retry(self, receiver: str, now: float, known: Known | None = None) -> int:
        """Send what is dead or waits for its next try now; an empty name means every receiver. Gives how many.

        With `known` only what one of them is to get: nobody would send the rest.
        """
        changed = 0
        with self._transaction():
            for table in ("notice", "forward"):
                names = None if known is None else known.told if table == "notice" else known.forwarded
                owed = " AND (dead = 1 OR wanted != heard)" if table == "notice" else ""
                changed += self._db.execute(
                    f"UPDATE {table} SET dead = 0, attempts = 0, due = ?1,"  # noqa: S608
                    " since = CASE WHEN dead THEN ?1 ELSE since END"
                    f" WHERE (?2 = '' OR receiver = ?2) AND (?3 IS NULL OR receiver IN"
                    f" (SELECT value FROM json_each(?3))){owed}",
                    (now, receiver, None if names is None else json.dumps(sorted(names))),
                ).rowcount
        return changed

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise


def depth(store: Path) -> dict[str, Depth]:
    """The depth of a store's outbox by receiver, for metrics. Raises sqlite3.Error where it cannot be read."""
    outbox = Outbox(store, timeout=1.0, read_only=True)
    try:
        return outbox.depth()
    finally:
        outbox.close()


def too_old(since: float, now: float, attempts: int) -> bool:
    """Whether post has waited, and was tried, so long that nobody wants it any more.

    One that was hardly tried is not: the machine slept, or its clock was put right.
    """
    return now - since > DAY and attempts >= LEAST_TRIES


def _key(one: Notice) -> tuple[str, str, str]:
    return one.receiver, one.finding.server, one.finding.fingerprint
