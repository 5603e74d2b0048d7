"""What SGLang refuses from the arguments alone, before it reads a model's weights.

Each law is one `if … raise` of SGLang, in the order of its own source, so that of two faults the same one is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase

ALGORITHMS = frozenset(
    {"DFLASH", "UNO", "DSPARK", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE", "NGRAM", "NONE", "NEXTN"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One refusal: its cause, the flags it hangs on, and what SGLang raises. `since` is the first release with it."""

    cause: str
    flags: tuple[str, ...]
    message: str
    exception: str = "ValueError"
    since: str = ""


Laws = Callable[[Subject], Iterator[Law]]


def _first(name: str, laws: Laws, subject: Subject) -> Answer | None:
    for law in laws(subject):
        if law.since and not subject.since(law.since):
            continue
        evidence = tuple(fact(name, flag, _typed(subject, flag), "launch") for flag in law.flags)
        return broken(law.cause, law.exception, law.message, *evidence, flags=" ".join(law.flags))
    return Answer()


def _typed(subject: Subject, flag: str) -> str | int | float | bool | None:
    value = subject.launch.value(flag.removeprefix("--").replace("-", "_"))
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _algorithm(subject: Subject) -> Iterator[Law]:
    name = subject.algorithm
    if name is not None and name not in ALGORITHMS:
        yield Law(
            cause="unknown-algorithm",
            flags=("--speculative-algorithm",),
            message=f"Unknown speculative algorithm name: {name}",
        )


def _block_verification(subject: Subject) -> Iterator[Law]:
    supported = ("EAGLE", "EAGLE3", "DFLASH", "DSPARK")
    if subject.launch.is_set("speculative_use_block_verification") and subject.algorithm not in supported:
        yield Law(
            cause="block-verification",
            flags=("--speculative-use-block-verification", "--speculative-algorithm"),
            message="--speculative-use-block-verification only supports EAGLE / EAGLE3 / NEXTN / DFLASH / DSPARK.",
            since="0.5.23",
        )


def _dflash(subject: Subject) -> Iterator[Law]:
    """Mirrors speculative_hook.py: _handle_dflash."""
    if subject.algorithm != "DFLASH":
        return
    launch = subject.launch
    if subject.attention_dp() and not launch.is_set("enable_dp_lm_head"):
        yield Law(
            cause="dflash-dp-lm-head",
            flags=("--enable-dp-lm-head",),
            message="DFLASH with dp attention requires --enable-dp-lm-head.",
            since="0.5.23",
        )
    if (subject.number("pp_size") or 1) != 1:
        yield Law(
            cause="dflash-pipeline",
            flags=("--pp-size",),
            message="Currently DFLASH speculative decoding only supports pp_size == 1.",
        )
    if subject.draft_path is None:
        yield Law(
            cause="dflash-without-draft",
            flags=("--speculative-draft-model-path",),
            message="DFLASH speculative decoding requires setting --speculative-draft-model-path.",
        )
    yield from _dflash_block(subject)


def _dflash_block(subject: Subject) -> Iterator[Law]:
    block, tokens = subject.number("speculative_dflash_block_size"), subject.number("speculative_num_draft_tokens")
    if block is None:
        return
    if block <= 0:
        yield Law(
            cause="dflash-block-size",
            flags=("--speculative-dflash-block-size",),
            message=f"DFLASH requires --speculative-dflash-block-size to be positive, got {block}.",
        )
    # The recorded values hold the resolved number, which SGLang itself made equal.
    if tokens is not None and tokens != block:
        yield Law(
            cause="dflash-block-size-differs",
            flags=("--speculative-num-draft-tokens", "--speculative-dflash-block-size"),
            message="Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ. "
            f"For DFLASH they must match. speculative_num_draft_tokens={tokens}, "
            f"speculative_dflash_block_size={block}.",
        )


def _eagle_family(subject: Subject) -> Iterator[Law]:
    """Mirrors speculative_hook.py: _handle_eagle_family, as far as it needs no GPU kind."""
    if subject.algorithm not in ("EAGLE", "EAGLE3", "STANDALONE"):
        return
    if subject.algorithm == "STANDALONE" and subject.attention_dp():
        yield Law(
            cause="standalone-with-attention-dp",
            flags=("--attn-dp-size", "--enable-dp-attention"),
            message="Currently standalone speculative decoding does not support dp attention.",
            since="0.5.4",
        )
    yield from _step_numbers(subject)
    yield from _rejection_sampling(subject)


def _step_numbers(subject: Subject) -> Iterator[Law]:
    steps, topk = subject.number("speculative_num_steps"), subject.number("speculative_eagle_topk")
    tokens = subject.number("speculative_num_draft_tokens")
    if subject.launch.is_set("speculative_adaptive"):
        return
    if steps is None and (topk is not None or tokens is not None):
        yield Law(
            cause="steps-missing",
            flags=("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"),
            message="",
            exception="AssertionError",
        )
    if steps is not None and topk is None:
        yield Law(
            cause="topk-missing",
            flags=("--speculative-num-steps", "--speculative-eagle-topk"),
            message="'>' not supported between instances of 'NoneType' and 'int'",
            exception="TypeError",
        )


def _rejection_sampling(subject: Subject) -> Iterator[Law]:
    if not subject.launch.is_set("speculative_use_rejection_sampling"):
        return
    flag = "--speculative-use-rejection-sampling"
    if subject.algorithm not in ("EAGLE", "EAGLE3"):
        yield Law(
            cause="rejection-sampling-algorithm",
            flags=(flag, "--speculative-algorithm"),
            message=f"{flag} is only supported for EAGLE / EAGLE3 / NEXTN, not "
            f"speculative_algorithm={subject.algorithm}.",
            exception="NotImplementedError",
            since="0.5.14",
        )


def _lora(subject: Subject) -> Iterator[Law]:
    """Mirrors srt/arg_groups/lora_hook.py: check_lora_speculative_compatibility."""
    lora = subject.launch.is_set("enable_lora") or subject.launch.is_set("lora_paths")
    if lora and subject.algorithm in ("STANDALONE", "UNO", "FROZEN_KV_MTP", "NONE"):
        yield Law(
            cause="lora-with-algorithm",
            flags=("--enable-lora", "--speculative-algorithm"),
            message="LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK speculative decoding, "
            f"not {subject.algorithm}.",
            since="0.5.19",
        )


def _check(name: str, mirrors: str, laws: Laws) -> Check:
    return Check(name=name, phase=Phase.ARGUMENTS, mirrors=mirrors, run=lambda subject: _first(name, laws, subject))


CHECKS = (
    _check("algorithm_name", "srt/speculative/spec_info.py: SpeculativeAlgorithm.from_string", _algorithm),
    _check(
        "block_verification", "srt/arg_groups/speculative_hook.py: handle_speculative_decoding", _block_verification
    ),
    _check("dflash_arguments", "srt/arg_groups/speculative_hook.py: _handle_dflash", _dflash),
    _check("eagle_arguments", "srt/arg_groups/speculative_hook.py: _handle_eagle_family", _eagle_family),
    _check("lora_arguments", "srt/arg_groups/lora_hook.py: check_lora_speculative_compatibility", _lora),
)
