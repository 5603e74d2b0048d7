"""The command as a user runs it: exit codes, streams, formats, and bad input."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from subprocess import CompletedProcess

import jsonschema
import pytest

from specwatch.report.as_json import SCHEMA

Run = Callable[..., "CompletedProcess[str]"]
JSON_SCHEMA = json.loads(resources.files("specwatch.report").joinpath("diagnose.schema.json").read_text("utf-8"))
STANDALONE = (
    "ValueError: STANDALONE speculative decoding requires the draft model to share the same vocabulary as the target "
    "model, but got target vocab_size=320 and draft vocab_size=384."
)


@pytest.fixture
def mapped(examples: Path) -> list[str]:
    return ["--path-map", f"/models={examples / 'models'}", "--models-dir", str(examples / "models")]


def test_version(specwatch: Run) -> None:
    done = specwatch("--version")
    assert re.fullmatch(r"specwatch \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(specwatch: Run, option: str) -> None:
    done = specwatch(option)
    assert done.returncode == 0
    for name in ("diagnose", "explain", "rules"):
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE)


def test_the_example_is_proved_and_fixed(specwatch: Run, examples: Path, mapped: list[str]) -> None:
    launch = (examples / "launch.sh").read_text()
    done = specwatch("diagnose", examples / "server.log", *mapped, "--launch", launch, "--format", "json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, JSON_SCHEMA)
    assert answer["schema"] == SCHEMA
    (finding,) = answer["findings"]
    assert finding["rule"] == "standalone-vocab-mismatch"
    assert finding["verdict"]["status"] == "broken"
    assert [(fix["id"], fix["applicability"], fix["rechecked"]) for fix in finding["fixes"]] == [
        ("matching-draft", "review", True),
        ("drop-speculation", "safe", True),
    ]
    assert "/models/atlas-0.6b" in finding["fixes"][0]["command"]
    assert "--speculative" not in finding["fixes"][1]["command"]
    assert finding["root"]["text"].startswith(STANDALONE)
    line = (examples / "server.log").read_bytes().split(b"\n")[finding["root"]["line"] - 1]
    assert line.startswith(STANDALONE.encode())


def test_the_launch_may_be_named_by_its_place(
    specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path
) -> None:
    arguments = ["diagnose", examples / "server.log", *mapped, "--format", "json", "--target"]
    done = specwatch(*arguments, examples / "launch.sh")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["fixes"][1]["applicability"] == "safe"
    for name in ("a.sh", "b.sh"):
        (tmp_path / name).write_text("sglang serve m\n")
    done = specwatch(*arguments, tmp_path)
    assert done.returncode == 2
    assert "holds 2 launches; name one of" in done.stderr
    assert specwatch(*arguments, tmp_path / "a.sh", "--launch", "sglang serve m").returncode == 2


def test_without_the_command_it_is_reconstructed_and_said(specwatch: Run, examples: Path, mapped: list[str]) -> None:
    done = specwatch("diagnose", examples / "server.log", *mapped, "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["launch"]["from"] == "server_args"
    assert finding["launch"]["sglang"] == "0.5.23"
    (drop,) = [fix for fix in finding["fixes"] if fix["id"] == "drop-speculation"]
    assert drop["applicability"] == "review"
    assert "reconstructed" in drop["because"]


def test_without_the_models_nothing_is_proved(specwatch: Run, examples: Path) -> None:
    done = specwatch("diagnose", examples / "server.log", "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["verdict"]["status"] == "unknown"
    assert "/models/atlas-8b" in finding["verdict"]["because"]
    assert all(fix["applicability"] != "safe" for fix in finding["fixes"])


def test_stdin_and_gzip_say_the_same(specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path) -> None:
    log = (examples / "server.log").read_bytes()
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(log))
    answers = []
    for arguments, data in ((["-"], log), ([str(packed)], None), ([], log)):
        done = specwatch("diagnose", *arguments, *mapped, "--format", "json", stdin=data or b"")
        assert done.returncode == 1, done.stderr
        answer = json.loads(done.stdout)["findings"]
        answer[0]["root"].pop("source")
        answers.append(answer)
    assert answers[0] == answers[1] == answers[2]


def test_a_directory_is_read(specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes((examples / "server.log").read_bytes())
    done = specwatch("diagnose", tmp_path, *mapped, "--format", "json")
    assert [f["rule"] for f in json.loads(done.stdout)["findings"]] == ["standalone-vocab-mismatch"]


def test_text_goes_to_stdout_and_the_summary_to_stderr(specwatch: Run, examples: Path, mapped: list[str]) -> None:
    done = specwatch("diagnose", examples / "server.log", *mapped)
    assert done.stdout.startswith("error[standalone-vocab-mismatch]")
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.split("\n")) <= 80
    assert done.stderr == "specwatch: 1 finding, 1 fatal, in 105 lines (30 KB)\n"


def test_markdown(specwatch: Run, examples: Path, mapped: list[str]) -> None:
    done = specwatch("diagnose", examples / "server.log", *mapped, "--format", "markdown")
    assert done.stdout.startswith("## Error `standalone-vocab-mismatch`")
    assert "```sh\n" in done.stdout


def test_a_healthy_log_is_silent(specwatch: Run, tmp_path: Path) -> None:
    log = tmp_path / "healthy.log"
    log.write_text(
        "[2026-07-02 09:19:58] The server is fired up and ready to roll!\n"
        '[2026-07-02 09:20:06] INFO:     127.0.0.1:41240 - "POST /generate HTTP/1.1" 200 OK\n'
    )
    done = specwatch("diagnose", log, "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["findings"] == []
    assert specwatch("diagnose", log).stderr.startswith("specwatch: nothing wrong found in 2 lines")


def test_an_unknown_crash_is_shown_with_what_is_known(specwatch: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-07-02 09:14:31 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 3796, in run_scheduler_process\n'
        "    scheduler = Scheduler(\n"
        "FrobnicationError: the frobnicator is out of frobs\n\n"
        "[2026-07-02 09:14:31] Received sigquit from a child process. It usually means the child failed.\n"
    )
    done = specwatch("diagnose", log, "--format", "json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["rule"] is None
    assert finding["root"]["text"] == "FrobnicationError: the frobnicator is out of frobs"
    assert "sglang/srt/managers/scheduler.py, line 3796, in run_scheduler_process" in finding["says"]
    assert finding["fixes"] == []


def complaint(done: CompletedProcess[str]) -> str:
    """What was said, after making sure that it is no traceback."""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(("specwatch: ", "Usage: "))
    return done.stderr


def test_a_missing_file(specwatch: Run, tmp_path: Path) -> None:
    done = specwatch("diagnose", tmp_path / "nowhere.log")
    assert done.returncode == 3
    assert str(tmp_path / "nowhere.log") in complaint(done)


def test_a_missing_file_does_not_hide_the_others(
    specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path
) -> None:
    done = specwatch("diagnose", tmp_path / "no.log", examples / "server.log", *mapped, "--format", "json")
    assert done.returncode == 3
    assert len(json.loads(done.stdout)["findings"]) == 1


def test_a_directory_without_logs(specwatch: Run, tmp_path: Path) -> None:
    done = specwatch("diagnose", tmp_path)
    assert done.returncode == 3
    assert str(tmp_path) in complaint(done)


def test_a_binary_file(specwatch: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(range(256)) * 400)
    done = specwatch("diagnose", path)
    assert done.returncode == 3
    assert "binary" in complaint(done)


def test_a_truncated_gzip_reports_what_could_be_read(
    specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "server.log.gz"
    log = (examples / "server.log").read_bytes() + b"".join(b"%d\n" % n for n in range(50_000))
    path.write_bytes(gzip.compress(log)[:-2000])
    done = specwatch("diagnose", path, *mapped, "--format", "json")
    assert done.returncode == 3
    assert str(path) in complaint(done)
    assert len(json.loads(done.stdout)["findings"]) == 1


def test_invalid_utf8_and_nul(specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"\xc3\x28 broken \x00 bytes\n" + (examples / "server.log").read_bytes() + b"\xc3")
    done = specwatch("diagnose", path, *mapped, "--format", "json")
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["findings"]) == 1


def test_a_line_of_200_megabytes(specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.write((examples / "server.log").read_bytes())
        for _ in range(200):
            file.write(b"x" * (1 << 20))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20));"
        "sys.argv = ['specwatch', *sys.argv[1:]]; from specwatch.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "diagnose", str(path), *mapped, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert len(json.loads(done.stdout)["findings"]) == 1


MODEL_FAULTS = {
    "not JSON": b"{nope",
    "empty": b"",
    "deep": b'{"vocab_size": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "a list": b"[1, 2]",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("fault", sorted(MODEL_FAULTS))
def test_a_config_that_cannot_be_read(specwatch: Run, examples: Path, tmp_path: Path, fault: str) -> None:
    for name in ("atlas-8b", "sprout-0.3b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes(MODEL_FAULTS[fault])
    done = specwatch("diagnose", examples / "server.log", "--path-map", f"/models={tmp_path}", "--format", "json")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["verdict"]["status"] == "unknown"
    assert finding["verdict"]["because"]


def test_a_config_of_500_megabytes(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    for name in ("atlas-8b", "sprout-0.3b"):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "config.json").open("wb") as file:
            file.truncate(500 << 20)
    done = specwatch("diagnose", examples / "server.log", "--path-map", f"/models={tmp_path}", "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert "larger than" in finding["verdict"]["because"]


def test_an_unreadable_model_folder(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    (tmp_path / "atlas-8b").write_text("a file where a folder should be")
    done = specwatch("diagnose", examples / "server.log", "--path-map", f"/models={tmp_path}", "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["verdict"]["status"] == "unknown"
    assert "atlas-8b" in finding["verdict"]["because"]


@pytest.mark.parametrize(
    "launch", ["python -m sglang.launch_server --model-path 'x", "ls -l", "", "python -m sglang.launch_server \0"]
)
def test_a_launch_that_does_not_parse(specwatch: Run, examples: Path, launch: str) -> None:
    if "\0" in launch:  # no argument of a process can hold it
        launch = "python -m sglang.launch_server --model-path $(cat /etc/passwd"
    done = specwatch("diagnose", examples / "server.log", "--launch", launch)
    assert done.returncode == 2
    assert "launch" in complaint(done)


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        ("python3 -m dynamo.sglang --model-path /models/atlas-8b --endpoint dyn://a.b.c", 1),
        ("python3 -m dynamo.frontend", 2),
        ("python -m sglang_router.launch_router --worker-urls http://a", 2),
    ],
)
def test_a_program_of_others_with_sglang_inside_is_no_launch_and_no_obstacle(
    specwatch: Run, examples: Path, mapped: list[str], launch: str, code: int
) -> None:
    done = specwatch("diagnose", examples / "server.log", *mapped, "--format", "json", "--launch", launch)
    assert done.returncode == code, done.stderr
    if code == 1:
        assert "the log's own record is used instead" in done.stderr
        (finding,) = json.loads(done.stdout)["findings"]
        assert (finding["rule"], finding["launch"]["from"]) == ("standalone-vocab-mismatch", "server_args")


def test_a_launch_that_sglang_refuses_is_put_right(specwatch: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    said = "sglang serve: error: unrecognized arguments: --enable_metrics --max-model-len 2048"
    log.write_text(f"usage: sglang serve [-h] --model-path MODEL_PATH\n{said}\n")
    launch = "sglang serve --model-path /models/x --enable_metrics --max-model-len 2048"
    done = specwatch("diagnose", log, "--launch", launch, "--sglang", "0.5.23", "--format", "json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rule"], finding["verdict"]["status"]) == ("unrecognized-arguments", "broken")
    fix = finding["fixes"][0]
    assert fix["argv"] == [
        "sglang",
        "serve",
        "--model-path",
        "/models/x",
        "--enable-metrics",
        "--context-length",
        "2048",
    ]
    assert (fix["applicability"], fix["rechecked"]) == ("review", False)  # the model is not on this machine
    assert "refuses the launch" in done.stderr


def test_bad_options(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    log = examples / "server.log"
    for arguments in (
        ["diagnose", log, "--format", "yaml"],
        ["diagnose", log, "--path-map", "models"],
        ["diagnose", log, "--rules", tmp_path / "nowhere"],
        ["diagnose", log, "--no-such-option"],
        ["explain", "no-such-rule"],
        ["no-such-command"],
    ):
        done = specwatch(*arguments)
        assert done.returncode == 2, arguments
        assert complaint(done)


def test_explain_suggests_the_nearest_rule(specwatch: Run) -> None:
    assert "did you mean standalone-vocab-mismatch?" in specwatch("explain", "standalone-vocab").stderr


def test_explain(specwatch: Run) -> None:
    done = specwatch("explain", "standalone-vocab-mismatch")
    assert done.returncode == 0
    for heading in ("What happened", "Why", "Limits", "Causes and fixes", "Example"):
        assert f"\n{heading}\n" in done.stdout
    assert "[safe] drop-speculation" in done.stdout


def test_rules_list_and_test(specwatch: Run) -> None:
    rows = json.loads(specwatch("rules", "list", "--format", "json").stdout)["rules"]
    assert {"id", "title", "severity", "role", "status", "sglang"} == set(rows[0])
    done = specwatch("rules", "test", "standalone-vocab-mismatch")
    assert done.returncode == 0
    assert done.stdout == "standalone-vocab-mismatch: holds, 3 examples\n"


def test_a_foreign_rule_must_prove_itself(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    rule = (examples.parent / "rules" / "dflash-mask-token-without-tokenizer.toml").read_text()
    (tmp_path / "mine.toml").write_text(
        rule.replace('cause  = "no-tokenizer"', 'cause  = "no-tokenizer"\ncaptures = {a = "1"}')
    )
    done = specwatch("diagnose", examples / "server.log", "--rules", tmp_path, "--format", "json")
    assert done.returncode == 1
    assert "refused:" in done.stderr
    assert "mine.toml" in done.stderr
    assert len(json.loads(done.stdout)["findings"]) == 1


def test_a_closed_pipe_ends_quietly(examples: Path) -> None:
    command = f"{sys.executable} -m specwatch.cli explain standalone-vocab-mismatch | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=examples)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize("kind", ["text", "json", "markdown"])
@pytest.mark.parametrize("closing", [">&-", "2>&-", ">/dev/full", "<&-"])
def test_closed_and_full_streams_end_quietly(examples: Path, kind: str, closing: str) -> None:
    command = f"{sys.executable} -m specwatch.cli diagnose server.log --format {kind} {closing}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=examples)
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode == (3 if "full" in closing else 1)
    healthy = subprocess.run(
        ["bash", "-c", f"echo fine | {sys.executable} -m specwatch.cli diagnose - --format {kind} >&-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert healthy.returncode == 0


def test_control_characters_of_arguments_are_shown(specwatch: Run) -> None:
    assert "no\\x1b[31msuch" in specwatch("diagnose", "no\x1b[31msuch").stderr


def test_an_unreadable_config_file_does_not_lose_the_log(specwatch: Run, examples: Path, mapped: list[str]) -> None:
    launch = "python -m sglang.launch_server --model-path /models/atlas-8b --config /nowhere/prod.yaml"
    done = specwatch("diagnose", examples / "server.log", *mapped, "--format", "json", "--launch", launch)
    assert done.returncode == 1, done.stderr
    assert "/nowhere/prod.yaml" in done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["verdict"]["status"] == "broken"
    (drop,) = (fix for fix in finding["fixes"] if fix["id"] == "drop-speculation")
    assert (drop["id"], drop["applicability"], drop["command"]) == ("drop-speculation", "manual", None)
    assert "the file of --config" in drop["because"]


def test_start_ups_are_counted(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    log = tmp_path / "twice.log"
    log.write_bytes((examples / "server.log").read_bytes() * 2)
    for path, runs in ((examples / "server.log", 1), (log, 2)):
        answer = json.loads(specwatch("diagnose", path, "--format", "json").stdout)
        assert answer["sources"][0]["runs"] == runs


def test_completion_is_installed(specwatch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/fish")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = specwatch("--install-completion")
    assert done.returncode == 0, done.stderr
    assert "_SPECWATCH_COMPLETE" in (tmp_path / "fish" / "completions" / "specwatch.fish").read_text()


def test_no_colour_when_asked(examples: Path) -> None:
    code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    argv = [sys.executable, "-c", code, sys.executable, "-m", "specwatch.cli", "explain", "standalone-vocab-mismatch"]
    seen = {}
    for wanted in ("", "1"):
        env = {**os.environ, "NO_COLOR": wanted, "TERM": "xterm-256color"}
        done = subprocess.run(argv, capture_output=True, check=False, env=env, stdin=subprocess.DEVNULL)
        seen[wanted] = b"\x1b[" in done.stdout
    assert seen == {"": True, "1": False}
