"""What SGLang refuses in the arguments of EAGLE, EAGLE3, NEXTN and STANDALONE.

Mirrors srt/arg_groups/speculative_hook.py: _handle_eagle_family.
"""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import iquest
from specwatch.checks.backends import attention, default_for_trees, page_size
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.speculation import adaptive, algorithm, device
from specwatch.checks.subject import Subject
from specwatch.checks.uno import thresholds
from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.releases import older

FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
_STEPS, _TOPK, _TOKENS = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"
TREES = ("flashinfer", "fa3", "triton")
"""The backends that can branch over pages of several tokens (_PAGE_TREE_SPEC_BACKENDS)."""


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    if algorithm(subject) == "STANDALONE" and subject.attention_dp():
        yield Law(
            cause="standalone-with-attention-dp",
            flags=("--attn-dp-size", "--enable-dp-attention"),
            message="Currently standalone speculative decoding does not support dp attention.",
        )
    yield from _numbers(subject)
    topk = branches(subject)
    if topk > 1 and "trtllm_mha" in attention(subject).both:
        yield Law(
            cause="trtllm-mha-tree",
            flags=(_TOPK, "--attention-backend"),
            message="trtllm_mha backend only supports topk = 1 for speculative decoding.",
            since="0.5.1",
            facts={"topk": topk, **_linear(subject)},
        )
    left_out = _topk_left_out(subject)
    if left_out and "trtllm_mha" in attention(subject).both:
        yield _topk_missing(subject)
    yield from _rejection_sampling(subject, None if left_out else topk)
    if left_out:
        yield _topk_missing(subject)
    if topk > 1:
        yield from _paged_tree(subject)


def _numbers(subject: Subject) -> Iterator[Law]:
    """Sizes without steps; with adaptive steps, or an IQuest Q1, SGLang fills in the rest."""
    if adaptive(subject) or iquest.applies(subject):
        return
    steps, topk = subject.number("speculative_num_steps"), subject.number("speculative_eagle_topk")
    tokens = subject.number("speculative_num_draft_tokens")
    facts: dict[str, Value] = {"steps": steps, "topk": topk, "tokens": tokens}
    if steps is None and (topk is not None or tokens is not None):
        if tokens is not None and tokens > 1 and topk in (None, 1):
            facts["linear_steps"] = tokens - 1
        message, flags = "", (_STEPS, _TOPK, _TOKENS)
        yield Law(cause="steps-missing", flags=flags, message=message, exception="AssertionError", facts=facts)


def _topk_left_out(subject: Subject) -> bool:
    """Whether there are steps and no topk: SGLang chooses all three sizes or none, and stumbles over the gap later."""
    steps, topk = subject.number("speculative_num_steps"), subject.number("speculative_eagle_topk")
    return steps is not None and topk is None and not adaptive(subject) and not iquest.applies(subject)


def _topk_missing(subject: Subject) -> Law:
    steps, tokens = subject.number("speculative_num_steps"), subject.number("speculative_num_draft_tokens")
    return Law(
        cause="topk-missing",
        flags=(_STEPS, _TOPK),
        message="'>' not supported between instances of 'NoneType' and 'int'",
        exception="TypeError",
        since="0.5.4",
        facts={"steps": steps, "topk": None, "tokens": tokens},
    )


def branches(subject: Subject) -> int:
    """How many branches a draft has at each step (`speculative_eagle_topk`), with what SGLang chooses by itself.

    Mirrors _auto_choose_speculative_params. A target that cannot be read is taken for one with a single branch.
    """
    topk = subject.number("speculative_eagle_topk")
    if topk is not None:
        return topk
    if algorithm(subject) == "STANDALONE" or adaptive(subject) or iquest.applies(subject):
        return 1
    try:
        names = subject.target().architectures
    except ModelError:
        return 1
    return 4 if names and names[0] in ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM") else 1


def _linear(subject: Subject) -> dict[str, Value]:
    """What a single branch takes where the launch leaves all three numbers to SGLang: they are then given together."""
    return {"chain_steps": 3, "chain_tokens": 4} if subject.number("speculative_num_steps") is None else {}


def _rejection_sampling(subject: Subject, topk: int | None) -> Iterator[Law]:
    flag, name = "--speculative-use-rejection-sampling", algorithm(subject)
    implied = subject.launch.is_set("speculative_use_block_verification") and name in ("EAGLE", "EAGLE3")
    typed = subject.launch.is_set("speculative_use_rejection_sampling")
    if not typed and not (implied and subject.since("0.5.22")):
        return
    facts: dict[str, Value] = {"algorithm": name, "topk": topk, **_linear(subject)}
    facts["asked_by"] = flag if typed else "--speculative-use-block-verification"
    if name not in ("EAGLE", "EAGLE3"):
        yield Law(
            cause="rejection-sampling-algorithm",
            flags=(flag, "--speculative-algorithm"),
            message=f"{flag} is only supported for EAGLE / EAGLE3 / NEXTN, not speculative_algorithm={name}.",
            exception="NotImplementedError",
            since="0.5.14",
            facts=facts,
        )
    if topk != 1:
        message = f"{flag} requires --speculative-eagle-topk=1."
        yield Law(cause="rejection-sampling-tree", flags=(flag, _TOPK), message=message, since="0.5.14", facts=facts)
    if subject.launch.is_set("enable_deterministic_inference"):
        yield from _deterministic(subject, flag)
    if thresholds(subject):
        yield Law(
            cause="rejection-sampling-thresholds",
            flags=(flag, "--speculative-accept-threshold-single", "--speculative-accept-threshold-acc"),
            message=f"{flag} is incompatible with --speculative-accept-threshold-single / "
            "--speculative-accept-threshold-acc; rejection sampling ignores the accept thresholds.",
            since="0.5.14",
            facts=facts,
        )
    if subject.launch.is_set("enable_multi_layer_eagle"):
        yield Law(
            cause="rejection-sampling-multi-layer",
            flags=(flag, "--enable-multi-layer-eagle"),
            message=f"{flag} is not supported with multi-layer EAGLE (--enable-multi-layer-eagle).",
            exception="NotImplementedError",
            since="0.5.14",
            before="0.5.15",
            facts=facts,
        )


def _deterministic(subject: Subject, flag: str) -> Iterator[Law]:
    flags = (flag, "--enable-deterministic-inference")
    old = (
        f"{flag} is incompatible with --enable-deterministic-inference; the sampling kernel draws coins from the "
        "global RNG and is not batch-invariant."
    )
    cause = "rejection-sampling-deterministic"
    yield Law(cause=cause, flags=flags, message=old, since="0.5.14", before="0.5.23")
    if not (device(subject) or "cuda").startswith("cuda"):
        new = (
            "Deterministic rejection sampling is currently supported only on CUDA-compatible devices because draft "
            "proposal sampling uses a Triton hash kernel."
        )
        yield Law(cause=cause, flags=flags, message=new, since="0.5.23")


def _paged_tree(subject: Subject) -> Iterator[Law | Doubt]:
    """Branching drafts over pages of several tokens: only some backends can."""
    release, size = subject.launch.sglang, page_size(subject)
    backend = attention(subject).base
    able = ("flashinfer",) if older(release, "0.5.13") else TREES
    if backend is None:
        possible = {name: size if name != "trtllm_mla" else max(size, 64) for name in default_for_trees(subject)}
        if any(pages > 1 and name not in able for name, pages in possible.items()):
            yield Doubt("whether the attention backend that SGLang picks for this GPU can branch over pages")
        return
    if size <= 1 or backend in able:
        return
    flags = (_TOPK, "--page-size", "--attention-backend")
    facts: dict[str, Value] = {"page_size": size, "backend": backend, "topk": branches(subject), **_linear(subject)}
    yield Law(
        cause="paged-tree",
        flags=flags,
        message="speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for paged "
        "attention backends. This combination is only supported for the 'flashinfer' backend.",
        since="0.5.4",
        before="0.5.13",
        facts=facts,
    )
    yield Law(
        cause="paged-tree",
        flags=flags,
        message=f"speculative_eagle_topk > 1 with page_size > 1 is only supported on {TREES}; got "
        f"attention_backend={backend!r}. Use page_size == 1 or one of those backends.",
        since="0.5.13",
        facts=facts,
    )


CHECKS = (
    law_check(
        "eagle_arguments",
        "srt/arg_groups/speculative_hook.py: _handle_eagle_family",
        lambda subject: algorithm(subject) in FAMILY,
        _laws,
    ),
)
