"""The last of SGLang's rules on options that need, or do not bear, another one.

Mirrors, in the order of srt/arg_groups/pipeline.py: layernorm_sp_hook.py, pd_disaggregation_hook.py,
kv_cache_hook.py, serving_hook.py, model_hook.py and moe_hook.py of 0.5.23, then validation_hook.py: check_server_args.
"""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import lora, speculation
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.option_values import MODEL, NEEDS, ORDINARY, PAIR, RANGE, real, refused
from specwatch.checks.parallel import sizes, typed
from specwatch.checks.subject import Subject

_LANGUAGE_ONLY = (
    *("DeepseekV4ForCausalLM", "MuseGlimmerForConditionalGeneration", "Cosmos3ForConditionalGeneration"),
    "Cosmos3EdgeForConditionalGeneration",
)
_ENCODERS = (
    "Supported architectures: Qwen2VL, Qwen3VL, Qwen3.5, InternS2, Qwen2Audio, Qwen2.5Omni, Dots3-Note, Kimi, MiMoV2, "
    "GLM5Next, MiniMax-M3, MuseSpark."
)
_ASSERT = "AssertionError"


def _model(subject: Subject) -> Iterator[Law | Doubt]:
    """What comes right after the algorithm's own rules."""
    launch, now = subject.launch, sizes(subject)
    flag, mega = "--enable-layernorm-sp", "--enable-megamoe-for-layernorm-sp"
    if launch.is_set("enable_megamoe_for_layernorm_sp") and not launch.is_set("enable_layernorm_sp"):
        yield refused(NEEDS, mega, f"{mega} requires {flag}.", flag)
    if (
        launch.is_set("enable_layernorm_sp")
        and now.tp <= 1
        and "Qwen3ForCausalLM" in subject.target().architectures[:1]
    ):
        message = f"{flag} requires tp_size > 1: there is no sequence to shard across a single TP rank."
        yield refused(NEEDS, flag, message, "--tp-size")
    yield from _language(subject)


def _language(subject: Subject) -> Iterator[Law]:
    """Mirrors pd_disaggregation_hook.py: handle_encoder_disaggregation."""
    launch, flag = subject.launch, "--language-model-only"
    if launch.is_set("language_model_only"):
        for other in (
            *("--encoder-only", "--language-only", "--enable-prefix-mm-cache"),
            *("--enable-broadcast-mm-inputs-process", "--mm-enable-dp-encoder"),
        ):
            if launch.is_set(other[2:].replace("-", "_")):
                yield refused(PAIR, flag, f"{flag} cannot be combined with {other}", other)
        if (launch.value("disaggregation_mode") or "null") != "null":
            message = f"{flag} is incompatible with --disaggregation-mode prefill/decode"
            yield refused(PAIR, flag, message, "--disaggregation-mode")
        names = subject.target().architectures
        if names and names[0] in ORDINARY:
            message = f"{flag} does not support {list(names)}. Supported: {list(_LANGUAGE_ONLY)}."
            yield refused(MODEL, flag, message, architecture=names[0])
    if launch.is_set("enable_prefix_mm_cache") and not launch.is_set("encoder_only"):
        flag = "--enable-prefix-mm-cache"
        yield refused(NEEDS, flag, f"{flag} requires --encoder-only to be enabled", "--encoder-only")
    if launch.is_set("encoder_only") and launch.is_set("language_only"):
        message = "Cannot set --encoder-only and --language-only together"
        yield refused(PAIR, "--language-only", message, "--encoder-only")
    if launch.is_set("encoder_only") and (launch.value("disaggregation_mode") or "null") != "null":
        message = "Cannot set --encoder-only and --disaggregation-mode prefill/decode together"
        yield refused(PAIR, "--encoder-only", message, "--disaggregation-mode")
    for flag in ("--encoder-only", "--language-only"):
        if launch.is_set(flag[2:].replace("-", "_")):
            names = subject.target().architectures
            if names and names[0] in ORDINARY:
                message = f"Model type {names[0]} is not supported for encoder disaggregation. {_ENCODERS}"
                yield refused(MODEL, flag, message, architecture=names[0])


def _caches(subject: Subject) -> Iterator[Law | Doubt]:
    launch = subject.launch
    encode, dynamic = "--enable-tokenizer-batch-encode", "--enable-dynamic-batch-tokenizer"
    if launch.is_set("enable_tokenizer_batch_encode") and launch.is_set("enable_dynamic_batch_tokenizer"):
        message = f"Cannot enable both {encode} and {dynamic}. Please choose one tokenizer batching approach."
        yield refused(PAIR, dynamic, message, encode)
    if launch.value("radix_eviction_policy") == "tlru":
        yield from _eviction(subject)
    flag = "--disaggregation-decode-enable-offload-kvcache"
    if launch.is_set("disaggregation_decode_enable_offload_kvcache"):
        if launch.value("disaggregation_mode") != "decode":
            message = f"The argument {flag[2:]} is only supported for decode side."
            yield refused(NEEDS, flag, message, "--disaggregation-mode")
        if launch.value("hicache_storage_backend") is None:
            message = f"The argument {flag[2:]} is only supported when hicache-storage-backend is provided."
            yield refused(NEEDS, flag, message, "--hicache-storage-backend")
    yield from _host_receive(subject)
    tails = subject.number("swa_prefix_tails")
    if tails is not None and tails < 0:
        yield refused(RANGE, "--swa-prefix-tails", "--swa-prefix-tails should be a non-negative integer.")
    flag = "--enable-page-major-kv-layout"
    if launch.is_set("enable_page_major_kv_layout") and not launch.is_set("enable_unified_memory"):
        message = (
            f"{flag} without --enable-unified-memory is temporarily unsupported: the strided MHA K/V views were "
            "removed and the static-pool page-major layout awaits its per-layer-view reimplementation. Run with "
            f"--enable-unified-memory, or drop {flag}."
        )
        yield refused(NEEDS, flag, message, "--enable-unified-memory", exception=_ASSERT)


def _host_receive(subject: Subject) -> Iterator[Law]:
    """A share below 1 asks for the host pool, which only a decode server has (pd_disaggregation_hook.py)."""
    flag = "--disaggregation-decode-host-receive-threshold"
    share = real(subject, "disaggregation_decode_host_receive_threshold")
    if share is None or share >= 1 or subject.launch.value("disaggregation_mode") == "decode":
        return
    message = "--disaggregation-decode-retraction-backup=host_pool is only supported on a PD decode server."
    yield refused(NEEDS, flag, message, "--disaggregation-mode")


def _eviction(subject: Subject) -> Iterator[Law]:
    given = subject.launch.value("radix_eviction_policy_config") or {}
    if not isinstance(given, dict):
        return
    least, estimate = given.get("threshold", 0), given.get("next_prompt_estimate", 0)
    if not (isinstance(least, (int, float)) and isinstance(estimate, (int, float))):
        return
    flag, config = "--radix-eviction-policy", "--radix-eviction-policy-config"
    if least < 0 or estimate < 0:
        message = f"{flag} tlru requires non-negative 'threshold' and 'next_prompt_estimate' in {config}, got "
        yield refused(RANGE, flag, f"{message}{least} and {estimate}.", config)
    if least <= estimate:
        message = (
            f"{flag} tlru needs 'threshold' greater than 'next_prompt_estimate' in {config}, got {least} <= "
            f"{estimate}; otherwise no tokens are ever TEL-safe and T-LRU is exactly LRU."
        )
        yield refused(RANGE, flag, message, config)


def _end(subject: Subject) -> Iterator[Law | Doubt]:
    """The end of the resolution."""
    launch = subject.launch
    given, flag = launch.value("default_chat_template_kwargs"), "--default-chat-template-kwargs"
    if given is not None and not isinstance(given, dict):
        yield refused(RANGE, flag, f"{flag} must decode to a JSON object")
    flag = "--enable-encoder-swa-bounded-replay"
    if launch.is_set("enable_encoder_swa_bounded_replay"):
        names = subject.target().architectures
        if names and names[0] in ORDINARY:
            yield refused(MODEL, flag, f"{flag} requires DeepSeek-V4.1", architecture=names[0])
    longest = real(subject, "cuda_graph_prefill_max_context")
    if longest is not None and longest <= 0:
        flag = "--cuda-graph-prefill-max-context"
        yield refused(RANGE, flag, f"{flag} must be a positive integer")
    name, draft = speculation.algorithm(subject), launch.text_value("speculative_moe_a2a_backend")
    if draft is None and name not in (None, "NGRAM"):
        draft = launch.text_value("moe_a2a_backend")
    if draft == "deepep_v2":
        flag = "--speculative-moe-a2a-backend"
        message = f"DeepEP v2 MoE is not validated as a speculative draft backend. Select another {flag}."
        yield refused(PAIR, flag, message, "--moe-a2a-backend")


def _nodes(subject: Subject) -> Iterator[Law]:
    if sizes(subject).nodes == 0:
        message = "integer modulo by zero"
        yield refused(RANGE, "--nnodes", message, exception="ZeroDivisionError")


def _mixed(subject: Subject) -> Iterator[Law]:
    """NONE is an algorithm without a worker: nothing switches mixed chunks off for it."""
    if subject.launch.is_set("enable_mixed_chunk") and subject.algorithm == "NONE":
        yield Law(
            cause="mixed-chunk",
            flags=("--enable-mixed-chunk", "--speculative-algorithm"),
            message="enable_mixed_chunk is not supported with speculative_algorithm=NONE",
            exception=_ASSERT,
            since="0.5.23",
        )


def _buckets(subject: Subject) -> Iterator[Law]:
    """Mirrors validation_hook.py: validate_buckets_rule, but for numbers that are none."""
    for flag in ("--prompt-tokens-buckets", "--generation-tokens-buckets"):
        given = subject.launch.value(flag[2:].replace("-", "_"))
        words = [str(word) for word in given] if isinstance(given, list) else []
        rule, values = (words[0], words[1:]) if words else ("default", [])
        message = ""
        if rule not in ("tse", "default", "custom"):
            message = f"Unsupported {flag} rule type: '{rule}'. Must be one of: 'tse', 'default', 'custom'"
        elif rule == "default" and values:
            message = f"{flag} default rule should only have one parameter: ['default'], got {len(words)}"
        elif rule == "custom" and not values:
            message = f"{flag} custom rule requires at least one bucket value: ['custom', value1, ...]"
        elif rule == "tse" and len(values) != 3:
            message = f"{flag} TSE rule requires exactly 4 parameters: ['tse', middle, base, count], got {len(words)}"
        elif rule == "custom":
            message = _of_values(flag, values)
        if message:
            yield refused(RANGE, flag, message, exception=_ASSERT)


def _of_values(flag: str, values: list[str]) -> str:
    """What is wrong with the borders of buckets, "" where nothing is."""
    try:
        borders = [float(value) for value in values]
    except ValueError:
        return f"{flag} custom rule bucket values must be numeric"
    if len(set(borders)) != len(borders):
        return f"{flag} custom rule bucket values should not contain duplicates"
    if any(border < 0 for border in borders):
        return f"{flag} custom rule bucket values should be non-negative"
    return ""


def _draft_experts(subject: Subject) -> Iterator[Law]:
    """Mirrors lora_hook.py: check_lora_moe_runner_args, its rules on what is named."""
    flag, draft = "--speculative-moe-runner-backend", subject.launch.text_value("speculative_moe_runner_backend")
    if subject.algorithm is not None and draft is not None and draft.startswith("lora"):
        message = f"{flag} {draft} is not supported: the LoRA MoE runner serves adapter traffic on the target model"
        yield refused(PAIR, flag, message, "--speculative-algorithm")
    flag, runner = "--moe-runner-backend", subject.launch.text_value("moe_runner_backend") or ""
    if runner.startswith("lora") and not lora.enabled(subject):
        yield refused(NEEDS, flag, f"{flag} {runner} requires --enable-lora (or --lora-paths)", "--enable-lora")


def _last(subject: Subject) -> Iterator[Law | Doubt]:
    launch, now = subject.launch, sizes(subject)
    if launch.is_set("enable_hisparse") and subject.target().architectures[:1] in {(name,) for name in ORDINARY}:
        message = (
            "--enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models (e.g., DeepSeek V3.2, "
            "GLM-5), DeepSeek V4, and MiniMax M3 now. "
        )
        yield refused(MODEL, "--enable-hisparse", message, exception=_ASSERT)
    flag = "--enable-two-batch-overlap"
    if (
        launch.is_set("enable_two_batch_overlap")
        and launch.text_value("moe_a2a_backend") in (None, "none")
        and not subject.attention_dp()
        and not launch.is_set("enable_waterfill")
    ):
        message = (
            "When enabling two batch overlap without an EP a2a backend (moe_a2a_backend='none'), attention DP "
            "(--attn-dp-size) is required (DeepSeek-V4 non-EP DP TBO path)."
        )
        yield refused(NEEDS, flag, message, "--moe-a2a-backend", "--attn-dp-size")
    flag = "--enable-quant-communications"
    if launch.is_set("enable_quant_communications"):
        if now.tp == 1:
            message = "Communications quantization is only used with tp_size != 1"
            yield refused(NEEDS, flag, message, "--tp-size")
        if speculation.device(subject) == "cuda":
            message = "Communications quantization is only supported for NPU device"
            yield refused(NEEDS, flag, message, "--device")
    device = launch.text_value("device")
    if launch.value("sampling_backend") == "intel_xpu" and device not in (None, "xpu"):
        flag = "--sampling-backend"
        message = f"{flag} intel_xpu requires --device xpu, got --device {device}"
        yield refused(NEEDS, flag, message, "--device")


def _rest(subject: Subject) -> Iterator[Law | Doubt]:
    launch = subject.launch
    given = launch.value("gc_threshold")
    if isinstance(given, list) and len(given) > 3:
        message = "When setting gc_threshold, it must contain 1 to 3 integers."
        yield refused(RANGE, "--gc-threshold", message)
    sweep = subject.number("kv_canary_sweep_interval")
    if sweep is not None and sweep > 0 and launch.value("kv_canary") in (None, "none"):
        flag = "--kv-canary-sweep-interval"
        yield refused(NEEDS, flag, f"{flag} requires --kv-canary in {{log, raise}}", "--kv-canary")
    yield from _watermark(subject)
    flag = "--load-publish-endpoint"
    if launch.is_set("load_publish_endpoint") and not launch.is_set("kv_events_config"):
        message = (
            f"{flag} requires --kv-events-config: routers discover the load range through /server_info's kv_events "
            "block, absent without a publisher."
        )
        yield refused(NEEDS, flag, message, "--kv-events-config")


def _watermark(subject: Subject) -> Iterator[Law]:
    """Mirrors validation_hook.py: check_watermark_server_args, but for the values of the watermark itself."""
    launch, flag = subject.launch, "--enable-watermark"
    if not launch.is_set("enable_watermark"):
        if launch.value("watermark_config") is not None:
            yield refused(NEEDS, "--watermark-config", f"--watermark-config requires {flag}", flag)
        return
    device, name = launch.text_value("device"), speculation.algorithm(subject)
    if device not in (None, "cuda"):
        yield refused(NEEDS, flag, f"{flag} requires --device cuda, got {device!r}", "--device")
    other = "--enable-custom-logit-processor"
    if launch.is_set("enable_custom_logit_processor"):
        yield refused(PAIR, flag, f"{flag} is incompatible with {other}", other)
    if launch.value("dllm_algorithm") is not None:
        yield refused(PAIR, flag, f"{flag} is not supported with diffusion LLM", "--dllm-algorithm")
    if (launch.value("disaggregation_mode") or "null") != "null":
        yield refused(PAIR, flag, f"{flag} is not supported with PD disaggregation", "--disaggregation-mode")
    if name not in (None, "NGRAM", "EAGLE", "EAGLE3"):
        message = f"{flag} supports speculative algorithms NGRAM, EAGLE, and EAGLE3, got {name!r}"
        yield refused(PAIR, flag, message, "--speculative-algorithm", algorithm=name)
    if name is not None and sizes(subject).pp > 1:
        message = f"{flag} is not supported with pipeline-parallel speculative decoding"
        yield refused(PAIR, flag, message, "--pp-size", "--speculative-algorithm")
    other = "--speculative-use-rejection-sampling"
    if launch.is_set("speculative_use_rejection_sampling"):
        yield refused(PAIR, flag, f"{flag} is incompatible with {other}", other)
    if subject.env_flag("SGLANG_RUST_SERVER"):
        yield refused(PAIR, flag, f"{flag} is not supported with SGLANG_RUST_SERVER")


_HOOKS = "srt/arg_groups/"
_MIRRORS = _HOOKS + "validation_hook.py: check_server_args"
MODEL_PARTS = law_check(
    "model_part_options", _HOOKS + "pd_disaggregation_hook.py: handle_encoder_disaggregation", typed, _model
)
CACHES = law_check("cache_options", _HOOKS + "kv_cache_hook.py: handle_cache_compatibility", typed, _caches)
END = law_check("late_options", _HOOKS + "serving_hook.py: handle_other_validations", typed, _end)
NODES = law_check("node_count", _MIRRORS, typed, _nodes)
MIXED = law_check("mixed_chunk", _MIRRORS, typed, _mixed)
BUCKETS = law_check("bucket_options", _MIRRORS, typed, _buckets)
DRAFT_EXPERTS = law_check(
    "draft_expert_options", _HOOKS + "lora_hook.py: check_lora_moe_runner_args", typed, _draft_experts
)
LAST = law_check("last_options", _MIRRORS, typed, _last)
REST = law_check("watermark_options", _HOOKS + "validation_hook.py: check_watermark_server_args", typed, _rest)
