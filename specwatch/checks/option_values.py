"""What SGLang refuses in single options before it reads a model: values out of range, and options that need another.

Mirrors, in the order of srt/arg_groups/pipeline.py: serving_hook.py (media, multimodal, TLS, ASR, gRPC and sidecar),
validation_hook.py (intervals, masks, captured hidden states) and hicache_hook.py. Known of 0.5.23 alone: an older
release is told nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from specwatch.checks.backends import PLAIN
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.parallel import typed
from specwatch.checks.subject import CAPTURING, Subject
from specwatch.domain import Value

SINCE = "0.5.23"
RANGE, NEEDS, PAIR, MODEL = "out-of-range", "needs-another", "not-together", "not-for-this-model"
"""The causes of the rule `option-refused`."""
ORDINARY = PLAIN | {
    *("Gemma2ForCausalLM", "GemmaForCausalLM", "Glm4ForCausalLM", "Glm4MoeForCausalLM", "GPT2LMHeadModel"),
    *("OPTForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM"),
}
"""Targets without state, sparse attention, an encoder, or a layout of experts that an option could be about."""


def refused(cause: str, flag: str, message: str, *others: str, exception: str = "ValueError", **facts: Value) -> Law:
    """A law of 0.5.23 against one option, which is the one to leave out."""
    return Law(
        cause=cause,
        flags=(flag, *others),
        message=message,
        exception=exception,
        since=SINCE,
        facts={"drop": flag, "others": " ".join(others), **facts},
    )


def real(subject: Subject, name: str) -> float | None:
    """An argument as a number, None where it is not given or none."""
    value = subject.launch.value(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _below(subject: Subject, limits: tuple[tuple[str, float, str], ...]) -> Iterator[Law]:
    """Options below their least value; the message may quote what was given."""
    for flag, least, message in limits:
        number = real(subject, flag[2:].replace("-", "_"))
        if number is not None and number < least:
            yield refused(RANGE, flag, message.format(number))


def _first(subject: Subject) -> Iterator[Law | Doubt]:
    launch = subject.launch
    yield from _below(
        subject, (("--media-url-max-file-size-mb", 0, "media_url_max_file_size_mb must be non-negative"),)
    )
    domains = launch.value("allowed_media_domains")
    for domain in domains if isinstance(domains, list) else ():
        bare = domain.strip().rstrip(".") if isinstance(domain, str) else "x"
        if not bare:
            yield refused(RANGE, "--allowed-media-domains", "allowed media domains cannot be empty")
        elif "://" in bare or any(character in bare for character in "/?#@"):
            message = f"Invalid allowed media domain {bare!r}: provide a hostname only"
            yield refused(RANGE, "--allowed-media-domains", message)
    yield from _watermark_file(subject)
    fraction = real(subject, "hicache_host_memory_fraction")
    if fraction is not None and not 0 < fraction <= 1:
        flag = "--hicache-host-memory-fraction"
        yield refused(RANGE, flag, f"{flag} must be in (0, 1].")
    yield from _below(
        subject,
        (
            ("--prefill-decode-interval", 0, "--prefill-decode-interval must be non-negative."),
            ("--prefill-decode-interval-min-bs", 0, "--prefill-decode-interval-min-bs must be non-negative."),
            ("--sampling-mask-max-tokens", 1, "--sampling-mask-max-tokens must be positive (got {})."),
        ),
    )
    old = "SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS"
    if old in launch.env:
        message = (
            f"{old} is no longer supported. Unset it. To enable sampling masks for disaggregated serving, set "
            "SGLANG_ENABLE_DISAGG_SAMPLING_MASK=1 and use the same positive --sampling-mask-max-tokens value on both "
            "prefill and decode servers."
        )
        yield refused(RANGE, old, message)
    yield from _captured_states(subject)
    yield from _multimodal(subject)


def _watermark_file(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors srt/sampling/watermarking/config.py: load_watermark_config, for what stands in the command itself."""
    given = subject.launch.value("watermark_config")
    flag, error = "--watermark-config", "WatermarkConfigError"
    if not isinstance(given, str):
        return
    if not given.lstrip().startswith("{"):
        yield Doubt(f"{flag} names a file, which is read where the server runs")
        return
    try:
        read = json.loads(given)
    except ValueError:
        yield refused(RANGE, flag, "failed to read watermark config JSON", exception=error)
        return
    fields = {"key", "key_b", "context_window", "mixing_probability", "max_probability"}
    if set(read) - fields - {"default_enabled", "enforce_all"}:
        yield refused(RANGE, flag, "watermark config contains unknown fields", exception=error)
    if not subject.launch.is_set("enable_watermark"):
        return
    if read:
        yield Doubt(f"the values in {flag} have rules of their own")


def _captured_states(subject: Subject) -> Iterator[Law]:
    """Mirrors validation_hook.py: handle_aux_hidden_state_capture: with it the algorithm only names a convention."""
    launch = subject.launch
    flag, layers = "--enable-return-aux-hidden-states", "--return-aux-hidden-state-layer-ids"
    ids = launch.value("return_aux_hidden_state_layer_ids")
    if not launch.is_set("enable_return_aux_hidden_states"):
        if ids is not None:
            yield refused(NEEDS, layers, f"{layers} requires {flag}.", flag)
        return
    name = launch.text_value("speculative_algorithm")
    method = (name or "").upper()
    if method not in CAPTURING:
        message = f"{flag} needs --speculative-algorithm EAGLE3, DFLASH or DSPARK to name the capture convention, got "
        yield refused(NEEDS, flag, f"{message}{name!r}.", "--speculative-algorithm")
    if launch.value("speculative_draft_model_path") is not None:
        message = f"{flag} captures without a draft; drop --speculative-draft-model-path."
        yield refused(PAIR, flag, message, "--speculative-draft-model-path")
    if subject.number("pp_size") not in (None, 1):
        message = f"{flag} only supports pp_size == 1: the capture hooks only see the layers on the last pipeline rank."
        yield refused(PAIR, flag, message, "--pp-size")
    if method != "EAGLE3" and not ids:
        yield refused(NEEDS, flag, f"{flag} with {method} requires {layers}.", layers)
    if isinstance(ids, list):
        if any(isinstance(layer, int) and layer < 0 for layer in ids):
            yield refused(RANGE, layers, f"{layers} must be non-negative, got {ids}.")
        if len(set(map(str, ids))) != len(ids):
            yield refused(RANGE, layers, f"{layers} must not repeat a layer, got {ids}.")


def _multimodal(subject: Subject) -> Iterator[Law]:
    yield from _below(
        subject, (("--mm-preprocess-cache-size-mb", 0, "mm_preprocess_cache_size_mb must be non-negative"),)
    )
    given, flag = subject.launch.value("mm_process_config"), "--mm-process-config"
    if given is None:
        return
    if not isinstance(given, dict):
        yield refused(RANGE, flag, f"mm_process_config must be a dict, but got {type(given)}", exception="TypeError")
        return
    for key in ("image", "video", "audio"):
        if key in given and not isinstance(given[key], dict):
            message = f"mm_process_config['{key}'] must be a dict, but got {type(given[key])}"
            yield refused(RANGE, flag, message, exception="TypeError")


def _second(subject: Subject) -> Iterator[Law | Doubt]:
    launch = subject.launch
    tls = launch.is_set("ssl_certfile") and launch.is_set("ssl_keyfile")
    if launch.is_set("enable_ssl_refresh") and not tls:
        message = "--enable-ssl-refresh requires --ssl-certfile and --ssl-keyfile to be specified."
        yield refused(NEEDS, "--enable-ssl-refresh", message, "--ssl-certfile", "--ssl-keyfile")
    workers, http2 = subject.number("tokenizer_worker_num"), launch.is_set("enable_http2")
    if launch.is_set("enable_http_worker_reuseport") and (workers in (None, 1) or http2):
        message = "requires --tokenizer-worker-num > 1 and has no effect with --enable-http2."
        flag = "--enable-http-worker-reuseport"
        yield refused(NEEDS, flag, f"{flag} {message}", "--tokenizer-worker-num", "--enable-http2")
    yield from _below(
        subject,
        (
            ("--asr-max-concurrent-sessions", 1, "--asr-max-concurrent-sessions must be positive (got {})."),
            ("--grpc-response-timeout-secs", 1, "--grpc-response-timeout-secs must be positive"),
        ),
    )
    yield from _sidecar(subject)


def _asr(subject: Subject) -> Iterator[Law]:
    seconds = real(subject, "asr_max_buffer_seconds")
    if seconds is not None and seconds <= 0:
        flag = "--asr-max-buffer-seconds"
        yield refused(RANGE, flag, f"{flag} must be positive (got {seconds}).")


def _sidecar(subject: Subject) -> Iterator[Law]:
    """Mirrors serving_hook.py: handle_deprecated_args, its part on gRPC."""
    launch = subject.launch
    port, old = subject.number("grpc_port"), launch.is_set("smg_grpc_mode") or launch.is_set("grpc_mode")
    beside = launch.env.get("SGLANG_GRPC_PORT", "")
    if port is None and beside.isascii() and beside.isdigit():
        port = int(beside)
    if port is not None and not 1 <= port <= 65535:
        message = f"--grpc-port / SGLANG_GRPC_PORT ({port}) must be between 1 and 65535"
        yield refused(RANGE, "--grpc-port" if launch.value("grpc_port") is not None else "SGLANG_GRPC_PORT", message)
    sidecar, arguments = launch.value("sidecar"), launch.value("sidecar_args")
    if arguments is not None:
        if sidecar is None:
            yield refused(NEEDS, "--sidecar-args", "--sidecar-args requires --sidecar.", "--sidecar")
        if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
            yield refused(RANGE, "--sidecar-args", "--sidecar-args must be a JSON array of strings.")
    if not isinstance(sidecar, str):
        return
    if not sidecar.strip():
        yield refused(RANGE, "--sidecar", "--sidecar must not be empty.")
    if old:
        message = "--sidecar requires SGLang's native gRPC server; it cannot be combined with "
        yield refused(PAIR, "--sidecar", f"{message}--smg-grpc-mode/--grpc-mode.", "--smg-grpc-mode", "--grpc-mode")
    elif port is None and not beside:
        message = "--sidecar requires --grpc-port or SGLANG_GRPC_PORT."
        yield refused(NEEDS, "--sidecar", message, "--grpc-port")


def _serving(subject: Subject) -> Iterator[Law | Doubt]:
    yield from _asr(subject)
    yield from _second(subject)
    parser, flag = subject.launch.value("model_config_parser"), "--model-config-parser"
    if isinstance(parser, str) and parser not in ("auto", "hf", "mistral"):
        yield refused(RANGE, flag, f"Unknown model-config parser {parser!r}. Registered: ['hf', 'mistral']")


FIRST = law_check("option_values", "srt/arg_groups/validation_hook.py: handle_aux_hidden_state_capture", typed, _first)
SERVING = law_check("serving_options", "srt/arg_groups/serving_hook.py: handle_deprecated_args", typed, _serving)
