"""One action, step by step. Each step is on the disk before the next begins, so that whoever comes next can go on.

    planned -> bundled -> kept -> written -> restarted -> waiting -> applied
                                     \\__________\\___________\\-> restoring -> rolled_back
                                                                         \\-> failed (a person has to look)

`planned`: recorded. `bundled`: the evidence is kept. `kept`: the old bytes are kept. `written`: the new launch is in
its place. `restarted`: the restart is about to be asked for. `waiting`: it was asked for.

Interrupted before `written` it is taken back, afterwards finished; interrupted twice, taken back. What is neither the
old launch nor the new one was changed by somebody else: it is left alone, and the breaker opens.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specwatch.acting.base import Edges, Hooks, Outcome
from specwatch.acting.following import Tail
from specwatch.acting.keeping import Plan, keep, kept
from specwatch.acting.waiting import Waiting
from specwatch.acting.writing import described, make, standing, sweep, unmake
from specwatch.domain import Change
from specwatch.errors import ApplyError, ConfigError, LaunchError
from specwatch.launch.command import edit as edited
from specwatch.launch.command import parse
from specwatch.launch.targets import Targeted
from specwatch.launch.targets.base import ApiPatch, Edit, Rewrite
from specwatch.policy import failures_in_a_row
from specwatch.report import redact
from specwatch.rulebook.book import Rulebook
from specwatch.runtime.base import Life, Runtime, State
from specwatch.settings import Policy
from specwatch.storage.actions import Action, Actions

NOTHING = "nothing was changed"
MOST_RESUMES = 2
"""Interruptions after which an action is taken back and not tried to finish."""


def expected(targeted: Targeted | None, changes: Sequence[Change], release: str) -> tuple[str, ...]:
    """The argument list of a launch once it is changed; empty where the command alone does not tell."""
    if targeted is None:
        return ()
    try:
        launch = replace(parse(targeted.command, release, lenient=True), container=targeted.container)
        return edited(launch, changes, lenient=True).argv
    except LaunchError:
        return ()


@dataclass(slots=True)
class Steps:
    """The steps of one action; `plan` is what it does."""

    store: Actions
    action: Action
    plan: Plan
    policy: Policy
    book: Rulebook
    edges: Edges
    hooks: Hooks

    # forward

    def run(self, collect: Callable[[Path], object]) -> Outcome:
        """From `planned` to the end; `collect` fills the folder of the evidence."""
        folder = self.store.folder(self.action)
        try:
            with self._files_alone():
                self.hooks.step("planned")
                collect(folder / "evidence")
                self._advance("bundled")
                keep(folder / "kept", self.plan)
                self._advance("kept")
                return self._write()
        except ApplyError as error:
            if self.action.state in ("planned", "bundled"):
                return self._end("rolled_back", f"{NOTHING}: {error}")
            return self._restore(str(error))

    def resume(self) -> Outcome:
        """Go on after an interruption, or take back."""
        state, was = self.action.state, self.action
        because = "; ".join((*filter(None, [was.because]), f"interrupted at {state}"))
        self.action = self.store.advance(
            was, state, self._wall(), event="action_resumed", resumes=was.resumes + 1, because=because
        )
        self.hooks.say("warning", "action_resumed", server=was.server, action=was.id, state=state)
        if state in ("planned", "bundled"):
            return self._end("rolled_back", "interrupted before anything was changed")
        try:
            self.plan = kept(self.store.directory / was.id / "kept")
            with self._files_alone():
                sweep(self.plan.edits)
                return self._resumed(state)
        except ApplyError as error:
            return self._end("failed", str(error))

    def _resumed(self, state: str) -> Outcome:
        stand = {standing(edit, self.edges.run) for edit in self.plan.edits}
        if "other" in stand:
            return self._foreign()
        if (was_kept := state == "kept") and stand <= {"before"}:
            return self._end("rolled_back", "interrupted before anything was written")
        if self.action.kind == "rollback":
            return self._write()
        if was_kept or state == "restoring" or self.action.resumes >= MOST_RESUMES or "before" in stand:
            return self._restore(self.action.because or "interrupted")
        if state == "written":
            return self._restart()
        runtime = self._runtime()
        if state == "waiting" and runtime.state().life is not Life.DOWN:
            unknown = State(life=Life.UNKNOWN, because="")
            logs = self.action.details.get("logs")
            begin = logs if isinstance(logs, dict) else {}
            return self._wait(runtime, unknown, Tail(self.plan.server, self.book.role_of, begin))
        return self._restart()

    def _write(self) -> Outcome:
        # where the patch is what restarts, its pods may be there before it is read back: too late to look then
        api = any(isinstance(edit, ApiPatch) for edit in self.plan.edits)
        try:
            before = self._runtime().state() if api else None
            make(self.plan.edits, self.edges.run)
        except ApplyError as error:
            return self._restore(str(error)) if self._anything() else self._end("rolled_back", f"{NOTHING}: {error}")
        try:
            self._advance("written", details={**self.action.details, "written": True})
            self._read_back()
        except ApplyError as error:
            return self._restore(str(error))
        return self._restart(before)

    def _anything(self) -> bool:
        """Whether any edit is in its place."""
        return any(standing(edit, self.edges.run) == "after" for edit in self.plan.edits)

    def _read_back(self) -> None:
        """What was written has to read as the launch that was checked. Raises ApplyError."""
        if self.action.kind == "rollback" or not (self.plan.argv or self.plan.env):
            return
        try:
            (found,) = self.edges.read(self.action.target)
            launch = parse(found.command, self.plan.release, lenient=True)
        except (ConfigError, LaunchError, ValueError) as error:
            raise ApplyError(f"what was written cannot be read back: {error}") from None
        env = {**found.env, **launch.env}
        wrong = [name for name, value in self.plan.env if env.get(name) != value]
        if wrong or (self.plan.argv and launch.argv != self.plan.argv):
            what = f"variable {wrong[0]}" if wrong else "the command"
            raise ApplyError(f"what was written does not read back as the launch that was checked: {what} differs")

    def _restart(self, before: State | None = None) -> Outcome:
        """`before`: how the server was before anything was written, where that counts."""
        try:
            runtime = self._runtime()
            runtime.prepare()
            # asked as late as can be: in a crash loop the runtime may start the server at this very moment too
            before = before or runtime.state()
            tail = Tail(self.plan.server, self.book.role_of)
            done = {"written": True, "restarted": True, "logs": dict(tail.begin)}
            self._advance("restarted", details={**self.action.details, **done})
            runtime.restart()
            if self.action.kind == "rollback":
                return self._end("applied", "the earlier launch is back in its place, and its restart was asked for")
            self._advance("waiting", deadline=self._wall() + self.policy.health_within)
            return self._wait(runtime, before, tail)
        except ApplyError as error:
            if self.action.kind == "rollback":
                return self._end("failed", f"the earlier launch is back in its place, and cannot be started: {error}")
            return self._restore(str(error))

    def _wait(self, runtime: Runtime, before: State, tail: Tail) -> Outcome:
        left = min(self.policy.health_within, max(0.0, self.action.deadline - self._wall()))
        waiting = Waiting(self.plan.server, runtime, before, tail, self.book, self.edges, self.plan.error)
        try:
            well, said = waiting.until(self.edges.clock.now() + left)
        finally:
            waiting.tail.close()
        said = redact.text(said)
        return self._end("applied", f"the server is healthy: {said}") if well else self._restore(said)

    # back

    def _restore(self, because: str) -> Outcome:
        """Put the old launch back, and start it if the new one was started."""
        because = redact.text(because)
        try:
            self._advance("restoring", because=because)
        except (
            ApplyError
        ) as error:  # it has to be put back all the same; what is not recorded is found at the next start
            self.hooks.say("error", "action_unrecorded", server=self.action.server, because=str(error))
        try:
            unmake(self.plan.edits, self.edges.run)
        except ApplyError as error:
            return self._end("failed", f"{because}; the old launch could not be put back: {error}; {self._where()}")
        if self.action.details.get("restarted"):
            try:
                runtime = self._runtime()
                runtime.prepare()
                runtime.restart()
            except ApplyError as error:
                return self._end("failed", f"{because}; the old launch is back, and cannot be started: {error}")
        return self._end("rolled_back", because)

    def _foreign(self) -> Outcome:
        changed = [described(edit) for edit in self.plan.edits if standing(edit, self.edges.run) == "other"]
        says = f"{', '.join(changed)} was changed by somebody else meanwhile: it is left as it is; {self._where()}"
        return self._end("failed", says)

    def _where(self) -> str:
        return f"the earlier bytes are in {self.store.directory / self.action.id / 'kept'}"

    # both

    def _end(self, state: str, because: str) -> Outcome:
        """The last step; opens the breaker where too much did not help."""
        because, action = redact.text(because), self.action
        try:
            self._advance(state, because=because)
            history = [one.state for one in self.store.since_reset(action.server)]
            row = failures_in_a_row(history)
            if action.kind == "apply" and (state == "failed" or row >= self.policy.breaker):
                why = because if state == "failed" else f"{row} attempts in a row did not help, the last: {because}"
                self.store.trip(action.server, why, self._wall())
                self.hooks.say("error", "breaker_tripped", server=action.server, because=why)
        except ApplyError as error:
            self.hooks.say("error", "action_unrecorded", server=action.server, because=str(error))
            because = f"{because}; that could not be recorded: {error}"
        level = "info" if state == "applied" else "warning"
        self.hooks.say(level, f"action_{state}", server=action.server, action=action.id, because=because)
        return Outcome(
            result=state,
            because=because,
            server=action.server,
            fingerprint=action.fingerprint,
            fix=action.fix,
            action=action.id,
            took=max(0.0, self._wall() - action.began),
            title=str(action.details.get("title") or ""),
        )

    def _advance(self, state: str, **changes: object) -> None:
        self.action = self.store.advance(self.action, state, self._wall(), **changes)  # type: ignore[arg-type]
        self.hooks.step(state)

    def _runtime(self) -> Runtime:
        return self.edges.runtime(self.action.target, self.plan.server.restart)

    def _wall(self) -> float:
        return self.edges.clock.wall()

    @contextlib.contextmanager
    def _files_alone(self) -> Iterator[None]:
        """No other action changes the same files, which several servers may share."""
        with contextlib.ExitStack() as stack:
            paths = sorted(str(edit.path.resolve()) for edit in self.plan.edits if isinstance(edit, Rewrite))
            for path in paths:
                stack.enter_context(self.store.alone("file-" + hashlib.sha256(path.encode()).hexdigest()[:24]))
            yield


def details(title: str, changes: Sequence[object], edits: Sequence[Edit], notes: Sequence[str]) -> dict[str, object]:
    """What others may know of an action: the finding's title, the changes, which files, what stood in the way."""
    files = [
        {
            "path": described(one),
            "before": _digest(one.before) if isinstance(one, Rewrite) else None,
            "after": _digest(one.after) if isinstance(one, Rewrite) else None,
        }
        for one in edits
    ]
    return {"title": redact.text(title), "changes": list(changes), "files": files, "neighbourhood": list(notes)}


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()
