"""What goes into an action and what comes out of it, and what it needs from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specwatch import runtime
from specwatch.domain import Change
from specwatch.launch import targets
from specwatch.launch.targets import Edit, Targeted
from specwatch.policy import Decision
from specwatch.runtime.base import Runtime
from specwatch.runtime.running import Run, run
from specwatch.settings import Server
from specwatch.watching.inspection import Ask, Child, Document, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. Only names: what is done is found out anew (`acting.revalidating`).

    `fingerprint` is a finding's id or the beginning of one, None for whatever fails now. `fix` is a fix's id, None for
    the first one that may be applied. `asked_by` is `person` or `proposal`. `key` names the occurrence that a proposal
    answers. `confirmed`: the person said yes; `Hooks.confirm` is asked otherwise.
    """

    server: Server
    fingerprint: str | None = None
    fix: str | None = None
    asked_by: str = "person"
    dry_run: bool = False
    confirmed: bool = False
    even_if_up: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    `result`: `applied`, `rolled_back`, `failed` (a person has to look), `refused` (nothing was begun), or `planned`
    for a dry run that nothing refused. `took` is in seconds. `diff` is what is, or would be, written, secrets taken
    out; `neighbourhood` what stands in the way around the server and is left to a person. `title` and `says` are of the
    finding, `why` is what the fix is good for, and how far it is trusted.
    """

    result: str
    because: str
    server: str
    fingerprint: str = ""
    fix: str = ""
    action: str = ""
    took: float = 0.0
    decision: Decision | None = None
    diff: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    neighbourhood: tuple[str, ...] = ()
    title: str = ""
    says: str = ""
    why: str = ""

    @property
    def helped(self) -> bool:
        """Whether the server is healthy with the new launch."""
        return self.result == "applied"


class Clock(Protocol):
    """The time: `now` for what lasts, `wall` for what is stored, and a way to wait."""

    def now(self) -> float:
        """Seconds that never go back."""

    def wall(self) -> float:
        """Seconds since 1970."""

    def minute(self) -> int:
        """Minutes since local midnight."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class RealClock:
    """The time of this machine."""

    def now(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def minute(self) -> int:
        """Minutes since local midnight."""
        local = time.localtime()
        return local.tm_hour * 60 + local.tm_min

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def inspected(ask: Ask, limits: Limits, clock: Clock) -> tuple[Document | None, str]:
    """The diagnosis of an incident by a child with limits, or the reason why there is none."""
    child = Child(ask, limits, clock.now())
    try:
        while (answer := child.answer(clock.now())) is None:
            clock.sleep(0.02)
    finally:
        child.stop()
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The outside world: the time, launches where they stand, what runs servers, who reads models, other programs."""

    clock: Clock = field(default_factory=RealClock)
    read: Callable[[str], tuple[Targeted, ...]] = targets.read
    plan: Callable[[str, Sequence[Change], str], tuple[Edit, ...]] = targets.plan
    runtime: Callable[[str, Sequence[str]], Runtime] = runtime.of
    inspect: Callable[[Ask, Limits, Clock], tuple[Document | None, str]] = inspected
    run: Run = run


class Say(Protocol):
    """Writes one canonical line of our own log."""

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """`level` is info, warning or error; `event` a noun and a verb in the past tense."""


def quiet(level: str, event: str, **fields: object) -> None:
    """Says nothing."""


def agree(_outcome: Outcome) -> bool:
    """Says yes."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who is told and asked along the way. `step` is called after each step is durable, with its name."""

    say: Say = quiet
    confirm: Callable[[Outcome], bool] = agree
    step: Callable[[str], None] = field(default=lambda _name: None)
