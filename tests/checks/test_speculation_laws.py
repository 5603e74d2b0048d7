"""The refusals of speculative launches, by release: what each printed, and where there was nothing to refuse yet."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from specwatch.checks import (
    CHECKS,
    dflash_arguments,
    dspark_arguments,
    eagle_arguments,
    iquest,
    ngram,
    speculation,
    uno,
)
from specwatch.domain import Status, Value, Verdict
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels
from specwatch.rulebook.book import load_directories

COORDINATION = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"
QWEN = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_attention_heads": 32}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 512}
IQUEST = {"architectures": ["IQuestQ1ForCausalLM"], "model_type": "iquest_q1", "num_hidden_layers": 88}


def judged(
    check: str,
    release: str,
    flags: str,
    env: Mapping[str, str] | None = None,
    values: Mapping[str, Value] | None = None,
    **models: Mapping[str, Any],
) -> Verdict:
    """The verdict of one check on `launch_server --model-path t` with further flags."""
    launch = parse(f"python -m sglang.launch_server --model-path t {flags}", release, lenient=True)
    launch = replace(launch, env={**launch.env, **(env or {})}, values={**launch.values, **(values or {})})
    return CHECKS[check](launch, MemoryModels({"t": QWEN, **models}))


ATTENTION_DP = "--speculative-algorithm DFLASH --speculative-draft-model-path d --tp-size 2"


@pytest.mark.parametrize(
    ("check", "release", "flags", "message"),
    [
        (
            "dflash_arguments",
            "0.5.16",
            f"{ATTENTION_DP} --dp-size 2 --enable-dp-attention",
            "not support dp attention.",
        ),
        ("dflash_arguments", "0.5.20", f"{ATTENTION_DP} --dp-size 2 --enable-dp-attention", "on non-NPU devices."),
        ("dflash_arguments", "0.5.23", f"{ATTENTION_DP} --attn-dp-size 2", "requires --enable-dp-lm-head."),
        ("dflash_arguments", "0.5.23", f"{ATTENTION_DP} --attn-dp-size 2 --enable-dp-lm-head", None),
        ("dflash_arguments", "0.5.23", f"{ATTENTION_DP} --attn-dp-size 2 --device npu", None),
        ("dflash_arguments", "0.5.16", f"{ATTENTION_DP} --device npu", "only supports CUDA device."),
        ("dflash_arguments", "0.5.19", f"{ATTENTION_DP} --device npu", None),
        ("dflash_arguments", "0.5.19", f"{ATTENTION_DP} --device xpu", "only supports CUDA and NPU devices."),
        ("dflash_arguments", "0.5.20", f"{ATTENTION_DP} --device cpu", "only supports CUDA, NPU and XPU devices."),
        ("dflash_arguments", "0.5.23", f"{ATTENTION_DP} --device cpu", "on device 'cpu'."),
        ("dflash_arguments", "0.5.23", f"{ATTENTION_DP} --device cuda:1", None),
        ("ngram_arguments", "0.5.14", "--speculative-algorithm NGRAM --device cpu", "only supports CUDA device."),
        ("ngram_arguments", "0.5.19", "--speculative-algorithm NGRAM --device xpu", "CUDA or CPU devices."),
        ("ngram_arguments", "0.5.23", "--speculative-algorithm NGRAM --device xpu", None),
        ("ngram_arguments", "0.5.23", "--speculative-algorithm NGRAM --device npu", "CUDA, CPU, or XPU devices."),
        ("dspark_arguments", "0.5.16", "--speculative-algorithm DSPARK --device npu", "supports CUDA device."),
        ("dspark_arguments", "0.5.20", "--speculative-algorithm DSPARK --device xpu", "CUDA or NPU device."),
        ("dspark_arguments", "0.5.23", "--speculative-algorithm DSPARK --device cpu", "CUDA, NPU or XPU device."),
        ("dspark_arguments", "0.5.20", "--speculative-algorithm DSPARK --pp-size 2", "only supports pp_size == 1."),
        ("dspark_arguments", "0.5.21", "--speculative-algorithm DSPARK --pp-size 2", "requires PD prefill;"),
    ],
)
def test_message_by_release(check: str, release: str, flags: str, message: str | None) -> None:
    verdict = judged(check, release, flags, d={})
    if message is None:
        assert verdict.status is Status.SOUND, verdict
    else:
        assert verdict.status is Status.BROKEN
        assert message in (verdict.message or "")


@pytest.mark.parametrize(
    ("release", "algorithm", "refused"),
    [
        ("0.5.20", "DSPARK", True),
        ("0.5.21", "DSPARK", False),
        ("0.5.22", "EAGLE", True),
        ("0.5.23", "EAGLE", False),
        ("0.5.23", "NEXTN", False),
        ("0.5.23", "NGRAM", True),
    ],
)
def test_radix_cache_on_a_decode_node(release: str, algorithm: str, refused: bool) -> None:
    flags = "--disaggregation-mode decode --disaggregation-decode-enable-radix-cache --speculative-algorithm"
    verdict = judged("speculation_arguments", release, f"{flags} {algorithm}")
    assert (verdict.cause == "radix-cache-on-decode") is refused


def test_the_older_release_names_what_was_typed() -> None:
    flags = "--disaggregation-mode decode --disaggregation-decode-enable-radix-cache --speculative-algorithm NEXTN"
    verdict = judged("speculation_arguments", "0.5.16", flags)
    assert verdict.message is not None
    assert verdict.message.endswith("(--speculative-algorithm NEXTN)")


@pytest.mark.parametrize(
    ("release", "flags", "refused"),
    [
        ("0.5.20", "", False),
        ("0.5.21", "", True),
        ("0.5.21", "--speculative-algorithm DSPARK", True),
        ("0.5.22", "--speculative-algorithm DSPARK", False),
        ("0.5.23", "--speculative-algorithm EAGLE3", False),
        ("0.5.23", "--speculative-algorithm EAGLE --enable-multi-layer-eagle", True),
    ],
)
def test_coordination_needs_an_algorithm_that_can(release: str, flags: str, refused: bool) -> None:
    verdict = judged("prefill_coordination", release, flags, {COORDINATION: "1"})
    assert (verdict.cause == "coordination-without-eagle") is refused


@pytest.mark.parametrize(("value", "on"), [("1", True), ("YES", True), ("on", False), ("0", False), ("2", False)])
def test_coordination_as_sglang_reads_booleans(value: str, on: bool) -> None:
    verdict = judged("prefill_coordination", "0.5.23", "", {COORDINATION: value})
    assert (verdict.status is Status.BROKEN) is on


@pytest.mark.parametrize(
    ("release", "steps", "nearest"),
    [
        ("0.5.13", 0, 1),
        ("0.5.16", 0, None),
        ("0.5.19", 5, 7),
        ("0.5.20", 5, None),
        ("0.5.23", 4, 5),
        ("0.5.23", 9, 7),
        ("0.5.12", 4, None),
    ],
)
def test_adaptive_steps_by_release(release: str, steps: int, nearest: int | None) -> None:
    values: dict[str, Value] = {"speculative_adaptive": True}
    verdict = judged(
        "adaptive_steps", release, f"--speculative-algorithm EAGLE --speculative-num-steps {steps}", None, values
    )
    assert verdict.facts.get("nearest") == nearest


@pytest.mark.parametrize(
    "flags",
    [
        "--speculative-algorithm STANDALONE",
        "--speculative-algorithm EAGLE --speculative-eagle-topk 4",
        "--speculative-algorithm EAGLE --tp-size 2 --attn-dp-size 2",
        "--speculative-algorithm EAGLE --enable-pdmux",
    ],
)
def test_adaptive_speculation_that_sglang_switches_off_is_not_judged(flags: str) -> None:
    verdict = judged("adaptive_steps", "0.5.23", f"{flags} --speculative-adaptive --speculative-num-steps 4")
    assert verdict.because == "does not apply"


@pytest.mark.parametrize(
    ("text", "status", "nearest"),
    [
        ('{"1": {"candidate_steps": [2, 4]}, "note": "x"}', Status.SOUND, None),
        ('{"1": {"candidate_steps": [1]}, "8": {"candidate_steps": [3, 9]}}', Status.BROKEN, 3),
        ('{"1": {"candidate_steps": []}}', Status.UNKNOWN, None),
        ('{"1": {"candidate_steps": [-1]}}', Status.UNKNOWN, None),
        ('{"one": {"candidate_steps": [4]}}', Status.UNKNOWN, None),
        ("[4]", Status.UNKNOWN, None),
        ("{", Status.UNKNOWN, None),
        ("[" * 100_000, Status.UNKNOWN, None),
    ],
)
def test_the_file_of_adaptive_speculation_is_read(text: str, status: Status, nearest: int | None) -> None:
    flags = "--speculative-algorithm EAGLE --speculative-adaptive --speculative-adaptive-config a.json"
    launch = parse(f"python -m sglang.launch_server --model-path t {flags} --speculative-num-steps 4", "0.5.23")
    verdict = CHECKS["adaptive_steps"](launch, MemoryModels({"t": QWEN, "a.json": {"text": text}}))
    assert verdict.status is status
    assert verdict.facts.get("nearest") == nearest


def test_the_file_of_adaptive_speculation_is_not_guessed() -> None:
    flags = "--speculative-algorithm EAGLE --speculative-adaptive --speculative-adaptive-config a.json"
    verdict = judged("adaptive_steps", "0.5.23", f"{flags} --speculative-num-steps 4")
    assert verdict.status is Status.UNKNOWN
    assert "a.json" in verdict.because


EAGLE = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4"


@pytest.mark.parametrize(
    ("release", "flags", "cause"),
    [
        ("0.5.5", "--attention-backend fa3 --page-size 16", "paged-tree"),
        ("0.5.13", "--attention-backend fa3 --page-size 16", ""),
        ("0.5.23", "--attention-backend fa3 --kv-cache-dtype fp8_e5m2 --page-size 16", ""),
        ("0.5.23", "--attention-backend flashmla", "paged-tree"),
        ("0.5.23", "--attention-backend cutedsl_mla --page-size 32", "paged-tree"),
        ("0.5.23", "--attention-backend torch_native --page-size 16", "paged-tree"),
        ("0.5.23", "--prefill-attention-backend triton --decode-attention-backend triton --page-size 16", ""),
        ("0.5.23", "--attention-backend triton --decode-attention-backend trtllm_mha", "trtllm-mha-tree"),
    ],
)
def test_branches_over_pages(release: str, flags: str, cause: str) -> None:
    assert judged("eagle_arguments", release, f"{EAGLE} {flags}").cause == cause


@pytest.mark.parametrize(
    ("flags", "target", "status"),
    [
        ("", QWEN, Status.SOUND),
        ("--page-size 16", QWEN, Status.UNKNOWN),
        ("", DEEPSEEK, Status.UNKNOWN),
        ("--attention-backend triton", DEEPSEEK, Status.SOUND),
    ],
)
def test_the_backend_of_an_unknown_gpu_is_not_guessed(flags: str, target: Mapping[str, Any], status: Status) -> None:
    assert judged("eagle_arguments", "0.5.23", f"{EAGLE} {flags}", t=target).status is status


def test_a_gemma_assistant_is_not_held_to_the_rules_of_eagle() -> None:
    flags = "--speculative-algorithm EAGLE --speculative-draft-model-path d --speculative-num-steps 3"
    assert judged("eagle_arguments", "0.5.23", flags, d={}).cause == "topk-missing"
    draft = {"architectures": ["Gemma4AssistantForCausalLM"]}
    assert judged("eagle_arguments", "0.5.23", flags, d=draft).because == "does not apply"


def test_block_verification_of_eagle_asks_for_rejection_sampling() -> None:
    verdict = judged(
        "eagle_arguments", "0.5.23", f"{EAGLE} --attention-backend triton --speculative-use-block-verification"
    )
    assert verdict.cause == "rejection-sampling-tree"
    assert verdict.facts["asked_by"] == "--speculative-use-block-verification"


@pytest.mark.parametrize(
    ("mode", "broken"), [("static", False), ("compact", False), ("STATIC", True), ("", True), ("cap_accept", True)]
)
def test_verify_mode_is_compared_letter_by_letter(mode: str, broken: bool) -> None:
    env = {"SGLANG_RAGGED_VERIFY_MODE": mode}
    assert (judged("verify_mode", "0.5.23", "--speculative-algorithm NGRAM", env).status is Status.BROKEN) is broken
    assert judged("verify_mode", "0.5.23", "", env).status is Status.SOUND


@pytest.mark.parametrize(
    ("flags", "width", "message"),
    [
        ("", {}, "independent draft model path"),
        ("--speculative-draft-model-path d", {"model_type": "llama"}, "independent MTP draft checkpoint"),
        ("--speculative-draft-model-path d", {"hidden_size": 1}, "hidden size and vocabulary"),
        ("--speculative-draft-model-path d", {"num_target_layers": 12}, "target layer count"),
        ("--speculative-draft-model-path d", {"target_config": {"num_hidden_layers": 12}}, "target layer count"),
        ("--speculative-draft-model-path d --speculative-eagle-topk 4", {}, "requires --speculative-eagle-topk 1"),
        ("--speculative-draft-model-path d --speculative-num-draft-tokens 3", {}, "must equal draft steps + 1"),
        ("--speculative-draft-model-path d --speculative-num-draft-tokens 8", {}, None),
        ("--speculative-draft-model-path d --speculative-num-draft-tokens 4", {"num_draft_slots": 3}, None),
    ],
)
def test_the_draft_of_an_iquest(flags: str, width: Mapping[str, Any], message: str | None) -> None:
    draft = {"architectures": ["IQuestQ1MTP"], "model_type": "iquest_q1_mtp", **width}
    verdict = judged("iquest_draft", "0.5.23", f"--speculative-algorithm EAGLE {flags}", t=IQUEST, d=draft)
    if message is None:
        assert verdict.status is Status.SOUND
        assert (
            judged("eagle_arguments", "0.5.23", f"--speculative-algorithm EAGLE {flags}", t=IQUEST, d=draft).cause == ""
        )
    else:
        assert message in (verdict.message or "")


@pytest.mark.parametrize(
    ("steps", "topk", "tokens", "linear"),
    [(None, 1, 4, 3), (None, None, 4, 3), (None, 4, 8, None), (None, 1, None, None), (None, 1, 1, None)],
)
def test_steps_are_computed_for_a_chain_only(
    steps: int | None, topk: int | None, tokens: int | None, linear: int | None
) -> None:
    named = {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": tokens}
    flags = " ".join(f"--speculative-{name} {value}" for name, value in named.items() if value is not None)
    verdict = judged("eagle_arguments", "0.5.23", f"--speculative-algorithm EAGLE {flags}")
    assert (verdict.exception, verdict.message) == ("AssertionError", "")
    assert verdict.facts.get("linear_steps") == linear


@pytest.mark.parametrize(("heads", "wanted"), [(32, 8), (28, None)])
def test_all_gpus_side_by_side_only_where_the_heads_divide(heads: int, wanted: int | None) -> None:
    target = {**QWEN, "num_attention_heads": heads}
    flags = "--speculative-algorithm DFLASH --speculative-draft-model-path d --tp-size 4 --pp-size 2"
    assert judged("dflash_arguments", "0.5.23", flags, t=target).facts.get("tp_all") == wanted


@pytest.mark.parametrize(
    "module",
    [dflash_arguments, dspark_arguments, eagle_arguments, iquest, ngram, speculation, uno],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_a_rule_answers_for_every_cause(module: ModuleType) -> None:
    book = load_directories().book
    causes = set(re.findall(r'cause(?:=|: str = | = )"([a-z][a-z-]+)"', inspect.getsource(module)))
    assert causes
    names = [check.name for check in module.CHECKS]
    assert {cause for cause in causes if not any(book.by_cause(name, cause) for name in names)} == set()
