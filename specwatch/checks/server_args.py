"""The last look at the arguments before anything starts, in two parts: what comes before LoRA, and what after.

Mirrors srt/arg_groups/validation_hook.py: check_server_args and check_pipeline_parallel_compat, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specwatch.checks import backends, speculation
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.parallel import sizes, typed
from specwatch.checks.parallel_facts import without_pipeline
from specwatch.checks.subject import Subject
from specwatch.domain import Value

PP_SPEC = "SGLANG_ENABLE_PP_SPEC"
_REMOTE = ("s3://", "gs://", "az://")


def _assertion(cause: str, flags: tuple[str, ...], message: str, since: str = "", **facts: Value) -> Law:
    return Law(cause=cause, flags=flags, message=message, exception="AssertionError", since=since, facts=facts)


def _pipelined(cause: str, flags: tuple[str, ...], message: str, facts: Mapping[str, Value]) -> Law:
    return Law(cause=cause, flags=flags, message=message, exception="AssertionError", facts=facts)


def _before_lora(subject: Subject) -> Iterator[Law | Doubt]:
    launch, now = subject.launch, sizes(subject)
    ranks = now.tp * now.pp if subject.since("0.5.10") else now.tp
    if now.nodes > 0 and ranks % now.nodes:
        yield _assertion(
            "nodes-do-not-divide",
            ("--tp-size", "--nnodes"),
            "tp_size must be divisible by number of nodes",
            tp_size=now.tp,
            nodes=now.nodes,
            fitting_nodes=next(size for size in range(now.nodes, 0, -1) if ranks % size == 0),
        )
    micro = subject.number("pp_max_micro_batch_size")
    if micro is not None and micro < 1:
        yield _assertion(
            "micro-batch-not-positive",
            ("--pp-max-micro-batch-size",),
            f"pp_max_micro_batch_size must be a positive integer or None (for auto-compute). Got: {micro}",
            since="0.5.11",
        )
    if launch.is_set("disable_cuda_graph_padding") and launch.is_set("enable_torch_compile"):
        yield _assertion(
            "compile-without-padding",
            ("--disable-cuda-graph-padding", "--enable-torch-compile"),
            "--disable-cuda-graph-padding is incompatible with --enable-torch-compile. With padding disabled, every "
            "distinct batch size gets its own torch.compile + Triton autotune cycle (O(max_batch_size) compilations) "
            "instead of the small fixed set of padded bucket sizes, causing engine initialisation to stall for many "
            "minutes. Remove --disable-cuda-graph-padding or --enable-torch-compile.",
            since="0.5.12",
        )
    if now.pp > 1:
        yield from _pipeline(subject)
    if now.dp > 1 and now.nodes != 1:
        yield _assertion(
            "replicas-across-nodes",
            ("--dp-size", "--nnodes"),
            "multi-node data-parallel replicas are not supported; use attention DP (--attn-dp-size) across nodes",
            since="0.5.23",
            dp_size=now.dp,
        )
    yield from _places(subject)
    yield from _served_name(subject)


def _pipeline(subject: Subject) -> Iterator[Law]:
    """Since 0.5.21; before, every algorithm with a pipeline was refused in other words."""
    name, launch = speculation.algorithm(subject), subject.launch
    if name is None or name == "DSPARK" or not subject.since("0.5.21"):
        yield from _free_slots(subject)
        return
    flags = ("--pp-size", "--speculative-algorithm")
    facts = without_pipeline(subject)
    if name != "EAGLE" or launch.is_set("enable_multi_layer_eagle"):
        text = "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding"
        yield _pipelined("pipeline-with-algorithm", flags, text, {"algorithm": name, **facts})
        return
    mode = launch.value("disaggregation_mode") or "null"
    if not subject.env_flag(PP_SPEC):
        if mode != "prefill":
            text = "PP + speculative decoding (MTP) is only supported on prefill nodes (disaggregation-mode=prefill)"
            yield _pipelined("pipeline-with-eagle", (*flags, "--disaggregation-mode"), text, facts)
        return
    if mode != "null":
        text = f"{PP_SPEC} is not compatible with --disaggregation-mode"
        yield _assertion("pipeline-speculation-variable", (PP_SPEC, "--disaggregation-mode"), text)
    if launch.is_set("speculative_adaptive"):
        text = f"{PP_SPEC} is not compatible with --speculative-adaptive"
        yield _assertion("pipeline-speculation-adaptive", (PP_SPEC, "--speculative-adaptive"), text)
    if subject.attention_dp():
        text = f"{PP_SPEC} is not compatible with attention DP (--attn-dp-size)"
        yield _assertion("pipeline-speculation-variable", (PP_SPEC, "--attn-dp-size"), text)


def _free_slots(subject: Subject) -> Iterator[Law]:
    if subject.launch.value("min_free_slots_delay") is not None and subject.algorithm is None:
        flag = "--min-free-slots-delay"
        yield Law(
            cause="not-together",
            flags=(flag, "--pp-size"),
            message=f"{flag} is not supported with pipeline parallelism: allocatable slots per microbatch are bounded "
            "by pp-max-micro-batch-size, so the threshold may never be reached",
            exception="AssertionError",
            since="0.5.23",
            facts={"drop": flag},
        )


def _places(subject: Subject) -> Iterator[Law]:
    base, step = subject.number("base_gpu_id"), subject.number("gpu_id_step")
    if base is not None and base < 0:
        yield _assertion("base-gpu-negative", ("--base-gpu-id",), "base_gpu_id must be non-negative")
    if step is not None and step < 1:
        yield _assertion("gpu-step-not-positive", ("--gpu-id-step",), "gpu_id_step must be positive")
    dense, tp = subject.number("moe_dense_tp_size"), sizes(subject).tp
    if dense not in (None, 1, tp):
        words = "None, 1, or tp_size" if subject.since("0.5.13") else "1 and None"
        yield _assertion(
            "moe-dense-size",
            ("--moe-dense-tp-size", "--tp-size"),
            f"moe_dense_tp_size only supports {words} currently",
            tp_size=tp,
        )


def _served_name(subject: Subject) -> Iterator[Law]:
    """The name is the model's path where none is given, so a path or repository with a colon is refused too."""
    given = subject.launch.text_value("served_model_name")
    if given is None and subject.target_path.lower() in ("none", "dummy"):
        yield Law(
            cause="model-named-none",
            flags=("--model-path",),
            message="argument of type 'NoneType' is not iterable",
            exception="TypeError",
            since="0.5.23",
        )
    name = given or subject.target_path
    if ":" in name and not name.startswith(_REMOTE):
        yield _assertion(
            "colon-in-model-name",
            ("--served-model-name", "--model-path"),
            "served_model_name cannot contain a colon (':') character. The colon is reserved for the 'model:adapter' "
            f"syntax used in LoRA adapter specification. Invalid value: '{name}'",
            since="0.5.7",
            name=name,
            plain=name.rstrip("/").rsplit("/", 1)[-1].replace(":", "-"),
        )


def _after_lora(subject: Subject) -> Iterator[Law | Doubt]:
    launch = subject.launch
    yield from _chunk(subject)
    yield from _multiplexing(subject)
    for name, text, least in (
        ("tokenizer_worker_num", "Tokenizer worker num must >= 1", 1),
        ("detokenizer_worker_num", "Detokenizer worker num must >= 1", 1),
        ("mm_processor_worker_num", "Multimodal processor worker num must >= 0", 0),
        ("mm_io_worker_num", "Multimodal I/O worker num must >= 0", 0),
    ):
        number = subject.number(name)
        if number is not None and number < least:
            flag = "--" + name.replace("_", "-")
            yield _assertion("workers-too-few", (flag,), text, flag=flag, least=max(least, 1))
    policy = launch.text_value("schedule_policy") or "fcfs"
    if launch.is_set("enable_priority_scheduling") and policy not in ("fcfs", "lof"):
        yield _assertion(
            "priority-with-policy",
            ("--enable-priority-scheduling", "--schedule-policy"),
            f"To use priority scheduling, schedule_policy must be 'fcfs' or 'lof'. '{policy}' is not supported.",
            since="0.5.4",
            policy=policy,
        )
    if launch.value("retraction_policy") == "priority" and not launch.is_set("enable_priority_scheduling"):
        yield Law(
            cause="retraction-without-priority",
            flags=("--retraction-policy", "--enable-priority-scheduling"),
            message="--retraction-policy priority requires --enable-priority-scheduling",
        )
    conservative = launch.value("schedule_conservativeness")
    if isinstance(conservative, (int, float)) and conservative < 0:
        text = "schedule_conservativeness must be non-negative"
        yield _assertion("conservativeness-negative", ("--schedule-conservativeness",), text)
    yield from _outputs(subject)


def _chunk(subject: Subject) -> Iterator[Law | Doubt]:
    """The chunk is divided among the groups of attention data parallelism before it is held against the page."""
    chunk, page = subject.number("chunked_prefill_size"), backends.page_size(subject)
    if chunk is None or chunk <= 0 or page <= 0 or subject.launch.value("disaggregation_mode") == "decode":
        return
    groups = max(sizes(subject).attn_dp, 1)
    share = chunk // groups
    if share > 0 and share % page:
        up = -(-share // page) * page
        yield _assertion(
            "chunk-not-in-pages",
            ("--chunked-prefill-size", "--page-size"),
            "chunked_prefill_size must be divisible by page_size",
            since="0.4.10",
            chunk=share,
            page=page,
            fitting=up * groups,
        )


def _multiplexing(subject: Subject) -> Iterator[Law]:
    launch = subject.launch
    if not launch.is_set("enable_pdmux"):
        return
    flag = "--enable-pdmux"
    if sizes(subject).pp != 1:
        text = "PD-Multiplexing is only supported with pipeline parallelism disabled (pp_size=1)."
        yield _assertion("multiplexing-with-pipeline", (flag, "--pp-size"), text, since="0.5.4")
    if subject.number("chunked_prefill_size") != -1:
        text = "PD-Multiplexing is not compatible with chunked prefill."
        yield _assertion("multiplexing-with-chunks", (flag, "--chunked-prefill-size"), text, since="0.5.4")
    if (launch.value("disaggregation_mode") or "null") != "null":
        text = "PD-Multiplexing is not compatible with disaggregation mode."
        yield _assertion("multiplexing-with-disaggregation", (flag, "--disaggregation-mode"), text, since="0.5.4")
    if not launch.is_set("disable_overlap_schedule"):
        text = "PD-Multiplexing is not compatible with overlap schedule."
        yield _assertion("multiplexing-with-overlap", (flag, "--disable-overlap-schedule"), text, since="0.5.4")


def _outputs(subject: Subject) -> Iterator[Law]:
    launch = subject.launch
    header = launch.is_set("tokenizer_metrics_custom_labels_header")
    given_header = header or "tokenizer_metrics_custom_labels_header" not in launch.values
    if launch.is_set("tokenizer_metrics_allowed_custom_labels") and not given_header:
        yield Law(
            cause="metrics-labels-without-header",
            flags=("--tokenizer-metrics-custom-labels-header", "--tokenizer-metrics-allowed-custom-labels"),
            message="Please set --tokenizer-metrics-custom-labels-header when setting "
            "--tokenizer-metrics-allowed-custom-labels.",
        )
    if launch.is_set("export_metrics_to_file") and launch.text_value("export_metrics_to_file_dir") is None:
        yield Law(
            cause="metrics-file-without-folder",
            flags=("--export-metrics-to-file", "--export-metrics-to-file-dir"),
            message="--export-metrics-to-file-dir is required when --export-metrics-to-file is enabled",
        )
    port = subject.number("port")
    port = 30000 if port is None else port
    grpc = subject.number("grpc_port")
    if grpc is not None and grpc == port and not (launch.is_set("smg_grpc_mode") or launch.is_set("grpc_mode")):
        yield Law(
            cause="one-port-for-two",
            flags=("--grpc-port", "--port"),
            message=f"--grpc-port ({grpc}) must differ from --port ({port})",
            since="0.5.16",
            facts={"port": port, "free": port + 1},
        )


_MIRRORS = "srt/arg_groups/validation_hook.py: check_server_args"
BEFORE_LORA = law_check("server_arguments", _MIRRORS, typed, _before_lora)
AFTER_LORA = law_check("serving_arguments", _MIRRORS, typed, _after_lora)
