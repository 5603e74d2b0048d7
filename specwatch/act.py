"""Changes the launch of a server that is down, and takes the change back where it does not help.

`apply`: diagnose anew (`acting.revalidating`) -> ask the policy (`policy`) -> plan the edits (`launch.targets.plan`)
-> evidence, keep, write, restart, wait, else back (`acting.steps`). `resume` finishes, or takes back, what was
interrupted; whoever acts calls it first. `rollback` and `reset` are for people.

Nothing that a log, a store or a proposal holds is acted upon: they give names, and everything else is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from specwatch.acting.base import Edges, Hooks, Outcome, Request
from specwatch.acting.considering import Job, considered, diff, shown
from specwatch.acting.evidence import collect
from specwatch.acting.keeping import Plan, kept
from specwatch.acting.revalidating import revalidate
from specwatch.acting.steps import Steps, details, expected
from specwatch.acting.writing import described, standing, turned
from specwatch.domain import Value
from specwatch.errors import ApplyError
from specwatch.report.as_json import change_object
from specwatch.rulebook.book import Rulebook
from specwatch.settings import Server, Settings
from specwatch.storage.actions import Action, Actions, new

__all__ = ["Edges", "Hooks", "Outcome", "Request", "apply", "reset", "resume", "revalidate", "rollback"]

STALE = 10.0
"""Seconds after which what was shown to a person is looked at again before anything is done."""


def apply(
    request: Request, settings: Settings, book: Rulebook, edges: Edges | None = None, hooks: Hooks | None = None
) -> Outcome:
    """Do what is asked for, if the policy allows it; a refusal is an outcome, too, and goes into the audit log.

    Raises ApplyError only where nothing can be recorded, or the server is being changed by somebody else.
    """
    edges, hooks, server = edges or Edges(), hooks or Hooks(), request.server
    if request.dry_run:
        looked = _looked_up(settings)
        try:
            return considered(request, settings, book, edges, looked)[0]
        finally:
            if looked is not None:
                looked.close()
    store = opened(settings, hooks)
    try:
        with store.alone(server.name):
            for action in store.actions(server=server.name):
                if action.open:
                    _steps(action, store, settings, book, edges, hooks).resume()
            outcome, job = considered(request, settings, book, edges, store)
            if job is not None and request.asked_by == "person" and not request.confirmed:
                outcome, job = _confirmed(
                    outcome, job, lambda: considered(request, settings, book, edges, store), edges, hooks
                )
            if job is None:
                _refuse(request, outcome.because, store, edges, hooks)
                return outcome
            return _done(request, outcome, job, store, settings, book, edges, hooks)
    finally:
        store.close()


def resume(
    settings: Settings, book: Rulebook, edges: Edges | None = None, hooks: Hooks | None = None
) -> Sequence[Outcome]:
    """Finish, or take back, every action that was interrupted. What another process works on is left to it."""
    edges, hooks = edges or Edges(), hooks or Hooks()
    if not (Path(settings.state.actions) / "actions.db").is_file():
        return ()
    store = opened(settings, hooks)
    outcomes = []
    try:
        for name in dict.fromkeys(one.server for one in store.actions() if one.open):
            with suppress(ApplyError), store.alone(name):
                for action in store.actions(server=name):
                    if action.open:
                        outcomes.append(_steps(action, store, settings, book, edges, hooks).resume())
    finally:
        store.close()
    return outcomes


def rollback(
    name: str, settings: Settings, book: Rulebook, edges: Edges | None = None, hooks: Hooks | None = None,
    *, dry_run: bool = False, confirmed: bool = False,
) -> Outcome:  # fmt: skip
    """Put the launch back that an action replaced, and start it. `name` is the action's id or its beginning."""
    edges, hooks = edges or Edges(), hooks or Hooks()
    store = opened(settings, hooks)
    try:
        was = store.action(name)
        with store.alone(was.server):
            plan = _way_back(was, store, edges)
            runtime = edges.runtime(was.target, plan.server.restart)
            outcome = Outcome(
                result="planned", because=f"puts back what action {was.id} replaced, and restarts {was.server}",
                server=was.server, fingerprint=was.fingerprint, fix=was.fix, diff=diff(plan.edits),
                commands=shown(runtime, plan.edits), title=str(was.details.get("title") or ""),
            )  # fmt: skip
            if dry_run:
                return outcome
            if not confirmed and not hooks.confirm(outcome):
                return replace(outcome, result="refused", because="the person did not say yes")
            notes = details(outcome.title, [], plan.edits, [])
            begun = new(
                server=was.server, fix=was.fix, target=was.target, asked_by="person", kind="rollback",
                fingerprint=was.fingerprint, details=cast("dict[str, Value]", {**notes, "of": was.id}),
            )  # fmt: skip
            action = store.begin(begun, settings.policy.fleet, edges.clock.wall())
            steps = _steps(action, store, settings, book, edges, hooks, plan)
            return replace(steps.run(lambda _folder: None), diff=outcome.diff)
    finally:
        store.close()


def reset(server: str, settings: Settings, edges: Edges | None = None) -> str:
    """Close the breaker of a server and let its attempts count anew; gives why it was open, empty if it was closed."""
    store = opened(settings, Hooks())
    try:
        return store.reset(server, (edges or Edges()).clock.wall())
    finally:
        store.close()


def opened(settings: Settings, hooks: Hooks) -> Actions:
    """The store of actions, to be changed."""
    return Actions(Path(settings.state.actions), lambda text: hooks.say("warning", "audit_mended", says=text))


def _confirmed(
    outcome: Outcome, job: Job, again: Callable[[], tuple[Outcome, Job | None]], edges: Edges, hooks: Hooks
) -> tuple[Outcome, Job | None]:
    """Ask the person. Who takes long to answer must find the server as it was shown."""
    asked = edges.clock.now()
    if not hooks.confirm(outcome):
        return replace(outcome, result="refused", because="the person did not say yes"), None
    if edges.clock.now() - asked < STALE:
        return outcome, job
    anew, job_now = again()
    if job_now is not None and (anew.fix, anew.diff) != (outcome.fix, outcome.diff):
        return replace(anew, result="refused", because="what would be done changed meanwhile; look at it again"), None
    return anew, job_now


def _looked_up(settings: Settings) -> Actions | None:
    """The store for a look, None where nothing was ever done. Raises ApplyError where it is not ours to read."""
    folder = Path(settings.state.actions)
    return Actions(folder, read_only=True) if (folder / "actions.db").is_file() else None


def _refuse(request: Request, because: str, store: Actions, edges: Edges, hooks: Hooks) -> None:
    name = request.server.name
    asked = {"finding": request.fingerprint or "", "fix": request.fix or "", "asked_by": request.asked_by}
    store.note("request_refused", name, edges.clock.wall(), because=because, **asked)
    hooks.say("warning", "request_refused", server=name, because=because)


def _done(
    request: Request, outcome: Outcome, job: Job, store: Actions, settings: Settings, book: Rulebook, edges: Edges,
    hooks: Hooks,
) -> Outcome:  # fmt: skip
    server, fix = request.server, job.fix
    notes = details(job.firing.finding.title, [change_object(one) for one in fix.changes], job.edits, job.seen.found)
    begun = new(
        server=server.name, fix=fix.id, target=server.target, asked_by=request.asked_by, fingerprint=job.firing.id,
        because=outcome.because, details=cast("dict[str, Value]", notes),
    )  # fmt: skip
    try:
        action = store.begin(begun, settings.policy.fleet, edges.clock.wall())
    except ApplyError as error:  # the fleet filled up since the policy was asked
        _refuse(request, str(error), store, edges, hooks)
        return replace(outcome, result="refused", because=str(error))
    plan = _plan(server, job)
    steps = _steps(action, store, settings, book, edges, hooks, plan)
    hooks.say("info", "action_planned", server=server.name, action=action.id, fix=fix.id, finding=job.firing.id)
    ended = steps.run(lambda folder: collect(folder, server, job.firing, job.state, job.seen, edges.run))
    return replace(
        ended, decision=outcome.decision, diff=outcome.diff, commands=outcome.commands, neighbourhood=job.seen.found
    )


def _plan(server: Server, job: Job) -> Plan:
    firing, changes = job.firing, job.fix.changes
    incident = firing.finding.incident
    return Plan(
        server=server,
        edits=job.edits,
        argv=expected(firing.target, changes, firing.sglang),
        env=tuple((one.name, one.new if one.op == "set_env" else None) for one in changes if one.op.endswith("_env")),
        release=firing.sglang,
        error=incident.error.split("\n")[0] if incident is not None else "",
    )


def _way_back(was: Action, store: Actions, edges: Edges) -> Plan:
    """The plan that undoes an action. Raises ApplyError where it does not stand any more."""
    if was.kind != "apply" or was.state != "applied":
        raise ApplyError(f"action {was.id} ({was.kind}) is {was.state.replace('_', ' ')}: there is nothing to put back")
    plan = kept(store.directory / was.id / "kept")
    for edit in plan.edits:
        how = standing(edit, edges.run)
        if how != "after":
            says = "is as it was before already" if how == "before" else "was changed by somebody else since"
            raise ApplyError(f"{described(edit)} {says}; the earlier bytes are in {store.directory / was.id / 'kept'}")
    return replace(plan, edits=tuple(turned(edit) for edit in reversed(plan.edits)), argv=(), env=())


def _steps(
    action: Action, store: Actions, settings: Settings, book: Rulebook, edges: Edges, hooks: Hooks,
    plan: Plan | None = None,
) -> Steps:  # fmt: skip
    plan = plan or Plan(server=Server(name=action.server, logs=()), edits=())
    return Steps(store, action, plan, settings.policy, book, edges, hooks)
