"""Crash loops in a real systemd end healthy without a hand: the watcher proposes, a path unit wakes the actor, it acts.

The servers are stand-ins (standin/sglang_standin.py) that fail as the real one does, and serve once their launch is
right.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from boxes import PATH, ROOT, STANDIN, SystemdBox, mounts, write_launchers

from specwatch.acting.proposals import Proposal, dumps, occurrence_of

UNITS = ("specwatch.service", "specwatch-apply.service", "specwatch-apply.path")
MODELS = "/opt/checkout/tests/data/oracle/models"
ALERTS = "/var/lib/specwatch/alerts"
STATE, ACTIONS = "/var/lib/private/specwatch", "/var/lib/specwatch-apply"
MASK = '{"dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 1000}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A way to fail: what stands in the launch, the rule that knows it, what is gone and what is there afterwards."""

    wrong: tuple[str, ...]
    rule: str
    gone: str
    there: str = ""
    apply: str = "safe"


def drafted(algorithm: str, draft: str, *more: str) -> tuple[str, ...]:
    path = f"{MODELS}/{draft}"
    return ("--speculative-algorithm", algorithm, "--speculative-draft-model-path", path, *more)


FAMILIES = {
    "standalone-size": Family(
        wrong=drafted("STANDALONE", "c_draft_bad"), rule="standalone-vocab-mismatch", gone="--speculative"
    ),
    "standalone-map": Family(
        wrong=drafted("STANDALONE", "c_draft_difftok"), rule="standalone-vocab-mismatch", gone="--speculative"
    ),
    "dflash-mask-draft": Family(
        wrong=drafted("DFLASH", "c_df_maskout"), rule="dflash-mask-token-out-of-range", gone="--speculative"
    ),
    "dflash-mask-override": Family(
        wrong=drafted("DFLASH", "c_df_ok", "--json-model-override-args", MASK),
        rule="dflash-mask-token-out-of-range",
        gone="--json-model-override-args",
        there="--speculative-algorithm DFLASH",
    ),
    "dflash-layers": Family(
        wrong=drafted("DFLASH", "c_df_lay"), rule="dflash-target-layers-out-of-range", gone="--speculative"
    ),
    "dflash-no-draft": Family(
        wrong=("--speculative-algorithm", "DFLASH"), rule="dflash-without-draft", gone="--speculative"
    ),
    "dspark-mask": Family(
        wrong=drafted("DSPARK", "c_ds_maskout"), rule="dspark-mask-token-out-of-range", gone="--speculative"
    ),
    "eagle3-context": Family(
        wrong=drafted("EAGLE3", "c_eagle3"),
        rule="draft-context-too-short",
        gone="--speculative",
    ),
    "algorithm-name": Family(
        wrong=drafted("STANDALON", "c_draft_ok"),
        rule="unknown-speculative-algorithm",
        gone="STANDALON ",
        there="--speculative-algorithm STANDALONE",
    ),
    "dtype-name": Family(wrong=("--dtype", "bf16"), rule="invalid-choice", gone="bf16 ", there="--dtype bfloat16"),
    "other-servers-flag": Family(
        wrong=("--max-model-len", "2048"),
        rule="unrecognized-arguments",
        gone="--max-model-len",
        there="--context-length 2048",
        apply="review",
    ),
}
STEPS = ("planned", "bundled", "kept", "written", "restarted", "waiting")
EXTRA = {"no-help": "safe", "forged": "safe", **{f"killed-{step}": "safe" for step in STEPS}}
NAMES = [*FAMILIES, *EXTRA]
PORTS = {name: 31000 + number for number, name in enumerate(NAMES)}
CONFIG = "\n".join(
    [
        "[policy]\nmode = 'review'\ncooldown = 1\nbreaker = 1\nhealth_within = 60\nfleet = 20\n",
        f"[state]\ndir = '/var/lib/specwatch'\nactions = '{ACTIONS}'\n",
        f"[[alert]]\nkind = 'command'\ncommand = ['/usr/bin/tee', '-a', '{ALERTS}']\n",
        *(
            f"[[server]]\nname = '{name}'\nlogs = ['journal:sglang-{name}.service']\nsglang = '0.5.23'\n"
            f"target = 'systemd:sglang-{name}.service'\nhealth = 'http://127.0.0.1:{port}/health'\n"
            f"apply = '{FAMILIES[name].apply if name in FAMILIES else EXTRA[name]}'\n"
            for name, port in PORTS.items()
        ),
    ]
)


def launch(name: str, *wrong: str) -> str:
    words = ("--model-path", f"{MODELS}/c_target", "--load-format", "dummy", "--port", str(PORTS[name]), *wrong)
    return f"{STANDIN} -m sglang.launch_server {shlex.join(words)}"


class Machine(SystemdBox):
    """A box with the watcher and the actor as they are installed."""

    def server(self, name: str, *wrong: str, load: float = 0.0) -> None:
        """Let a server crash in a loop, without the limit at which systemd gives up."""
        self.write(
            f"/etc/systemd/system/sglang-{name}.service",
            f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nEnvironment=STANDIN_LOAD={load}\n"
            f"ExecStart={launch(name, *wrong)}\nRestart=always\nRestartSec=2\n",
        )
        self.run("systemctl", "daemon-reload")
        self.run("systemctl", "start", f"sglang-{name}")

    def end(self, name: str) -> None:
        """Stop a server; what was written down of it and of all others has to hold."""
        self.run("systemctl", "stop", f"sglang-{name}", check=False)
        self.specwatch("audit", "verify", "--config", "/etc/specwatch/specwatch.toml")
        assert self.show("specwatch", "ActiveState") == "active"
        assert self.run("find", STATE, "-user", "root") == "", "the actor leaves nothing in the watcher's place"

    def answers(self, name: str) -> bool:
        ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{PORTS[name]}/health', timeout=2).status)"
        return self.run("/opt/specwatch/bin/python", "-c", ask, check=False).strip() == "200"

    def healthy(self, name: str, seconds: float = 90.0) -> None:
        units = ("specwatch", "specwatch-apply", f"sglang-{name}")
        self.until(lambda: self.answers(name), *units, seconds=seconds)

    def finished(self, name: str, seconds: float = 60.0) -> dict[str, Any]:
        """The last entry of a server's last action, once that is over."""
        over: list[dict[str, Any]] = []

        def look() -> bool:
            over[:] = [one for one in self.audit(name) if one["event"] in ENDS]
            return bool(over)

        self.until(look, "specwatch", "specwatch-apply", seconds=seconds)
        return over[-1]

    def dropin(self, name: str) -> str:
        return self.run("cat", f"/etc/systemd/system/sglang-{name}.service.d/specwatch.conf", check=False)

    def specwatch(self, *words: str, check: bool = True) -> str:
        return self.run("/opt/specwatch/bin/specwatch", *words, check=check)

    def audit(self, name: str = "") -> list[dict[str, Any]]:
        lines = self.run("cat", f"{ACTIONS}/audit.jsonl", check=False).split("\n")
        entries = [json.loads(line) for line in lines if line.endswith("}")]
        return [one for one in entries if name in ("", one["server"])]

    def findings(self, name: str) -> list[dict[str, Any]]:
        told = self.specwatch("findings", "list", "--all", "--format", "json", "--state", STATE, check=False)
        return [one for one in json.loads(told)["findings"] if one["server"] == name]

    def leave(self, *files: tuple[str, str]) -> None:
        """Put files where the watcher puts its proposals, all at once, as somebody who has taken it over."""
        for name, text in files:
            self.write(f"{STATE}/forged/{name}", text)
        self.run("sh", "-c", f"mv {STATE}/forged/* {STATE}/proposals/ && rmdir {STATE}/forged")

    def refusals(self) -> list[str]:
        return [one["body"]["because"] for one in self.audit() if one["event"] == "proposal_refused"]

    def requests_refused(self, name: str) -> list[str]:
        return [one["body"]["because"] for one in self.audit(name) if one["event"] == "request_refused"]


ENDS = ("action_applied", "action_rolled_back", "action_failed")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    write_launchers(folder := tmp_path_factory.mktemp("opt"))
    machine = Machine(f"a{os.getpid()}", *(f"--bind-ro={here}:{there}" for here, there in mounts(folder).items()))
    try:
        for unit in UNITS:
            machine.write(f"/etc/systemd/system/{unit}", (ROOT / "systemd" / unit).read_text())
            if unit.endswith(".service"):
                machine.write(
                    f"/etc/systemd/system/{unit}.d/test.conf",
                    f"[Service]\nEnvironment=PATH={PATH}\n",
                )
        # tests propose faster than any watcher does
        machine.write("/etc/systemd/system/specwatch-apply.path.d/test.conf", "[Path]\nTriggerLimitBurst=1000\n")
        machine.write("/etc/systemd/system/specwatch-apply.service.d/often.conf", "[Unit]\nStartLimitBurst=1000\n")
        machine.write("/etc/specwatch/specwatch.toml", CONFIG)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "specwatch-apply.path", "specwatch.service", check=False)
        machine.until(lambda: machine.show("specwatch", "ActiveState") == "active", "specwatch")
        yield machine
    finally:
        machine.stop()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_crash_loop_ends_healthy_without_a_hand(machine: Machine, name: str) -> None:
    family = FAMILIES[name]
    machine.server(name, *family.wrong)
    machine.healthy(name)
    end = machine.finished(name)
    assert end["event"] == "action_applied", machine.journal("specwatch-apply")
    written = machine.dropin(name) + " "
    assert written.strip()
    assert not family.gone or family.gone not in written.replace("\n", " ")
    assert family.there in written
    machine.until(lambda: "firing" not in {one["state"] for one in machine.findings(name)}, "specwatch")
    assert (family.rule, "resolved") in {(one["rule"], one["state"]) for one in machine.findings(name)}
    assert [one["event"] for one in machine.audit(name)].count("proposal_taken") == 1
    machine.end(name)


def test_a_fix_that_does_not_help_ends_in_the_old_launch_and_an_open_breaker(machine: Machine) -> None:
    name, family = "no-help", FAMILIES["standalone-size"]
    before = launch(name, *family.wrong)
    # somebody holds the port: what the models prove is mended, and the server cannot come up all the same
    hold = f"import socket, time; s = socket.socket();s.bind(('127.0.0.1', {PORTS[name]})); time.sleep(1000)"
    machine.run("systemd-run", "--unit=holder", "/opt/specwatch/bin/python", "-c", hold)
    machine.server(name, *family.wrong)
    end = machine.finished(name)
    assert end["event"] == "action_rolled_back", machine.journal("specwatch-apply", f"sglang-{name}")
    assert machine.dropin(name) == "", "the old launch stands as if nothing had been"
    shown = machine.run("systemctl", "show", f"sglang-{name}", "-P", "ExecStart")
    assert before.rpartition(" ")[2] in shown
    machine.until(lambda: machine.show(f"sglang-{name}", "NRestarts") != "0", f"sglang-{name}")  # the loop goes on
    events = [one["event"] for one in machine.audit(name)]
    assert "breaker_tripped" in events
    assert "firing" in {one["state"] for one in machine.findings(name)}
    machine.until(lambda: name in machine.run("cat", ALERTS, check=False), "specwatch")  # and somebody is told
    # what is proposed from here on is refused, and the unit is left alone
    machine.leave(proposal(machine, name))
    machine.until(lambda: machine.requests_refused(name), "specwatch", "specwatch-apply")
    assert "drop-speculation was tried for this finding (rolled_back)" in machine.requests_refused(name)[-1]
    assert machine.dropin(name) == ""
    machine.end(name)
    machine.run("systemctl", "stop", "holder")


def proposal(machine: Machine, name: str, **changes: object) -> tuple[str, str]:
    """A proposal as the watcher would leave it, with something else in it; the name of its file, and its text."""
    finding = next(one["id"] for one in machine.findings(name) if one["fixes"])
    made = Proposal(
        server=str(changes.get("server", name)),
        finding=str(changes.get("finding", finding)),
        fix="drop-speculation",
        occurrence=occurrence_of(f"{name} {changes}"),
        created=float(machine.run("date", "+%s")),
        specwatch="0.1.0",
        approval=str(changes.get("approval", "")),
    )
    return made.file_name, json.dumps({**json.loads(dumps(made)), **changes})


def test_a_forged_replayed_stale_or_edited_proposal_is_refused(machine: Machine) -> None:
    name = "forged"
    machine.server(name, *FAMILIES["standalone-size"].wrong)
    assert machine.finished(name)["event"] == "action_applied"
    machine.healthy(name)
    before = machine.dropin(name)
    restarts = machine.show(f"sglang-{name}", "ExecMainStartTimestampMonotonic")
    taken = next(one["body"]["key"] for one in machine.audit(name) if one["event"] == "proposal_taken")
    forged: dict[str, dict[str, object]] = {
        "names no server sshd": {"server": "sshd"},
        "stale": {"created": 1_000_000_000.0},
        "future": {"created": 4_000_000_000.0},
        "exactly": {"command": "reboot"},
        "fix is none": {"fix": "x; reboot"},
        "names no token_file": {"approval": "0" * 64},
        "replay": {"occurrence": taken},
    }
    files = [proposal(machine, name, **{"finding": f"{n:012x}", **held}) for n, held in enumerate(forged.values())]
    machine.leave(*files, ("a.json", "x" * 5000), ("b.json", ""), ("c.json", proposal(machine, name)[1]))
    machine.until(lambda: len(machine.refusals()) >= 10, "specwatch-apply")
    for says in (*forged, "larger", "is no JSON", "is not the name"):
        assert [one for one in machine.refusals() if says in one], f"{says}: {machine.refusals()}"
    assert not machine.run("ls", "-A", f"{STATE}/proposals").strip()

    # one that is right in form, for a server that is well: what it says is not believed
    assert not machine.requests_refused(name)
    machine.leave(proposal(machine, name))
    machine.until(lambda: machine.requests_refused(name), "specwatch-apply")
    assert "no crash after which it was not ready again" in machine.requests_refused(name)[-1]
    assert [one["event"] for one in machine.audit(name)].count("action_planned") == 1

    assert machine.dropin(name) == before
    assert machine.show(f"sglang-{name}", "ExecMainStartTimestampMonotonic") == restarts
    machine.end(name)


def test_what_is_put_there_leads_nowhere_else(machine: Machine) -> None:
    before = len(machine.refusals())
    machine.run("install", "-d", "-o", machine.run("stat", "-c", "%U", STATE).strip(), f"{STATE}/proposals")
    machine.run("sh", "-c", f"mkdir -p /srv/keep && touch /srv/keep/it && ln -s /srv/keep {STATE}/proposals/link")
    machine.run("sh", "-c", f"mkfifo {STATE}/proposals/pipe; mkdir -p {STATE}/proposals/folder/in")
    machine.until(lambda: len(machine.refusals()) >= before + 3, "specwatch-apply")
    machine.until(lambda: not machine.run("ls", "-A", f"{STATE}/proposals").strip(), "specwatch-apply")
    assert machine.run("ls", "/srv/keep").strip() == "it"


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_the_middle_it_ends_all_the_same(machine: Machine, step: str) -> None:
    name, family = f"killed-{step}", FAMILIES["standalone-size"]
    kill = (
        f'while ! grep -q \'"action_{step}".*"{name}"\\|"{name}".*"action_{step}"\' {ACTIONS}/audit.jsonl; do :; done;'
        "systemctl kill -s KILL specwatch-apply.service"
    )
    machine.run("systemd-run", f"--unit=killer-{step}", "/bin/sh", "-c", kill)
    machine.server(name, *family.wrong, load=1.0)
    end = machine.finished(name, seconds=120)
    assert machine.show(f"killer-{step}", "Result") == "success"
    written = machine.dropin(name)
    if end["event"] == "action_applied":
        machine.healthy(name)
        assert "--speculative" not in written
        assert "ExecStart=" in written
    else:
        assert end["event"] == "action_rolled_back", machine.journal("specwatch-apply")
        assert written == ""
    machine.end(name)
