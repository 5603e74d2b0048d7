"""`specwatch watch` and `specwatch findings` as a user runs them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import jsonschema
import pytest

Run = Callable[..., "CompletedProcess[str]"]
SCHEMA = json.loads((Path(__file__).parents[2] / "specwatch/report/diagnose.schema.json").read_text("utf-8"))
CLI = [sys.executable, "-m", "specwatch.cli"]


@pytest.fixture
def state(tmp_path: Path) -> list[str]:
    return ["--state", str(tmp_path / "state")]


def test_once_reads_to_the_end_and_repeats_nothing(specwatch: Run, examples: Path, state: list[str]) -> None:
    first = specwatch("watch", "--once", *state, "--log", examples / "server.log")
    assert first.returncode == 1, first.stderr
    events = [json.loads(line)["event"] for line in first.stderr.strip().split("\n")]
    assert events == ["watch_started", "stream_followed", "finding_raised", "watch_ended"]
    second = specwatch("watch", "--once", *state, "--log", examples / "server.log")
    assert second.returncode == 1, "it still fires"
    assert "finding_raised" not in second.stderr


def test_findings_are_listed_shown_and_exported(specwatch: Run, examples: Path, state: list[str]) -> None:
    specwatch("watch", "--once", *state, "--log", examples / "server.log")
    listed = specwatch("findings", "list", *state)
    assert listed.returncode == 1
    assert "firing     fatal    server  standalone-vocab-mismatch" in listed.stdout
    answer = json.loads(specwatch("findings", "list", *state, "--format", "json").stdout)
    (finding,) = answer["findings"]
    assert answer["schema"] == 1
    whole = {"schema": 1, "specwatch": "0.0.0", "sources": [], "findings": [finding]}
    jsonschema.validate(whole, SCHEMA)
    shown = specwatch("findings", "show", finding["id"], *state)
    assert shown.returncode == 0
    assert "ValueError: STANDALONE speculative decoding" in shown.stdout
    assert f"{examples / 'server.log'}:83" in shown.stdout
    assert json.loads(specwatch("findings", "export", *state).stdout) == finding
    assert specwatch("findings", "show", "nothing", *state).returncode == 2


def test_findings_without_a_store(specwatch: Run, state: list[str]) -> None:
    done = specwatch("findings", "list", *state)
    assert done.returncode == 2
    assert "holds no store" in done.stderr


def test_standard_input(specwatch: Run, examples: Path, state: list[str]) -> None:
    done = specwatch("watch", *state, "--log", "-", stdin=(examples / "server.log").read_bytes())
    assert done.returncode == 1, done.stderr
    assert "finding_raised" in done.stderr


def test_a_wrapped_server_is_not_changed(examples: Path, state: list[str]) -> None:
    """Output of both kinds, byte for byte, and the exit code; the finding besides."""
    log = examples / "server.log"
    script = f"cat {log} >&2; printf 'no newline'; exit 37"
    done = subprocess.run([*CLI, "watch", *state, "--", "sh", "-c", script], capture_output=True, check=False)
    assert done.returncode == 37
    assert done.stdout == b"no newline"
    ours = [line for line in done.stderr.split(b"\n") if b'"event":' in line]
    rest = b"\n".join(line for line in done.stderr.split(b"\n") if b'"event":' not in line)
    assert rest == log.read_bytes()
    assert any(b'"finding_raised"' in line for line in ours)


@pytest.mark.parametrize(("how", "code"), [("trap 'exit 5' TERM; echo up; read x", 5), ("echo up; exec sleep 60", 143)])
def test_signals_reach_a_wrapped_server(state: list[str], how: str, code: int) -> None:
    with subprocess.Popen(
        [*CLI, "watch", *state, "--", "bash", "-c", how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as watch:  # fmt: skip
        assert watch.stdout is not None
        assert watch.stdout.readline() == b"up\n"
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(20) == code


def test_a_command_that_does_not_exist(specwatch: Run, state: list[str]) -> None:
    done = specwatch("watch", *state, "--", "/nonexistent/server")
    assert done.returncode == 3
    assert "cannot be started" in done.stderr


def test_the_configuration_is_checked_and_shown(specwatch: Run, tmp_path: Path) -> None:
    config = tmp_path / "specwatch.toml"
    config.write_text('[[server]]\nname = "a"\nlogs = ["/var/log/a.log"]\n[web]\n')
    config.chmod(0o644)
    done = specwatch("watch", "--check-config", "--config", config)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("rules: fine\n")
    assert done.stderr == ""
    assert 'logs = ["/var/log/a.log"]' in specwatch("watch", "--print-config", "--config", config).stdout
    config.write_text('[[server]]\nnmae = "a"\n')
    done = specwatch("watch", "--check-config", "--config", config)
    assert done.returncode == 2
    assert f"{config}:2: [server] nmae: is not known; did you mean name?" in done.stderr


def test_no_secret_of_a_watched_log_reaches_ours(specwatch: Run, state: list[str], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-07-02 09:14:31] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
        "    raise\nFrobnicationError: HF_TOKEN=s3cr3t-Value-1234 \x1b[31mred\n\n"
        "[2026-07-02 09:14:31] Received sigquit from a child process. It usually means the child failed.\n"
    )
    done = specwatch("watch", "--once", *state, "--log", log)
    assert done.returncode == 1, done.stderr
    listed = specwatch("findings", "export", *state).stdout + specwatch("findings", "list", *state).stdout
    assert "s3cr3t" not in done.stderr + listed
    assert "\x1b" not in done.stderr + listed


def test_a_broken_rule_does_not_keep_the_others_from_watching(
    specwatch: Run, examples: Path, state: list[str], tmp_path: Path
) -> None:
    (rules := tmp_path / "rules").mkdir(mode=0o755)
    (rules / "x.toml").write_text("nonsense = 1\n")
    (rules / "x.toml").chmod(0o644)
    config = tmp_path / "specwatch.toml"
    config.write_text(f'[[server]]\nname = "a"\nlogs = ["{examples / "server.log"}"]\n[watch]\nrules = ["{rules}"]\n')
    config.chmod(0o644)
    done = specwatch("watch", "--once", *state, "--config", config)
    assert done.returncode == 1, done.stderr
    events = [json.loads(line) for line in done.stderr.strip().split("\n")]
    (refused,) = (event for event in events if event["event"] == "rule_refused")
    assert "x.toml" in refused["because"]
    assert "finding_raised" in {event["event"] for event in events}


def test_broken_rules_are_refused(specwatch: Run, tmp_path: Path) -> None:
    (rules := tmp_path / "rules").mkdir(mode=0o755)
    (rules / "x.toml").write_text("nonsense = 1\n")
    (rules / "x.toml").chmod(0o644)
    config = tmp_path / "specwatch.toml"
    config.write_text(f'[[server]]\nname = "a"\nlogs = ["/var/log/a.log"]\n[watch]\nrules = ["{rules}"]\n')
    config.chmod(0o644)
    done = specwatch("watch", "--check-config", "--config", config)
    assert done.returncode == 2
    assert "x.toml" in done.stderr


def test_nothing_to_watch(specwatch: Run, state: list[str]) -> None:
    done = specwatch("watch", *state)
    assert done.returncode == 2
    assert "nothing to watch" in done.stderr


MODES = {
    "create": "create",
    "nocreate": "nocreate",
    "copytruncate": "copytruncate",
    "compress": "create\ncompress",
    "delaycompress": "create\ncompress\ndelaycompress",
    "dateext": "create\ndateext\ndateformat -%Y%m%d-TURN",
    "extension": "create\nextension .log",
    "copytruncate-compress": "copytruncate\ncompress",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("running", [True, False], ids=["while-we-run", "while-we-are-down"])
def test_a_real_logrotate_in_all_its_modes(tmp_path: Path, mode: str, running: bool) -> None:
    """Every line comes once, whatever logrotate does to the file between two looks."""
    from specwatch.sources.file import Followed

    program = shutil.which("logrotate") or "/usr/sbin/logrotate"
    tmp_path.chmod(0o755)
    log, config = tmp_path / "server.log", tmp_path / "rotate.conf"
    config.touch(0o644)
    source, position = Followed(log, "s"), None
    written: list[str] = []
    got: list[str] = []

    def read() -> None:
        got.extend(raw.text for raw in source.read(0.0))
        while source.more:
            got.extend(raw.text for raw in source.read(0.0))

    for turn in range(6):
        # a rotation in the same second would otherwise overwrite the one before
        options = MODES[mode].replace("TURN", str(turn))
        config.write_text(f"{log} {{\nsu root root\nrotate 40\n{options}\n}}\n")
        with log.open("a") as file:
            for number in range(3):
                written.append(f"[2026-01-01 00:00:00] turn {turn} line {number} {'.' * 300}")
                file.write(written[-1] + "\n")
        if running or turn % 2 == 0:
            if position is not None and not running:
                source = Followed(log, "s", position)
            read()
            source.mark()
            if not running:
                position = json.loads(json.dumps(source.position()))
                source.close()
        with log.open("a") as file:
            written.append(f"[2026-01-01 00:00:01] turn {turn} just before the rotation {'.' * 300}")
            file.write(written[-1] + "\n")
        subprocess.run([program, "-f", "-s", tmp_path / "rotate.state", config], check=True)
        if not log.exists():
            log.touch()
    source = source if running else Followed(log, "s", position)
    read()
    source.close()
    assert [line for line in written if line not in got] == []
    assert len(got) == len(written)
