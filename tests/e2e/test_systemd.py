"""The unit in a real systemd with a real journald: readiness, watchdog, reload, restarts, the journal as a source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from specwatch.config import load

ROOT = Path(__file__).resolve().parents[2]
BOX = Path(__file__).with_name("sdbox.sh")
UNIT = ROOT / "systemd" / "specwatch.service"


class Box:
    """A running systemd."""

    def __init__(self, name: str, *options: str) -> None:
        self.name = name
        subprocess.run([BOX, "start", name, *options], check=True, capture_output=True, text=True)

    def run(self, *command: str, check: bool = True, stdin: str | None = None) -> str:
        done = subprocess.run(
            [BOX, "exec", self.name, *command], input=stdin, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", f"mkdir -p $(dirname {path}) && cat >{path}", stdin=text)

    def until(self, ask: Callable[[], object], seconds: float = 30.0) -> None:
        """Ask until it is so; fails after a while."""
        end = time.monotonic() + seconds
        while not ask():
            if time.monotonic() > end:
                log = self.run("journalctl", "-u", "specwatch", "-n", "30", "-o", "cat", check=False)
                raise AssertionError(f"not within {seconds} s; the journal of specwatch ends with\n{log}")
            time.sleep(0.05)

    def show(self, what: str) -> str:
        return self.run("systemctl", "show", "specwatch", "-P", what).strip()

    def findings(self) -> list[dict[str, object]]:
        got = self.run(
            *(
                "env",
                "PYTHONPATH=/opt/checkout:/opt/site",
                "/opt/specwatch/bin/specwatch",
                "findings",
                "list",
                "--all",
                "--format",
                "json",
            ),
            *("--state", "/var/lib/specwatch"),
            check=False,
        )
        return list(json.loads(got)["findings"]) if got.startswith("{") else []

    def events(self) -> list[str]:
        lines = self.run("journalctl", "-u", "specwatch", "-o", "cat", "--no-pager").split("\n")
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]

    def stop(self) -> None:
        done = subprocess.run([BOX, "stop", self.name], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


CONFIG = """
[[server]]
name = "llama"
logs = ["journal:sglang.service", "/var/log/sglang/*.log"]
"""


def server_unit(log: str) -> str:
    return f"[Service]\nType=oneshot\nExecStart=/bin/sh -c 'cat {log} >&2; exit 1'\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    name = f"t{os.getpid()}"
    # the package as this machine has it, under a path that a dynamic user may read
    folder = tmp_path_factory.mktemp("opt")
    folder.chmod(0o755)
    launcher = folder / "bin" / "specwatch"
    launcher.parent.mkdir()
    python = Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())
    launcher.write_text(f'#!/bin/sh\nexec /opt/python/{python} -m specwatch.cli "$@"\n')
    launcher.chmod(0o755)
    box = Box(
        name,
        f"--bind-ro={folder}:/opt/specwatch",
        f"--bind-ro={ROOT}:/opt/checkout",
        f"--bind-ro={Path(sys.base_prefix).resolve()}:/opt/python",
        f"--bind-ro={sysconfig.get_path('purelib')}:/opt/site",
    )
    try:
        box.write("/etc/systemd/system/specwatch.service", UNIT.read_text())
        box.write(
            "/etc/systemd/system/specwatch.service.d/test.conf",
            "[Service]\nEnvironment=PYTHONPATH=/opt/checkout:/opt/site PATH=/opt/specwatch/bin:/usr/bin:/bin\n",
        )
        box.write("/etc/specwatch/specwatch.toml", CONFIG)
        crash = (ROOT / "examples" / "server.log").read_text()
        box.write("/srv/crash.log", crash)
        box.write("/etc/systemd/system/sglang.service", server_unit("/srv/crash.log"))
        box.run("mkdir", "-p", "/var/log/sglang")
        box.run("systemctl", "daemon-reload")
        yield box
    finally:
        box.stop()


def test_the_unit_from_start_to_stop(box: Box) -> None:
    box.run("systemctl", "start", "specwatch", check=False)  # Type=notify: comes back once it is ready
    box.until(lambda: box.show("ActiveState") == "active", 1.0)
    assert box.show("ActiveState") == "active"
    assert "watch_started" in box.events()

    # a server crashes into the journal
    box.run("systemctl", "start", "sglang", check=False)
    box.until(lambda: box.findings())
    (finding,) = box.findings()
    assert finding["rule"] == "standalone-vocab-mismatch"
    root = finding["root"]
    assert isinstance(root, dict)
    assert root["source"] == "journal:sglang.service"

    # killed: started again by systemd, and nothing is said twice
    pid = box.show("MainPID")
    box.run("kill", "-9", pid)
    box.until(lambda: box.show("MainPID") not in ("0", pid) and box.show("ActiveState") == "active")
    box.run("systemctl", "start", "sglang", check=False)  # another invocation: another run
    box.until(lambda: box.findings()[0]["occurrences"] == 2)
    assert box.events().count("finding_raised") == 1

    # a file, written by somebody else
    box.write("/var/log/sglang/other.log", (ROOT / "examples" / "server.log").read_text().replace("384", "383"))
    box.until(lambda: box.findings()[0]["occurrences"] == 3 or len(box.findings()) == 2)

    # a reload that fails keeps the old configuration, one that succeeds takes the new
    box.write("/etc/specwatch/specwatch.toml", CONFIG + "\n[[servers]]\n")
    box.run("systemctl", "reload", "specwatch")
    box.until(lambda: "configuration_refused" in box.events())
    assert box.show("ActiveState") == "active"
    box.write("/etc/specwatch/specwatch.toml", CONFIG + '\n[[server]]\nname = "two"\nlogs = ["/var/log/two.log"]\n')
    box.run("systemctl", "reload", "specwatch")
    box.until(lambda: "configuration_reloaded" in box.events())

    # one that hangs is killed by the watchdog
    box.write("/etc/systemd/system/specwatch.service.d/dog.conf", "[Service]\nWatchdogSec=2\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "specwatch")
    pid = box.show("MainPID")
    fed: set[str] = set()
    box.until(lambda: fed.add(box.show("WatchdogTimestampMonotonic")) or len(fed) > 4)  # type: ignore[func-returns-value]
    assert box.show("MainPID") == pid, "a daemon without anything to do is no hanging one"
    box.run("kill", "-STOP", pid)
    box.until(lambda: box.show("NRestarts") != "0")
    box.until(lambda: box.show("ActiveState") == "active")

    box.run("systemctl", "stop", "specwatch")
    assert box.show("Result") == "success"
    assert box.events()[-1] == "watch_ended"


def test_the_unit_is_confined() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=15", UNIT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_units_are_well_formed(tmp_path: Path) -> None:
    for unit in (UNIT, UNIT.with_name("sglang-example.service")):
        text = unit.read_text().replace("/opt/sglang/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / unit.name], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert unit.name not in done.stderr


def test_the_daemon_set_fits_the_schemas_of_kubernetes() -> None:
    program = Path(sys.executable).with_name("kubernetes-validate")
    done = subprocess.run(
        [program, "--strict", ROOT / "deploy" / "kubernetes.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_in_the_daemon_set_is_understood(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
    (config,) = [one for one in documents if one["kind"] == "ConfigMap"]
    (path := tmp_path / "specwatch.toml").write_text(config["data"]["specwatch.toml"])
    assert load(path, allow_insecure=True).servers[0].logs == ("pods:*/sglang-*/sglang",)
