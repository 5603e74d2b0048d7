"""Do the sizes of a deployment divide each other? Ranks, data-parallel groups, context and expert parallelism.

Mirrors srt/arg_groups/parallel_hook.py: handle_data_parallelism and handle_context_parallelism, and moe_hook.py:
handle_moe_kernel_config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.subject import Subject

_RUNNERS: Mapping[str, tuple[tuple[str | None, ...], str]] = MappingProxyType(
    {
        "flashinfer_cutlass": (
            ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", None),
            "FlashInfer Cutlass MOE supports only: 'modelopt_fp4', 'modelopt_fp8', 'modelopt_mixed', or bfloat16 "
            "(None).",
        ),
        "flashinfer_cutedsl": (
            ("modelopt_fp4", "modelopt_mixed", "nvfp4_online"),
            "FlashInfer CuteDSL MOE currently supports only: 'modelopt_fp4', 'modelopt_mixed' (with NVFP4 MoE layers), "
            "'nvfp4_online', or hybrid NVFP4 models.",
        ),
        "flashinfer_trtllm": (
            (
                *("modelopt_fp4", "nvfp4_online", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed"),
                *("compressed-tensors", None),
            ),
            "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', 'nvfp4_online', 'fp8', 'modelopt_fp8', "
            "'modelopt_mixed', 'compressed-tensors', or bfloat16 (None).",
        ),
        "flashinfer_trtllm_routed": (
            (
                *("fp8", "mxfp8", "modelopt_fp4", "modelopt_mixed", "nvfp4_online", "minimax_m3_nvfp4"),
                None,
            ),
            "FlashInfer TRTLLM routed MOE supports only: 'fp8', 'mxfp8', 'modelopt_fp4', 'modelopt_mixed', "
            "'nvfp4_online', 'minimax_m3_nvfp4', or bfloat16 (None).",
        ),
    }
)
"""The MoE runners that take some quantizations only, and how 0.5.23 lists them."""


class Sizes(NamedTuple):
    """The sizes in force: `dp` counts replicas, `attn_dp` groups of data-parallel attention inside one model."""

    tp: int
    pp: int
    dp: int
    attn_dp: int
    attn_cp: int
    moe_dp: int
    ep: int
    nodes: int


def sizes(subject: Subject) -> Sizes:
    """The sizes of a launch. `--dp-size N --enable-dp-attention` is the older spelling of `--attn-dp-size N`."""

    def size(name: str) -> int:
        number = subject.number(name)
        return 1 if number is None else number

    dp, attn_dp = size("dp_size"), size("attn_dp_size")
    if subject.launch.is_set("enable_dp_attention"):
        if attn_dp == 1:
            attn_dp, dp = dp, 1
        elif subject.launch.recorded is not None:
            dp = 1
    return Sizes(
        tp=size("tp_size"),
        pp=size("pp_size"),
        dp=dp,
        attn_dp=attn_dp,
        attn_cp=size("attn_cp_size"),
        moe_dp=size("moe_dp_size"),
        ep=size("ep_size"),
        nodes=size("nnodes"),
    )


def typed(subject: Subject) -> bool:
    """Whether the launch is known by its command alone: one whose arguments the server printed has passed these."""
    return not subject.launch.recorded


def divisor(of: int, at_most: int) -> int:
    """The largest divisor of a number that is not larger than another."""
    return next((size for size in range(min(of, at_most), 0, -1) if of % size == 0), 1)


def _data(subject: Subject) -> Iterator[Law | Doubt]:
    now = sizes(subject)
    new = subject.since("0.5.23")
    flag = "--attn-dp-size" if new else "--dp-size"
    if now.attn_dp < 1:
        yield Law(
            cause="attention-dp-not-positive",
            flags=("--attn-dp-size",),
            message=f"--attn-dp-size must be positive (got {now.attn_dp}).",
            since="0.5.23",
        )
        return
    if now.attn_dp > 1 and now.dp > 1:
        yield Law(
            cause="replicas-with-attention-dp",
            flags=("--dp-size", "--attn-dp-size"),
            message=f"--dp-size {now.dp} with --attn-dp-size {now.attn_dp}: data-parallel replicas combined with "
            "attention data parallelism are not supported.",
            since="0.5.23",
        )
    if now.attn_dp > 1 and now.tp % now.attn_dp:
        yield Law(
            cause="attention-dp-does-not-divide",
            flags=("--tp-size", flag),
            message="",
            exception="AssertionError",
            facts={"tp_size": now.tp, "attn_dp_size": now.attn_dp, "fitting": divisor(now.tp, now.attn_dp)},
        )


def _context(subject: Subject) -> Iterator[Law | Doubt]:
    now = sizes(subject)
    if now.attn_cp > 1:
        facts = {"tp_size": now.tp, "fitting_cp": divisor(max(now.tp // max(now.attn_dp, 1), 1), now.attn_cp)}
        if now.tp % now.attn_cp:
            yield Law(
                cause="context-parallel-does-not-divide",
                flags=("--tp-size", "--attn-cp-size"),
                message="tp_size must be divisible by attn_cp_size",
                exception="AssertionError",
                facts=facts,
            )
        if now.attn_dp > 0 and now.tp % (now.attn_dp * now.attn_cp):
            name = "attn_dp_size" if subject.since("0.5.23") else "dp_size"
            yield Law(
                cause="context-parallel-does-not-divide",
                flags=("--tp-size", "--attn-dp-size", "--attn-cp-size"),
                message=f"tp_size must be divisible by {name} * attn_cp_size",
                exception="AssertionError",
                facts=facts,
            )
    if now.moe_dp > 1 and now.tp % now.moe_dp:
        yield Law(
            cause="moe-dp-does-not-divide",
            flags=("--tp-size", "--moe-dp-size"),
            message="tp_size must be divisible by moe_dp_size",
            exception="AssertionError",
            since="0.5.10",
            facts={"tp_size": now.tp, "fitting_moe_dp": _fitting_moe_dp(subject, now)},
        )


def _fitting_moe_dp(subject: Subject, now: Sizes) -> int:
    """The groups of experts that a launch may have: since 0.5.23 one, or as many as of context parallelism."""
    if not subject.since("0.5.23"):
        return divisor(now.tp, now.moe_dp)
    same = now.attn_cp > 1 and now.tp % now.attn_cp == 0 and now.ep in (1, now.tp // now.attn_cp)
    return now.attn_cp if same else 1


def _experts(subject: Subject) -> Iterator[Law | Doubt]:
    """What a named MoE runner asks of the quantization and of the expert-parallel size."""
    runner = subject.launch.text_value("moe_runner_backend") or ""
    if runner not in _RUNNERS:
        return
    allowed, listed = _RUNNERS[runner]
    quantization = subject.launch.text_value("quantization")
    if quantization is None and (runner == "flashinfer_cutedsl" or _quantized(subject)):
        yield Doubt(f"{runner} asks for a quantization that SGLang takes from the model's files")
        return
    if quantization not in allowed:
        if not subject.since("0.5.23"):
            yield Doubt(f"what {runner} takes in sglang {subject.launch.sglang} is not known here")
            return
        yield Law(
            cause="runner-with-quantization",
            flags=("--moe-runner-backend", "--quantization"),
            message=f"Invalid quantization '{quantization}'. \n{listed}",
            exception="AssertionError",
            facts={"runner": runner, "quantization": quantization},
        )
    if runner not in ("flashinfer_cutlass", "flashinfer_cutedsl"):
        return
    now = sizes(subject)
    if now.ep not in (1, now.tp):
        yield Law(
            cause="expert-parallel-size",
            flags=("--ep-size", "--tp-size"),
            message="The expert parallel size must be 1 or the same as the tensor parallel size",
            exception="AssertionError",
            facts={"ep_size": now.ep, "tp_size": now.tp},
        )


def _quantized(subject: Subject) -> bool:
    top = subject.target().top
    return top.get("quantization_config") is not None or top.get("compression_config") is not None


DATA_PARALLEL = law_check(
    "data_parallel_sizes", "srt/arg_groups/parallel_hook.py: handle_data_parallelism", typed, _data
)
CONTEXT_PARALLEL = law_check(
    "context_parallel_sizes", "srt/arg_groups/parallel_hook.py: handle_context_parallelism", typed, _context
)
EXPERT_PARALLEL = law_check(
    "expert_parallel_sizes", "srt/arg_groups/moe_hook.py: handle_moe_kernel_config", typed, _experts
)
