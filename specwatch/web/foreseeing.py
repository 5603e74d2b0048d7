"""What the policy would say to a fix that somebody approves, as far as the watcher's own state tells it.

The questions are those of `specwatch.policy`. What only the one that acts can find out stays open: it asks anew anyway.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specwatch.acting.considering import attempts
from specwatch.acting.revalidating import finding_of
from specwatch.domain import Finding
from specwatch.errors import SpecwatchError
from specwatch.policy import Attempt, Down, Situation, capped, decide
from specwatch.settings import Server
from specwatch.storage.actions import Actions
from specwatch.storage.store import Kept
from specwatch.web import views

if TYPE_CHECKING:
    from specwatch.web.site import Site

LATER = "asked when it is applied"
_DOWN, _FIX = "Is the server really down?", "Is it a fix that may be applied?"
_OF_ACTIONS = (
    "Is the fix untried for this finding?",
    "Is the last attempt long enough ago?",
    "Are there attempts left?",
    "Is the breaker closed?",
    "Is there room in the fleet?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One question of the policy. `answer` is `yes`, `no`, or `later` where it is asked when the fix is applied."""

    question: str
    answer: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One fix that a program could apply, with what the policy would say to it."""

    fix: views.FixView
    walk: tuple[Step, ...]

    @property
    def refused(self) -> str:
        """Why it would be refused, empty where nothing known speaks against it."""
        return next((f"{one.question} No: {one.because}" for one in self.walk if one.answer == "no"), "")


def barred(site: Site, row: Kept) -> str:
    """Why nothing can be approved for a finding, empty where something can."""
    settings = site.settings()
    if not settings.web.token_file:
        return "[web] token_file is not set: nothing can be approved from here."
    server = _server(site, row)
    if server is None or not server.target:
        return f"The configuration names no target for {row.server}: nobody would know what to change."
    if row.state != "firing":
        return f"The finding does not fire any more: it is {row.state}."
    found = offers(site, row)
    if not found:
        return "None of its fixes can be applied by a program."
    if all(one.refused for one in found):
        return f"It would be refused. {found[0].refused}"
    return ""


def offers(site: Site, row: Kept) -> list[Offer]:
    """The fixes that a program could apply (complete, and checked again), each with the policy's answers."""
    found = [
        fix
        for fix in views.finding_view(row).fixes
        if fix.rechecked and (fix.gone or fix.come) and fix.applicability != "manual"
    ]
    server = _server(site, row)
    try:
        finding = finding_of(row.document)
    except SpecwatchError:
        finding = None
    if not found or server is None or finding is None:
        return [Offer(fix=fix, walk=()) for fix in found]
    situation, known = _situation(site, row, server, finding)
    return [Offer(fix=fix, walk=_walk(situation, known, finding, fix.id, site.wall())) for fix in found]


def _server(site: Site, row: Kept) -> Server | None:
    return next((one for one in site.settings().servers if one.name == row.server), None)


def _walk(situation: Situation, known: frozenset[str], finding: Finding, fix: str, now: float) -> tuple[Step, ...]:
    chosen = next((one for one in finding.fixes if one.id == fix), None)
    steps = []
    for one in decide(situation, chosen, now).walked:
        if one.question in known or (one.question == _FIX and not one.yes):
            steps.append(Step(question=one.question, answer="yes" if one.yes else "no", because=one.because))
        else:
            steps.append(Step(question=one.question, answer="later", because=LATER))
    return tuple(steps)


def _situation(site: Site, row: Kept, server: Server, finding: Finding) -> tuple[Situation, frozenset[str]]:
    """The situation as far as it is known here, and the questions that it answers."""
    settings = site.settings()
    status = site.status_of(finding.rule) if finding.rule else ""
    plain = Situation(
        server=row.server,
        mode=capped(settings.policy.mode, server.apply),
        policy=settings.policy,
        fingerprint=row.fingerprint,
        severity=finding.severity,
        rule_status="stable" if status is None else status,
        verdict=finding.verdict.status,
        verdict_because=finding.verdict.because,
        silences=settings.silences,
        minute=(at := datetime.fromtimestamp(site.wall())).hour * 60 + at.minute,  # of this machine, as quiet hours are
        by_person=True,
    )
    known = {"Does the mode allow it?", "Is the cause proved?", "Is now outside silences and quiet hours?"}
    if status is not None:
        known.add(_FIX)
    up = site.tally.up.get(row.server)
    if up:
        plain = replace(plain, down=Down.NO, down_because=f"{server.health} answered when it was last asked")
        known.add(_DOWN)
    elif not server.health and _is_script(server.target):
        says = "nothing but a health endpoint tells whether a script's server is up; give the server health = …"
        plain = replace(plain, down_because=says)
        known.add(_DOWN)
    if (done := _of_actions(Path(settings.state.actions), row.server)) is not None:
        plain = replace(plain, history=done.history, breaker=done.breaker, under_change=done.under_change)
        known.update(_OF_ACTIONS)
    return plain, frozenset(known)


def _is_script(target: str) -> bool:
    return target.startswith("script:") or (target.startswith("/") and Path(target).suffix in (".sh", ".bash"))


class _Done(NamedTuple):
    """The part of a situation that comes from what was done so far."""

    history: tuple[Attempt, ...] = ()
    breaker: str = ""
    under_change: tuple[str, ...] = ()


def _of_actions(folder: Path, server: str) -> _Done | None:
    """What was done so far, in the fields of a situation; None where it cannot be read."""
    try:
        (folder / "actions.db").stat()
    except FileNotFoundError:
        return _Done()  # nothing was ever changed
    except OSError:
        return None
    try:
        store = Actions(folder, read_only=True)
        try:
            others = {one.server for one in store.actions() if one.open} - {server}
            return _Done(attempts(store.since_reset(server)), store.breaker(server), tuple(sorted(others)))
        finally:
            store.close()
    except (SpecwatchError, OSError, sqlite3.Error):
        return None
