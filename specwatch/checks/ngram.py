"""What SGLang refuses in the arguments of an NGRAM launch. Mirrors speculative_hook.py: _handle_ngram."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.backends import attention, page_size
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.speculation import device
from specwatch.checks.subject import Subject
from specwatch.domain import Value
from specwatch.releases import older

DEFAULT_TOKENS = 12
DEFAULT_BREADTH = 10
_BUDGET, _CORPUS = "--speculative-ngram-external-sam-budget", "--speculative-ngram-external-corpus-path"
_BREADTH = "--speculative-ngram-max-bfs-breadth"


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    yield from _device(subject)
    breadth = subject.number("speculative_ngram_max_bfs_breadth")
    breadth = DEFAULT_BREADTH if breadth is None else breadth
    yield from _steps(subject, breadth)
    yield from _corpus(subject)
    if breadth > 1:
        yield from _paged_tree(subject, breadth)
    if subject.attention_dp():
        yield Law(
            cause="attention-dp",
            flags=("--attn-dp-size", "--enable-dp-attention"),
            message="Currently ngram speculative decoding does not support dp attention.",
        )


def _device(subject: Subject) -> Iterator[Law]:
    kind, release = device(subject), subject.launch.sglang
    taken: tuple[str, ...] = ("cuda", "cpu", "xpu")
    text = "CUDA, CPU, or XPU devices"
    if older(release, "0.5.21"):
        taken, text = ("cuda", "cpu"), "CUDA or CPU devices"
    if older(release, "0.5.15"):
        taken, text = ("cuda",), "CUDA device"
    if kind is not None and kind not in taken:
        message = f"Ngram speculative decoding only supports {text}."
        yield Law(cause="device", flags=("--device",), message=message, facts={"device": kind})


def _steps(subject: Subject, breadth: int) -> Iterator[Law]:
    """The depth is the number of tokens by the breadth, where the launch does not name it."""
    if breadth == 0 and subject.number("speculative_num_steps") is None:
        yield Law(
            cause="breadth-zero",
            flags=(_BREADTH,),
            message="integer division or modulo by zero",
            exception="ZeroDivisionError",
            since="0.5.11",
        )


def _corpus(subject: Subject) -> Iterator[Law]:
    if subject.launch.value("speculative_ngram_external_corpus_path") is None:
        return
    tokens = subject.number("speculative_num_draft_tokens")
    most = (DEFAULT_TOKENS if tokens is None else tokens) - 1
    budget = subject.number("speculative_ngram_external_sam_budget") or 0
    limit = subject.number("speculative_ngram_external_corpus_max_tokens")
    facts: dict[str, Value] = {"budget": budget, "most": most if most > 0 else None, "tokens": most + 1}
    when = f"when {_CORPUS} is set."
    if budget <= 0:
        message = f"{_BUDGET} must be positive {when}"
        yield Law(cause="budget-missing", flags=(_BUDGET, _CORPUS), message=message, since="0.5.11", facts=facts)
    if limit is not None and limit <= 0:
        flag = "--speculative-ngram-external-corpus-max-tokens"
        message = f"{flag} must be positive {when}"
        yield Law(cause="corpus-size", flags=(flag, _CORPUS), message=message, since="0.5.11", facts={"limit": limit})
    if budget > most:
        yield Law(
            cause="budget-too-large",
            flags=(_BUDGET, "--speculative-num-draft-tokens"),
            message="speculative_ngram_external_sam_budget must be less than or equal to speculative_num_draft_tokens "
            f"- 1 ({most}).",
            since="0.5.11",
            facts=facts,
        )


def _paged_tree(subject: Subject, breadth: int) -> Iterator[Law | Doubt]:
    backend, size = attention(subject).base, page_size(subject)
    if size <= 1:
        return
    if backend is None:
        yield Doubt("whether the attention backend that SGLang picks for this GPU can branch over pages")
        return
    if backend != "flashinfer":
        yield Law(
            cause="paged-tree",
            flags=(_BREADTH, "--page-size", "--attention-backend"),
            message=f"speculative_eagle_topk({breadth}) > 1 with page_size({size}) > 1 is unstable and produces "
            "incorrect results for paged attention backends. This combination is only supported for the 'flashinfer' "
            "backend.",
            since="0.5.4",
            facts={"breadth": breadth, "page_size": size, "backend": backend},
        )


CHECKS = (
    law_check(
        "ngram_arguments",
        "srt/arg_groups/speculative_hook.py: _handle_ngram",
        lambda subject: subject.algorithm == "NGRAM" and subject.since("0.5.4"),
        _laws,
    ),
)
