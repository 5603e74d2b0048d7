"""What the tests of the HTTP side share: a seeded store, an application in this process, a real daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from starlette.types import ASGIApp

from specwatch.config import Server, Settings, State, Web
from specwatch.metrics import Metrics
from specwatch.storage.store import Fact, Recovered, Seen, Store, Turned
from specwatch.watching.tally import Tally
from specwatch.web.app import Take, application
from specwatch.web.site import Site

NOW = 1_800_000_000.0
FINDING = "0123456789ab"
T = TypeVar("T")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def document(finding: str = FINDING, **more: object) -> str:
    """A finding as the daemon stores it."""
    fix = {
        "id": "drop-speculation", "applicability": "safe", "why": "same model, same outputs, slower", "because": "",
        "rechecked": True,
        "changes": [{"op": "remove", "flag": "--speculative-algorithm", "old": "EAGLE", "new": None}],
        "argv": ["python"], "env": {}, "command": "python -m sglang.launch_server --model-path /models/a",
    }  # fmt: skip
    return json.dumps({
        "id": finding, "rule": "some-rule", "title": "it broke", "severity": "fatal", "cause": "c",
        "says": "the draft does not fit", "root": {
            "source": "a.log", "line": 7, "offset": 1, "time": "2027-01-15T08:00:00", "ranks": ["TP0"], "run": 1,
            "text": "ValueError: no"},
        "occurrences": 1, "starts": 1, "first_seen": None, "last_seen": None, "echoes": 2, "captures": {},
        "verdict": {"status": "broken", "because": "", "evidence": [
            {"check": "k", "fact": "vocab_size", "value": 320, "source": "/models/a/config.json"}]},
        "message": None, "phase": "serving",
        "launch": {"from": "typed", "sglang": "0.5.23", "argv": ["python", "-m", "x"], "env": {}},
        "fixes": [fix], **more,
    })  # fmt: skip


def seen(server: str = "llama", finding: str = FINDING, at: float = NOW - 600, **more: object) -> Seen:
    """A crash."""
    return Seen(
        key=f"{server} {finding} {at}", server=server, stream=f"{server}|x", place=int(at), at=at,
        fingerprint=finding, severity=str(more.pop("severity", "fatal")),
        excerpt=str(more.pop("excerpt", "")), document=document(finding, **more),
    )  # fmt: skip


class House:
    """A store, and the application over it, in this process. `say` collects what was said."""

    def __init__(self, folder: Path, servers: tuple[str, ...] = ("llama", "qwen"), web: Web | None = None) -> None:
        self.folder = folder
        self.settings = Settings(
            servers=tuple(Server(name=name, logs=("/x",)) for name in servers),
            state=State(dir=str(folder), actions=str(folder / "actions")),
            web=web or Web(listen="127.0.0.1:9117", url="https://watch.example.org/x"),
        )
        self.tally = Tally(started=NOW, turned=100.0, turned_wall=NOW)
        self.said: list[tuple[str, dict[str, object]]] = []
        self.now = 101.0
        self.statuses = {"some-rule": "stable"}
        self.store = Store(folder, self.said.append)  # type: ignore[arg-type]

    def commit(self, *facts: Fact) -> None:
        self.store.commit(facts, NOW)

    def app(self, take: Take = lambda body: body) -> ASGIApp:
        def say(level: str, event: str, **fields: object) -> None:
            self.said.append((event, fields))

        site = Site(
            settings=lambda: self.settings, state=self.folder, tally=self.tally,
            now=lambda: self.now, wall=lambda: NOW, status_of=self.statuses.get,
        )  # fmt: skip
        metrics = Metrics(lambda: self.settings, self.folder, self.tally, lambda: NOW)
        return application(site, metrics.text, take, say)


def lived_in(folder: Path) -> House:
    """A store with some history: a crash loop that fires, one that is over, starts, readiness."""
    house = House(folder)
    runs: list[Fact] = []
    for n in range(3):
        at = NOW - 3000 + n * 600
        runs += [
            Turned(server="llama", stream="llama|x", place=int(at) - 60, kind="started", at=at - 60),
            seen(at=at),
        ]
    house.commit(*runs, seen("qwen", "ffffffffffff", NOW - 9000, says="ran out of memory", rule="out-of-memory"))
    house.commit(
        Turned(server="qwen", stream="qwen|x", place=int(NOW) - 8000, kind="ready", at=NOW - 8000),
        Recovered(server="qwen", stream="qwen|x", place=int(NOW) - 8000, at=NOW - 8000, because="it is ready again"),
    )
    house.tally.last_line.update(llama=NOW - 3, qwen=NOW - 5)
    return house


@contextmanager
def daemon(
    folder: Path, logs: dict[str, Path], more: str = "", of_servers: str = "", ends_by: int = signal.SIGTERM
) -> Iterator[str]:
    """A real `specwatch watch` with its HTTP side on a free port; gives its address. Only it is ended."""
    config = folder / "specwatch.toml"
    servers = "".join(
        f'[[server]]\nname = "{name}"\nlogs = ["{log}"]\nmodels = ["{EXAMPLES / "models"}"]\n'
        f'path_map = {{ "/models" = "{EXAMPLES / "models"}" }}\n{of_servers}'
        for name, log in logs.items()
    )
    config.write_text(
        f'{servers}[state]\ndir = "{folder / "state"}"\nactions = "{folder / "actions"}"\n'
        f'[web]\nlisten = "127.0.0.1:0"\n{more}'
    )
    config.chmod(0o600)
    said = folder / "said.jsonl"
    with said.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "specwatch.cli", "watch", "--config", str(config), "--allow-insecure-permissions"],
            stderr=err, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield f"http://{_listening(said, process)}"
    finally:
        process.send_signal(ends_by)
        code = process.wait(20)
        assert code == (0 if ends_by == signal.SIGTERM else -ends_by), said.read_text()


def _listening(said: Path, process: subprocess.Popen[bytes]) -> str:
    def found() -> str:
        assert process.poll() is None, said.read_text()
        for line in said.read_text().split("\n"):
            if '"web_started"' in line:
                return str(json.loads(line)["listen"])
        return ""

    return until(found)


def until(what: Callable[[], T], within: float = 30.0) -> T:
    """What `what` gives as soon as that is true."""
    end = time.monotonic() + within
    while not (found := what()):
        assert time.monotonic() < end, f"not within {within} s"
        time.sleep(0.05)
    return found


def get(url: str) -> tuple[int, str]:
    """Status and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
