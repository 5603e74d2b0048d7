"""Rules that know only the part of SGLang that an exception came out of: after all wordings, outermost part first."""

from __future__ import annotations

import pytest

from specwatch.domain import Finding, Severity
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import find, fold
from specwatch.proof import framed
from specwatch.rulebook.book import load_directories

BOOK = load_directories().book
ROOT = "/sgl-workspace/sglang/python/sglang/srt/"


def found(error: str, *frames: str) -> list[Finding]:
    places = [
        (frame.removeprefix("/"), ROOT.removesuffix("srt/") if frame.startswith("/") else ROOT) for frame in frames
    ]
    traced = "\n".join(
        f'  File "{root}{frame.split(":")[0]}", line 7, in {frame.split(":")[1]}' for frame, root in places
    )
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
        (
            "AssertionError",
            ["mem_cache/unified_cache_components/swa_component.py:drive_eviction"],
            "prefix-cache-failed",
        ),
        ("AssertionError", ["mem_cache/memory_pool_host.py:alloc"], "hierarchical-cache-failed"),
        ("AssertionError", ["mem_cache/deepseek_v4_memory_pool.py:__init__"], "kv-cache-pool-failed"),
        ("TypeError: odd", ["layers/moe/token_dispatcher/deepep.py:dispatch_b"], "experts-failed"),
        ("TypeError: odd", ["models/qwen2_vl.py:forward"], "model-code-failed"),
        ("TypeError: odd", ["layers/rotary_embedding.py:forward"], "model-code-failed"),
        # a model calls everything else: it is named only where nothing that it called has a rule
        ("TypeError: odd", ["models/llama.py:forward", "layers/attention/x.py:f"], "attention-backend-failed"),
        ("TypeError: odd", ["models/llama.py:forward", "layers/moe/topk.py:select_experts"], "experts-failed"),
        # every step of a model for images goes through this function, also one without an image
        (
            "TypeError: odd",
            ["models/qwen3_vl.py:forward", "managers/mm_utils.py:general_mm_embed_routine", "layers/attention/x.py:f"],
            "attention-backend-failed",
        ),
        (
            "TypeError: odd",
            ["models/qwen3_vl.py:forward", "managers/mm_utils.py:embed_mm_inputs", "layers/attention/vision.py:f"],
            "multimodal-failed",
        ),
        # of a traceback whose beginning is lost the draft's own code still tells
        ("TypeError: odd", ["models/deepseek_nextn.py:forward", "layers/attention/x.py:f"], "crashed-in-speculation"),
        # what fails while it is imported is no refusal of arguments
        ("TypeError: odd", ["server_args.py:<module>", "configs/x.py:<module>"], "packages-do-not-fit"),
        ("TypeError: odd", ["server_args.py:__post_init__"], "arguments-not-worked-out"),
        ("TypeError: odd", ["arg_groups/moe_hook.py:_handle"], "arguments-not-worked-out"),
        ("TypeError: odd", ["managers/scheduler.py:run_scheduler_process"], None),
        # who calls others is named where nothing that it called is
        ("TypeError: odd", ["managers/scheduler.py:run_batch"], "scheduler-failed"),
        ("TypeError: odd", ["managers/scheduler.py:run_batch", "mem_cache/x.py:f"], "kv-cache-pool-failed"),
        (
            "TypeError: odd",
            ["managers/scheduler.py:run_batch", "managers/tp_worker.py:f", "model_executor/model_runner.py:forward"],
            "model-runner-failed",
        ),
        (
            "TypeError: odd",
            ["managers/tp_worker.py:f", "model_executor/model_runner.py:forward", "models/llama.py:forward"],
            "model-code-failed",
        ),
        (
            "TypeError: odd",
            ["model_executor/model_runner.py:load_model", "model_loader/loader.py:load_model"],
            "weights-loader-failed",
        ),
        ("TypeError: odd", ["models/llama.py:forward", "distributed/parallel_state.py:f"], "communication-failed"),
        ("TypeError: odd", ["layers/layernorm.py:f", "/kernels/ops/x.py:f"], "kernel-call-failed"),
        ("TypeError: odd", ["hardware_backend/mlx/x.py:f"], "device-support-failed"),
        ("TypeError: odd", ["configs/model_config.py:f"], "model-configuration-failed"),
        ("TypeError: odd", ["entrypoints/engine.py:f", "managers/tokenizer_manager.py:f"], "failed-inside-sglang"),
        ("TypeError: odd", ["a_part_to_come/x.py:f"], "failed-inside-sglang"),
        # everything that a server of one role does runs below its loop
        (
            "TypeError: odd",
            ["disaggregation/decode.py:event_loop_overlap_disagg_decode", "speculative/dspark_worker_v2.py:verify"],
            "crashed-in-speculation",
        ),
        ("TypeError: odd", ["disaggregation/decode.py:event_loop_normal_disagg_decode"], None),
        (
            "TypeError: odd",
            ["disaggregation/prefill.py:event_loop_normal_disagg_prefill", "disaggregation/prefill.py:send_kv_chunk"],
            "disaggregation-failed",
        ),
        # weights that do not go into a draft are not the hidden states that it listens to
        (
            "RuntimeError: The size of tensor a (4) must match the size of tensor b (2) at non-singleton dimension 1",
            ["speculative/eagle_worker_v2.py:__init__", "models/deepseek_nextn.py:load_weights"],
            "crashed-in-speculation",
        ),
    ],
)
def test_which_rule_speaks(error: str, frames: list[str], rule: str | None) -> None:
    assert [finding.rule for finding in found(error, *frames)] == [rule]


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [/gloo/pair.cc:81] Connection closed by peer [10.0.0.2]:4100",
        "OSError: [Errno 5] Input/output error",
        "PermissionError: [Errno 13] Permission denied: '/dev/infiniband'",
    ],
)
def test_what_comes_up_in_any_code_is_of_no_part(error: str) -> None:
    assert [finding.rule for finding in found(error, "layers/attention/x.py:f")] == [None]


def test_failures_of_one_part_are_told_apart_by_what_they_say() -> None:
    (one,), (two,) = (found(error, "speculative/x.py:f") for error in ("TypeError: odd 3", "ValueError: odd"))
    (again,) = found("TypeError: odd 4", "speculative/x.py:f")
    assert one.fingerprint == again.fingerprint != two.fingerprint
    assert one._replace(rule="other").fingerprint != one.fingerprint
    assert one.severity is Severity.FATAL
    assert one.says == "TypeError: odd 3 (raised in sglang/srt/speculative/x.py, line 7, in f)"


def test_who_called_a_library_is_told_by_the_error_that_followed() -> None:
    log = (
        "[2026-07-02 09:14:31 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/usr/lib/python3/triton/language/semantic.py", line 512, in arange\n'
        "ValueError: odd\n\nThe above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        f'  File "{ROOT}managers/scheduler.py", line 486, in event_loop_normal\n'
        f'  File "{ROOT}speculative/eagle_utils.py", line 360, in build_tree\n'
        "OddError: at 12:18\n"
    )
    (finding,) = fold(find(framed(log), BOOK, MemoryModels({})))
    assert finding.rule == "crashed-in-speculation"
    assert finding.incident is not None
    assert finding.incident.error == "ValueError: odd"
    assert "eagle_utils.py, line 360" in finding.says
