"""What SGLang refuses in the arguments of a UNO launch. Mirrors srt/arg_groups/speculative_hook.py: _handle_uno."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.backends import attention
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.speculation import device
from specwatch.checks.subject import Subject
from specwatch.domain import Value

_TOKENS, _TOPK, _STEPS = "--speculative-num-draft-tokens", "--speculative-eagle-topk", "--speculative-num-steps"
MOST_NODES = 128
MOST_SLOTS = 2048


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    yield from _inputs(subject)
    yield from _widths(subject)
    yield from _company(subject)
    yield from _backend(subject)


def _inputs(subject: Subject) -> Iterator[Law]:
    launch = subject.launch
    kind = device(subject)
    if kind is not None and not kind.startswith("cuda"):
        yield Law(cause="device", flags=("--device",), message="UNO only supports CUDA.", facts={"device": kind})
    if subject.draft_path is not None:
        yield Law(
            cause="draft-given",
            flags=("--speculative-draft-model-path",),
            message="UNO reuses the target model and does not accept --speculative-draft-model-path.",
            facts={"draft": subject.draft_path},
        )
    if launch.value("uno_lora_path") is None:
        yield Law(cause="no-adapter", flags=("--uno-lora-path",), message="UNO requires --uno-lora-path.")
    if launch.is_set("enable_deterministic_inference"):
        yield Law(
            cause="deterministic",
            flags=("--enable-deterministic-inference",),
            message="UNO does not support --enable-deterministic-inference because its sampling path does not use "
            "per-request seeds.",
        )
    if launch.is_set("enable_strict_thinking"):
        yield Law(
            cause="strict-thinking",
            flags=("--enable-strict-thinking",),
            message="UNO does not support --enable-strict-thinking because it requires grammar decoding.",
        )


def _widths(subject: Subject) -> Iterator[Law]:
    width, topk = subject.number("speculative_num_draft_tokens"), subject.number("speculative_eagle_topk")
    topk = 1 if topk is None else topk
    if width is None or width < 1:
        yield Law(
            cause="no-width",
            flags=(_TOKENS,),
            message="UNO requires --speculative-num-draft-tokens to be a positive integer denoting the linear width or "
            "tree verify width Q.",
        )
        return
    if topk < 1:
        message = f"UNO requires --speculative-eagle-topk to be at least 1, got {topk}."
        yield Law(cause="tree-shape", flags=(_TOPK,), message=message, facts={"topk": topk, "width": width})
    if topk > 1:
        yield from _tree(subject, width, topk)


def _tree(subject: Subject, width: int, topk: int) -> Iterator[Law]:
    """A tree of `width` nodes that grows `steps` deep with `topk` branches: every bound it has to keep."""
    flags = (_TOKENS, _TOPK, _STEPS)
    steps = subject.number("speculative_num_steps")
    facts: dict[str, Value] = {"width": width, "topk": topk, "steps": steps}
    if steps is None or steps < 1:
        text = "UNO tree mode requires --speculative-num-steps"
        tail = " so its draft width F can be derived as speculative_num_steps + 1."
        message = f"{text}{tail}" if steps is None else f"{text} to be positive, got {steps}."
        yield Law(cause="tree-shape", flags=flags, message=message, facts=facts)
        return
    for broken, message in _bounds(width, topk, steps):
        if broken:
            yield Law(cause="tree-shape", flags=flags, message=message, facts=facts)
    for name, what in (("enable_pdmux", "PDMux"), ("enable_two_batch_overlap", "two-batch overlap")):
        if subject.launch.is_set(name):
            message = f"UNO tree mode does not yet support {what}."
            flag = "--" + name.replace("_", "-")
            yield Law(cause=f"tree-with-{'pdmux' if what == 'PDMux' else 'overlap'}", flags=(flag,), message=message)
    if thresholds(subject):
        yield Law(
            cause="tree-thresholds",
            flags=("--speculative-accept-threshold-single", "--speculative-accept-threshold-acc"),
            message="UNO tree mode reuses EAGLE target-only sampling and requires both speculative accept thresholds "
            "to be 1.0.",
        )


def _bounds(width: int, topk: int, steps: int) -> Iterator[tuple[bool, str]]:
    draft = steps + 1
    capacity, nodes = 1, 1
    for _ in range(steps):
        nodes *= topk
        capacity += nodes
        if capacity >= width:
            break
    parents = topk * (steps - 1) + 1
    tree = "UNO tree mode"
    yield width < draft, f"{tree} requires Q >= F; got Q={width}, F={draft}."
    yield width > MOST_NODES, f"{tree} currently supports at most Q={MOST_NODES} verify nodes, got Q={width}."
    yield (
        width * topk > MOST_SLOTS,
        f"{tree} currently supports Q*K <= {MOST_SLOTS}; got Q*K={width}*{topk}={width * topk}.",
    )
    yield (
        width > capacity,
        f"{tree} cannot build the requested Q from F and K: Q={width} exceeds capacity={capacity} for F={draft}, "
        f"K={topk}.",
    )
    yield (
        width - 1 > parents,
        f"{tree} cannot represent the requested Q in EAGLE's parent-list ABI: Q-1={width - 1} exceeds "
        f"K*(F-2)+1={parents} for F={draft}, K={topk}.",
    )


def thresholds(subject: Subject) -> bool:
    """Whether an accept threshold is other than 1.0, so that drafts are accepted which the target would not say."""
    names = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
    return any(subject.launch.value(name, 1.0) != 1.0 for name in names)


def _company(subject: Subject) -> Iterator[Law]:
    launch = subject.launch
    tp, pp = subject.number("tp_size") or 1, subject.number("pp_size") or 1
    if (tp, pp) != (1, 1):
        flags = ("--tp-size", "--pp-size")
        yield Law(cause="several-ranks", flags=flags, message="UNO requires TP=PP=1.", facts={"tp": tp, "pp": pp})
    if subject.attention_dp() or (subject.number("attn_cp_size") or 1) != 1:
        yield Law(
            cause="attention-parallel",
            flags=("--attn-dp-size", "--enable-dp-attention", "--attn-cp-size"),
            message="UNO does not support DP attention or context parallelism.",
        )
    if launch.is_set("enable_lora") or launch.is_set("lora_paths"):
        yield Law(
            cause="adapters-served",
            flags=("--enable-lora", "--lora-paths"),
            message="UNO does not support public Multi-LoRA serving.",
        )
    if launch.is_set("speculative_use_rejection_sampling"):
        yield Law(
            cause="rejection-sampling",
            flags=("--speculative-use-rejection-sampling",),
            message="UNO manages its own stochastic verification and does not use "
            "--speculative-use-rejection-sampling.",
        )


def _backend(subject: Subject) -> Iterator[Law | Doubt]:
    prefill, decode = attention(subject).both
    wrong = [name for name in (prefill, decode) if name not in (None, "fa3")]
    if None in (prefill, decode):
        if wrong or (device(subject) or "cuda") == "cuda":
            yield Doubt("UNO needs the attention backend fa3; which one SGLang picks by itself hangs on the GPU")
        return
    if wrong:
        yield Law(
            cause="attention-backend",
            flags=("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend"),
            message=f"UNO requires FA3 for both prefill and decode attention; got prefill={prefill!r}, "
            f"decode={decode!r}.",
            facts={"prefill": prefill, "decode": decode},
        )


CHECKS = (
    law_check(
        "uno_arguments",
        "srt/arg_groups/speculative_hook.py: _handle_uno",
        lambda subject: subject.algorithm == "UNO" and subject.since("0.5.20"),
        _laws,
    ),
)
