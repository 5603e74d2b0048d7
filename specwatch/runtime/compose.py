"""A server that is a service of a Compose file (`docker compose`, or `docker-compose` where that is all there is)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from specwatch.errors import ApplyError
from specwatch.runtime.base import Life, State
from specwatch.runtime.running import Run, run, well

_DEAD = ("exited", "dead", "restarting")


class Compose:
    """One service of a project. `files` are those that make the project, the first one says where it is."""

    def __init__(self, files: Sequence[str], service: str, runs: Run = run) -> None:
        self._files, self._service, self._runs = tuple(files), service, runs
        self._program: tuple[str, ...] = ()

    def state(self) -> State:
        """A container that died, or that the engine keeps restarting, is down; one that was stopped is not ours."""
        try:
            said = well((*self._compose(), "ps", "--all", "--format", "json", self._service), self._runs)
        except ApplyError as error:
            return State(life=Life.UNKNOWN, because=str(error))
        containers = _objects(said)
        if not containers:
            return State(
                life=Life.UNKNOWN, because=f"{self._service} has no container; it was never started, or removed"
            )
        states = [self._judged(one) for one in containers]
        identity = " ".join(sorted(state.identity for state in states))
        known = all(state.ready is not None for state in states)
        # several containers of one service: down only where none is left
        order = (Life.UP, Life.UNKNOWN, Life.DOWN)
        worst = min(states, key=lambda state: order.index(state.life))
        return State(
            life=worst.life,
            because=worst.because,
            identity=identity,
            starts=sum(state.starts for state in states),
            ready=all(state.ready for state in states) if known else None,
        )

    def prepare(self) -> None:
        """Nothing: an engine reads the file when it makes the container."""

    def restart(self) -> None:
        """Make the container anew from the file as it is now."""
        for words in self.commands():
            well(words, self._runs)

    def commands(self) -> Sequence[Sequence[str]]:
        """Only this service, none that it depends on. Raises ApplyError where that would make another container."""
        more, less = self._others()
        if more or less:
            was = f"was made from {', '.join(more)} as well" if more else f"was made without {', '.join(less)}"
            raise ApplyError(
                f"{self._service} {was}, and {' and '.join(self._files)} would make another container: change it by "
                "hand and run docker compose with the same files, or name those, as in compose:FILE:FILE#SERVICE"
            )
        return ((*self._compose(), "up", "--detach", "--no-deps", "--force-recreate", self._service),)

    def _compose(self) -> tuple[str, ...]:
        if not self._program:
            try:
                well(("docker", "compose", "version"), self._runs)
                self._program = ("docker", "compose")
            except ApplyError as error:
                try:
                    well(("docker-compose", "version"), self._runs)
                    self._program = ("docker-compose",)
                except ApplyError:
                    raise ApplyError(f"neither docker compose nor docker-compose can be run: {error}") from None
        return (*self._program, *(word for file in self._files for word in ("-f", file)))

    def _others(self) -> tuple[list[str], list[str]]:
        """The other files that the containers of the service were made from, and ours that they were made without.

        None of both where the engine does not say.
        """
        more: list[str] = []
        less: list[str] = []
        with suppress(ApplyError, ValueError):
            said = well((*self._compose(), "ps", "--all", "--format", "json", self._service), self._runs)
            for one in _objects(said):
                name = str(one.get("ID") or one.get("Name", ""))
                labels = json.loads(
                    well(("docker", "inspect", "--format", "{{json .Config.Labels}}", name), self._runs)
                )
                held = labels if isinstance(labels, dict) else {}
                folder = str(held.get("com.docker.compose.project.working_dir", ""))
                made = self._named(held, "config_files")
                env = self._named(held, "environment_file")
                ours = {Path(file).resolve() for file in self._files}
                beside = Path(self._files[0]).resolve().with_name(".env").resolve()
                more += [file for file in made if (Path(folder) / file).resolve() not in ours]
                more += [file for file in env if (Path(folder) / file).resolve() != beside]
                there = {(Path(folder) / file).resolve() for file in made}
                less += [str(file) for file in sorted(ours) if made and file not in there]
        return list(dict.fromkeys(more)), list(dict.fromkeys(less))

    @staticmethod
    def _named(labels: Mapping[str, object], label: str) -> list[str]:
        """The files that a label of a container lists."""
        return [one for one in str(labels.get(f"com.docker.compose.project.{label}") or "").split(",") if one]

    def _judged(self, container: Mapping[str, object]) -> State:
        name, state = str(container.get("Name", self._service)), str(container.get("State", "")).lower()
        health, code = str(container.get("Health") or ""), container.get("ExitCode")
        inspected = self._inspected(str(container.get("ID") or name))
        starts = inspected.get("RestartCount")
        count = starts if isinstance(starts, int) else 0
        identity = f"{container.get('ID', '')} {inspected.get('StartedAt', '')}".strip()
        life, says = Life.UNKNOWN, f"container {name} is {state}" + (f" ({health})" if health else "")
        if state == "restarting" or (state in _DEAD and code not in (0, None)):
            life, says = Life.DOWN, f"container {name} is {state}, exit code {code}"
        elif state == "exited":
            says = f"container {name} was stopped, or ended without an error; it is for whoever stopped it to start it"
        elif state == "running":
            life = Life.DOWN if health == "unhealthy" else Life.UP
        ready = (health == "healthy" and life is Life.UP) if health else None
        return State(life=life, because=says, identity=identity, starts=count, ready=ready)

    def _inspected(self, name: str) -> dict[str, object]:
        """How often the engine restarted a container, and when it was started; nothing where it does not say."""
        try:
            said = well(
                ("docker", "inspect", "--format", "{{json .RestartCount}} {{json .State.StartedAt}}", name), self._runs
            )
            count, _, started = said.strip().partition(" ")
            return {"RestartCount": json.loads(count), "StartedAt": json.loads(started)}
        except (ApplyError, ValueError):
            return {}


def _objects(said: str) -> list[Mapping[str, object]]:
    """One object a line (compose from 2.21 on) or one array of them."""
    found: list[Mapping[str, object]] = []
    for line in said.split("\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
    return found
