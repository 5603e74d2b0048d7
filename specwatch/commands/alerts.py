"""`specwatch alerts list|retry`: what the daemon still has to send, and what it gave up."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from specwatch.commands.contract import Exit, Format
from specwatch.config import DEFAULT_FILE, Settings, load, state_directory
from specwatch.errors import ConfigError
from specwatch.report.text import clean
from specwatch.report.times import iso
from specwatch.storage.outbox import Known, Outbox, Row


def configured(config: Path | None, state: Path | None) -> tuple[Settings, Path]:
    """The settings, and the file of the store that they, or `--state`, name."""
    given = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    settings = load(given, allow_insecure=True) if given else Settings()
    if state:
        settings = replace(settings, state=replace(settings.state, dir=str(state)))
    return settings, state_directory(settings) / "specwatch.db"


def list_alerts(kind: Format, config: Path | None, state: Path | None) -> Exit:
    """Print what waits and what is dead; exit 1 where something is dead."""
    try:
        with contextlib.closing(_outbox(config, state)) as outbox:
            rows = outbox.rows()
    except sqlite3.Error as error:
        raise ConfigError(f"the store cannot be read: {error}") from None
    if kind is Format.JSON:
        print(json.dumps({"schema": 1, "alerts": [_json(row) for row in rows]}, indent=1))
    else:
        print("\n".join(_lines(rows)) if rows else "nothing waits, nothing was given up")
    return Exit.FINDINGS if any(row.dead for row in rows) else Exit.CLEAN


def retry(receiver: str, config: Path | None, state: Path | None) -> Exit:
    """Have what is dead or waits sent now; an empty name means all receivers.

    Raises ConfigError for a receiver that the configuration names no longer: nothing is ever sent to it.
    """
    settings = configured(config, state)[0]
    known = _known(settings) if settings.path is not None and (config or not state) else None
    if known is not None and receiver and receiver not in known.told | known.forwarded:
        there = ", ".join(sorted(known.told | known.forwarded)) or "none"
        raise ConfigError(f"{settings.path}: names no receiver {receiver}, so nothing is sent to it; there are {there}")
    try:
        with contextlib.closing(_outbox(config, state)) as outbox:
            lost = Counter(row.receiver for row in outbox.rows() if known is not None and not known.gets(row))
            count = outbox.retry(receiver, time.time(), known)
    except sqlite3.Error as error:
        raise ConfigError(f"the store cannot be written: {error}; run it as the daemon's user, or as root") from None
    print(f"{count} to be sent{f' to {receiver}' if receiver else ''}" if count else "nothing to be sent again")
    for name, number in sorted(lost.items()):
        if receiver in ("", name):
            print(f"{number} for {clean(name)} not sent: {settings.path} does not name it among those who get them")
    return Exit.CLEAN


def _known(settings: Settings) -> Known:
    """Who gets anything by a configuration."""
    from specwatch.alerts.gateway import routes
    from specwatch.alerts.kinds import receivers

    return Known(
        told=frozenset(one.name for one in receivers(settings)),
        forwarded=frozenset(route.name for route in routes(settings)),
    )


def _outbox(config: Path | None, state: Path | None) -> Outbox:
    store = configured(config, state)[1]
    if not store.is_file():
        raise ConfigError(f"{store.parent}: holds no store; name the daemon's with --config FILE or --state DIR")
    if not os.access(store, os.R_OK):
        raise ConfigError(f"{store}: may not be read; run it as the daemon's user, or as root")
    return Outbox(store)


def _lines(rows: Sequence[Row]) -> list[str]:
    out = []
    for row in rows:
        when = "given up" if row.dead else f"next try {iso(row.due)}"
        tries = f", {row.attempts} attempt{'s' if row.attempts != 1 else ''}" if row.attempts else ""
        out.append(f"{row.receiver}  {row.what}  {row.state}: {when} (since {iso(row.since)}{tries})")
        if row.error:
            out.append(f"    {clean(row.error)}")
    if any(row.dead for row in rows):
        out.append("what was given up is sent again by: specwatch alerts retry [RECEIVER]")
    return out


def _json(row: Row) -> dict[str, object]:
    return {**asdict(row), "since": iso(row.since), "due": iso(row.due)}
