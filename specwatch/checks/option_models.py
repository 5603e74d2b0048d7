"""Options for kinds of models and of parallelism: what SGLang refuses of them once it knows the model.

Mirrors, in the order of srt/arg_groups/pipeline.py: pd_disaggregation_hook.py, parallel_hook.py, kv_cache_hook.py,
model_hook.py, mamba_hook.py, moe_hook.py and kv_shard_hook.py of 0.5.23, as far as the GPU has no say.
"""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.option_values import MODEL, NEEDS, ORDINARY, PAIR, RANGE, real, refused
from specwatch.checks.parallel import sizes, typed
from specwatch.checks.subject import Subject

_REPLICATED = (
    *("DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMDSpark", "DeepseekV4ForCausalLMNextN"),
    *("GlmMoeDsaForCausalLM", "GlmMoeDsaForCausalLMNextN"),
)
_ASSERT = "AssertionError"


def _plain(subject: Subject) -> str | None:
    """The architecture of a target that is none of the special kinds; None where it may be one."""
    names = subject.target().architectures
    return names[0] if names and names[0] in ORDINARY else None


def _is_muse(subject: Subject) -> bool:
    """Whether the target is, or may be, one of the models with a way of their own to lay out experts."""
    names = subject.target().architectures
    return not names or names[0].startswith("Muse")


def _decoding(subject: Subject) -> Iterator[Law | Doubt]:
    """Decode servers, decode context parallelism and DWDP, before the model is looked at."""
    launch, now = subject.launch, sizes(subject)
    share = real(subject, "disaggregation_decode_host_receive_threshold")
    if share is not None and not 0 <= share <= 1:
        flag = "--disaggregation-decode-host-receive-threshold"
        yield refused(RANGE, flag, f"{flag} must be between 0 and 1")
    dcp, backend = subject.number("dcp_size"), launch.text_value("dcp_comm_backend")
    if dcp is not None and dcp < 1:
        message = "Decode context parallel size (--dcp-size / --decode-context-parallel-size) must be >= 1, but got "
        yield refused(RANGE, "--dcp-size", f"{message}dcp_size={dcp}.")
    ranks = 1 if dcp is None else dcp
    if ranks > 1 and launch.is_set("enable_prefill_cp"):
        yield refused(PAIR, "--dcp-size", "--dcp-size > 1 does not support --enable-prefill-cp.", "--enable-prefill-cp")
    if backend in ("a2a", "fi_a2a") and ranks <= 1:
        message = (
            f"--dcp-comm-backend {backend} only affects the decode context-parallel attention reduction and therefore "
            f"requires --dcp-size / --decode-context-parallel-size > 1, but got dcp_size={ranks}."
        )
        yield refused(NEEDS, "--dcp-comm-backend", message, "--dcp-size")
    if launch.is_set("dcp_replicate_q_proj") and ranks <= 1:
        flag = "--dcp-replicate-q-proj"
        yield refused(NEEDS, flag, f"{flag} requires --dcp-size > 1.", "--dcp-size")
    shards = subject.number("dwdp_size")
    if shards is not None and shards > 1 and shards != now.tp:
        message = f"dwdp_size ({shards}) must equal tp_size ({now.tp})"
        yield refused(PAIR, "--dwdp-size", message, "--tp-size", exception=_ASSERT)


def _kinds(subject: Subject) -> Iterator[Law | Doubt]:
    """What only some models have; only of plain targets is it known that they are not among them."""
    launch = subject.launch
    wanted = ("enable_dsa_cache_layer_split", "enable_cp_decode_attn_tp", "mamba_radix_cache_strategy")
    name = _plain(subject) if any(map(launch.is_set, wanted)) else None
    if name is not None:
        flag = "--enable-dsa-cache-layer-split"
        if launch.is_set("enable_dsa_cache_layer_split"):
            message = f"{flag} is only supported for DSA (DeepSeek Sparse Attention) models."
            yield refused(MODEL, flag, message, architecture=name)
        flag = "--enable-cp-decode-attn-tp"
        if launch.is_set("enable_cp_decode_attn_tp"):
            message = (
                f"{flag} is only supported for models whose attention linears are replicated across CP ranks "
                f"(attn_tp_size=1). Got {name}; supported: {sorted(_REPLICATED)}."
            )
            yield refused(MODEL, flag, message, architecture=name)
        flag, strategy = "--mamba-radix-cache-strategy", launch.text_value("mamba_radix_cache_strategy")
        if strategy in ("extra_buffer", "extra_buffer_lazy") and not launch.is_set("disable_radix_cache"):
            yield refused(MODEL, flag, f"{flag} {strategy} needs mamba state, got {name}.", architecture=name)
    flag = "--prefill-kv-cache-dequant-dtype"
    asked = launch.text_value("prefill_kv_cache_dequant_dtype")
    if asked not in (None, "auto") and launch.value("kv_cache_dtype") != "nvfp4":
        yield refused(NEEDS, flag, f"{flag} applies only with --kv-cache-dtype=nvfp4.", "--kv-cache-dtype")


def _state(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors mamba_hook.py: handle_mamba_backend and attention_hook.py: handle_linear_attn_backend."""
    launch = subject.launch
    rounds, most = subject.number("mamba_cache_philox_rounds"), subject.number("mamba_max_states_per_path")
    if rounds is not None and rounds < 0:
        flag = "--mamba-cache-philox-rounds"
        yield refused(RANGE, flag, f"{flag} must be non-negative.")
    if most is not None and (most == 0 or most < -1):
        flag = "--mamba-max-states-per-path"
        yield refused(RANGE, flag, f"{flag} must be -1 (unlimited) or a positive integer, got {most}.")
    if launch.is_set("enable_mamba_cache_stochastic_rounding") and launch.value("mamba_ssm_dtype") != "float16":
        flag, dtype = "--enable-mamba-cache-stochastic-rounding", launch.value("mamba_ssm_dtype")
        message = (
            f"Stochastic rounding for the Mamba SSM cache requires --mamba-ssm-dtype float16, got {dtype!r}. Run with "
            f"--mamba-ssm-dtype float16 or disable {flag}."
        )
        yield refused(NEEDS, flag, message, "--mamba-ssm-dtype")
    if launch.value("linear_attn_decode_backend") == "flashkda":
        flag = "--linear-attn-decode-backend"
        message = (
            f"{flag} flashkda is not supported: FlashKDA is prefill-only. Use --linear-attn-prefill-backend flashkda "
            "(decode stays on triton)."
        )
        yield refused(RANGE, flag, message)


def _host_cache(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors hicache_hook.py: handle_hicache, and the pass on the head's parallelism that comes after it."""
    launch = subject.launch
    config = launch.value("unified_cache_external_linker_config")
    if config is not None and not isinstance(config, dict):
        flag = "--unified-cache-external-linker-config"
        yield refused(RANGE, flag, f"{flag} must be a JSON object.")
    mooncake = launch.value("unified_cache_external_linker_backend") in (None, "mooncake")
    linker = launch.is_set("enable_unified_cache_external_linker")
    if launch.is_set("enable_linker_mla_dedup") and not (linker and mooncake):
        flag, other = "--enable-linker-mla-dedup", "--enable-unified-cache-external-linker"
        yield refused(NEEDS, flag, f"{flag} requires the Mooncake linker.", other)


def _heads(subject: Subject) -> Iterator[Law]:
    """Mirrors overrides.py: _dp_lm_head_validation, for the head that is spread by an all-to-all."""
    flag, now = "--enable-tp-lm-head-all-to-all", sizes(subject)
    if not subject.launch.is_set("enable_tp_lm_head_all_to_all"):
        return
    if now.attn_dp <= 1:
        yield refused(
            NEEDS, flag, f"{flag} requires attention DP (--attn-dp-size).", "--attn-dp-size", exception=_ASSERT
        )
    if subject.launch.is_set("enable_dp_lm_head"):
        message = f"{flag} uses a TP-sharded LM head and is incompatible with --enable-dp-lm-head."
        yield refused(PAIR, flag, message, "--enable-dp-lm-head", exception=_ASSERT)
    if now.tp != now.attn_dp:
        sides = f"tp_size={now.tp}, attn_dp_size={now.attn_dp}"
        message = f"{flag} currently requires tp_size == attn_dp_size, got {sides}."
        yield refused(PAIR, flag, message, "--tp-size", "--attn-dp-size", exception=_ASSERT)
    if now.attn_cp != 1:
        message = f"{flag} currently requires attn_cp_size == 1, got {now.attn_cp}."
        yield refused(PAIR, flag, message, "--attn-cp-size", exception=_ASSERT)


def _context(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors parallel_hook.py: handle_context_parallelism, its rules on MoE, and kv_shard_hook.py."""
    yield from _heads(subject)
    launch, now = subject.launch, sizes(subject)
    if launch.is_set("enable_prefill_cp") and launch.value("cp_strategy") is None:
        message = "--cp-strategy must be set when --enable-prefill-cp is enabled."
        yield refused(NEEDS, "--enable-prefill-cp", message, "--cp-strategy")
    flag = "--moe-dp-size"
    if now.moe_dp > 1:
        # an all-to-all backend may set the expert-parallel size to the tensor-parallel one
        fixed = launch.text_value("moe_a2a_backend") in (None, "none")
        if fixed and now.ep * now.moe_dp > now.tp:
            message = "ep_size * moe_dp_size must be less than or equal to tp_size"
            yield refused(PAIR, flag, message, "--ep-size", "--tp-size", exception=_ASSERT)
        if now.pp != 1:
            message = "PP is not supported with context parallelism"
            yield refused(PAIR, flag, message, "--pp-size", exception=_ASSERT)
        if fixed and now.ep > 1 and now.ep * now.moe_dp != now.tp:
            message = "ep_size * moe_dp_size must be equal to tp_size"
            yield refused(PAIR, flag, message, "--ep-size", "--tp-size", exception=_ASSERT)
    if now.attn_cp != now.moe_dp and now.moe_dp != 1:
        message = "attn_cp_size != moe_dp_size is only supported when moe_dp_size == 1"
        yield refused(PAIR, flag, message, "--attn-cp-size", exception=_ASSERT)
    if launch.is_set("enable_kv_cache_sharding") and launch.value("disaggregation_mode") != "prefill":
        flag = "--enable-kv-cache-sharding"
        message = (
            f"{flag} is only supported on PD prefill workers: a rank's pool holds only its stripe of every cached "
            "page, which is incompatible with local decode."
        )
        yield refused(NEEDS, flag, message, "--disaggregation-mode")
    if launch.is_set("enable_kv_cache_sharding") and subject.algorithm is not None:
        chain = subject.algorithm == "EAGLE" and subject.number("speculative_eagle_topk") == 1
        if not chain or _plain(subject) is not None:
            text = (
                "KV sharding supports speculative decoding only for GLM DSA single-layer NextN MTP with EAGLE and "
                "topk=1."
            )
            yield refused(PAIR, "--enable-kv-cache-sharding", text, "--speculative-algorithm")


def _experts(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors moe_hook.py: handle_a2a_moe, then parallel_hook.py down to handle_elastic_ep."""
    launch, now = subject.launch, sizes(subject)
    backend = launch.text_value("moe_a2a_backend") or "none"
    dispatch = launch.value("flashinfer_a2a_dispatch_type")
    if backend != "flashinfer" and dispatch not in (None, "auto"):
        flag = "--flashinfer-a2a-dispatch-type"
        yield refused(NEEDS, flag, f"{flag} requires --moe-a2a-backend flashinfer.", "--moe-a2a-backend")
    if backend == "deepep_v2" and (name := _plain(subject)) not in (None, "Qwen3MoeForCausalLM"):
        message = (
            f"DeepEP v2 MoE is not validated for {name!r}. The model package must register its architecture with "
            "register_deepep_v2_model, because its combine and post-expert reduction semantics must be validated first."
        )
        yield refused(MODEL, "--moe-a2a-backend", message, architecture=name)
    if backend == "flashinfer" and not (now.attn_dp == now.tp > 1) and not _is_muse(subject):
        message = (
            "Flashinfer MoE A2A requires --attn-dp-size equal to --tp-size, except for Muse Spark TP4/EP4 or TP8/EP8 "
            "prefill sequence parallelism."
        )
        yield refused(NEEDS, "--moe-a2a-backend", message, "--attn-dp-size", "--tp-size", exception=_ASSERT)
    if backend == "pplx" and launch.value("deepep_mode") == "normal":
        message = "moe_a2a_backend='pplx' only supports low-latency mode; set --deepep-mode to 'low_latency' or 'auto'."
        yield refused(PAIR, "--deepep-mode", message, "--moe-a2a-backend")
    if backend == "pplx" and now.attn_dp < 2:
        message = "moe_a2a_backend='pplx' requires attention DP with at least 2 groups (--attn-dp-size >= 2)."
        yield refused(NEEDS, "--moe-a2a-backend", message, "--attn-dp-size", exception=_ASSERT)
    yield from _shared(subject)
    pick = launch.text_value("ep_dispatch_algorithm")
    if backend == "none" and pick in ("static", "lp"):
        flag = "--ep-dispatch-algorithm"
        message = (
            f"{flag} {pick} picks a different physical replica per rank, which only holds up when an a2a backend "
            f"routes each token to a single rank. Use {flag} dynamic with --moe-a2a-backend none."
        )
        yield refused(NEEDS, flag, message, "--moe-a2a-backend")
    joins = launch.value("ep_join_mode")
    if launch.is_set("enable_eplb") and joins != "scale" and backend == "none" and now.ep <= 1:
        yield refused(NEEDS, "--enable-eplb", "", "--ep-size", exception=_ASSERT)
    yield from _elastic(subject)


def _shared(subject: Subject) -> Iterator[Law]:
    flag, now = "--shared-experts-tp-size", sizes(subject)
    size = subject.number("shared_experts_tp_size")
    if size is None or now.attn_dp < 1 or now.attn_cp < 1:
        return
    ranks = now.tp // now.attn_dp // now.attn_cp
    if size < 1 or ranks % size:
        message = f"{flag} ({size}) must be a positive divisor of attention TP size ({ranks})."
        yield refused(RANGE, flag, message, "--tp-size")
    if _plain(subject) is not None:
        yield refused(MODEL, flag, f"{flag} is only supported for Kimi-K3.")


def _elastic(subject: Subject) -> Iterator[Law]:
    launch = subject.launch
    backend, joins = launch.value("elastic_ep_backend"), launch.value("ep_join_mode")
    offset, most = subject.number("ep_join_rank_offset") or 0, subject.number("max_ep_size")
    mode, place = "--elastic-ep-join-mode", "--elastic-ep-join-rank-offset"
    if joins is not None and backend is None:
        message = f"{mode} requires --elastic-ep-backend to be set."
        yield refused(NEEDS, mode, message, "--elastic-ep-backend", exception=_ASSERT)
    if offset != 0 and joins != "scale":
        yield refused(NEEDS, place, f"{place} is only valid with {mode} scale.", mode, exception=_ASSERT)
    if most is not None:
        flag = "--max-ep-size"
        if backend is None:
            message = f"{flag} requires --elastic-ep-backend to be set."
            yield refused(NEEDS, flag, message, "--elastic-ep-backend", exception=_ASSERT)
        if most <= 0:
            yield refused(RANGE, flag, f"{flag} must be a positive integer.", exception=_ASSERT)
    scaling = backend is not None and most is not None and most > sizes(subject).tp
    if launch.value("elastic_ep_initial_size") is not None and not scaling:
        flag = "--elastic-ep-initial-size"
        message = f"{flag} is only valid for an Elastic EP deployment with --max-ep-size larger than its local TP size."
        yield refused(NEEDS, flag, message, "--max-ep-size", exception=_ASSERT)


_HOOKS = "srt/arg_groups/"
DECODING = law_check("decoding_options", _HOOKS + "parallel_hook.py: handle_dwdp", typed, _decoding)
KINDS = law_check("model_kind_options", _HOOKS + "model_hook.py: handle_model_specific_adjustments", typed, _kinds)
STATE = law_check("state_options", _HOOKS + "mamba_hook.py: handle_mamba_backend", typed, _state)
HOST_CACHE = law_check("host_cache_options", _HOOKS + "hicache_hook.py: handle_hicache", typed, _host_cache)
CONTEXT = law_check("context_options", _HOOKS + "parallel_hook.py: handle_context_parallelism", typed, _context)
EXPERTS = law_check("expert_options", _HOOKS + "moe_hook.py: handle_a2a_moe", typed, _experts)
