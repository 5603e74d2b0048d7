"""Throw-away machines for tests: a real systemd (sdbox.sh), a real Docker Engine (dockbox.sh), our package inside."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = Path(__file__).with_name("sdbox.sh")
DOCKER = Path(__file__).with_name("dockbox.sh")
PATH = "/opt/specwatch/bin:/usr/bin:/bin:/usr/sbin:/sbin"
STANDIN = "/opt/specwatch/standin/python"
"""A Python that knows the stand-in as `sglang`."""


def until(ask: Callable[[], object], seconds: float, otherwise: Callable[[], str] = lambda: "") -> None:
    """Ask until it is so; fails after a while, with what `otherwise` says."""
    end = time.monotonic() + seconds
    while not ask():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s\n{otherwise()}")
        time.sleep(0.05)


def python_inside() -> str:
    """This interpreter by its path inside a box."""
    return f"/opt/python/{Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())}"


def mounts(launchers: Path) -> dict[Path, str]:
    """What a box sees of this machine, read only: our package, its interpreter, what it imports, our launchers."""
    return {
        launchers: "/opt/specwatch",
        ROOT: "/opt/checkout",
        Path(sys.base_prefix).resolve(): "/opt/python",
        Path(sysconfig.get_path("purelib")): "/opt/site",
    }


def write_launchers(folder: Path) -> None:
    """An environment of Python as it is installed, whose parts are those of this machine; readable for any user."""
    folder.chmod(0o755)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    for made in (packages, folder / "bin", folder / "standin"):
        made.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {python_inside().rpartition('/')[0]}\n")
    (folder / "bin" / "python").symlink_to(python_inside())
    (packages / "parts.pth").write_text("/opt/checkout\n/opt/site\n")
    for path, words in ((folder / "bin" / "specwatch", "-m specwatch.cli"), (folder / "standin" / "python", "")):
        env = "PYTHONPATH=/opt/checkout/tests/e2e/standin" * (not words)
        path.write_text(f'#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 {env} exec /opt/specwatch/bin/python {words} "$@"\n')
        path.chmod(0o755)


class SystemdBox:
    """A running systemd."""

    def __init__(self, name: str, *options: str) -> None:
        self.name = name
        subprocess.run([SYSTEMD, "start", name, *options], check=True, capture_output=True, text=True)
        # the interpreter finds its library by the absolute path that it was built for, for any user
        above = [str(folder) for folder in Path(sys.base_prefix).resolve().parents[:-1]]
        self.run("chmod", "a+rx", *above, check=False)

    def run(self, *command: str, check: bool = True, stdin: str | None = None) -> str:
        done = subprocess.run(
            [SYSTEMD, "exec", self.name, *command], input=stdin, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", f"mkdir -p $(dirname {path}) && cat >{path}", stdin=text)

    def read(self, path: str) -> str:
        return self.run("cat", path)

    def show(self, unit: str, what: str) -> str:
        return self.run("systemctl", "show", unit, "-P", what).strip()

    def journal(self, *units: str, lines: int = 60) -> str:
        wanted = [word for unit in units for word in ("-u", unit)]
        return self.run("journalctl", *wanted, "-n", str(lines), "-o", "cat", "--no-pager", check=False)

    def told(self, *units: str) -> str:
        """The ends of their journals, for people."""
        ends = (self.journal(unit, lines=40) for unit in units)
        return "\n\n".join("\n".join(line[:400] for line in end.split("\n")) for end in ends)

    def until(self, ask: Callable[[], object], *units: str, seconds: float = 30.0) -> None:
        until(ask, seconds, lambda: self.told(*units))

    def stop(self) -> None:
        done = subprocess.run([SYSTEMD, "stop", self.name], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class DockerBox:
    """A running Docker Engine with an image `standin:1`, which is empty but for where its mounts go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([DOCKER, "start", folder], check=True, capture_output=True, text=True)
        plugins = folder / "docker" / "cli-plugins"  # `docker compose`, as where people have it
        plugins.mkdir(parents=True)
        (plugins / "docker-compose").symlink_to(Path(sys.executable).with_name("docker-compose"))
        root = folder / "image"
        for name in ("opt", "tmp", "etc", "run", "usr", "sbin"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        (root / "sbin" / "docker-init").touch()  # for `init: true`
        tar = subprocess.run(["tar", "-C", root, "-c", "."], check=True, capture_output=True).stdout
        done = subprocess.run([*self._words("docker", "import", "-", "standin:1")], input=tar, capture_output=True)
        assert done.returncode == 0, done.stderr

    def _words(self, *command: str) -> list[str]:
        return [str(DOCKER), "exec", str(self.folder), "env", f"DOCKER_CONFIG={self.folder / 'docker'}", *command]

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(self._words(*command), capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *command: str, log: Path) -> subprocess.Popen[bytes]:
        """Run something inside, beside the test; whoever starts it ends it."""
        with log.open("ab") as out:
            return subprocess.Popen(self._words(*command), stdout=out, stderr=out)

    def stop(self) -> None:
        done = subprocess.run([DOCKER, "stop", self.folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Pair:
    """The watcher, and the actor whenever there is a proposal, as the two units would run them.

    `start` and `run` run a command where the server is; `config` is a file, `state` the watcher's directory.
    """

    def __init__(
        self,
        start: Callable[[Sequence[str], Path], subprocess.Popen[bytes]],
        run: Callable[[Sequence[str]], str],
        config: Path,
        state: Path,
    ) -> None:
        self._run, self._config, self._state = run, config, state
        self.log = config.with_name("pair.log")
        self.answers: list[str] = []
        words = ("specwatch", "watch", "--config", str(config), "--state", str(state))
        self._watcher = start(words, self.log)

    def until(self, ask: Callable[[], object], seconds: float) -> None:
        def look() -> object:
            assert self._watcher.poll() is None, self.log.read_text()
            folder = self._state / "proposals"
            if folder.is_dir() and any(folder.iterdir()):
                words = (
                    "specwatch",
                    "apply",
                    "--proposals",
                    "--config",
                    str(self._config),
                    "--state",
                    str(self._state),
                )
                self.answers.append(self._run(words))
            return ask()

        until(look, seconds, self.told)

    def told(self) -> str:
        """What both said last, for people."""
        lines = [*self.log.read_text().split("\n")[-30:], *"\n".join(self.answers).split("\n")[-60:]]
        return "\n".join(line[:400] for line in lines)

    def findings(self) -> list[dict[str, object]]:
        words = ("specwatch", "findings", "list", "--all", "--format", "json", "--state", str(self._state))
        return list(json.loads(self._run(words))["findings"])

    def close(self) -> None:
        self._watcher.terminate()
        self._watcher.wait(20)


def audit(actions: Path, *events: str) -> list[dict[str, object]]:
    """The entries of an audit log; with `events` those only."""
    path = actions / "audit.jsonl"
    lines = path.read_text().split("\n") if path.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [one for one in entries if not events or one["event"] in events]
