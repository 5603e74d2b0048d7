"""How a model is laid out over its ranks: whole blocks, whole experts, DeepEP's buffer, a package that is too old."""

from __future__ import annotations

from typing import Any

import pytest

from specwatch.domain import Applicability, Status, Verdict
from specwatch.fixes import FIXES, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

PLAIN = "python -m sglang.launch_server --model-path /m"
MOE = {"/m": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 128}}
BUFFER = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"


def commands(use: str, command: str, release: str = "0.5.23", models: Any = None, **captures: str) -> list[str]:
    verdict = Verdict(check="", status=Status.UNKNOWN)
    launch = parse(command, release)
    ask = Request(launch=launch, verdict=verdict, models=MemoryModels(models or {}), captures=captures)
    proposals = list(FIXES[use](ask))
    assert all(proposal.ceiling <= Applicability.REVIEW for proposal in proposals)
    return [proposal.launch.text for proposal in proposals if proposal.launch]


@pytest.mark.parametrize(
    ("flags", "part", "expected"),
    [
        ("--tp-size 4", "320", "--tp-size 2"),  # 1280 is 10 blocks
        ("--tp-size 8", "576", "--tp-size 4"),  # 4608 is 36 blocks
        ("--tp-size 8", "48", "--tp-size 1"),  # 384 is 3 blocks, which nothing but 1 of the parts of 8 divides
        ("--tp-size 8", "8", None),  # 64 is less than a block
        ("--tp-size 4 --dp-size 4 --enable-dp-attention", "320", None),
        ("--tp-size 4 --ep-size 4", "320", None),
        ("", "320", None),
    ],
)
def test_ranks_that_leave_whole_blocks(flags: str, part: str, expected: str | None) -> None:
    wanted = [f"{PLAIN} {expected}"] if expected else []
    assert commands("tp-size-of-whole-blocks", f"{PLAIN} {flags}".strip(), part=part, block="128") == wanted
    assert commands("tp-size-of-whole-blocks", f"{PLAIN} {flags}".strip()) == []


def test_whole_experts() -> None:
    assert commands("whole-experts", f"{PLAIN} --tp-size 8", models=MOE) == [f"{PLAIN} --tp-size 8 --ep-size 8"]
    assert commands("whole-experts", f"{PLAIN} --tp-size 6", models=MOE) == []
    assert commands("whole-experts", f"{PLAIN} --tp-size 8 --ep-size 8", models=MOE) == []
    assert commands("whole-experts", PLAIN, models=MOE) == []
    assert commands("whole-experts", f"{PLAIN} --tp-size 8", "0.4.6", models=MOE) == []


def test_room_in_deepeps_buffer() -> None:
    fixed = commands("larger-dispatch-buffer", f"{PLAIN} --deepep-mode low_latency")
    assert fixed == [f"{PLAIN} --deepep-mode auto", f"{BUFFER}=256 {PLAIN} --deepep-mode low_latency"]
    assert commands("larger-dispatch-buffer", f"{BUFFER}=800 {PLAIN}") == [f"{BUFFER}=1024 {PLAIN}"]
    assert commands("larger-dispatch-buffer", f"{BUFFER}=1024 {PLAIN}") == []


def test_backends_without_flashinfer() -> None:
    fixed = commands("without-flashinfer", PLAIN, module="flashinfer_python")
    assert fixed == [f"{PLAIN} --attention-backend triton --sampling-backend pytorch"]
    assert commands("without-flashinfer", PLAIN, module="sgl-kernel") == []
