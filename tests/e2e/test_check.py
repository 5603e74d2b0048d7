"""`specwatch check` and `specwatch drafts` as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from subprocess import CompletedProcess

import jsonschema
import pytest

Run = Callable[..., "CompletedProcess[str]"]
JSON_SCHEMA = json.loads(resources.files("specwatch.report").joinpath("diagnose.schema.json").read_text("utf-8"))
BASE = ["sglang", "serve", "/models/atlas-8b", "--speculative-algorithm", "STANDALONE"]


@pytest.fixture
def mapped(examples: Path) -> list[str]:
    return ["--path-map", f"/models={examples / 'models'}", "--models-dir", str(examples / "models")]


def test_a_launch_that_would_fail(specwatch: Run, mapped: list[str]) -> None:
    draft = ["--speculative-draft-model-path", "/models/sprout-0.3b"]
    done = specwatch("check", *mapped, "--format", "json", "--", *BASE, *draft)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, JSON_SCHEMA)
    (finding,) = answer["findings"]
    assert finding["rule"] == "standalone-vocab-mismatch"
    assert finding["root"] is None
    assert finding["phase"] == "worker"
    assert finding["message"].startswith("STANDALONE speculative decoding requires")
    assert [fix["id"] for fix in finding["fixes"]] == ["matching-draft", "drop-speculation"]


def test_a_launch_that_is_sound(specwatch: Run, mapped: list[str]) -> None:
    done = specwatch("check", *mapped, "--", *BASE, "--speculative-draft-model-path", "/models/atlas-0.6b")
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""
    assert "nothing wrong found" in done.stderr


def test_several_problems_at_once(specwatch: Run, mapped: list[str]) -> None:
    draft = ["--speculative-draft-model-path", "/models/sprout-0.3b", "--context-length", "999999"]
    done = specwatch("check", *mapped, "--format", "json", "--", *BASE, *draft)
    messages = [finding["message"] for finding in json.loads(done.stdout)["findings"]]
    assert len(messages) >= 2
    assert "User-specified context_length (999999)" in messages[0]
    assert "vocab_size=384" in messages[-1]


def test_what_cannot_be_known_is_listed(specwatch: Run) -> None:
    done = specwatch("check", "--format", "json", "--", "sglang", "serve", "/nowhere/model")
    assert done.returncode == 0
    unknown = json.loads(done.stdout)["unknown"]
    assert any("/nowhere/model" in row["because"] for row in unknown)
    assert "could not tell" in specwatch("check", "--", "sglang", "serve", "/nowhere/model").stdout


def test_arguments_that_sglang_refuses(specwatch: Run, mapped: list[str]) -> None:
    done = specwatch(
        "check", *mapped, "--format", "json", "--", "sglang", "serve", "/models/atlas-8b", "--no-such-flag"
    )
    assert done.returncode == 1
    (finding, *_) = json.loads(done.stdout)["findings"]
    assert finding["phase"] == "arguments"
    assert "unrecognized arguments: --no-such-flag" in finding["message"]


def test_a_whole_line_and_a_script(specwatch: Run, examples: Path, mapped: list[str]) -> None:
    line = (examples / "launch.sh").read_text()
    for arguments in (["--", line], ["--target", examples / "launch.sh"], ["--target", f"script:{examples}/launch.sh"]):
        done = specwatch("check", *mapped, "--format", "json", *arguments)
        assert done.returncode == 1, done.stderr
        assert [f["rule"] for f in json.loads(done.stdout)["findings"]] == ["standalone-vocab-mismatch"]


def test_a_compose_file_brings_its_own_paths(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  llm:\n    command: sglang serve /m/atlas-8b --speculative-algorithm STANDALONE "
        f"--speculative-draft-model-path /m/sprout-0.3b\n    volumes: ['{examples / 'models'}:/m:ro']\n"
    )
    done = specwatch("check", "--target", file, "--format", "github")
    assert done.returncode == 1
    assert done.stdout.startswith(f"::error file={file},title=standalone-vocab-mismatch%3A ")


def test_a_fleet(specwatch: Run, examples: Path, mapped: list[str], tmp_path: Path) -> None:
    (tmp_path / "good.sh").write_text("sglang serve /models/atlas-8b\n")
    (tmp_path / "bad.sh").write_text((examples / "launch.sh").read_text())
    done = specwatch("check", *mapped, "--target", tmp_path)
    assert done.returncode == 1
    table = [line.split() for line in done.stdout.split("\n\n")[0].split("\n")[1:]]
    assert table == [
        ["would", "fail", "1", "0", f"script:{tmp_path}/bad.sh"],
        ["nothing", "wrong", "found", "0", "0", f"script:{tmp_path}/good.sh"],
    ]
    assert f"script:{tmp_path}/bad.sh: would fail" in done.stdout
    assert done.stderr == "specwatch: 2 launches, 1 would fail\n"


def test_strict_counts_warnings(specwatch: Run, examples: Path, tmp_path: Path) -> None:
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        source = examples / "models" / ("atlas-8b" if name == "target" else "atlas-0.6b")
        for file in source.iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    tokenizer = tmp_path / "draft" / "tokenizer.json"
    swapped = tokenizer.read_text().replace('"<|im_start|>"', '"<|x|>"')
    tokenizer.write_text(swapped)
    launch = ["sglang", "serve", tmp_path / "target", "--speculative-algorithm", "STANDALONE"]
    launch += ["--speculative-draft-model-path", tmp_path / "draft"]
    done = specwatch("check", "--format", "json", "--", *launch)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["severity"], finding["cause"], finding["message"]) == ("degraded", "token-maps-differ", None)
    assert done.returncode == 0
    assert specwatch("check", "--strict", "--", *launch).returncode == 1


def test_what_sglang_only_warns_of_is_a_note(specwatch: Run, mapped: list[str]) -> None:
    done = specwatch(
        "check", *mapped, "--sglang", "0.5.23", "--", "sglang", "serve", "/models/atlas-8b", "--disable-cuda-graph"
    )
    assert done.returncode == 0
    assert done.stdout.startswith("note[deprecated-flags]")
    assert "--cuda-graph-backend-decode=disabled" in done.stdout


def test_nothing_is_proved_where_the_arguments_are_not_known(specwatch: Run, mapped: list[str], tmp_path: Path) -> None:
    launch = ["python", "-m", "sglang.launch_server", "--speculative-algorithm", "DFLASH", "--config"]
    done = specwatch("check", *mapped, "--format", "json", "--", *launch, "/nowhere/at.yaml")
    assert done.returncode == 0
    assert json.loads(done.stdout)["findings"] == []
    assert "/nowhere/at.yaml" in done.stdout
    (tmp_path / "good.yaml").write_text("model-path: /models/atlas-8b\n")
    done = specwatch("check", *mapped, "--format", "json", "--", *launch, tmp_path / "good.yaml")
    assert [finding["rule"] for finding in json.loads(done.stdout)["findings"]] == ["dflash-without-draft"]


def test_a_tokenizer_that_is_not_here_is_unknown(specwatch: Run, mapped: list[str]) -> None:
    done = specwatch("check", *mapped, "--", "sglang", "serve", "/models/atlas-8b", "--tokenizer-path", "/nowhere/t")
    assert "could not tell (tokenizer_folder): --tokenizer-path /nowhere/t" in done.stdout


def test_nothing_to_check(specwatch: Run) -> None:
    done = specwatch("check")
    assert done.returncode == 2
    assert "nothing to check" in done.stderr


def test_drafts(specwatch: Run, mapped: list[str]) -> None:
    done = specwatch("drafts", "/models/atlas-8b", *mapped, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["path"]: row for row in json.loads(done.stdout)["drafts"]}
    assert set(rows) == {"/models/atlas-0.6b", "/models/sprout-0.3b"}
    assert json.loads(done.stdout)["always"][0]["algorithm"] == "NGRAM"
    assert rows["/models/atlas-0.6b"]["fits"]
    assert rows["/models/atlas-0.6b"]["flags"][1] == "STANDALONE"
    assert rows["/models/sprout-0.3b"]["because"] == "its vocab_size is 384, the target's 320"
    shown = specwatch("drafts", "/models/atlas-8b", *mapped).stdout
    assert "fits  STANDALONE /models/atlas-0.6b" in shown
    assert "--speculative-algorithm NGRAM" in shown


def test_drafts_of_nothing(specwatch: Run, tmp_path: Path) -> None:
    done = specwatch("drafts", tmp_path / "nowhere")
    assert done.returncode == 3
    assert str(tmp_path / "nowhere") in done.stderr
