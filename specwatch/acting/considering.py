"""What would be done about what fails now, and whether it may be: everything up to the first change."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specwatch.acting.base import Edges, Outcome, Request
from specwatch.acting.looking import down
from specwatch.acting.neighbourhood import Neighbourhood, look
from specwatch.acting.revalidating import Firing, revalidate
from specwatch.acting.writing import described
from specwatch.domain import Fix
from specwatch.errors import ApplyError, ConfigError, LaunchError
from specwatch.launch.targets import Edit
from specwatch.launch.targets.base import ApiPatch
from specwatch.policy import Attempt, Decision, Situation, capped, decide
from specwatch.report import redact
from specwatch.rulebook.book import Rulebook
from specwatch.runtime.base import Runtime, State
from specwatch.settings import Settings
from specwatch.storage.actions import FINAL, Action, Actions

DEFAULT_PORT = 30000
"""Where SGLang listens when its launch does not say (server_args.py: ServerArgs.port)."""


def attempts(actions: Sequence[Action]) -> tuple[Attempt, ...]:
    """Actions as the policy counts them; one that never came to write anything has not tried its fix."""
    return tuple(
        Attempt(
            at=one.began,
            fingerprint=one.fingerprint,
            fix=one.fix if one.open or one.details.get("written") else "",
            result=one.state if one.state in FINAL else "interrupted",
        )
        for one in actions
    )


def diff(edits: Sequence[Edit]) -> tuple[str, ...]:
    """What edits change, as a unified diff of each file, secrets taken out."""
    out: list[str] = []
    for edit in edits:
        if isinstance(edit, ApiPatch):
            out.append(f"--- {described(edit)}, container {edit.container}")
            out += [redact.text(f"+ {shlex.quote(str(dict(one)))}") for one in edit.operations]
            continue
        before, after = (_text(data) for data in (edit.before, edit.after))
        names = (f"a{edit.path}" if edit.before is not None else "/dev/null",
                 f"b{edit.path}" if edit.after is not None else "/dev/null")  # fmt: skip
        out += difflib.unified_diff(before, after, *names, lineterm="")
    return tuple(out)


def _text(data: bytes | None) -> list[str]:
    """Lines as they may be shown; the whole text is redacted, as a secret may stand on the line after its name."""
    lines = redact.text((data or b"").decode("utf-8", "replace")).split("\n")
    return lines if lines[-1] else lines[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done, once it has been decided."""

    firing: Firing
    fix: Fix
    edits: tuple[Edit, ...]
    state: State
    seen: Neighbourhood


def considered(
    request: Request, settings: Settings, book: Rulebook, edges: Edges, store: Actions | None
) -> tuple[Outcome, Job | None]:
    """What would be done, and why; without a job where the answer is no."""
    server = request.server
    refused = Outcome(result="refused", because="", server=server.name, fingerprint=request.fingerprint or "")
    try:
        runtime = edges.runtime(server.target, server.restart)
        firing = revalidate(server, settings, book, request.fingerprint, edges)
        state = runtime.state()
    except (ApplyError, ConfigError) as error:
        return replace(refused, because=redact.text(str(error))), None
    seen = look(_port(firing), edges.run)
    situation = _situation(request, settings, book, firing, state, edges, store)
    fix, decision = _chosen(request, firing, situation, edges.clock.wall())
    outcome = replace(
        refused, because=decision.because, fingerprint=firing.id, fix=fix.id if fix else request.fix or "",
        decision=decision, neighbourhood=seen.found, title=redact.text(firing.finding.title),
        says=redact.text(firing.finding.says),
        why=redact.text(f"[{fix.applicability.name.lower()}] {fix.why}") if fix else "",
    )  # fmt: skip
    if fix is None:
        return outcome, None
    try:
        edits = edges.plan(server.target, fix.changes, firing.sglang)
        if not edits:
            raise ApplyError(f"{server.target}: already holds what {fix.id} changes; restart the server")
        outcome = replace(outcome, diff=diff(edits), commands=shown(runtime, edits))
    except (LaunchError, ConfigError, ApplyError) as error:
        if decision.fix is not None:
            outcome = replace(outcome, because=f"the fix cannot be written: {redact.text(str(error))}")
        return outcome, None
    if decision.fix is None:
        return outcome, None
    return replace(outcome, result="planned"), Job(firing=firing, fix=fix, edits=edits, state=state, seen=seen)


def _chosen(request: Request, firing: Firing, situation: Situation, now: float) -> tuple[Fix | None, Decision]:
    """The fix that was asked for, else the most trusted one that may be applied; with the decision on it."""
    fixes = [one for one in firing.finding.fixes if request.fix in (None, one.id)]
    first: tuple[Fix | None, Decision] | None = None
    for fix in sorted(fixes, key=lambda one: -one.applicability):
        decision = decide(situation, fix, now)
        if decision.fix is not None:
            return fix, decision
        first = first or (fix, decision)
    if first is None:
        return None, _without(request, firing, decide(situation, None, now))
    return first


def _without(request: Request, firing: Firing, decision: Decision) -> Decision:
    """The answer where there is no such fix: which there are."""
    there = ", ".join(one.id for one in firing.finding.fixes) or "none"
    asked = f"{request.fix} is not one of its fixes ({there})" if request.fix else "it has no fix"
    walked = tuple(replace(one, because=asked) if not one.yes and "fix that" in one.question else one
                   for one in decision.walked)  # fmt: skip
    return replace(decision, because=asked, walked=walked)


def _situation(
    request: Request, settings: Settings, book: Rulebook, firing: Firing, state: State, edges: Edges,
    store: Actions | None,
) -> Situation:  # fmt: skip
    server, finding = request.server, firing.finding
    is_down, because = down(state, server.health, edges.clock)
    others = {one.server for one in store.actions() if one.open} if store else set()
    return Situation(
        server=server.name,
        mode=capped(settings.policy.mode, server.apply),
        policy=settings.policy,
        fingerprint=firing.id,
        severity=finding.severity,
        rule_status=_status(finding.rule, book),
        verdict=finding.verdict.status,
        verdict_because=finding.verdict.because,
        down=is_down,
        down_because=redact.text(because),
        silences=settings.silences,
        minute=edges.clock.minute(),
        history=attempts(store.since_reset(server.name)) if store else (),
        breaker=store.breaker(server.name) if store else "",
        under_change=tuple(sorted(others - {server.name})),
        by_person=request.asked_by == "person",
        even_if_up=request.even_if_up,
    )


def shown(runtime: Runtime, edits: Sequence[Edit]) -> tuple[str, ...]:
    """What would be run, for people."""
    patches = [f"kubectl patch {one.kind} {one.name} --namespace {one.namespace} --type=json"
               for one in edits if isinstance(one, ApiPatch)]  # fmt: skip
    return (*patches, *(shlex.join(redact.argv(words)) for words in runtime.commands()))


def _port(firing: Firing) -> int | None:
    incident = firing.finding.incident
    launch = incident.launch if incident is not None else None
    port = launch.value("port", DEFAULT_PORT) if launch is not None else None
    return port if isinstance(port, int) and not isinstance(port, bool) else None


def _status(rule: str | None, book: Rulebook) -> str:
    """The status of a rule; empty for a crash that no rule knows."""
    return book.rules[rule].status if rule is not None and rule in book.rules else ""
