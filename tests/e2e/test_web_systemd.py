"""The page out of the hardened unit in a real systemd, and a fix that a person approves on it, to a healthy server."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator

import pytest
from boxes import PATH, ROOT, mounts, write_launchers
from test_apply_systemd import ACTIONS, FAMILIES, MODELS, PORTS, UNITS, Machine

NAME, TOKEN, WEB = "standalone-size", "0123456789abcdef0123456789abcdef", 39117
CONFIG = f"""
[policy]
cooldown = 1
health_within = 60
[state]
dir = '/var/lib/specwatch'
actions = '{ACTIONS}'
[web]
listen = '127.0.0.1:{WEB}'
token_file = '/etc/specwatch/token'
[[server]]
name = '{NAME}'
logs = ['journal:sglang-{NAME}.service']
sglang = '0.5.23'
target = 'systemd:sglang-{NAME}.service'
health = 'http://127.0.0.1:{PORTS[NAME]}/health'
models = ['{MODELS}']
"""
ASK = """
import sys, urllib.error, urllib.request
url, body, token = sys.argv[1:]
headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, body.encode() or None, headers), timeout=10)
except urllib.error.HTTPError as error:
    answer = error
except OSError:
    sys.exit(1)
print(answer.status, answer.read().decode())
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    write_launchers(folder := tmp_path_factory.mktemp("opt"))
    machine = Machine(f"w{os.getpid()}", *(f"--bind-ro={here}:{there}" for here, there in mounts(folder).items()))
    try:
        for unit in UNITS:
            machine.write(f"/etc/systemd/system/{unit}", (ROOT / "systemd" / unit).read_text())
            if unit.endswith(".service"):
                machine.write(f"/etc/systemd/system/{unit}.d/test.conf", f"[Service]\nEnvironment=PATH={PATH}\n")
        machine.write("/etc/specwatch/specwatch.toml", CONFIG)
        machine.write("/etc/specwatch/token", TOKEN)
        machine.write("/etc/specwatch/token.sha256", hashlib.sha256(TOKEN.encode()).hexdigest())
        machine.run("chmod", "600", "/etc/specwatch/token")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "specwatch-apply.path", "specwatch.service", check=False)
        machine.until(lambda: machine.show("specwatch", "ActiveState") == "active", "specwatch")
        yield machine
    finally:
        machine.stop()


def ask(machine: Machine, path: str, body: str = "", token: str = "") -> tuple[int, str]:
    url = f"http://127.0.0.1:{WEB}{path}"
    told = machine.run("/opt/specwatch/bin/python", "-c", ASK, url, body, token, check=False)
    status, _, text = told.partition(" ")
    return int(status or 0), text


def test_a_fix_approved_on_the_page_is_applied_and_nothing_else_is(machine: Machine) -> None:
    machine.until(lambda: ask(machine, "/readyz")[0] == 200, "specwatch")
    first = ask(machine, "/")[1]
    assert "1 of 1 server broken" not in first
    assert "Nothing is broken" not in first, "its endpoint does not answer, and no log tells why"
    machine.server(NAME, *FAMILIES[NAME].wrong)

    def fixes() -> list[str]:
        found = json.loads(ask(machine, "/api/v1/findings?state=firing")[1])["findings"]
        return [fix["id"] for one in found for fix in one["fixes"] if one["verdict"]["status"] == "broken"]

    machine.until(lambda: "drop-speculation" in fixes(), "specwatch", f"sglang-{NAME}", seconds=60)
    assert "1 of 1 server broken" in ask(machine, "/")[1]
    assert f'specwatch_findings_firing{{rule="{FAMILIES[NAME].rule}"' in ask(machine, "/metrics")[1]
    (finding,) = json.loads(ask(machine, "/api/v1/servers")[1])["servers"][0]["firing"]
    path, body = f"/api/v1/findings/{NAME}/{finding}/approve", '{"fix": "drop-speculation"}'

    assert ask(machine, path, body, "f" * 32)[0] == 401
    assert machine.dropin(NAME) == "", "without a person nothing is applied: [[server]] apply is none"
    assert ask(machine, path, body, TOKEN)[0] == 200, machine.journal("specwatch")
    machine.healthy(NAME)
    assert machine.finished(NAME)["event"] == "action_applied", machine.journal("specwatch-apply")
    assert "--speculative" not in machine.dropin(NAME)
    machine.until(lambda: "Nothing is broken" in ask(machine, "/")[1], "specwatch")
    audit = ask(machine, "/audit")[1]
    assert "action applied" in audit, audit
    assert "action planned drop-speculation" in audit, audit
    actions = json.loads(ask(machine, "/api/v1/actions")[1])["actions"]
    assert [(one["server"], one["result"]) for one in actions] == [(NAME, "applied")]
    assert f'specwatch_actions_total{{result="applied",server="{NAME}"}} 1.0' in ask(machine, "/metrics")[1]
    assert TOKEN not in machine.journal("specwatch", "specwatch-apply", lines=1000)
    machine.end(NAME)
