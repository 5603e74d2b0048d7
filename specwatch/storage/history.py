"""What the store of a daemon holds, read for people: the page, the API and the metrics. Never writes.

Each `History` is one read-only connection, to be opened where it is used and closed soon: the daemon goes on writing
meanwhile. All times are seconds since 1970.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote

from specwatch.errors import ConfigError
from specwatch.storage.store import KEPT, Kept, kept

MOST = 500
"""Rows that one question gives at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened to a server: `kind` is started, ready, or crashed (then with its finding)."""

    at: float
    kind: str
    fingerprint: str = ""
    severity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What fires on one server, notices left out: the findings, the worst first, and since when the oldest does."""

    server: str
    fatal: bool
    since: float
    fingerprints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """How many findings of a kind fire now."""

    server: str
    rule: str
    severity: str
    count: int


class History:
    """One look at the store in `directory`. Raises ConfigError where there is none."""

    def __init__(self, directory: Path) -> None:
        path = directory / "specwatch.db"
        if not path.is_file():
            raise ConfigError(f"{directory}: holds no store; name the daemon's with --config FILE or --state DIR")
        self._db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2.0)

    def close(self) -> None:
        """Give the file free."""
        self._db.close()

    def findings(self, *, server: str = "", state: str = "", limit: int = 100, offset: int = 0) -> list[Kept]:
        """Findings, the one that was seen last first; `server` and `state` narrow them down."""
        rows = self._db.execute(
            f"SELECT {KEPT} FROM finding WHERE (?1 = '' OR server = ?1) AND (?2 = '' OR state = ?2)"  # noqa: S608
            " ORDER BY last_seen DESC, server, fingerprint LIMIT ?3 OFFSET ?4",
            (server, state, max(0, min(limit, MOST)), max(0, offset)),
        )
        return [kept(row) for row in rows]

    def over(self, limit: int) -> list[Kept]:
        """What does not fire any more, the one that was seen last first."""
        rows = self._db.execute(
            f"SELECT {KEPT} FROM finding WHERE state != 'firing'"  # noqa: S608
            " ORDER BY last_seen DESC, server, fingerprint LIMIT ?",
            (max(0, min(limit, MOST)),),
        )
        return [kept(row) for row in rows]

    def finding(self, server: str, fingerprint: str) -> Kept | None:
        """One finding."""
        found = self._db.execute(
            f"SELECT {KEPT} FROM finding WHERE server = ? AND fingerprint = ?",  # noqa: S608
            (server, fingerprint),
        ).fetchone()
        return kept(found) if found else None

    def excerpt(self, server: str, fingerprint: str) -> dict[str, object] | None:
        """The log around its root line, as `watching.excerpt` made it; None where none was kept."""
        found = self._db.execute(
            "SELECT body FROM excerpt WHERE server = ? AND fingerprint = ?", (server, fingerprint)
        ).fetchone()
        return cast("dict[str, object]", json.loads(found[0])) if found else None

    def moments(self, server: str, *, since: float = 0.0) -> list[Moment]:
        """Starts, readinesses and crashes of a server in the order of time; the latest where there are too many."""
        rows = self._db.execute(
            "SELECT at, kind, '', '' FROM turn WHERE server = ?1 AND at >= ?2"
            " UNION ALL SELECT i.at, 'crashed', i.fingerprint, coalesce(f.severity, '') FROM incident i"
            " LEFT JOIN finding f ON f.server = i.server AND f.fingerprint = i.fingerprint"
            " WHERE i.server = ?1 AND i.at >= ?2 AND i.state IN ('firing', 'resolved')"
            " ORDER BY 1 DESC LIMIT 2000",
            (server, since),
        ).fetchall()
        order = {"started": 0, "ready": 1, "crashed": 2}
        found = [Moment(at=at, kind=kind, fingerprint=name, severity=bad) for at, kind, name, bad in rows]
        return sorted(found, key=lambda one: (one.at, order[one.kind]))

    def servers(self) -> list[str]:
        """The names of all servers of which anything is known."""
        rows = self._db.execute("SELECT server FROM finding UNION SELECT server FROM turn ORDER BY 1")
        return [name for (name,) in rows]

    def standings(self) -> list[Standing]:
        """Every server on which something fires; those with something fatal first, then the one seen last."""
        rows = self._db.execute(
            "SELECT server, fingerprint, severity, began FROM finding WHERE state = 'firing' AND severity != 'notice'"
            " ORDER BY severity = 'fatal' DESC, last_seen DESC, fingerprint"
        ).fetchall()
        by_server: dict[str, list[tuple[str, str, float]]] = {}
        for server, fingerprint, severity, began in rows:
            by_server.setdefault(server, []).append((fingerprint, severity, began))
        return [
            Standing(
                server=server,
                fatal=found[0][1] == "fatal",
                since=min(began for _, _, began in found),
                fingerprints=tuple(fingerprint for fingerprint, _, _ in found),
            )
            for server, found in by_server.items()
        ]

    def firing(self) -> list[Firing]:
        """What fires now, counted."""
        rows = self._db.execute(
            "SELECT server, coalesce(json_extract(document, '$.rule'), 'unknown'), severity, count(*) FROM finding"
            " WHERE state = 'firing' GROUP BY 1, 2, 3 LIMIT 5000"
        )
        return [Firing(server=server, rule=rule, severity=bad, count=count) for server, rule, bad, count in rows]

    def looping(self) -> list[str]:
        """The servers that crash again and again."""
        rows = self._db.execute("SELECT DISTINCT server FROM finding WHERE state = 'firing' AND looping ORDER BY 1")
        return [server for (server,) in rows]


@contextmanager
def opened(directory: Path) -> Iterator[History]:
    """A `History` for a while."""
    history = History(directory)
    try:
        yield history
    finally:
        history.close()
