"""Commands that the parser refuses, put right: what comes out, and how far it may be trusted."""

from __future__ import annotations

import shlex

import pytest

from specwatch.domain import Status, Verdict
from specwatch.fixes import FIXES, Proposal, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

START = "python -m sglang.launch_server --model-path m"


def proposals(fix: str, arguments: str, release: str = "0.5.23", start: str = START) -> list[Proposal]:
    launch = parse(f"{start} {arguments}", release, lenient=True)
    verdict = Verdict(check="arguments_parse", status=Status.BROKEN)
    return list(FIXES[fix](Request(launch=launch, verdict=verdict, models=MemoryModels({}))))


@pytest.mark.parametrize(
    ("release", "typed", "fixed", "trust"),
    [
        ("0.5.23", "--trust-remote-code true --port 1", "--trust-remote-code --port 1", "SAFE"),
        ("0.5.23", "--enable-mixed-chunk False --port 1", "--port 1", "SAFE"),
        ("0.5.23", "--enable-tf32-matmul false", "--no-enable-tf32-matmul", "SAFE"),
        ("0.5.23", "--trust-remote-code=True", "--trust-remote-code", "SAFE"),
        ("0.5.23", "--skip-tokenizer-init=", "--skip-tokenizer-init", "REVIEW"),
        ("0.5.23", "--max-model-len=2048", "--context-length 2048", "REVIEW"),
        ("0.5.23", "--num-nodes 2", "--nnodes 2", "REVIEW"),
        ("0.5.23", "--tp-sze 2", "--tp-size 2", "REVIEW"),
        ("0.5.23", "--attention-backend Triton", "--attention-backend triton", "SAFE"),
        ("0.5.23", "--dtype FP16", "--dtype float16", "SAFE"),
        ("0.5.23", "--kv-cache-dtype fp8", "--kv-cache-dtype fp8_e4m3", "REVIEW"),
        ("0.5.7", "--speculative-algorithm eagle3", "--speculative-algorithm EAGLE3", "SAFE"),
        ("0.5.23", "--tp-size 2.0", "--tp-size 2", "SAFE"),
        ("0.5.23", "--max-total-tokens 8,192", "--max-total-tokens 8192", "SAFE"),
        ("0.5.23", "--context-length 1.5Ki", "--context-length 1536", "REVIEW"),
        ("0.5.23", "--mem-fraction-static 85%", "--mem-fraction-static 0.85", "REVIEW"),
        ("0.5.23", "--tp-size 2--port 30001", "--tp-size 2 --port 30001", "SAFE"),
        ("0.5.23", "-- --tp-size 2", "--tp-size 2", "REVIEW"),
        ("0.5.23", "--quant fp8", "--quantization fp8", "SAFE"),
        ("0.5.23", "--tokenizer x/y", "--tokenizer-path x/y", "REVIEW"),
        ("0.5.23", "--cuda-graph-bs 1 2 4", "--cuda-graph-bs-decode 1 2 4", "SAFE"),
        ("0.5.4", "--enable-flashinfer-cutlass-moe", "--moe-runner-backend flashinfer_cutlass", "SAFE"),
        # one fault after the other, as the parser names them
        ("0.5.23", "--pp 2 --dtype bf16 --enable_metrics", "--dtype bfloat16 --pp-size 2 --enable-metrics", "SAFE"),
    ],
)
def test_corrected(release: str, typed: str, fixed: str, trust: str) -> None:
    (proposal,) = proposals("correct-arguments", typed, release)
    assert proposal.launch is not None
    assert proposal.launch.argv == tuple(shlex.split(f"{START} {fixed}"))
    assert proposal.ceiling.name == trust
    assert proposal.why


@pytest.mark.parametrize(
    "typed",
    [
        "--tp-size two",
        "--dtype int8",
        "--quantization",
        "--served-model-name my model",
        "--log info",
        "--context-length 32Q",
        "--attention-backend",
        "--speculative-algorithm EAGLE --speculative-num 3",  # steps or tokens
        "--tp-size 2",
    ],
)
def test_nothing_is_guessed(typed: str) -> None:
    assert proposals("correct-arguments", typed) == []


@pytest.mark.parametrize(
    ("typed", "fixed"),
    [
        ("--bogus 3 --port 1", "--port 1"),
        ("--dtype int8 --port 1", "--port 1"),
        ("--quantization --port 1", "--port 1"),
        ("--pp 2", ""),
        # without its draft, the target would be taken for one
        ("--speculative-algorithm EAGLE --speculative-draft-model-path --port 1", "--port 1"),
    ],
)
def test_dropped(typed: str, fixed: str) -> None:
    (proposal,) = proposals("drop-arguments", typed)
    assert proposal.launch is not None
    assert proposal.launch.argv == tuple(shlex.split(f"{START} {fixed}"))
    assert proposal.ceiling.name == "REVIEW"


@pytest.mark.parametrize("typed", ["--enable-mixed-chunk False", "--tp-size two", "--model-path", "--tp-size 2"])
def test_what_is_not_dropped(typed: str) -> None:
    """Neither what would turn the meaning round, nor a size that only its author knows."""
    assert proposals("drop-arguments", typed) == []


@pytest.mark.parametrize(
    ("start", "typed", "fixed"),
    [
        ("python -m sglang.launch_server", "--model_path m", "python -m sglang.launch_server --model-path m"),
        ("python -m sglang.launch_server", "org/m", "python -m sglang.launch_server --model-path org/m"),
        ("sglang serve", "--tp-size 1 org/m", "sglang serve --tp-size 1 --model-path org/m"),
        ("sglang serve", "--model-id m", "sglang serve --model-path m"),
    ],
)
def test_the_model(start: str, typed: str, fixed: str) -> None:
    (proposal,) = proposals("correct-arguments", typed, start=start)
    assert proposal.launch is not None
    assert proposal.launch.argv == tuple(shlex.split(fixed))


@pytest.mark.parametrize("typed", ["", "--tp-size 2", "word"])
def test_no_model_is_made_up(typed: str) -> None:
    assert proposals("correct-arguments", typed, start="python -m sglang.launch_server") == []


def test_the_rest_of_the_text_stays() -> None:
    text = "python -m sglang.launch_server \\\n  --model-path m \\\n  --trust-remote-code true \\\n  --port 1  # web\n"
    launch = parse(text, "0.5.23", lenient=True)
    verdict = Verdict(check="arguments_parse", status=Status.BROKEN)
    (proposal,) = FIXES["correct-arguments"](Request(launch=launch, verdict=verdict, models=MemoryModels({})))
    assert proposal.launch is not None
    assert proposal.launch.text == text.replace(" true", "")


def test_a_file_is_not_edited() -> None:
    models = MemoryModels({"/x.yaml": {"text": "max-model-len: 2048\n"}})
    launch = parse(f"{START} --config /x.yaml", "0.5.23", read_file=models.text, lenient=True)
    verdict = Verdict(check="arguments_parse", status=Status.BROKEN)
    for fix in ("correct-arguments", "drop-arguments"):
        assert list(FIXES[fix](Request(launch=launch, verdict=verdict, models=models))) == []


def test_a_command_that_is_still_refused_is_no_fix() -> None:
    launch = parse(f"{START} --dtype int8 --bogus 1", "0.5.23", lenient=True)
    verdict = Verdict(check="x", status=Status.BROKEN)
    ask = Request(launch=launch, verdict=verdict, models=MemoryModels({}))
    assert list(FIXES["correct-arguments"](ask)) == []


def test_without_a_launch() -> None:
    verdict = Verdict(check="x", status=Status.UNKNOWN)
    ask = Request(launch=None, verdict=verdict, models=MemoryModels({}))
    assert list(FIXES["correct-arguments"](ask)) == []
