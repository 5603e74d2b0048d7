"""Which attention backends and which page size a launch comes to, as far as the launch itself tells.

Mirrors srt/arg_groups/overrides.py: _attention_backend_default, _attention_backend_fa3_fp8_fallback,
_mla_backend_page_constraints and _page_size_default, and model_override_base.py: attention_backends_of.
"""

from __future__ import annotations

from typing import NamedTuple

from specwatch.checks.subject import Subject
from specwatch.errors import ModelError


class Attention(NamedTuple):
    """The backends in force: `base` for what names none of its own; None where SGLang picks one for the GPU."""

    base: str | None
    prefill: str | None
    decode: str | None

    @property
    def both(self) -> tuple[str | None, str | None]:
        """Prefill and decode."""
        return self.prefill, self.decode


def attention(subject: Subject) -> Attention:
    """The attention backends that a launch names."""
    launch = subject.launch
    prefill, decode = launch.text_value("prefill_attention_backend"), launch.text_value("decode_attention_backend")
    base = launch.text_value("attention_backend") or default_of_gpu(subject)
    if prefill is not None and prefill == decode:
        base = prefill
    if base == "fa3" and launch.value("kv_cache_dtype") == "fp8_e5m2":
        base = "triton"
    return Attention(base=base, prefill=prefill or base, decode=decode or base)


PLAIN = frozenset(
    f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe")
)
"""Targets whose attention is chosen by the GPU alone: no latent attention, no sinks, no override of their own."""
_SWAYING = ("enable_deterministic_inference", "dllm_algorithm", "enable_beam_search", "enable_hisparse")


def default_of_gpu(subject: Subject) -> str | None:
    """The attention backend that SGLang takes by itself on the launch's GPU, None where that is not known.

    Mirrors model_override_base.py: get_default_attn_backend, for plain targets on a CUDA 12.4 or ROCm as SGLang comes
    with, where it has been the same since 0.5.11.
    """
    launch, gpu = subject.launch, subject.gpu
    if gpu is None or not subject.since("0.5.11") or launch.text_value("device") not in (None, "auto", "cuda"):
        return None
    if any(launch.is_set(name) for name in _SWAYING) or "fp4" in (launch.text_value("kv_cache_dtype") or ""):
        return None
    try:
        names = subject.target().architectures
    except ModelError:
        return None
    if not names or names[0] not in PLAIN:
        return None
    topk, page = subject.number("speculative_eagle_topk"), subject.number("page_size")
    chain = topk is None or (topk == 1 and page in (None, 1))
    if gpu.is_sm(9) and chain:
        return "fa3"
    if gpu.is_sm(10) and chain:
        forced = subject.algorithm == "DFLASH" and subject.since("0.5.23")
        if subject.algorithm is None or topk is not None or forced:
            return "trtllm_mha"
    return "aiter" if gpu.rocm else "flashinfer"


_PAGED: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = (
    ("flashmla", ("base", "decode"), (64,)),
    ("trtllm_mla", ("base", "decode"), (32, 64)),
    ("cutedsl_mla", ("base", "decode", "prefill"), (32, 64)),
    ("trtllm_mha", ("base", "decode", "prefill", "draft"), (16, 32, 64, 128)),
    ("hpc_ops", ("base", "decode", "prefill"), (64,)),
)
"""Backends that have page sizes of their own: where they count, and the sizes; any other size becomes 64."""


def page_size(subject: Subject) -> int:
    """The page size of the KV cache in tokens: what is typed (1 by default), then what a backend forces on it."""
    typed = subject.number("page_size")
    size = 1 if typed is None else typed
    named = attention(subject)
    places = {
        "base": named.base,
        "prefill": subject.launch.text_value("prefill_attention_backend"),
        "decode": subject.launch.text_value("decode_attention_backend"),
        "draft": subject.launch.text_value("speculative_draft_attention_backend"),
    }
    for backend, where, sizes in _PAGED:
        if backend in (places[place] for place in where) and size not in sizes:
            size = 64
    return size


def default_for_trees(subject: Subject) -> tuple[str, ...]:
    """The backends that SGLang may pick by itself when drafts branch: it hangs on the GPU, which no launch names.

    Mirrors model_override_base.py: get_default_attn_backend. A target that cannot be read may get any of them.
    """
    return ("flashinfer", "triton", "aiter", *(("fa3", "trtllm_mla") if _latent(subject) else ()))


def _latent(subject: Subject) -> bool:
    """Whether the target has multi-head latent attention, whose defaults differ."""
    try:
        return subject.target().text.has("kv_lora_rank")
    except ModelError:
        return True
