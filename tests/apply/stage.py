"""A server for the tests of actions: real files, a real log, and a runtime that does what the launch file says.

Its whole life is on the disk, so that another process can go on with it: `python stage.py FOLDER STEP` begins an action
there and kills itself, without warning, right after that step is durable.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from specwatch import act
from specwatch.acting.base import Edges, Hooks, Outcome, Request
from specwatch.errors import ApplyError
from specwatch.models.files import LocalModels
from specwatch.pipeline import conclude
from specwatch.report.as_json import finding_object
from specwatch.rulebook.book import Rulebook, load_directories
from specwatch.runtime.base import Life, State
from specwatch.runtime.running import Done
from specwatch.settings import Policy, Server, Settings
from specwatch.settings import State as StateSettings
from specwatch.storage.actions import Actions
from specwatch.watching.inspection import Ask, Document, typed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
READY = "[2026-11-30 15:00:08] The server is fired up and ready to roll!\n"
START = "[2026-11-30 15:00:01] server_args={'model_path': '/models/atlas-8b', 'port': 31993}\n"


class Clock:
    """A time in which long waits pass at once; short ones are for real, as other processes have to come along."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return time.monotonic() + self.passed

    def wall(self) -> float:
        return time.time() + self.passed

    def minute(self) -> int:
        return 600

    def sleep(self, seconds: float) -> None:
        if seconds < 0.5:
            time.sleep(seconds)
        else:
            self.passed += seconds


class Opened(Actions):
    """A store that is closed when the test forgets it."""

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was refused
            self.close()


@dataclass
class Stage:
    """One server in a folder. `fixed`: what it does with the fixed launch: ready, crash, hang, end, die, loop, refuse.

    `due`: the runtime's own restart of a crash loop, which it counts, comes at the moment of ours.
    """

    folder: Path
    clock: Clock = field(default_factory=Clock)

    @property
    def launch(self) -> Path:
        return self.folder / "launch.sh"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def before(self) -> bytes:
        return (EXAMPLES / "launch.sh").read_bytes()

    @property
    def life(self) -> dict[str, object]:
        return dict(json.loads((self.folder / "life.json").read_text()))

    def live(self, **changes: object) -> None:
        (self.folder / "life.json").write_text(json.dumps({**self.life, **changes}))

    def build(self, fixed: str = "ready", old: str = "crash") -> Stage:
        shutil.copy(EXAMPLES / "server.log", self.log)
        self.launch.write_bytes(self.before)
        self.launch.chmod(0o750)
        first = {"life": "down", "starts": 0, "identity": 1, "fixed": fixed, "old": old, "restarts": 0}
        (self.folder / "life.json").write_text(json.dumps(first))
        return self

    @property
    def server(self) -> Server:
        return Server(
            name="atlas",
            logs=(str(self.log),),
            target=f"script:{self.launch}",
            path_map=(("/models", str(EXAMPLES / "models")),),
            apply="safe",
        )

    def settings(self, **policy: object) -> Settings:
        given = replace(Policy(health_within=60.0), **policy)  # type: ignore[arg-type]
        return Settings(
            servers=(self.server,), policy=given, state=StateSettings(actions=str(self.folder / "apply"))
        )  # fmt: skip

    def edges(self, **changes: object) -> Edges:
        plain = Edges(
            clock=self.clock, runtime=lambda _target, _restart: Runtime(self), run=nothing_there, inspect=inspected
        )  # fmt: skip
        return replace(plain, **changes)  # type: ignore[arg-type]

    def apply(self, *, edges: Edges | None = None, hooks: Hooks | None = None, **changes: object) -> Outcome:
        settings = changes.pop("settings", None) or self.settings()
        request = replace(Request(server=self.server, asked_by="proposal", confirmed=True), **changes)  # type: ignore[arg-type]
        return act.apply(request, settings, book(), edges or self.edges(), hooks)  # type: ignore[arg-type]

    def resume(self) -> Sequence[Outcome]:
        return act.resume(self.settings(), book(), self.edges())


_KNOWN: dict[object, Document] = {}


def inspected(ask: Ask, _limits: object, _clock: object) -> tuple[Document, str]:
    """What the child would answer, without a child: each question is worked out once."""
    key = (ask.incident.error, ask.launch, ask.target, ask.path_maps)
    if key not in _KNOWN:
        models = LocalModels(path_maps=ask.path_maps)
        finding = conclude(ask.incident, book(), models, typed(ask), ask.sglang)
        _KNOWN[key] = dict(finding_object(finding))
    return {**_KNOWN[key]}, ""


def nothing_there(words: Sequence[str]) -> Done:
    """No program is installed."""
    raise ApplyError(f"{words[0]}: is not installed, or not in the PATH")


@dataclass
class Runtime:
    """What runs the server of a stage."""

    stage: Stage

    def state(self) -> State:
        life = self.stage.life
        if life["fixed"] == "loop" and life.get("runs") == "fixed":  # died and started again since the last look
            self.stage.live(starts=int(str(life["starts"])) + 1)
        return State(
            life=Life(str(life["life"])),
            because=f"the server is {life['life']}",
            identity=str(life["identity"]),
            starts=int(str(life["starts"])),
        )

    def prepare(self) -> None:
        """Nothing to take in."""

    def restart(self) -> None:
        life = self.stage.life
        old = b"STANDALONE" in self.stage.launch.read_bytes()
        how = str(life["old"] if old else life["fixed"])
        if how == "refuse":
            raise ApplyError("the runtime refuses")
        identity, restarts = int(str(life["identity"])) + 1, int(str(life["restarts"])) + 1
        if life.get("due"):
            self.stage.live(starts=int(str(life["starts"])) + 1)
        now = {"crash": "down", "die": "down", "end": "unknown"}.get(how, "up")
        self.stage.live(identity=identity, restarts=restarts, life=now, runs="old" if old else "fixed")
        with self.stage.log.open("ab") as log:
            if how == "crash":
                log.write((EXAMPLES / "server.log").read_bytes())
            elif how == "ready":
                log.write((START + READY).encode())
            elif how in ("hang", "loop"):
                log.write(START.encode())

    def commands(self) -> Sequence[Sequence[str]]:
        return (("restart-it", str(self.stage.folder)),)


_BOOK: list[Rulebook] = []


def book() -> Rulebook:
    if not _BOOK:
        _BOOK.append(load_directories([]).book)
    return _BOOK[0]


def main() -> None:
    """Begin an action, or go on with one, and die right after a step."""
    stage, step = Stage(Path(sys.argv[1])), sys.argv[2]

    def die(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    class Deadly(Runtime):
        def restart(self) -> None:
            die("before-restart")
            super().restart()
            die("after-restart")

    edges = stage.edges(runtime=lambda _target, _restart: Deadly(stage))
    hooks = Hooks(step=die)
    if "--resume" in sys.argv:
        act.resume(stage.settings(), book(), edges, hooks)
    else:
        stage.apply(edges=edges, hooks=hooks)


if __name__ == "__main__":
    main()
