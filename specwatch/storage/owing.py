"""What each receiver is owed: kept in the store, and changed by the very transaction that changes a finding.

A row of `notice` is one finding for one receiver: what it should know (`wanted`) and what it acknowledged last
(`heard`). Where they differ a notification is owed, so a hundred changes while a receiver is away are one message, and
no kill between the commit and the sending can lose it. States are `firing`, `looping` (firing, in a crash loop), either
with ` proved` behind it, and `resolved`, whatever ended it. While it fires it only ever gets worse and surer: the proof
that a later look at the same failure lacks, or a loop that rests, is no news.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

GATHER = 1.0
"""Seconds after a change until it is due, so that what comes together is told together."""
LOOKING = 10.0
"""The same of a finding whose model files are still being read: their answer often names the cause, and is another
finding then, which would be a second message for one crash."""
DAY = 86400.0
RANKS = {"notice": 1, "degraded": 2, "fatal": 3}

SCHEMA = """
    ALTER TABLE finding ADD COLUMN began REAL NOT NULL DEFAULT 0;
    UPDATE finding SET began = first_seen;
    CREATE INDEX finding_time ON finding (server, state, severity, last_seen, began);
    CREATE TABLE notice (
        receiver TEXT NOT NULL, server TEXT NOT NULL, fingerprint TEXT NOT NULL, wanted TEXT NOT NULL,
        heard TEXT NOT NULL, began REAL NOT NULL, since REAL NOT NULL, due REAL NOT NULL, attempts INTEGER NOT NULL,
        dead INTEGER NOT NULL, error TEXT NOT NULL, PRIMARY KEY (receiver, server, fingerprint)) STRICT;
    CREATE INDEX notice_owed ON notice (receiver, due) WHERE wanted != heard AND dead = 0;
    CREATE TABLE forward (
        id INTEGER PRIMARY KEY, receiver TEXT NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL, since REAL NOT NULL,
        due REAL NOT NULL, attempts INTEGER NOT NULL, dead INTEGER NOT NULL, error TEXT NOT NULL) STRICT;
    CREATE INDEX forward_due ON forward (receiver, dead, id);
    """
"""One step of `store`'s migrations: `finding.began` is when it began to fire, the last time that it began."""

_OWE = """
    INSERT INTO notice VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?6 + ?7, 0, 0, '')
    ON CONFLICT (receiver, server, fingerprint) DO UPDATE SET
        began = CASE WHEN notice.wanted = 'resolved' THEN excluded.began ELSE notice.began END,
        since = CASE WHEN notice.wanted = notice.heard OR notice.dead THEN excluded.since ELSE notice.since END,
        due = CASE WHEN notice.wanted = notice.heard OR notice.dead THEN excluded.due
            WHEN notice.heard = '' AND notice.attempts = 0 THEN min(notice.due, excluded.due) ELSE notice.due END,
        attempts = CASE WHEN notice.wanted = notice.heard OR notice.dead THEN 0 ELSE notice.attempts END,
        dead = 0, error = '', wanted = excluded.wanted
    WHERE notice.wanted != excluded.wanted
"""
_NOW = """
    SELECT state, looping, severity, began,
        CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.verdict.status'), '') ELSE '' END,
        CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.looking'), 0) ELSE 0 END
    FROM finding WHERE server = ? AND fingerprint = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Somebody who is told of findings: its name, and the least severity (as in RANKS) that it wants."""

    name: str
    least: int


def owe(db: sqlite3.Connection, receivers: Iterable[Receiver], server: str, fingerprint: str, now: float) -> None:
    """Inside a transaction that changed a finding: note who has to be told of what it is now.

    What ended before a receiver was ever to be told of it is not told; neither is one that was never right
    (`refuted`, `superseded`), unless the receiver may have been told that it fires.
    """
    key = (server, fingerprint)
    row = db.execute(_NOW, key).fetchone()
    if row is None:
        return
    state, looping, severity, began, verdict, looking = row
    if state == "firing":
        for receiver in receivers:
            if RANKS.get(severity, 1) >= receiver.least:
                before = db.execute(
                    "SELECT wanted FROM notice WHERE receiver = ? AND server = ? AND fingerprint = ?",
                    (receiver.name, *key),
                ).fetchone()
                wanted = _worst(before[0] if before else "", looping=bool(looping), proved=verdict == "broken")
                db.execute(_OWE, (receiver.name, *key, wanted, began, now, LOOKING if looking else GATHER))
        return
    if state != "resolved":
        db.execute(
            "DELETE FROM notice WHERE heard = '' AND attempts = 0 AND due > ? AND server = ? AND fingerprint = ?",
            (now, *key),  # once it was due it may be on its way, or have come without our knowing
        )
    for name, since in db.execute(
        "SELECT receiver, began FROM notice WHERE server = ? AND fingerprint = ?", key
    ).fetchall():
        db.execute(_OWE, (name, *key, "resolved", since, now, GATHER))


def _worst(before: str, *, looping: bool, proved: bool) -> str:
    return ("looping" if looping or before.startswith("looping") else "firing") + (
        " proved" if proved or before.endswith(" proved") else ""
    )


def catch_up(db: sqlite3.Connection, receivers: Iterable[Receiver], routes: Iterable[str], now: float) -> None:
    """At a start, and with a new configuration: owe receivers what fires, and give what is dead one more try.

    Changes nothing for those who know what fires. What has been dead for a day stays so. Who is no receiver any more is
    owed nothing; alerts of others on their way to somebody who is not among `routes` any more are given up.
    """
    known = tuple(receivers)
    for (name,) in db.execute("SELECT DISTINCT receiver FROM notice").fetchall():
        if name not in {receiver.name for receiver in known}:
            db.execute("DELETE FROM notice WHERE receiver = ?", (name,))
    for server, fingerprint in db.execute("SELECT server, fingerprint FROM finding WHERE state = 'firing'").fetchall():
        owe(db, known, server, fingerprint, now)
    for table in ("notice", "forward"):
        db.execute(f"UPDATE {table} SET dead = 0, due = ? WHERE dead = 1 AND since > ?", (now, now - DAY))  # noqa: S608
    to = set(routes)
    for (name,) in db.execute("SELECT DISTINCT receiver FROM forward").fetchall():
        if name not in to:
            why = "is no longer among [enrich] forward"
            db.execute("UPDATE forward SET dead = 1, error = ? WHERE receiver = ?", (why, name))


def forget(db: sqlite3.Connection, before: float) -> None:
    """Forget what is settled or dead since before that time, and notices of findings that are gone."""
    db.execute(
        "DELETE FROM notice WHERE NOT EXISTS (SELECT 1 FROM finding f"
        " WHERE f.server = notice.server AND f.fingerprint = notice.fingerprint)"
    )
    db.execute("DELETE FROM forward WHERE dead = 1 AND since < ?", (before,))
