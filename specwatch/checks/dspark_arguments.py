"""What SGLang refuses in the arguments of a DSPARK launch. Mirrors speculative_hook.py: _handle_dspark."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import dspark
from specwatch.checks.dflash import Malformed
from specwatch.checks.dflash_arguments import argument_draft
from specwatch.checks.dflash_config import bundles_dspark
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.parallel_facts import without_pipeline
from specwatch.checks.speculation import COORDINATION, VERIFY_MODE, device
from specwatch.checks.subject import Subject
from specwatch.domain import Value
from specwatch.releases import older

SUBFOLDER = "dspark"


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    yield from _device(subject)
    if subject.attention_dp():
        yield from _attention_dp(subject)
    yield from _pipeline(subject)
    if subject.draft_path is None and not _bundled(subject):
        yield Law(
            cause="no-draft",
            flags=("--speculative-draft-model-path",),
            message="DSpark dense speculative decoding requires setting --speculative-draft-model-path.",
            facts={"target": subject.target_path},
        )
    yield from _window(subject)


def _device(subject: Subject) -> Iterator[Law]:
    kind, release = device(subject), subject.launch.sglang
    taken = ["cuda"]
    text = "DSpark speculative decoding only supports CUDA device."
    if not older(release, "0.5.18"):
        taken.append("npu")
        text = "DSpark speculative decoding only supports CUDA or NPU device."
    if not older(release, "0.5.23"):
        taken.append("xpu")
        text = "DSpark speculative decoding only supports CUDA, NPU or XPU device."
    if kind is not None and not kind.startswith(tuple(taken)):
        yield Law(cause="device", flags=("--device",), message=text, facts={"device": kind})


def _attention_dp(subject: Subject) -> Iterator[Law]:
    launch = subject.launch
    npu = (device(subject) or "").startswith("npu") and subject.since("0.5.18")
    if not launch.is_set("enable_dp_lm_head"):
        message = "DSpark with dp attention requires --enable-dp-lm-head."
        yield Law(cause="dp-lm-head", flags=("--attn-dp-size", "--enable-dp-lm-head"), message=message)
    if not npu:
        yield from _all_to_all(subject)
    size = subject.number("attn_cp_size") or 1
    if size > 1:
        yield Law(
            cause="context-parallel",
            flags=("--attn-cp-size", "--attn-dp-size"),
            message=f"DSpark with dp attention does not support context parallel (attn_cp_size={size}).",
            facts={"attn_cp_size": size},
        )
    target, own = _a2a(subject), launch.text_value("speculative_moe_a2a_backend")
    if not npu and own is not None and own != target:
        yield Law(
            cause="draft-all-to-all",
            flags=("--speculative-moe-a2a-backend", "--moe-a2a-backend"),
            message="DSpark ignores --speculative-moe-a2a-backend; with dp attention it must match the target "
            f"moe_a2a_backend={target!r} (got {own!r}).",
            facts={"a2a": target, "draft_a2a": own},
        )


def _a2a(subject: Subject) -> str:
    return subject.launch.text_value("moe_a2a_backend") or "none"


def _all_to_all(subject: Subject) -> Iterator[Law]:
    backend, flags = _a2a(subject), ("--moe-a2a-backend",)
    facts: dict[str, Value] = {"a2a": backend}
    one = "DSpark with dp attention only supports the built-in TP MoE (moe_a2a_backend='none'), got"
    two = "DSpark with dp attention supports moe_a2a_backend 'none' (built-in TP MoE) or 'megamoe', got"
    three = "DSpark with dp attention supports moe_a2a_backend 'none' (built-in TP MoE), 'megamoe', or 'mori', got"
    cause = "all-to-all"
    if backend != "none":
        yield Law(cause=cause, flags=flags, message=f"{one} {backend!r}.", before="0.5.18", facts=facts)
    if backend not in ("none", "megamoe"):
        message = f"{two} {backend!r}."
        yield Law(cause=cause, flags=flags, message=message, since="0.5.18", before="0.5.21", facts=facts)
    if backend not in ("none", "megamoe", "mori"):
        yield Law(cause=cause, flags=flags, message=f"{three} {backend!r}.", since="0.5.21", facts=facts)
    if subject.launch.env.get(VERIFY_MODE, "static") == "static":
        return
    if backend != "none":
        message = f"DSpark with dp attention + moe_a2a_backend={backend!r} requires {VERIFY_MODE}=static."
        yield Law(
            cause="verify-mode",
            flags=(VERIFY_MODE, *flags),
            message=message,
            since="0.5.18",
            before="0.5.22",
            facts=facts,
        )
    if backend != "none" or subject.env_flag(COORDINATION):
        message = f"DSpark DP MoE or prefill coordination requires {VERIFY_MODE}=static."
        yield Law(cause="verify-mode", flags=(VERIFY_MODE, *flags), message=message, since="0.5.22", facts=facts)


def _pipeline(subject: Subject) -> Iterator[Law]:
    if (subject.number("pp_size") or 1) == 1:
        return
    facts = without_pipeline(subject)
    old = "Currently DSpark speculative decoding only supports pp_size == 1."
    yield Law(cause="pipeline", flags=("--pp-size",), message=old, before="0.5.21", facts=facts)
    if subject.launch.value("disaggregation_mode") != "prefill":
        yield Law(
            cause="pipeline",
            flags=("--pp-size", "--disaggregation-mode"),
            message="DSpark pipeline parallelism requires PD prefill; decode and non-disaggregated serving require "
            "pp_size == 1.",
            since="0.5.21",
            facts=facts,
        )


def _bundled(subject: Subject) -> bool:
    """Whether the target brings its own draft: keys in its configuration, or a folder `dspark` since 0.5.23."""
    if bundles_dspark(subject.target()):
        return True
    name, revision = f"{SUBFOLDER}/config.json", subject.launch.text_value("revision")
    return subject.since("0.5.23") and subject.models.file_exists(subject.target_path, name, revision=revision)


def _window(subject: Subject) -> Iterator[Law | Doubt]:
    """gamma drafted tokens and the anchor make the window that is verified: gamma + 1 tokens."""
    block, tokens = subject.number("speculative_dspark_block_size"), subject.number("speculative_num_draft_tokens")
    if block is not None and block <= 0:
        yield Law(
            cause="block-size-not-positive",
            flags=("--speculative-dspark-block-size",),
            message=f"DSpark requires --speculative-dspark-block-size to be positive, got {block}.",
            facts={"block": block},
        )
    gamma = block
    if block is None and _has_draft(subject):
        gamma = _trained(subject)
    elif block is None and tokens is not None:
        yield Doubt(
            f"the draft in the folder {SUBFOLDER} of {subject.target_path} is not read: how wide its blocks are"
        )
        return
    if gamma is None and tokens is None:
        gamma = dspark.DEFAULT_GAMMA
    flags = ("--speculative-num-draft-tokens", "--speculative-dspark-block-size")
    if gamma is not None and tokens not in (None, gamma + 1):
        yield Law(
            cause="tokens-differ-from-gamma",
            flags=flags,
            message=f"DSpark speculative_num_draft_tokens must equal gamma + 1 (= {gamma + 1} for gamma={gamma}), "
            f"but got speculative_num_draft_tokens={tokens}.",
            facts={"gamma": gamma, "window": gamma + 1, "tokens": tokens},
        )
    width = tokens if gamma is None else gamma + 1
    if width is not None and width < 2:
        yield Law(
            cause="too-few-tokens" if gamma is None else "no-gamma-in-draft",
            flags=flags,
            message=f"DSpark speculative_num_draft_tokens must be >= 2 (= gamma + 1), got {width}.",
            facts={"tokens": width, "draft": subject.draft_path or subject.target_path},
        )


def _has_draft(subject: Subject) -> bool:
    """Whether the draft's configuration is at hand: one in a folder of the target's is not looked into."""
    return subject.draft_path is not None or bundles_dspark(subject.target())


def _trained(subject: Subject) -> int | None:
    """gamma of the draft's configuration; None where it does not parse, which SGLang only warns of here."""
    try:
        return dspark.parse(subject, argument_draft(subject)).gamma
    except Malformed:
        return None


CHECKS = (
    law_check(
        "dspark_arguments",
        "srt/arg_groups/speculative_hook.py: _handle_dspark",
        lambda subject: subject.algorithm == "DSPARK",
        _laws,
    ),
)
