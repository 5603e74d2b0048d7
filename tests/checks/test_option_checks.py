"""Options that have nothing to do with a draft, and some that have: the answers of the real SGLang 0.5.23."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specwatch.checks import CHECKS, examine, refusal
from specwatch.checks.parsing import reader
from specwatch.domain import Applicability, Launch, Status, Verdict
from specwatch.fixes import FIXES, Request
from specwatch.launch.command import parse
from specwatch.models.files import LocalModels
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import preflight
from specwatch.rulebook.book import load_directories

DATA = Path(__file__).resolve().parents[1] / "data"
CASES = [json.loads(line) for line in (DATA / "options.jsonl").read_text().split("\n") if line]
REFUSED = [case for case in CASES if case["exception"]]
TAKEN = [case for case in CASES if not case["exception"]]
NAMELESS = {"AssertionError: ", "ZeroDivisionError: integer modulo by zero"}  # words by which no rule could know them


def launch_of(case: dict[str, Any], release: str = "0.5.23") -> Launch:
    command = ["python", "-m", "sglang.launch_server", *case["argv"]]
    launch = parse(command, release, read_file=reader(LocalModels()), lenient=True)
    return replace(launch, env={**launch.env, **case["env"]})


def verdicts(case: dict[str, Any], release: str = "0.5.23") -> tuple[Verdict, ...]:
    found = examine(launch_of(case, release), LocalModels())
    return tuple(one for one in found if one.phase == "arguments") if case["mode"] == "args" else found


def name(case: dict[str, Any]) -> str:
    return " ".join(word for word in case["argv"][4:] if not word.startswith("models/"))[:100]


@pytest.mark.parametrize("case", REFUSED, ids=name)
def test_sglang_refuses_it_in_these_words(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA / "oracle")
    found = refusal(verdicts(case))
    assert found is not None
    assert (found.exception, found.message) == (case["exception"], case["message"])


@pytest.mark.parametrize("case", TAKEN, ids=name)
def test_sglang_takes_it(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA / "oracle")
    found = verdicts(case)
    assert refusal(found) is None
    assert [one.because for one in found if one.status is Status.UNKNOWN] == []


def test_every_refusal_has_a_rule_and_no_safe_fix_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA / "oracle")
    book, without = load_directories().book, []
    for case in REFUSED:
        first = preflight(launch_of(case), book, LocalModels()).findings[0]
        if first.rule is None:
            without.append(f"{first.verdict.exception}: {first.verdict.message}")
        for fix in first.fixes:
            if fix.applicability is Applicability.SAFE and fix.launch is not None:
                assert refusal(examine(fix.launch, LocalModels())) is None, fix.launch.argv
    assert set(without) <= NAMELESS


@pytest.mark.parametrize(
    ("flags", "check"),
    [("--mm-process-config 1", "option_values"), ("--dwdp-size 4", "decoding_options"), ("--nnodes 0", "node_count")],
)
def test_an_older_release_is_told_nothing(flags: str, check: str) -> None:
    models = MemoryModels({"t": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}})
    newest, older = (
        parse(f"python -m sglang.launch_server --model-path t {flags}", release) for release in ("0.5.23", "0.5.22")
    )
    assert CHECKS[check](newest, models).status is Status.BROKEN
    assert CHECKS[check](older, models).status is Status.SOUND


def test_the_kind_of_gpu_decides_about_scoring_of_many_items() -> None:
    models = MemoryModels({"t": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}})
    launch = parse("python -m sglang.launch_server --model-path t --enable-mis", "0.5.23")
    judged = {gpu: CHECKS["scoring_arguments"](replace(launch, gpu=gpu), models).status for gpu in ("", "A100", "H100")}
    assert judged == {"": Status.UNKNOWN, "A100": Status.SOUND, "H100": Status.BROKEN}


@pytest.mark.parametrize(
    ("command", "drop", "left"),
    [
        ("python -m sglang.launch_server --model-path t --sidecar-args []", "--sidecar-args", "--model-path t"),
        ("SGLANG_GRPC_PORT=0 python -m sglang.launch_server --model-path t", "SGLANG_GRPC_PORT", "--model-path t"),
        ("python -m sglang.launch_server --model-path t", "--sidecar-args", None),
        ("python -m sglang.launch_server --model-path t", "", None),
    ],
)
def test_the_named_option_is_left_out(command: str, drop: str, left: str | None) -> None:
    verdict = Verdict(check="serving_options", status=Status.BROKEN, facts={"drop": drop})
    ask = Request(launch=parse(command, "0.5.23"), verdict=verdict, models=MemoryModels({}))
    found = list(FIXES["without-option"](ask))
    assert [one.launch.text for one in found if one.launch] == (
        [] if left is None else [f"python -m sglang.launch_server {left}"]
    )
