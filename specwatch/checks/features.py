"""Which features exclude each other: attention backends, caches, and the pools that they share.

Mirrors srt/arg_groups/attention_hook.py, kv_cache_hook.py, deepseek_v4_hook.py, model_path_hook.py and
validation_hook.py: validate_response_store.
"""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import backends, speculation
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.parallel import sizes, typed
from specwatch.checks.subject import Subject

DEEPSEEK_V4 = ("DeepseekV4ForCausalLM",)


def _early(subject: Subject) -> Iterator[Law | Doubt]:
    """Before any model is looked at."""
    mode = subject.launch.value("disaggregation_mode") or "null"
    if subject.launch.is_set("enable_response_store") and mode != "null":
        yield Law(
            cause="response-store-with-disaggregation",
            flags=("--enable-response-store", "--disaggregation-mode"),
            message="--enable-response-store is not supported with --disaggregation-mode=prefill or decode; response "
            "storage must remain disabled in PD mode.",
            since="0.5.20",
        )
    if subject.launch.is_set("prefill_only_disable_kv_cache"):
        yield from _prefill_only(subject)


def _prefill_only(subject: Subject) -> Iterator[Law]:
    """Mirrors kv_cache_hook.py: validate_prefill_only_disable_kv_cache_args, its rules on flags."""
    launch, flag, since = subject.launch, "--prefill-only-disable-kv-cache", "0.5.23"
    if not launch.is_set("is_embedding"):
        yield Law(
            cause="prefill-only-conditions",
            flags=(flag, "--is-embedding"),
            message=f"{flag} currently requires --is-embedding. Other prefill-only workloads may be supported in a "
            "future change once their attention paths stop reading or writing the paged KV cache.",
            since=since,
        )
    if subject.number("chunked_prefill_size") != -1:
        yield Law(
            cause="prefill-only-conditions",
            flags=(flag, "--chunked-prefill-size"),
            message=f"{flag} requires --chunked-prefill-size=-1 so the FA backend takes the fa_skip_kv_cache path; "
            "otherwise the pool would be touched between prefill chunks.",
            since=since,
        )
    if not launch.is_set("disable_radix_cache"):
        yield Law(
            cause="prefill-only-conditions",
            flags=(flag, "--disable-radix-cache"),
            message=f"{flag} requires --disable-radix-cache because the radix cache indexes KV pool slots that no "
            "longer hold real data.",
            since=since,
        )


def _deepseek_v4(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors deepseek_v4_hook.py: apply_deepseek_v4_defaults, which sees the algorithm as it was typed."""
    name = subject.launch.text_value("speculative_algorithm")
    target = subject.target()
    if name is None or not target.architectures or target.architectures[0] not in DEEPSEEK_V4:
        return
    architecture = target.architectures[0]
    flags = ("--speculative-algorithm", "--speculative-eagle-topk")
    if name not in ("EAGLE", "DSPARK"):
        yield Law(
            cause="deepseek-v4-algorithm",
            flags=flags,
            message=f"Only EAGLE and DSPARK speculative algorithms are supported for {architecture}",
            exception="AssertionError",
            since="0.5.16",
            facts={"architecture": architecture, "algorithm": name},
        )
    if name == "EAGLE" and subject.number("speculative_eagle_topk") != 1:
        yield Law(
            cause="deepseek-v4-topk",
            flags=flags,
            message=f"Only EAGLE speculative algorithm with topk == 1 is supported for {architecture}",
            exception="AssertionError",
            since="0.5.12",
            facts={"architecture": architecture},
        )


def _attention(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors handle_attention_backend_compatibility."""
    if subject.launch.value("prefill_attention_backend") == "cutedsl_mla":
        yield Law(
            cause="decoding-only-backend",
            flags=("--prefill-attention-backend",),
            message="CuteDSL MLA only supports decoding for now",
            exception="AssertionError",
            since="0.5.23",
            facts={"drop": "--prefill-attention-backend"},
        )
    if backends.attention(subject).base == "flex_attention" and subject.launch.text_value("speculative_algorithm"):
        yield Law(
            cause="flex-attention-with-speculation",
            flags=("--attention-backend", "--speculative-algorithm"),
            message="Speculative decoding is currently not supported with Flex Attention backend",
            exception="AssertionError",
            since="0.5.4",
        )
    yield from _gpu(subject)


def _gpu(subject: Subject) -> Iterator[Law]:
    """What the kind of GPU rules out, where it is known. Mirrors the same function and kv_cache_hook.py."""
    gpu = subject.gpu
    if gpu is None or gpu.rocm or subject.launch.text_value("device") not in (None, "auto", "cuda"):
        return
    prefill, decode = backends.attention(subject).both
    for cause, backend, message in (
        ("prefill", prefill, "prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs."),
        ("decode", decode, "decode is only supported on Hopper (SM90), Blackwell (SM100) and (SM120) GPUs."),
    ):
        if backend == "trtllm_mha" and not any(gpu.is_sm(major) for major in (9, 10, 12)):
            yield Law(
                cause=cause,
                flags=("--attention-backend", f"--{cause}-attention-backend"),
                message=f"TRTLLM MHA backend for {message} Please use a different {cause} backend.",
                since="0.5.19",
                facts={"gpu": gpu.name},
            )
    dtype = subject.launch.text_value("kv_cache_dtype")
    if dtype == "nvfp4" and not (gpu.is_sm(10) or gpu.is_sm(12)):
        yield Law(
            cause="gpu",
            flags=("--kv-cache-dtype",),
            message="--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120. Use --kv-cache-dtype=fp4_mx_block16 for "
            "the block-size-16 FP4 recipe.",
            exception="RuntimeError",
            since="0.5.16",
            facts={"gpu": gpu.name},
        )
    if dtype == "mxfp8" and gpu.capability is not None and gpu.capability < (10, 0):
        yield Law(
            cause="gpu",
            flags=("--kv-cache-dtype",),
            message="--kv-cache-dtype mxfp8 requires an SM100+ (Blackwell) GPU for the block-scaled operands used by "
            "the FA4 MXFP8 attention path.",
            since="0.5.16",
            facts={"gpu": gpu.name},
        )


def _scoring(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors handle_multi_item_scoring and kv_cache_hook.py: handle_prefill_only_disable_kv_cache."""
    prefill, decode = backends.attention(subject).both
    if subject.launch.is_set("enable_mis") and (prefill, decode) != ("flashinfer", "flashinfer"):
        if prefill is None or decode is None:
            yield Doubt("--enable-mis needs flashinfer, and the launch leaves the attention backend to the GPU")
            return
        yield Law(
            cause="multi-item-scoring-backend",
            flags=("--enable-mis", "--attention-backend"),
            message="Multi-item scoring requires flashinfer attention backend for custom attention mask support. "
            "Please set --attention-backend flashinfer when using --enable-mis. Current backends: "
            f"prefill={prefill}, decode={decode}",
            exception="AssertionError",
            since="0.5.11",
            facts={"prefill": prefill, "decode": decode},
        )
    if subject.launch.is_set("prefill_only_disable_kv_cache") and prefill not in ("fa3", "fa4"):
        if prefill is None:
            yield Doubt("whether the GPU's default attention backend is fa3 or fa4 is not known")
            return
        yield Law(
            cause="prefill-only-backend",
            flags=("--prefill-only-disable-kv-cache", "--attention-backend"),
            message="--prefill-only-disable-kv-cache currently requires the FA prefill backend (fa3/fa4), but got "
            f"prefill backend {prefill!r}. Other prefill-only workloads and backends may be supported in a future "
            "change.",
            since="0.5.12",
            facts={"prefill": prefill},
        )


def _weight_cache(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors model_path_hook.py: handle_load_format."""
    mode = subject.launch.value("weight_cache_mode") or "off"
    if mode != "off" and subject.algorithm is not None:
        yield Law(
            cause="weight-cache-with-speculation",
            flags=("--weight-cache-mode", "--speculative-algorithm"),
            message="--weight-cache-mode is not supported together with speculative decoding "
            "(--speculative-algorithm): the weight cache daemon does not export the draft model's weights. Disable one "
            "of them (--weight-cache-mode off) for this configuration.",
            since="0.5.19",
        )


def _caches(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors kv_cache_hook.py: handle_cache_compatibility, in its order."""
    launch = subject.launch
    flag = "--disaggregation-decode-retraction-backup"
    backup = launch.value("disaggregation_decode_retraction_backup")
    if backup == "host_pool" and launch.value("disaggregation_mode") != "decode":
        yield Law(
            cause="retraction-backup-without-decode",
            flags=(flag, "--disaggregation-mode"),
            message=f"{flag}=host_pool is only supported on a PD decode server.",
            since="0.5.19",
        )
    if launch.is_set("enable_hierarchical_cache") and launch.is_set("disable_radix_cache"):
        yield Law(
            cause="hierarchical-cache-without-radix",
            flags=("--enable-hierarchical-cache", "--disable-radix-cache"),
            message="The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and cannot "
            "be used at the same time. Please use only one of them.",
            since="0.5.0",
        )
    ratio = launch.value("swa_full_tokens_ratio")
    if isinstance(ratio, (int, float)) and not 0 < ratio <= 1:
        yield Law(
            cause="swa-ratio",
            flags=("--swa-full-tokens-ratio",),
            message="--swa-full-tokens-ratio should be in range (0, 1.0].",
            since="0.5.7",
            facts={"ratio": ratio},
        )
    if launch.is_set("enable_lmcache"):
        yield from _lmcache(subject)


def _lmcache(subject: Subject) -> Iterator[Law]:
    launch, flag, since = subject.launch, "--enable-lmcache", "0.5.21"
    if launch.is_set("enable_hierarchical_cache"):
        yield Law(
            cause="lmcache-with-hierarchical-cache",
            flags=(flag, "--enable-hierarchical-cache"),
            message="--enable-lmcache and --enable-hierarchical-cache are mutually exclusive",
            since=since,
        )
    if launch.is_set("disable_radix_cache"):
        yield Law(
            cause="lmcache-without-radix",
            flags=(flag, "--disable-radix-cache"),
            message="--enable-lmcache requires radix cache to be enabled",
            since=since,
        )
    if subject.algorithm not in (None, "NONE"):
        yield Law(
            cause="lmcache-with-speculation",
            flags=(flag, "--speculative-algorithm"),
            message="LMCacheUnifiedRadixCache does not yet support speculative decoding",
            exception="NotImplementedError",
            since=since,
        )
    if sizes(subject).attn_dp > 1:
        yield Law(
            cause="lmcache-with-attention-dp",
            flags=(flag, "--attn-dp-size"),
            message="LMCacheUnifiedRadixCache does not yet support DP attention",
            exception="NotImplementedError",
            since=since,
        )


def _unified_memory(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors kv_cache_hook.py: handle_unified_memory_pool, its rule on algorithms."""
    name = speculation.algorithm(subject)
    if not subject.launch.is_set("enable_unified_memory"):
        return
    if name in (None, "DSPARK", "EAGLE", "EAGLE3", "DFLASH"):
        yield from _unified_chain(subject, name)
        return
    if (subject.launch.value("disaggregation_mode") or "null") != "null":
        yield Doubt("--enable-unified-memory with disaggregation has more rules, which hang on the transfer backend")
        return
    yield Law(
        cause="unified-memory-with-algorithm",
        flags=("--enable-unified-memory", "--speculative-algorithm"),
        message="--enable-unified-memory only supports --speculative-algorithm DSPARK, DFLASH, EAGLE and EAGLE3; other "
        "speculative algorithms are not yet audited for the unified pool's virtual-to-physical loc translation. Got "
        f"--speculative-algorithm={name!r}.",
        exception="AssertionError",
        since="0.5.23",
        facts={"algorithm": name},
    )


def _unified_chain(subject: Subject, name: str | None) -> Iterator[Law]:
    """The unified pool takes chains of drafts alone, and fuses an EAGLE draft into a hybrid target."""
    flags = ("--enable-unified-memory", "--speculative-eagle-topk", "--speculative-algorithm")
    topk = subject.number("speculative_eagle_topk")
    if name is not None and topk not in (None, 1) and name not in ("DSPARK", "DFLASH"):
        yield Law(
            cause="unified-memory",
            flags=flags,
            message="--enable-unified-memory supports a linear draft chain only (--speculative-eagle-topk in {None, "
            "1}); tree verify relocates accepted tokens one at a time inside the target pool, which the unified pool's "
            f"page-granular move_kv_cache cannot express. Got --speculative-eagle-topk={topk!r}.",
            exception="AssertionError",
            since="0.5.23",
            facts={"topk": topk},
        )
    names = subject.target().architectures
    if name in ("EAGLE", "EAGLE3") and names and names[0] in backends.PLAIN:
        yield Law(
            cause="unified-memory",
            flags=flags,
            message="--enable-unified-memory + EAGLE/EAGLE3 requires a unified target (hybrid-SWA or a mamba hybrid): "
            "the draft's KV lives fused inside the target's sub-pool entries.",
            exception="AssertionError",
            since="0.5.23",
            facts={"architecture": names[0]},
        )


_KV = "srt/arg_groups/kv_cache_hook.py: "
EARLY = law_check("early_arguments", "srt/arg_groups/validation_hook.py: validate_response_store", typed, _early)
MODEL_ARGUMENTS = law_check(
    "deepseek_v4_arguments",
    "srt/arg_groups/deepseek_v4_hook.py: apply_deepseek_v4_defaults",
    lambda subject: typed(subject) and subject.launch.text_value("speculative_algorithm") is not None,
    _deepseek_v4,
)
ATTENTION = law_check(
    "attention_arguments", "srt/arg_groups/attention_hook.py: handle_attention_backend_compatibility", typed, _attention
)
SCORING = law_check("scoring_arguments", "srt/arg_groups/attention_hook.py: handle_multi_item_scoring", typed, _scoring)
WEIGHT_CACHE = law_check(
    "weight_cache_arguments", "srt/arg_groups/model_path_hook.py: handle_load_format", typed, _weight_cache
)
CACHES = law_check("cache_arguments", _KV + "handle_cache_compatibility", typed, _caches)
UNIFIED_MEMORY = law_check("unified_memory_arguments", _KV + "handle_unified_memory_pool", typed, _unified_memory)
