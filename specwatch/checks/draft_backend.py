"""Can the attention backend of a launch run the draft? Only where the launch, or its record, names the backend.

Mirrors srt/speculative/draft_utils.py: DraftBackendFactory, srt/speculative/frozen_kv_mtp_worker_v2.py:
FrozenKVMTPWorkerV2._init_draft_attn_backend, and the constructors of the backends' multi-step drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from specwatch.checks.backends import attention, page_size
from specwatch.checks.speculation import algorithm
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Evidence, Phase, Value
from specwatch.errors import ModelError
from specwatch.models.base import ModelConfig
from specwatch.releases import older

NAME = "draft_attention_backend"
FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
SUPPORTED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("flashinfer", "triton", "fa3", "flashmla"), ("", "0.4.8")),
        **dict.fromkeys(("aiter", "trtllm_mha", "trtllm_mla"), ("0.4.8", "0.5.1")),
        **dict.fromkeys(("hybrid_linear_attn", "nsa"), ("0.5.1", "0.5.4")),
        **dict.fromkeys(("ascend", "fa4"), ("0.5.4", "0.5.10")),
        **dict.fromkeys(("cutedsl_mla", "tokenspeed_mla", "dsa", "dsv4"), ("0.5.10", "0.5.14")),
        **dict.fromkeys(("intel_amx", "intel_xpu"), ("0.5.14", "0.5.23")),
    }
)
"""What a multi-step draft can be built with: the last release seen without it, and the first seen with it."""
LATENT = frozenset({"trtllm_mla", "cutedsl_mla", "tokenspeed_mla"})
"""Backends for models with multi-head latent attention only (srt/layers/attention/attention_registry.py)."""


def _backends(subject: Subject) -> tuple[str | None, str | None]:
    """The backends of the draft's decode steps and of its extend pass; None where SGLang picks one for the GPU."""
    own = subject.launch.text_value("speculative_draft_attention_backend")
    if own is not None:
        return own, own
    named = attention(subject)
    extend = named.decode if subject.launch.value("speculative_attention_mode") == "decode" else named.prefill
    return named.decode, extend


def _backend(subject: Subject) -> Answer | None:
    name = algorithm(subject)
    if name == "FROZEN_KV_MTP":
        return _frozen(subject)
    if name not in FAMILY:
        return None
    decode, extend = _backends(subject)
    topk, steps = subject.number("speculative_eagle_topk") or 1, subject.number("speculative_num_steps")
    chain = (3 if steps is None else steps) + 1
    several = chain > 2
    evidence = (fact(NAME, "attention backend of the draft", decode, "launch"),)
    draft = _seen(subject)
    mla = draft is not None and draft.text.get("kv_lora_rank") is not None
    latent = next((backend for backend in (extend, decode) if backend in LATENT), None)
    if latent is not None and draft is not None and not mla:
        name = "cutedsl_mla" if latent == "tokenspeed_mla" and subject.since("0.5.23") else latent
        message = f"{name} backend can only be used with MLA models."
        names: dict[str, Value] = {"backend": latent, "draft": draft.path, "target": subject.target_path}
        return broken("latent-backend", "ValueError", message, *evidence, **names)
    if not subject.launch.is_set("enable_multi_layer_eagle"):
        refused = _unsupported(subject, decode, extend, several, evidence)
        if refused is not None:
            return refused
    if topk > 1 and several:
        refused = _trees(decode, mla, chain, evidence)
        if refused is not None:
            return refused
    return _windowed(subject, decode, topk, chain, evidence) or Answer(evidence=evidence)


def _seen(subject: Subject) -> ModelConfig | None:
    try:
        return subject.draft()
    except ModelError:
        return None  # said by draft_config


def _unsupported(
    subject: Subject, decode: str | None, extend: str | None, several: bool, evidence: tuple[Evidence, ...]
) -> Answer | None:
    for backend, where in ((decode if several else None, "decode attention backend"), (extend, "attention backend")):
        if backend is None:
            continue
        without, known = SUPPORTED.get(backend, ("", ""))
        if known and (subject.since(known) or known == "0.4.8"):
            continue
        if known and not (without and (subject.launch.sglang == without or older(subject.launch.sglang, without))):
            return Answer(unknown=f"whether this release can draft with the attention backend {backend}")
        message = f"EAGLE is not supported in {where} {backend}"
        cause = "unsupported-on-cpu" if subject.launch.value("device") == "cpu" else "unsupported-backend"
        return broken(cause, "ValueError", message, *evidence, backend=backend)
    return None


def _trees(decode: str | None, mla: bool, chain: int, evidence: tuple[Evidence, ...]) -> Answer | None:
    """Backends that can only follow one branch."""
    if decode == "flashmla":
        message = "Currently FlashMLA only supports topk=1 for speculative decoding"
    elif decode == "flashinfer" and mla:
        message = "Currently Flashinfer MLA only supports topk=1 for speculative decoding"
    else:
        return None
    return broken("one-branch-only", "ValueError", message, *evidence, backend=decode, chain_tokens=chain)


def _windowed(
    subject: Subject, decode: str | None, topk: int, chain: int, evidence: tuple[Evidence, ...]
) -> Answer | None:
    """FlashAttention cannot follow branches in a sliding window over pages."""
    if decode not in ("fa3", "fa4") or topk <= 1 or page_size(subject) <= 1:
        return None
    try:
        target = subject.target()
    except ModelError as error:
        return Answer(unknown=f"whether the target has sliding window layers: {error}")
    window, types = target.text.get("sliding_window"), target.text.get("layer_types")
    if not isinstance(window, int) or not isinstance(types, list) or "sliding_attention" not in types:
        return None
    message = (
        "FlashAttention backend doesn't support topk > 1 speculative decoding with page size > 1 sliding window "
        "attention"
    )
    names: dict[str, Value] = {"backend": decode, "window": window, "chain_tokens": chain}
    return broken("window-and-pages", "AssertionError", message, *evidence, **names)


def _frozen(subject: Subject) -> Answer | None:
    if (subject.number("speculative_eagle_topk") or 1) <= 1:
        return None
    own = subject.launch.text_value("speculative_draft_attention_backend")
    backend = own or attention(subject).decode
    if backend is None or backend in ("triton", "trtllm_mha"):
        return Answer()
    message = f"Frozen-KV MTP topk > 1 currently supports triton and trtllm_mha attention backends, got {backend}."
    seen = fact(NAME, "attention backend of the draft", backend, "launch")
    return broken("frozen-kv-branches", "ValueError", message, seen, backend=backend)


DRAFT_BACKEND = Check(
    name=NAME, phase=Phase.WORKER, mirrors="srt/speculative/draft_utils.py: DraftBackendFactory", run=_backend
)
