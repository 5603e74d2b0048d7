"""Sends what the outbox holds, in a thread of its own with a connection of its own: the watcher never waits for it.

One line for each receiver (`sending.delivery`), so that one which hangs delays no other. A message is ticked off once
the receiver has acknowledged it: at least once, never less. What could not be delivered is tried again after 1 s, 2 s,
4 s … 15 min (with jitter, or when the receiver says), what was refused for good is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specwatch.alerts import otel, transport
from specwatch.alerts.gateway import Route, routes
from specwatch.config import secret
from specwatch.errors import ConfigError
from specwatch.sending.delivery import STORE_RETRY, Line, Office
from specwatch.settings import Alert, Settings
from specwatch.storage.outbox import Outbox

if TYPE_CHECKING:
    from specwatch.watching.casework import Say

SET_BACK = 1.0
"""Seconds that the clock may go back unnoticed."""
LOOK = 0.5
"""Seconds between looks whether somebody has put something into the outbox."""


def check(settings: Settings) -> list[str]:
    """What will keep receivers from being told, in words. Raises ConfigError where a package is missing."""
    if settings.otel.endpoint:
        otel.require()
    try:
        import httpx  # noqa: F401
    except ImportError:
        raise ConfigError("alerts need httpx: pip install 'specwatch[daemon]'") from None
    said = []
    for alert in settings.alerts:
        try:
            secret(alert.token_file) if alert.token_file else None
        except ConfigError as error:
            said.append(f"{alert.name}: {error}")
        if alert.kind == "pagerduty" and not alert.token_file:
            said.append(f"{alert.name}: pagerduty needs token_file, the file that holds its routing key")
    return said


class Sender:
    """The thread. `say` is called from it; `luck` gives numbers from 0 to 1."""

    def __init__(
        self,
        store: Path,
        settings: Settings,
        say: Say,
        *,
        wall: Callable[[], float] = time.time,
        luck: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._say, self._wall, self._luck = store, say, wall, luck
        self._configured = settings
        self._lines: dict[str, Line] = {}
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._stopping = False
        self._drain_until = 0.0
        self._thread = threading.Thread(target=self._main, name="sender", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def configure(self, settings: Settings) -> None:
        """From now on send to these receivers."""
        self._configured = settings
        self._call(self._wake.set)

    def stop(self, drain: float = 0.0) -> None:
        """End; for at most `drain` seconds try to send what is due. What is not sent stays in the outbox."""
        self._drain_until = time.monotonic() + drain
        self._stopping = True
        self._call(self._wake.set)
        self._thread.join(drain + 5.0)

    def _call(self, what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop has ended
            return

    def _main(self) -> None:
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def _run(self) -> None:
        """Send until told to stop; a fault ends a try, never the sending."""
        while True:
            try:
                return await self._try()
            except Exception as error:
                because = f"{type(error).__name__}: {error}"
                self._say("error", "sender_failed", because=because, says=f"it begins anew in {STORE_RETRY:g} s")
            self._lines.clear()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), STORE_RETRY)
            if self._stopping:
                return None

    async def _try(self) -> None:
        outbox = Outbox(self._store)
        try:
            async with transport.client() as client:
                settings = self._configured
                await self._turns(Office(settings, outbox, client, self._say, self._wall, self._luck))
        finally:
            outbox.close()

    async def _turns(self, office: Office) -> None:
        version, running = -1, set[asyncio.Task[None]]()
        self._reconfigure(office)
        before = self._wall()
        while True:
            now = self._wall()
            if now < before - SET_BACK:
                office.outbox.set_back(now)
                for line in self._lines.values():
                    line.set_back()
            before = now
            if self._configured is not office.settings:
                self._reconfigure(office)
            seen = office.outbox.version()
            for line in self._lines.values():
                if line.idle and (seen != version or line.next_at <= self._wall()):
                    line.idle = False
                    task = self._loop.create_task(line.work())
                    running.add(task)
                    task.add_done_callback(lambda _: self._wake.set())
            version = seen
            if self._stopping and (time.monotonic() >= self._drain_until or self._drained(office.outbox)):
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK)
            self._wake.clear()
            running = {task for task in running if not task.done()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _drained(self, outbox: Outbox) -> bool:
        """Whether nothing more will be sent before the time is up."""
        until = self._wall() + self._drain_until - time.monotonic()
        due = {name: outbox.next_due(name) for name in self._lines}
        return all(line.idle and (due[name] or until) >= until for name, line in self._lines.items())

    def _reconfigure(self, office: Office) -> None:
        settings = office.settings = self._configured
        wanted: dict[str, tuple[Alert | None, Route | None]] = {one.name: (one, None) for one in settings.alerts}
        if settings.otel.endpoint:
            wanted[otel.NAME] = (None, None)
        for to in routes(settings):
            wanted[to.name] = (wanted.get(to.name, (None, None))[0], to)
        for name in [name for name in self._lines if name not in wanted]:
            del self._lines[name]
        for name, (alert, route) in wanted.items():
            line = self._lines.setdefault(name, Line(office, name))
            line.alert, line.route, line.next_at = alert, route, 0.0
