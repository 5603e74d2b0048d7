"""What is sent to one receiver: takes what is due, makes one message of it, and writes down what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from specwatch.alerts import alertmanager, command, kinds, otel, saying, transport, webhook
from specwatch.alerts.address import base
from specwatch.alerts.base import Fate, Outcome
from specwatch.alerts.gateway import Route, request
from specwatch.config import secret
from specwatch.errors import SpecwatchError
from specwatch.report.times import iso
from specwatch.settings import Alert, Settings, Silence
from specwatch.storage.outbox import SILENCED, Forward, Notice, Outbox, too_old

if TYPE_CHECKING:
    import httpx

    from specwatch.watching.casework import Say

FIRST_RETRY, LAST_RETRY = 1.0, 900.0
STORE_RETRY = 5.0
OTEL_DEADLINE = 10.0
SILENCE_LOOK = 60.0
"""Seconds after which a silenced finding is looked at again: the silence may have been lifted."""


@dataclass(slots=True, eq=False)
class Office:
    """What all lines share. `luck` gives numbers from 0 to 1."""

    settings: Settings
    outbox: Outbox
    client: httpx.AsyncClient
    say: Say
    wall: Callable[[], float]
    luck: Callable[[], float]


def back_off(failures: int, luck: float) -> float:
    """Seconds to wait after so many failures in a row; `luck`, from 0 to 1, spreads those who fail together."""
    return float(min(FIRST_RETRY * 2 ** min(failures - 1, 20), LAST_RETRY) * (0.5 + luck / 2))


def silence(settings: Settings, server: str, now: float) -> Silence | None:
    """The maintenance window that a server is in, the one that lasts longest."""
    within = [one for one in settings.silences if one.start <= now < one.until and fnmatchcase(server, one.server)]
    return max(within, key=lambda one: one.until, default=None)


class Line:
    """The post of one receiver, one message at a time. `next_at` is when there is something to do."""

    def __init__(self, office: Office, name: str) -> None:
        self._office, self._name, self._outbox = office, name, office.outbox
        self.alert: Alert | None = None
        self.route: Route | None = None
        self.idle = True
        self.next_at = 0.0
        self._failures = 0
        self._not_before = 0.0
        self._refresh_at = 0.0
        self._alone = False
        self._unrecorded: list[Callable[[], None]] = []

    @property
    def _kind(self) -> str:
        return self.alert.kind if self.alert else "otel" if self._name == otel.NAME else ""

    async def work(self) -> None:
        """Send what is due, until nothing is."""
        self.idle = False
        try:
            while self._recorded() and self._office.wall() >= self._not_before and await self._one():
                pass
            self.next_at = self._next()
        except sqlite3.Error as error:
            self._office.say("error", "store_unwritable", receiver=self._name, because=str(error))
            self.next_at = self._office.wall() + STORE_RETRY
        except Exception as error:  # a fault of ours: the other receivers are told all the same
            self._office.say("error", "sender_failed", receiver=self._name, because=f"{type(error).__name__}: {error}")
            self.next_at = self._office.wall() + LAST_RETRY
        finally:
            self.idle = True

    def set_back(self) -> None:
        """The clock was set back: what was put off by it is looked at now."""
        self.next_at = self._not_before = self._refresh_at = 0.0

    def _next(self) -> float:
        if self._unrecorded:
            return self._office.wall() + STORE_RETRY
        due = self._outbox.next_due(self._name)
        at = [] if due is None else [due]
        if self._kind == "alertmanager":
            at.append(self._refresh_at)
        return max(self._not_before, min(at, default=float("inf")))

    async def _one(self) -> bool:
        """One message; whether there was one."""
        now = self._office.wall()
        if self.route is not None and (forward := self._outbox.next_forward(self._name, now)) is not None:
            await self._forward(self.route, forward)
            return True
        if not self._kind:
            return False
        notices = self._due(now)
        if notices is None:
            return True
        if notices:
            self._settle(notices, await self._send(notices))
            return True
        self._alone = False
        if self._kind == "alertmanager" and now >= self._refresh_at:
            await self._refresh(now)
            return True
        return False

    def _due(self, now: float) -> list[Notice] | None:
        """The notices for the next message; None when some were only put aside."""
        most = 1 if self._alone else kinds.MOST[self._kind]
        found = self._outbox.owed(self._name, now, most)
        quiet = {id(one): silence(self._office.settings, one.finding.server, now) for one in found}
        needless = [one for one in found if not (one.firing or one.heard or one.attempts) and quiet[id(one)]]
        silent = [one for one in found if one.firing and quiet[id(one)]]
        if not needless and not silent:
            return found
        self._record(lambda: self._outbox.heard(needless, now))
        for one in silent:
            self._hush(one, quiet[id(one)], now)
        return None

    def _hush(self, one: Notice, window: Silence | None, now: float) -> None:
        until, because = (window.until, window.because) if window else (now, "")
        why = f"{SILENCED}{iso(until)}{f': {because}' if because else ''}"
        self._record(lambda: self._outbox.put_off([one], min(until, now + SILENCE_LOOK), why))
        finding = one.finding
        self._office.say(
            "info", "notification_silenced", receiver=self._name, finding=finding.fingerprint, server=finding.server,
            because=why,
        )  # fmt: skip

    async def _send(self, notices: Sequence[Notice]) -> Outcome:
        now, settings = self._office.wall(), self._office.settings
        messages = [message(one, settings) for one in notices]
        try:
            if self.alert is not None and self.alert.kind == "command":
                body = webhook.document(self.alert.name, messages, now)
                return await _in_thread(self.alert.command, body, self.alert.deadline)
            if self.alert is None:
                made, deadline = otel.request(settings.otel, messages, now), OTEL_DEADLINE
            else:
                key = secret(self.alert.token_file) if self.alert.token_file else ""
                made, deadline = kinds.compose(self.alert, messages, key, now), self.alert.deadline
        except SpecwatchError as error:  # its secret cannot be read: somebody may put that right
            return Outcome(fate=Fate.LATER, error=str(error))
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # one document must not hold up the rest
            return Outcome(fate=Fate.NEVER, error=f"cannot be told: {type(error).__name__}: {error}", content=True)
        return await transport.post(self._office.client, made, deadline)

    def _settle(self, notices: Sequence[Notice], outcome: Outcome) -> None:
        """Write down what came of a message."""
        now = self._office.wall()
        about = {"receiver": self._name, "findings": [f"{n.finding.server}/{n.finding.fingerprint}" for n in notices]}
        if outcome.fate is Fate.SENT:
            self._record(lambda: self._outbox.heard(notices, now))
            self._succeeded()
            self._office.say("info", "notification_sent", **about)
            return
        if outcome.fate is Fate.NEVER:
            if outcome.content and len(notices) > 1:  # one of them: each goes alone from here on
                self._alone = True
                return
            self._record(lambda: self._outbox.bury(notices, outcome.error))
            self._office.say("error", "notification_buried", **about, because=outcome.error)
            return
        due = self._failed(now, outcome)
        old = [one for one in notices if too_old(one.since, now, one.attempts)]
        young = [one for one in notices if one not in old]
        if old:
            error = f"not delivered for a day: {outcome.error}"
            self._record(lambda: self._outbox.bury(old, error))
            self._office.say("error", "notification_buried", **about, because=error)
        self._record(lambda: self._outbox.failed(young, due, outcome.error))
        self._office.say("warning", "notification_failed", **about, because=outcome.error, again_in=round(due - now, 1))

    async def _refresh(self, now: float) -> None:
        """Tell Alertmanager again what fires, or it will take it for resolved."""
        self._refresh_at = now + alertmanager.REFRESH
        told = self._outbox.told(self._name)
        for at in range(0, len(told), kinds.MOST["alertmanager"]):
            outcome = await self._send(told[at : at + kinds.MOST["alertmanager"]])
            if outcome.fate is not Fate.SENT:
                due = self._failed(now, outcome)
                self._refresh_at = min(self._refresh_at, due)
                self._office.say("warning", "refresh_failed", receiver=self._name, because=outcome.error)
                return
        if told:
            self._succeeded()

    async def _forward(self, route: Route, forward: Forward) -> None:
        now = self._office.wall()
        try:
            made = request(route, forward.body, now)
            outcome = await transport.post(self._office.client, made, route.alert.deadline)
        except SpecwatchError as error:
            outcome = Outcome(fate=Fate.LATER, error=str(error))
        now = self._office.wall()
        about = {"receiver": self._name, "alert": forward.id}
        if outcome.fate is Fate.SENT:
            self._record(lambda: self._outbox.forwarded(forward))
            self._succeeded()
            self._office.say("info", "alerts_forwarded", **about)
        elif outcome.fate is Fate.NEVER or too_old(forward.since, now, forward.attempts):
            self._record(lambda: self._outbox.bury_forward(forward, outcome.error))
            self._office.say("error", "alerts_buried", **about, because=outcome.error)
        else:
            due = self._failed(now, outcome)
            self._record(lambda: self._outbox.forward_failed(forward, due, outcome.error))
            self._office.say("warning", "alerts_delayed", **about, because=outcome.error, again_in=round(due - now, 1))

    def _failed(self, now: float, outcome: Outcome) -> float:
        """When to try again."""
        self._failures += 1
        self._not_before = now + max(back_off(self._failures, self._office.luck()), outcome.retry_after)
        return self._not_before

    def _succeeded(self) -> None:
        if self._failures:
            self._office.say("info", "receiver_recovered", receiver=self._name, failures=self._failures)
        self._failures, self._not_before = 0, 0.0

    def _record(self, what: Callable[[], None]) -> None:
        self._unrecorded.append(what)

    def _recorded(self) -> bool:
        """Write what came of earlier messages. Nothing is sent before, or it would be sent again and again."""
        while self._unrecorded:
            self._unrecorded[0]()
            self._unrecorded.pop(0)
        return True


def message(notice: Notice, settings: Settings) -> saying.Message:
    """A notice as it is told."""
    finding = notice.finding
    return saying.Message(
        wanted=notice.wanted,
        began=notice.began,
        ended=None if notice.firing else finding.changed,
        finding=finding,
        url=saying.page(base(settings.web), finding.server, finding.fingerprint),
    )


async def _in_thread(words: Sequence[str], body: bytes, deadline: float) -> Outcome:
    """What came of a command, run in a thread that keeps nobody from ending."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Outcome] = loop.create_future()

    def run() -> None:
        found = command.run(words, body, deadline)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(found))

    threading.Thread(target=run, name="command", daemon=True).start()
    return await answer
