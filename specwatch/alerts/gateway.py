"""`POST /alertmanager`: alerts of others come in, are enriched, and are kept until their receivers have taken them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specwatch.alerts import transport, webhook
from specwatch.alerts.base import Fate, Outcome, Request
from specwatch.alerts.enrich import enrich
from specwatch.config import secret
from specwatch.errors import SpecwatchError
from specwatch.settings import Alert, Settings
from specwatch.storage.outbox import Outbox

Say = Callable[..., None]
"""As `watching.casework.Say`."""


class AlertsNotTakenError(SpecwatchError):
    """Alerts could neither be kept nor sent on: to be answered with 503, so that their sender tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where alerts are sent on: the name of its post in the outbox, and the receiver, of kind webhook."""

    name: str
    alert: Alert


def routes(settings: Settings) -> tuple[Route, ...]:
    """Everybody to whom alerts of others are sent on."""
    named = {alert.name: alert for alert in settings.alerts}
    found = []
    for entry in settings.enrich.forward:
        if entry in named:
            found.append(Route(name=entry, alert=named[entry]))
            continue
        digest = hashlib.sha256(entry.encode()).hexdigest()[:8]  # the address may hold a secret
        found.append(
            Route(name=f"{transport.place(entry)}#{digest}", alert=Alert(kind="webhook", name=entry, url=entry))
        )
    return tuple(found)


def request(route: Route, body: bytes, now: float) -> Request:
    """The POST of one body to one of them. Raises ConfigError where its secret cannot be read."""
    alert = route.alert
    return webhook.signed(alert.url, body, secret(alert.token_file) if alert.token_file else "", now)


def receive(body: bytes, store: Path, settings: Settings, say: Say | None = None) -> bytes:
    """Enrich alerts, and take charge of them: when this returns, each receiver will get them.

    `store` is the file of the store. Gives the enriched alerts. Raises AlertsNotTakenError where nobody could be found
    who keeps them. To be called in a thread: it may take `settings.enrich.deadline` and the receivers' deadlines.
    """
    done = enrich(body, store, settings)
    if say is not None:
        for note in done.notes:
            say("info", "alert_unmatched", because=note)
        if done.because:
            say("warning", "alerts_unchanged", because=done.because)
    to = routes(settings)
    if to and not _kept(to, done.body, store, say):
        _sent_on(to, done.body, say)
    return done.body


def _kept(to: Sequence[Route], body: bytes, store: Path, say: Say | None) -> bool:
    if not store.exists():  # never make an empty one: the daemon's is gone
        return False
    try:
        with contextlib.closing(Outbox(store, timeout=2.0)) as outbox:
            if outbox.accept([route.name for route in to], body, time.time()):
                return True
        because = "too many wait already"
    except sqlite3.Error as error:
        because = str(error)
    if say is not None:
        say("error", "alerts_unstored", because=because, says="sent on at once instead")
    return False


def _sent_on(to: Sequence[Route], body: bytes, say: Say | None) -> None:
    outcomes = asyncio.run(_all(to, body))
    failed = [
        f"{route.name}: {outcome.error}"
        for route, outcome in zip(to, outcomes, strict=True)
        if outcome.fate is not Fate.SENT
    ]
    if failed:
        if say is not None:
            say("error", "alerts_refused", because="; ".join(failed))
        raise AlertsNotTakenError("; ".join(failed))


async def _all(to: Sequence[Route], body: bytes) -> list[Outcome]:
    async with transport.client() as client:
        return await asyncio.gather(*(_one(client, route, body) for route in to))


async def _one(client: object, route: Route, body: bytes) -> Outcome:
    try:
        made = request(route, body, time.time())
    except SpecwatchError as error:
        return Outcome(fate=Fate.LATER, error=str(error))
    return await transport.post(client, made, route.alert.deadline)  # type: ignore[arg-type]
