"""The unit in a real systemd with a real journald: readiness, watchdog, reload, restarts, the journal as a source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from boxes import PATH, ROOT, SystemdBox, mounts, write_launchers

from specwatch.config import load

UNIT = ROOT / "systemd" / "specwatch.service"


class Box(SystemdBox):
    """A running systemd with the watcher."""

    def findings(self) -> list[dict[str, object]]:
        got = self.run(
            *("/opt/specwatch/bin/specwatch", "findings", "list", "--all", "--format", "json"),
            *("--state", "/var/lib/specwatch"),
            check=False,
        )
        return list(json.loads(got)["findings"]) if got.startswith("{") else []

    def events(self) -> list[str]:
        lines = self.run("journalctl", "-u", "specwatch", "-o", "cat", "--no-pager").split("\n")
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]


CONFIG = """
[[server]]
name = "llama"
logs = ["journal:sglang.service", "/var/log/sglang/*.log"]
"""


def server_unit(log: str) -> str:
    return f"[Service]\nType=oneshot\nExecStart=/bin/sh -c 'cat {log} >&2; exit 1'\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    # the package as this machine has it, under a path that a dynamic user may read
    write_launchers(folder := tmp_path_factory.mktemp("opt"))
    box = Box(f"t{os.getpid()}", *(f"--bind-ro={here}:{there}" for here, there in mounts(folder).items()))
    try:
        box.write("/etc/systemd/system/specwatch.service", UNIT.read_text())
        box.write(
            "/etc/systemd/system/specwatch.service.d/test.conf",
            f"[Service]\nEnvironment=PATH={PATH}\n",
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
    box.until(lambda: box.show("specwatch", "ActiveState") == "active", "specwatch", seconds=1.0)
    assert box.show("specwatch", "ActiveState") == "active"
    assert "watch_started" in box.events()

    # a server crashes into the journal
    box.run("systemctl", "start", "sglang", check=False)
    box.until(lambda: box.findings(), "specwatch")
    (finding,) = box.findings()
    assert finding["rule"] == "standalone-vocab-mismatch"
    root = finding["root"]
    assert isinstance(root, dict)
    assert root["source"] == "journal:sglang.service"

    # killed: started again by systemd, and nothing is said twice
    pid = box.show("specwatch", "MainPID")
    box.run("kill", "-9", pid)
    box.until(
        lambda: box.show("specwatch", "MainPID") not in ("0", pid) and box.show("specwatch", "ActiveState") == "active",
        "specwatch",
    )
    box.run("systemctl", "start", "sglang", check=False)  # another invocation: another run
    box.until(lambda: box.findings()[0]["occurrences"] == 2, "specwatch")
    assert box.events().count("finding_raised") == 1

    # a file, written by somebody else
    box.write("/var/log/sglang/other.log", (ROOT / "examples" / "server.log").read_text().replace("384", "383"))
    box.until(lambda: box.findings()[0]["occurrences"] == 3 or len(box.findings()) == 2, "specwatch")

    # a reload that fails keeps the old configuration, one that succeeds takes the new
    box.write("/etc/specwatch/specwatch.toml", CONFIG + "\n[[servers]]\n")
    box.run("systemctl", "reload", "specwatch")
    box.until(lambda: "configuration_refused" in box.events(), "specwatch")
    assert box.show("specwatch", "ActiveState") == "active"
    box.write("/etc/specwatch/specwatch.toml", CONFIG + '\n[[server]]\nname = "two"\nlogs = ["/var/log/two.log"]\n')
    box.run("systemctl", "reload", "specwatch")
    box.until(lambda: "configuration_reloaded" in box.events(), "specwatch")

    # one that hangs is killed by the watchdog
    box.write("/etc/systemd/system/specwatch.service.d/dog.conf", "[Service]\nWatchdogSec=2\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "specwatch")
    pid = box.show("specwatch", "MainPID")
    fed: set[str] = set()
    timestamp = "WatchdogTimestampMonotonic"
    box.until(lambda: fed.add(box.show("specwatch", timestamp)) or len(fed) > 4, "specwatch")  # type: ignore[func-returns-value]
    assert box.show("specwatch", "MainPID") == pid, "a daemon without anything to do is no hanging one"
    box.run("kill", "-STOP", pid)
    box.until(lambda: box.show("specwatch", "NRestarts") != "0", "specwatch")
    box.until(lambda: box.show("specwatch", "ActiveState") == "active", "specwatch")

    box.run("systemctl", "stop", "specwatch")
    assert box.show("specwatch", "Result") == "success"
    assert box.events()[-1] == "watch_ended"


@pytest.mark.parametrize(("unit", "most"), [("specwatch.service", 15), ("specwatch-apply.service", 25)])
def test_the_units_are_confined(unit: str, most: int) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", UNIT.with_name(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_units_are_well_formed(tmp_path: Path) -> None:
    names = ("sglang-example.service", "specwatch-apply.service", "specwatch-apply.path")
    for unit in (UNIT, *(UNIT.with_name(name) for name in names)):
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
