"""What LoRA adapters ask of the arguments.

Mirrors srt/arg_groups/lora_hook.py: check_lora_server_args, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import parallel, speculation
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.subject import Subject

MAX_PER_BATCH = 8
"""The default of --max-loras-per-batch."""
_TOGETHER = "LoRA with EAGLE/NEXTN/EAGLE3 speculative decoding "


def enabled(subject: Subject) -> bool:
    """Whether adapters are served: `--lora-paths` switches LoRA on."""
    return subject.launch.is_set("enable_lora") or subject.launch.is_set("lora_paths")


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    per_batch = subject.number("max_loras_per_batch")
    if per_batch is not None and per_batch <= 0:
        yield Law(
            cause="loras-per-batch-not-positive",
            flags=("--max-loras-per-batch",),
            message="max_loras_per_batch must be positive",
            exception="AssertionError",
        )
    if not enabled(subject):
        return
    yield from _with_speculation(subject)
    yield from _adapters(subject, MAX_PER_BATCH if per_batch is None else per_batch)


def _with_speculation(subject: Subject) -> Iterator[Law]:
    name = speculation.algorithm(subject)
    if name in (None, "NGRAM"):
        return
    if name not in ("EAGLE", "EAGLE3", "DFLASH", "DSPARK"):
        promoted = (
            " (NEXTN/EAGLE with a Gemma4 assistant draft is automatically promoted to FROZEN_KV_MTP, which does not "
            "support LoRA)"
        )
        yield Law(
            cause="lora-with-algorithm",
            flags=("--enable-lora", "--speculative-algorithm"),
            message="LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK speculative decoding, "
            f"not {name}{promoted if name == 'FROZEN_KV_MTP' else ''}.",
            since="0.5.19",
            facts={"algorithm": name},
        )
        return
    mode = subject.launch.env.get(speculation.VERIFY_MODE, "static")
    if name == "DSPARK" and mode != "static":
        yield Law(
            cause="lora-with-ragged-verify",
            flags=("--enable-lora", speculation.VERIFY_MODE),
            message=f"{_TOGETHER}does not support {speculation.VERIFY_MODE}={mode!r}: the per-request verify lengths "
            "it schedules break the uniform-width LoRA segment layout.",
            since="0.5.19",
            facts={"mode": mode},
        )
    if subject.launch.is_set("speculative_adaptive"):
        yield Law(
            cause="lora-with-adaptive",
            flags=("--enable-lora", "--speculative-adaptive"),
            message=f"{_TOGETHER}does not support --speculative-adaptive: the draft is built from a static ServerArgs "
            "snapshot, and the runtime-state swap does not rebuild LoRA cuda-graph metadata.",
            since="0.5.19",
        )
    runners = (
        subject.launch.value("moe_runner_backend"),
        subject.launch.value("speculative_moe_runner_backend"),
    )
    if "experimental_sgl_trtllm" in runners:
        yield Law(
            cause="lora-with-moe-runner",
            flags=("--enable-lora", "--moe-runner-backend", "--speculative-moe-runner-backend"),
            message=f"{_TOGETHER}does not support the experimental_sgl_trtllm MoE runner: its TopK reads the LoRA "
            "config per forward, which the draft resolves against the target's after its own publish ended.",
            since="0.5.19",
        )
    if subject.env_flag("SGLANG_ENABLE_OVERLAP_PLAN_STREAM"):
        yield Law(
            cause="lora-with-plan-stream",
            flags=("--enable-lora", "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
            message=f"{_TOGETHER}does not support SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1: LoRA batch preparation would "
            "run on the plan stream, unordered against in-flight forwards.",
            since="0.5.19",
        )


def _adapters(subject: Subject, per_batch: int) -> Iterator[Law]:
    launch = subject.launch
    modules, paths = launch.value("lora_target_modules"), launch.value("lora_paths")
    names = modules if isinstance(modules, list) else []
    if "all" in names and len(set(map(str, names))) > 1:
        yield Law(
            cause="all-modules-and-more",
            flags=("--lora-target-modules",),
            message="If 'all' is specified in --lora-target-modules, it should be the only module specified.",
            exception="AssertionError",
            since="0.4.10",
        )
    count = len(paths) if isinstance(paths, (list, dict)) else 0
    if not count and not (launch.is_set("max_lora_rank") and names):
        yield Law(
            cause="lora-shape-unknown",
            flags=("--lora-paths", "--max-lora-rank", "--lora-target-modules"),
            message="When no initial --lora-paths is provided, you need to specify both --max-lora-rank and "
            "--lora-target-modules for LoRA initialization.",
            exception="AssertionError",
            since="0.4.10",
        )
    loaded = subject.number("max_loaded_loras")
    if loaded is None:
        return
    facts = {"loaded": loaded, "per_batch": per_batch, "adapters": count, "enough": max(per_batch, count)}
    if loaded < per_batch:
        yield Law(
            cause="loaded-loras-too-few",
            flags=("--max-loaded-loras", "--max-loras-per-batch"),
            message="max_loaded_loras should be greater than or equal to max_loras_per_batch. "
            f"max_loaded_loras={loaded}, max_loras_per_batch={per_batch}",
            exception="AssertionError",
            since="0.5.1",
            facts=facts,
        )
    if count > loaded:
        yield Law(
            cause="loaded-loras-too-few",
            flags=("--max-loaded-loras", "--lora-paths"),
            message=f"The number of LoRA paths should not exceed max_loaded_loras. max_loaded_loras={loaded}, "
            f"lora_paths={count}",
            exception="AssertionError",
            since="0.5.1",
            facts=facts,
        )


CHECKS = (
    law_check(
        "lora_arguments",
        "srt/arg_groups/lora_hook.py: check_lora_server_args",
        parallel.typed,
        _laws,
    ),
)
