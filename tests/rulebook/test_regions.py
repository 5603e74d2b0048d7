"""Rules that know only the part of SGLang that an exception came out of: after all wordings, outermost part first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specwatch.domain import Finding, Severity
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import find, fold
from specwatch.proof import framed
from specwatch.rulebook.book import load_directories

BOOK = load_directories().book
ROOT = "/sgl-workspace/sglang/python/sglang/srt/"


def found(error: str, *frames: str) -> list[Finding]:
    traced = "\n".join(f'  File "{ROOT}{frame.split(":")[0]}", line 7, in {frame.split(":")[1]}' for frame in frames)
    log = (
        f"[2026-07-02 09:14:31 TP0] Scheduler hit an exception: Traceback (most recent call last):\n{traced}\n{error}\n"
    )
    return list(fold(find(framed(log), BOOK, MemoryModels({}))))


@pytest.mark.parametrize(
    ("error", "frames", "rule"),
    [
        ("TypeError: odd", ["speculative/eagle_info.py:verify", "layers/attention/x.py:f"], "crashed-in-speculation"),
        ("TypeError: odd", ["layers/attention/x.py:f"], "attention-backend-failed"),
        ("TypeError: odd", ["models/llama.py:load_weights"], "weights-refused-by-the-class"),
        ("AssertionError", ["mem_cache/unified_radix_cache.py:init_load_back"], "hierarchical-cache-failed"),
        ("AssertionError", ["mem_cache/unified_radix_cache.py:insert"], "prefix-cache-failed"),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            ["speculative/x.py:f"],
            "gpu-illegal-memory-access",
        ),
        ("TypeError: odd", ["managers/scheduler.py:run_batch"], None),
    ],
)
def test_which_rule_speaks(error: str, frames: list[str], rule: str | None) -> None:
    assert [finding.rule for finding in found(error, *frames)] == [rule]


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [/gloo/pair.cc:81] Connection closed by peer [10.0.0.2]:4100",
        "OSError: [Errno 5] Input/output error",
        "MemoryError",
    ],
)
def test_what_comes_up_in_any_code_is_of_no_part(error: str) -> None:
    assert [finding.rule for finding in found(error, "layers/attention/x.py:f")] == [None]


def test_failures_of_one_part_are_told_apart_by_what_they_say() -> None:
    (one,), (two,) = (found(error, "speculative/x.py:f") for error in ("TypeError: odd 3", "ValueError: odd"))
    (again,) = found("TypeError: odd 4", "speculative/x.py:f")
    assert one.fingerprint == again.fingerprint != two.fingerprint
    assert replace(one, rule="other").fingerprint != one.fingerprint
    assert one.severity is Severity.FATAL
    assert one.says == "TypeError: odd 3 (raised in sglang/srt/speculative/x.py, line 7, in f)"
