"""Alerts of others with what specwatch knows: which finding explains an alert, looked up before a deadline.

Whatever goes wrong here, the alert goes on as it came: an enricher that loses an alert is worse than none.
"""

from __future__ import annotations

import contextlib
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from specwatch.alerts import saying, splice
from specwatch.alerts.address import base
from specwatch.alerts.matching import servers_of
from specwatch.settings import Server, Settings
from specwatch.storage.store import KEPT, Kept, kept

_EXPLAINS = f"""
    SELECT {KEPT} FROM finding WHERE rowid = (
        SELECT rowid FROM finding INDEXED BY finding_time
        WHERE server = ?1 AND state = ?4 AND severity = ?5 AND began <= ?2 + ?3 AND last_seen >= ?6
        ORDER BY last_seen DESC LIMIT 1)
"""  # noqa: S608 - names of columns; the index has the order, so that the first row is the answer
FOR_LOOKING = 0.6
"""Part of the deadline in which alerts are looked up: of a body with too many, the first ones get their annotations."""
_LOCAL = re.compile(r"\|-- ([\d.]+)\n\s+/32 host LOCAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Enriched:
    """The alerts to be sent on. `because` says why nothing was looked up, or is empty; `notes` are for our own log."""

    body: bytes
    because: str = ""
    readable: bool = True
    notes: tuple[str, ...] = ()


def enrich(
    body: bytes,
    store: Path,
    settings: Settings,
    *,
    now: float | None = None,
    ticks: Callable[[], float] = time.monotonic,
) -> Enriched:
    """The alerts with the annotations of the findings that explain them, before `settings.enrich.deadline`.

    Never raises: what could not be done is said in `because`, and the alerts are as they came. `readable` is False
    where the bytes are no alerts at all. `ticks` are seconds that never go back.
    """
    work = _Work(body, store, settings, time.time() if now is None else now, ticks)
    thread = threading.Thread(target=work.run, name="enrich", daemon=True)
    thread.start()
    thread.join(settings.enrich.deadline)
    if work.done is None:  # a file system that hangs: the thread is left behind
        return Enriched(body=body, because=f"no answer of {store} within {settings.enrich.deadline:g} s")
    return work.done


class _Work:
    """One look-up; `done` is there once it is finished."""

    def __init__(self, body: bytes, store: Path, settings: Settings, now: float, ticks: Callable[[], float]) -> None:
        self._body, self._store, self._settings, self._now, self._ticks = body, store, settings, now, ticks
        self._until = ticks() + settings.enrich.deadline
        self._enough = ticks() + settings.enrich.deadline * FOR_LOOKING
        self._unasked = 0
        self.done: Enriched | None = None

    def run(self) -> None:
        try:
            self.done = self._enriched()
        except splice.NotAlertsError as error:
            self.done = Enriched(body=self._body, because=str(error), readable=False)
        except (sqlite3.Error, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            self.done = Enriched(body=self._body, because=f"{self._store}: cannot be asked: {error}")

    def _enriched(self) -> Enriched:
        notes: list[str] = []
        with contextlib.closing(_reader(self._store, self._settings.enrich.deadline)) as db:
            db.set_progress_handler(lambda: self._ticks() > self._until, 10_000)
            hosts = _hosts()
            body = splice.enrich(self._body, lambda alert: self._look(db, alert, hosts, notes))
        if self._unasked:
            notes.append(f"the last {self._unasked} alerts of many pass unchanged: the time was up")
        return Enriched(body=body, notes=tuple(notes))

    def _look(
        self, db: sqlite3.Connection, alert: splice.Alert, hosts: frozenset[str], notes: list[str]
    ) -> Mapping[str, str]:
        if self._ticks() > self._enough:
            self._unasked += 1
            return {}
        believed = {name: alert.labels[name] for name in self._settings.enrich.labels if name in alert.labels}
        servers = _servers(db, self._settings.servers, believed)
        about = servers_of(alert.labels, servers, self._settings.enrich.labels, hosts)
        if len(about) != 1:
            if about:
                name = saying.short(alert.labels.get("alertname", "an alert"), 100)
                notes.append(f"{name} may be about {', '.join(about)}: nothing is said of it")
            return {}
        at = began(alert.starts_at, self._now)
        found = explains(db, about[0], at, self._settings.enrich.window) if at is not None else None
        if found is None:
            return {}
        return saying.annotations_of(found, saying.page(base(self._settings.web), found.server, found.fingerprint))


def explains(db: sqlite3.Connection, server: str, at: float, window: float) -> Kept | None:
    """The finding of a server that explains what began `at`: what fires first, then the worst, then the latest."""
    for state, since in (("firing", 0.0), ("resolved", at - window)):
        for severity in ("fatal", "degraded", "notice"):
            row = db.execute(_EXPLAINS, (server, at, window, state, severity, since)).fetchone()
            if row is None:
                continue
            try:
                return kept(row)
            except ValueError as error:
                raise sqlite3.DatabaseError(f"finding {row[1]} of {server} is damaged: {error}") from None
    return None


def began(starts_at: str, now: float) -> float | None:
    """When an alert began, in seconds since 1970: now where it does not say, None where that cannot be read."""
    if not starts_at or starts_at.startswith("0001-"):  # Go's zero time
        return now
    try:
        at = datetime.fromisoformat(starts_at)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _servers(db: sqlite3.Connection, configured: tuple[Server, ...], labels: Mapping[str, str]) -> list[Server]:
    """The servers of the configuration, and those of the store alone that a label names."""
    known = {server.name for server in configured}
    values = sorted(set(labels.values()) - known)
    marks = ", ".join("?" * len(values))
    names = db.execute(f"SELECT DISTINCT server FROM finding WHERE server IN ({marks})", values).fetchall()  # noqa: S608
    return [*configured, *(Server(name=name, logs=()) for (name,) in names)]


def _reader(store: Path, deadline: float) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(store))}?mode=ro", uri=True, timeout=deadline)


def _hosts() -> frozenset[str]:
    """The names and the IPv4 addresses of this machine, without asking anybody (proc(5): /proc/net/fib_trie)."""
    name = socket.gethostname().lower()
    addresses: list[str] = []
    with contextlib.suppress(OSError):
        addresses = _LOCAL.findall(Path("/proc/net/fib_trie").read_text("ascii", "replace"))
    return frozenset({name, name.partition(".")[0], *addresses})
