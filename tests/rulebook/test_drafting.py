"""`specwatch rules new`: a draft of an unknown crash loads, recognises that crash, and holds no secret."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from specwatch.commands import rules as commands
from specwatch.errors import ConfigError
from specwatch.proof import prove
from specwatch.rulebook.book import Rulebook
from specwatch.rulebook.drafting import pattern, title
from specwatch.rulebook.rule import Rule, load

MESSAGE = "ValueError: The odd layer wants width=4096 for 'gate' of /models/a/x.safetensors, but got -1.5 at 0x7f00."
CRASH = f"""[2026-07-02 09:14:01] server_args=ServerArgs(model_path='/models/a', tp_size=2, api_key='sk-verysecretkey')
[2026-07-02 09:14:05 TP0] Load weight begin. avail mem=70.00 GB
[2026-07-02 09:14:10 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 4062, in run_scheduler_process
    scheduler = Scheduler(
  File "/sgl-workspace/sglang/python/sglang/srt/layers/odd.py", line 97, in build_odd
    raise ValueError(
{MESSAGE}

[2026-07-02 09:14:11] Received sigquit from a child process. It usually means the child failed.
"""
KNOWN = """[2026-07-02 09:14:10 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl-workspace/sglang/python/sglang/srt/speculative/dflash_utils.py", line 9, in f
    raise ValueError(
ValueError: DFLASH dflash_config.mask_token_id must be non-negative, got -1.

[2026-07-02 09:14:11] Received sigquit from a child process. It usually means the child failed.
"""


def drafted(tmp_path: Path, log: str, name: str = "odd-width") -> Rule:
    path = tmp_path / "server.log"
    path.write_text(log)
    commands.new_rule(name, str(path), tmp_path / "rules.d", ())
    return load(tmp_path / "rules.d" / f"{name}.toml")


def test_a_draft_loads_and_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = drafted(tmp_path, CRASH)
    assert capsys.readouterr().out == f"{rule.path}\n"
    assert rule.status == "experimental"
    assert prove(rule, Rulebook([rule])) == ()
    example = rule.examples[0]
    assert example.log.startswith("[2026-07-02 09:14:10 TP0] Scheduler hit an exception:")
    assert example.launch.startswith("python -m sglang.launch_server --model-path /models/a --tp-size 2")
    assert example.captures == {
        "width": "4096",
        "quoted": "'gate'",
        "path": "/models/a/x.safetensors",
        "decimal": "-1.5",
        "address": "0x7f00",
    }
    assert "server.log, line 8; raised in sglang/srt/layers/odd.py, line 97, in build_odd." in rule.path.read_text()


def test_the_same_failure_with_other_values_is_known(tmp_path: Path) -> None:
    rule = drafted(tmp_path, CRASH)
    other = "ValueError: The odd layer wants width=8 for 'up' of /m/b.bin, but got 3 at 0x1."
    assert rule.patterns[0].regex.match(other)
    assert not rule.patterns[0].regex.match(other.replace("odd", "even"))


def test_a_draft_of_what_has_a_draft_is_refused(tmp_path: Path) -> None:
    rule = drafted(tmp_path, CRASH)
    with pytest.raises(ConfigError, match=r"every crash in it has a rule: odd-width \(line 8\)"):
        commands.new_rule("other", str(tmp_path / "server.log"), tmp_path, (rule.path.parent,))
    assert not (tmp_path / "other.toml").exists()


def test_the_first_unknown_crash_counts(tmp_path: Path) -> None:
    start = "[2026-07-02 09:20:00] server_args=ServerArgs(model_path='/models/a')\n"
    assert "width" in drafted(tmp_path, KNOWN + start + CRASH).examples[0].captures


@pytest.mark.parametrize(
    "secret", ["hf_abcdefghijklmnop", "https://user:pass@host/x", "Bearer abcdefghijkl", "api_key=abcdefgh"]
)
def test_secrets_are_taken_out(tmp_path: Path, secret: str) -> None:
    rule = drafted(tmp_path, CRASH.replace("'gate'", secret))
    text = rule.path.read_text()
    assert re.search(r"abcdefgh|user:pass|verysecret", text) is None
    assert prove(rule, Rulebook([rule])) == ()


def test_a_hidden_value_stands_for_any(tmp_path: Path) -> None:
    rule = drafted(tmp_path, CRASH.replace("'gate'", "api_key=abcdefgh"))
    assert rule.patterns[0].regex.match(MESSAGE.replace("'gate'", "api_key=another1"))


def test_an_assertion_without_a_text_is_known_by_its_place(tmp_path: Path) -> None:
    bare = CRASH.replace(MESSAGE, "AssertionError").replace("raise ValueError(", "assert width % 8 == 0")
    rule = drafted(tmp_path, bare)
    assert (rule.patterns[0].frame, rule.patterns[0].source) == (
        "sglang/srt/layers/odd.py:build_odd",
        "assert width % 8 == 0",
    )
    assert prove(rule, Rulebook([rule])) == ()


def test_hostile_text_stays_data(tmp_path: Path) -> None:
    hostile = "ValueError: odd ''' \"\"\" \\ \x1b[31m \x7f {x} (.*) text that goes on and on"
    rule = drafted(tmp_path, CRASH.replace(MESSAGE, hostile))
    assert prove(rule, Rulebook([rule])) == ()


def test_an_existing_rule_is_never_overwritten(tmp_path: Path) -> None:
    rule = drafted(tmp_path, CRASH)
    text = rule.path.read_text()
    with pytest.raises(ConfigError, match="there is such a rule already"):
        drafted(tmp_path, CRASH)
    assert rule.path.read_text() == text
    with pytest.raises(ConfigError, match="standalone-vocab-mismatch: there is such a rule already"):
        drafted(tmp_path, CRASH, "standalone-vocab-mismatch")


@pytest.mark.parametrize(
    ("name", "log", "complaint"),
    [
        ("Odd_Width", CRASH, "lower-case words joined by '-'"),
        ("../odd", CRASH, "lower-case words joined by '-'"),
        ("odd", KNOWN, r"every crash in it has a rule: dflash-mask-token-malformed \(line 4\)"),
        ("odd", "[2026-07-02 09:14:01] The server is fired up and ready to roll!\n", "holds no crash"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, log: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        drafted(tmp_path, log, name)
    assert not (tmp_path / "rules.d").exists()


def test_a_crash_that_the_server_outlived_is_none(tmp_path: Path) -> None:
    batch = "[2026-07-02 09:15:%02d TP0] Decode batch, #running-req: 1, #token: 64, token usage: 0.00, gen throughput "
    alive = "".join(batch % second + "(token/s): 88.10, #queue-req: 0\n" for second in range(10, 40))
    log = CRASH.replace("[2026-07-02 09:14:11] Received", "[2026-07-02 09:14:11] Not received") + alive
    with pytest.raises(ConfigError, match="holds no crash"):
        drafted(tmp_path, log)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("ValueError: no value at all", r"ValueError: no value at all"),
        ("ValueError: fp8 and sm_90 are names", r"ValueError: fp8 and sm_90 are names"),
        ("ValueError: don't take 3 can't", r"ValueError: don't take (?P<number>-?\d{1,18}) can't"),
        ("7 is the first word", r"7 is the first word"),
    ],
)
def test_patterns(message: str, expected: str) -> None:
    assert pattern(message) == expected


def test_titles() -> None:
    assert title("ValueError: tp_size=3 is wrong. More text") == "tp_size=… is wrong"
    assert title("Killed: by something") == "Killed: by something"


def test_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "specwatch.cli", "rules", "new", "odd", "--from", "-", "--into", str(tmp_path)]
    done = subprocess.run(command, input=CRASH, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'odd.toml'}\n")
    again = subprocess.run(command, input=CRASH, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "there is such a rule already" in again.stderr
