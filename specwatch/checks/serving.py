"""What SGLang refuses in how a server speaks: its log, TLS, pages of no size, models that draft by diffusion."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import backends
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.parallel import typed
from specwatch.checks.subject import Subject

LEVELS = frozenset({"CRITICAL", "FATAL", "ERROR", "WARNING", "WARN", "INFO", "DEBUG", "NOTSET"})
"""Python's levels, in any case (logging: addLevelName)."""
_ALGORITHMS = ("LowConfidence", "JointThreshold", "JointThresholdInDel", "Gemma4Renoise")
_DIFFUSION = ("LLaDA2MoeModelLM", "SDARForCausalLM", "SDARMoeForCausalLM", "DiffusionGemmaForBlockDiffusion")
_CERTIFICATE, _KEY = "--ssl-certfile", "--ssl-keyfile"


def _level(subject: Subject) -> Iterator[Law]:
    """Mirrors server_args.py: prepare_server_args, right after the arguments are parsed."""
    level = subject.launch.value("log_level")
    if isinstance(level, str) and level.upper() not in (*LEVELS, "BASIC_FORMAT", "_STYLES"):
        yield Law(
            cause="log-level-unknown",
            flags=("--log-level",),
            message=f"module 'logging' has no attribute {level.upper()!r}",
            exception="AttributeError",
            facts={"level": level},
        )


def _encryption(subject: Subject) -> Iterator[Law]:
    """The files themselves lie where the server runs, and are not looked for here."""
    has = {flag: subject.launch.is_set(flag[2:].replace("-", "_")) for flag in (_CERTIFICATE, _KEY)}
    for given, missing in ((_KEY, _CERTIFICATE), (_CERTIFICATE, _KEY)):
        if has[given] and not has[missing]:
            yield Law(
                cause="tls-half-given",
                flags=(_CERTIFICATE, _KEY),
                message=f"{given} requires {missing} to be specified as well.",
                since="0.5.11",
                facts={"given": given, "missing": missing},
            )
    if not any(has.values()):
        for name in ("--ssl-ca-certs", "--ssl-keyfile-password"):
            if subject.launch.is_set(name[2:].replace("-", "_")):
                yield Law(
                    cause="tls-without-certificate",
                    flags=(name, _CERTIFICATE, _KEY),
                    message=f"{name} has no effect without --ssl-certfile and --ssl-keyfile.",
                    since="0.5.11",
                    facts={"given": name},
                )


def _diffusion(subject: Subject) -> Iterator[Law | Doubt]:
    """Mirrors srt/dllm/config.py: DllmConfig.from_server_args."""
    algorithm = subject.launch.value("dllm_algorithm")
    if not isinstance(algorithm, str):
        return
    if algorithm not in _ALGORITHMS:
        if subject.launch.sglang not in ("", "0.5.23"):
            yield Doubt(f"whether this SGLang has a diffusion algorithm {algorithm}")
            return
        yield Law(
            cause="no-such-algorithm",
            flags=("--dllm-algorithm",),
            message=f"Unknown diffusion LLM algorithm: {algorithm}",
            exception="RuntimeError",
            facts={"algorithm": algorithm},
        )
    names = subject.target().architectures
    if names and names[0] not in _DIFFUSION:
        yield Law(
            cause="no-diffusion-model",
            flags=("--dllm-algorithm",),
            message=f"Unknown diffusion LLM: {names[0]}",
            exception="RuntimeError",
            since="0.5.11",
            facts={"architecture": names[0]},
        )


def _pages(subject: Subject) -> Iterator[Law]:
    chunk = subject.number("chunked_prefill_size")
    chunks = (chunk is None or chunk > 0) and subject.launch.value("disaggregation_mode") != "decode"
    if chunks and subject.number("page_size") == 0 and backends.page_size(subject) == 0:
        yield Law(
            cause="page-size-zero",
            flags=("--page-size",),
            message="integer modulo by zero",
            exception="ZeroDivisionError",
        )


LOG_LEVEL = law_check("log_level", "srt/server_args.py: prepare_server_args", typed, _level)
ENCRYPTION = law_check(
    "encryption_arguments", "srt/arg_groups/serving_hook.py: handle_ssl_validation", typed, _encryption
)
DIFFUSION = law_check("diffusion_arguments", "srt/arg_groups/dllm_hook.py: handle_dllm_inference", typed, _diffusion)
PAGES = law_check("page_arguments", "srt/arg_groups/validation_hook.py: check_server_args", typed, _pages)
