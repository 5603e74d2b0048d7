"""What the checks of the argument phase say beyond the oracle: other releases, what passes, and what cannot be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specwatch.checks import CHECKS, examine, refusal
from specwatch.checks.parsing import reader
from specwatch.domain import Launch, Verdict
from specwatch.launch.command import parse
from specwatch.models.files import LocalModels
from specwatch.models.memory import MemoryModels

TARGET: dict[str, Any] = {"vocab_size": 128, "num_attention_heads": 8, "max_position_embeddings": 4096}
MODELS = MemoryModels(
    {
        "m": TARGET,
        "gptq": {**TARGET, "quantization_config": {"quant_method": "gptq", "bits": 4}},
        "modelopt": {**TARGET, "quantization_config": {"quant_algo": "FP8"}},
        "v4": {**TARGET, "architectures": ["DeepseekV4ForCausalLM"]},
        "/x.yaml": {"text": "model-path: m\nmax-model-len: 2048\n"},
        "/good.yaml": {"text": "model-path: m\n"},
    }
)
ORACLE = Path(__file__).resolve().parents[1] / "data" / "oracle"
ANSWERS = [json.loads(line) for line in (ORACLE.parent / "checks" / "arguments.jsonl").read_text().split("\n") if line]
# No check re-runs it: the rule goes by its text.
BY_TEXT = "--hicache-host-memory-mode buffer_only requires a storage backend"


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: " ".join(answer["argv"][4:]))
def test_the_answers_of_the_real_sglang(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches made for these checks, and what SGLang 0.5.23 said (it runs in the folder of the oracle)."""
    monkeypatch.chdir(ORACLE)
    real = parse(["python", "-m", "sglang.launch_server", *answer["argv"]], "0.5.23", lenient=True)
    verdicts = examine(replace(real, env=answer["env"]), LocalModels())
    refused = refusal(found for found in verdicts if found.phase == "arguments")
    if answer["ok"] or answer["message"].startswith(BY_TEXT):
        assert refused is None, refused and refused.message
        return
    assert refused is not None
    assert refused.exception == answer["exception"]
    if answer["exception"] != "SystemExit":  # argparse speaks on stderr only
        assert refused.message == answer["message"]


def launch(arguments: str, release: str = "0.5.23") -> Launch:
    start = "" if "--model-path" in arguments or "--config" in arguments else "--model-path m "
    text = f"python -m sglang.launch_server {start}{arguments}"
    return parse(text, release, read_file=reader(MODELS), lenient=True)


def verdict(check: str, arguments: str, release: str = "0.5.23") -> Verdict:
    return CHECKS[check](launch(arguments, release), MODELS)


@pytest.mark.parametrize(
    ("check", "arguments", "release", "cause"),
    [
        (
            "data_parallel_sizes",
            "--tp-size 4 --dp-size 3 --enable-dp-attention",
            "0.5.10",
            "attention-dp-does-not-divide",
        ),
        ("data_parallel_sizes", "--tp-size 4 --dp-size 2 --enable-dp-attention", "0.5.10", ""),
        ("data_parallel_sizes", "--tp-size 4 --dp-size 3", "0.5.23", ""),
        ("data_parallel_sizes", "--attn-dp-size 0", "0.5.23", "attention-dp-not-positive"),
        (
            "context_parallel_sizes",
            "--tp-size 8 --attn-cp-size 4 --attn-dp-size 4",
            "0.5.23",
            "context-parallel-does-not-divide",
        ),
        ("context_parallel_sizes", "--tp-size 8 --moe-dp-size 3", "0.5.23", "moe-dp-does-not-divide"),
        ("expert_parallel_sizes", "--tp-size 4 --ep-size 2 --moe-runner-backend triton", "0.5.23", ""),
        ("deepseek_v4_arguments", "--model-path v4 --speculative-algorithm NEXTN", "0.5.23", "deepseek-v4-algorithm"),
        ("deepseek_v4_arguments", "--model-path v4 --speculative-algorithm EAGLE", "0.5.11", ""),
        ("deepseek_v4_arguments", "--speculative-algorithm EAGLE3", "0.5.23", ""),
        ("attention_arguments", "--speculative-algorithm NGRAM --attention-backend flex_attention", "0.5.1", ""),
        ("scoring_arguments", "--enable-mis --attention-backend flashinfer", "0.5.23", ""),
        ("cache_arguments", "--swa-full-tokens-ratio 0", "0.5.23", "swa-ratio"),
        ("cache_arguments", "--swa-full-tokens-ratio 1", "0.5.23", ""),
        ("weight_cache_arguments", "--weight-cache-mode off --speculative-algorithm NGRAM", "0.5.23", ""),
        ("server_arguments", "--tp-size 2 --pp-size 3 --nnodes 3", "0.5.23", ""),
        ("server_arguments", "--pp-size 2 --speculative-algorithm NGRAM", "0.5.16", ""),
        ("server_arguments", "--tp-size 4 --moe-dense-tp-size 4", "0.5.23", ""),
        ("server_arguments", "--served-model-name a:b", "0.5.4", ""),
        ("server_arguments", "--model-path None", "0.5.23", "model-named-none"),
        ("lora_arguments", "--lora-paths a=b --max-loaded-loras 8", "0.5.23", ""),
        ("lora_arguments", "--lora-paths a=b --max-loaded-loras 7", "0.5.23", "loaded-loras-too-few"),
        ("lora_arguments", "--speculative-algorithm STANDALONE --lora-paths a=b", "0.5.16", ""),
        ("lora_arguments", "--max-lora-rank 8", "0.5.23", ""),
        ("serving_arguments", "--chunked-prefill-size 4096 --page-size 64", "0.5.23", ""),
        ("serving_arguments", "--chunked-prefill-size 96 --page-size 64 --disaggregation-mode decode", "0.5.23", ""),
        ("serving_arguments", "--chunked-prefill-size -1 --page-size 64", "0.5.23", ""),
        (
            "serving_arguments",
            "--tp-size 4 --attn-dp-size 4 --chunked-prefill-size 192 --page-size 64",
            "0.5.23",
            "chunk-not-in-pages",
        ),
        ("serving_arguments", "--port 1 --grpc-port 1", "0.5.23", "one-port-for-two"),
        ("serving_arguments", "--grpc-port 30000 --smg-grpc-mode", "0.5.23", ""),
        ("quantization_fits_checkpoint", "--model-path gptq --quantization gptq_marlin", "0.5.23", ""),
        ("quantization_fits_checkpoint", "--model-path gptq --quantization awq", "0.4.6", "quantization-differs"),
        ("quantization_fits_checkpoint", "--quantization fp8", "0.5.23", ""),
    ],
)
def test_laws(check: str, arguments: str, release: str, cause: str) -> None:
    found = verdict(check, arguments, release)
    assert (found.status.value, found.cause) == ("broken" if cause else "sound", cause), found.because


@pytest.mark.parametrize(
    ("check", "arguments", "because"),
    [
        ("scoring_arguments", "--enable-mis", "the launch leaves the attention backend to the GPU"),
        ("scoring_arguments", "--prefill-only-disable-kv-cache", "default attention backend"),
        ("quantization_fits_checkpoint", "--model-path modelopt --quantization fp8", "ModelOpt"),
        ("quantization_fits_checkpoint", "--model-path nowhere --quantization fp8", "not on this machine"),
        (
            "expert_parallel_sizes",
            "--model-path gptq --moe-runner-backend flashinfer_cutlass",
            "from the model's files",
        ),
        ("arguments_parse", "--config /nowhere.yaml", "cannot be read"),
    ],
)
def test_what_cannot_be_told(check: str, arguments: str, because: str) -> None:
    found = verdict(check, arguments)
    assert found.status == "unknown"
    assert because in found.because


def test_the_fitting_sizes() -> None:
    assert verdict("data_parallel_sizes", "--tp-size 8 --attn-dp-size 6").facts["fitting"] == 4
    assert verdict("context_parallel_sizes", "--tp-size 8 --attn-dp-size 2 --attn-cp-size 8").facts["fitting_cp"] == 4
    facts = verdict("serving_arguments", "--tp-size 2 --attn-dp-size 2 --chunked-prefill-size 300 --page-size 64").facts
    assert facts["fitting"] == 384
    assert (
        verdict("lora_arguments", "--lora-paths a=1 b=2 --max-loras-per-batch 1 --max-loaded-loras 1").facts["enough"]
        == 2
    )
    assert verdict("server_arguments", "--tp-size 6 --nnodes 4").facts["fitting_nodes"] == 3


def test_the_file_of_config_is_read() -> None:
    found = verdict("arguments_parse", "--config /x.yaml")
    assert (found.cause, found.facts["where"]) == ("unrecognized-arguments", "the file of --config")
    assert verdict("arguments_parse", "--config /good.yaml").status == "sound"


def test_a_release_that_is_not_known() -> None:
    assert verdict("arguments_parse", "--never-heard-of 1", "0.9.0").status == "unknown"
    assert verdict("arguments_parse", "--tp-size 2", "0.9.0").status == "sound"


def test_a_server_that_printed_its_arguments_has_passed() -> None:
    """The record holds resolved values: half a chunk per group, which must not be halved again."""
    broken = launch("--tp-size 2 --attn-dp-size 2 --chunked-prefill-size 192 --page-size 64")
    ran = replace(broken, recorded={**broken.values, "chunked_prefill_size": 96})
    assert CHECKS["serving_arguments"](broken, MODELS).status == "broken"
    assert CHECKS["serving_arguments"](ran, MODELS).because == "does not apply"
    assert CHECKS["arguments_parse"](ran, MODELS).because == "does not apply"


def test_an_empty_draft_path_is_read_as_a_name() -> None:
    found = verdict("draft_config", "--speculative-algorithm DFLASH --speculative-draft-model-path ''")
    assert (found.cause, found.exception) == ("draft-path-empty", "OSError")
