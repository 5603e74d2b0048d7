"""The checks against the real SGLang 0.5.23: the same verdict and the same message, launch by launch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specwatch.checks import examine, refusal
from specwatch.checks.parsing import reader
from specwatch.commands import check
from specwatch.domain import Status
from specwatch.launch.command import parse
from specwatch.models.files import LocalModels

ORACLE = Path(__file__).resolve().parents[1] / "data" / "oracle"
GROUPS = {
    *("vocab", "mask", "decrypted"),
    *("algo", "block", "dspark", "env", "ngram", "page", "trio", "uno"),
    *("parallel", "quant", "dtype", "feature", "folder", "spelling", "yaml"),
    *("context", "layers", "fc", "dfconfig", "eagle", "arch", "mix"),
}
# Both faults stand in these launches. The oracle asks for the capture hook first, the real scheduler last.
EITHER = {"mask.nested-target"}


def cases() -> Iterator[dict[str, Any]]:
    for name in ("cases.jsonl", "launches.jsonl"):
        for line in (ORACLE / name).read_text().split("\n"):
            if not line:
                continue
            case = json.loads(line)
            if case.get("machine") or case.get("beyond"):
                continue
            if case.get("group") in GROUPS or name == "cases.jsonl":
                yield case


CASES = {case["case"]: case for case in cases()}


def test_the_groups_are_there() -> None:
    assert len(CASES) > 100


@pytest.mark.parametrize("name", sorted(CASES))
def test_same_verdict_and_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    monkeypatch.chdir(ORACLE)
    models = LocalModels()
    argv = ["python", "-m", "sglang.launch_server", *case["argv"]]
    launch = parse(argv, "0.5.23", read_file=reader(models), lenient=True)
    launch = replace(launch, env={**launch.env, **(case.get("env") or {})})
    verdicts = examine(launch, models)
    if case["mode"] == "args":
        verdicts = tuple(verdict for verdict in verdicts if verdict.phase == "arguments")
    refused = refusal(verdicts)
    if name in LATER:
        assert refused is not None
        assert refused.check == LATER[name]
        return
    if case["ok"]:
        assert refused is None, (refused.exception, refused.message) if refused else None
        unknown = [verdict.because for verdict in verdicts if verdict.status is Status.UNKNOWN]
        assert not unknown or name in UNKNOWN, unknown
        return
    if name in UNTOLD:
        assert refused is None
        assert any(UNTOLD[name] in verdict.because for verdict in verdicts if verdict.status is Status.UNKNOWN)
        return
    if name in NO_CHECK:
        assert refused is None
        return
    assert refused is not None, [f"{v.check}: {v.status} {v.because}" for v in verdicts]
    if name not in EITHER:
        assert (refused.exception, refused.message) == (case["exception"], said(case))


def said(case: dict[str, Any]) -> str:
    """What the real SGLang printed; the oracle writes ORACLE for its own folder, and argparse speaks on stderr."""
    if case["exception"] == "SystemExit":
        return str(case["stderr"]).strip().split("\n")[-1]
    return str(case["message"]).replace("ORACLE/", f"{ORACLE}/")


# What cannot be told from the files, and why
UNKNOWN = {
    "feature.adaptive-config": "the file of --speculative-adaptive-config is not read",
}

# What the oracle's machine knew and no launch tells: its own default backend, and that a folder is nowhere at all
UNTOLD = {
    "algo.ngram-missing-draft": "models/nowhere",
    "block.missing-draft": "models/nowhere",
    "eagle.missing": "models/nowhere",
    "feature.adaptive-config-missing": "json/nowhere.json",
    "folder.draft-missing": "models/nowhere",
    "ngram-page": "the attention backend that SGLang picks for this GPU",
    "uno-fa3": "which one SGLang picks by itself hangs on the GPU",
}

# What nothing here asks
NO_CHECK = {"folder.tokenizer-missing": "no check loads the tokenizer where nothing else hangs on it"}

# What passes all that the oracle asks and is refused after that, by the check that says so
LATER = {
    "dflash-swa-nowindow": "dflash_build",
    "mix.186": "draft_attention_backend",
    "trio.tree-native-page1": "draft_attention_backend",
}


@pytest.mark.parametrize("name", sorted(set(CASES) - set(UNKNOWN) - set(UNTOLD) - set(NO_CHECK) - set(LATER)))
def test_the_command_tells_the_same(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same launches through `specwatch check`: exit code, message, phase and rule as a script reads them."""
    case = CASES[name]
    monkeypatch.chdir(ORACLE)
    words = [f"{variable}={value}" for variable, value in (case.get("env") or {}).items()]
    command = [*words, "python", "-m", "sglang.launch_server", *case["argv"]]
    code = check.run(check.Options(command=command, format="json", sglang="0.5.23"))
    findings = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["message"] is not None]
    if case["mode"] == "args":
        findings = [one for one in findings if one["phase"] == "arguments"]
    if case["ok"]:
        assert not findings, findings[0]["message"]
        return
    assert findings
    assert code == 1
    assert [one["message"] for one in findings if not one["rule"]] == []
    if name not in EITHER and case["exception"] != "SystemExit":
        assert findings[0]["message"].replace(f"{ORACLE}/", "") == said(case).replace(f"{ORACLE}/", "")
