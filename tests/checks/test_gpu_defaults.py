"""What hangs on the kind of GPU: SGLang's default attention backend, and what only some GPUs have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specwatch.checks import CHECKS
from specwatch.checks.backends import attention
from specwatch.checks.subject import Subject
from specwatch.domain import Launch, Status, Verdict
from specwatch.launch.command import parse
from specwatch.launch.gpus import GPUS, kind, told
from specwatch.models.memory import MemoryModels

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 32}
OTHER = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_attention_heads": 32}
TREE = "--speculative-algorithm EAGLE --speculative-draft-model-path d --speculative-num-steps 3"
BRANCHES = f"{TREE} --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
CHAIN = f"{TREE} --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


def launched(flags: str, gpu: str, release: str = "0.5.23") -> Launch:
    return replace(parse(f"python -m sglang.launch_server --model-path t {flags}", release), gpu=gpu)


def backend(flags: str, gpu: str, release: str = "0.5.23", target: dict[str, object] = LLAMA) -> str | None:
    return attention(Subject(launched(flags, gpu, release), MemoryModels({"t": target, "d": LLAMA}))).base


def judged(check: str, flags: str, gpu: str, release: str = "0.5.23") -> Verdict:
    return CHECKS[check](launched(flags, gpu, release), MemoryModels({"t": LLAMA, "d": LLAMA}))


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("H100", (9, 0)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA_H200", (9, 0)),
        ("A100-SXM4-80GB", (8, 0)),
        ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA RTX PRO 6000 Blackwell", (12, 0)),
        ("sm_100", (10, 0)),
        ("8.9", (8, 9)),
    ],
)
def test_a_gpu_is_known_by_many_names(name: str, capability: tuple[int, int]) -> None:
    gpu = kind(name)
    assert gpu is not None
    assert gpu.capability == capability


def test_what_is_no_gpu_is_not_known() -> None:
    assert [kind(name) for name in ("", "gpu", "8", "99.9", "H1", "Xeon 6")] == [None] * 6
    assert kind("AMD Instinct MI300X") == GPUS["MI300X"]
    assert GPUS["MI300X"].rocm


@pytest.mark.parametrize(
    ("flags", "gpu", "expected"),
    [
        ("", "", None),
        ("", "H100", "fa3"),
        ("", "B200", "trtllm_mha"),
        ("", "A100", "flashinfer"),
        ("", "RTX5090", "flashinfer"),
        ("", "MI300X", "aiter"),
        (CHAIN, "H100", "fa3"),
        (f"{CHAIN} --page-size 64", "H100", "flashinfer"),
        (BRANCHES, "H100", "flashinfer"),
        (BRANCHES, "B200", "flashinfer"),
        (TREE, "B200", "flashinfer"),  # the branches that are chosen later may be several
        ("--attention-backend triton", "H100", "triton"),
        ("--device cpu", "H100", None),
        ("--enable-deterministic-inference", "H100", None),
        ("--kv-cache-dtype fp8_e5m2", "H100", "triton"),
    ],
)
def test_the_attention_backend_that_sglang_takes_by_itself(flags: str, gpu: str, expected: str | None) -> None:
    assert backend(flags, gpu) == expected


def test_a_block_draft_is_a_chain_since_0_5_23() -> None:
    draft = "--speculative-algorithm DFLASH --speculative-draft-model-path d"
    assert backend(draft, "B200") == "trtllm_mha"
    assert backend(draft, "B200", "0.5.22") == "flashinfer"


def test_where_more_than_the_gpu_decides_nothing_is_told() -> None:
    assert backend("", "H100", "0.5.6") is None
    assert backend("", "H100", target=OTHER) is None


def test_a_gpu_settles_what_was_unknown() -> None:
    flags = f"{BRANCHES} --page-size 16"
    assert judged("eagle_arguments", flags, "").status is Status.UNKNOWN
    assert judged("eagle_arguments", flags, "A100").status is Status.SOUND
    assert judged("eagle_arguments", flags, "MI300X").cause == "paged-tree"


@pytest.mark.parametrize(
    ("flags", "gpu", "cause"),
    [
        ("--attention-backend trtllm_mha", "A100", "prefill"),
        ("--decode-attention-backend trtllm_mha", "L40S", "decode"),
        ("--attention-backend trtllm_mha", "H100", ""),
        ("--kv-cache-dtype nvfp4", "H100", "gpu"),
        ("--kv-cache-dtype nvfp4", "B200", ""),
        ("--kv-cache-dtype mxfp8", "H100", "gpu"),
        ("--attention-backend trtllm_mha", "", ""),
    ],
)
def test_what_a_gpu_does_not_have_is_refused(flags: str, gpu: str, cause: str) -> None:
    assert judged("attention_arguments", flags, gpu).cause == cause


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- Compute capability: 120", "sm_120"),
        ("/opt/t.py:235: UserWarning: NVIDIA B200 with CUDA capability sm_100 is not compatible with the", "B200"),
        ("|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:18:00.0 Off |", "A100"),
        ("Using default MoE kernel config. Config file not found at /x/E=8,N=7,device_name=NVIDIA_H200.json", "H200"),
        ("Receive: obj=GenerateReqInput(text='NVIDIA B200 with CUDA capability sm_100')", ""),
        ("GPU 0 has a total capacity of 79.10 GiB", ""),
    ],
)
def test_a_log_may_name_its_gpu(line: str, expected: str) -> None:
    assert told(["Load weight begin.", line]) == expected


def test_several_kinds_in_one_log_tell_nothing() -> None:
    lines = ["- Compute capability: 90", "- Compute capability: 120"]
    assert told(lines) == ""
    assert told([*lines[:1], *lines[:1]]) == "sm_90"
