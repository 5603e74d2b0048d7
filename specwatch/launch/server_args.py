"""Reads the `server_args=` that a server logs at its start, and rebuilds a launch from it.

The line holds *resolved* values (sglang/srt/entrypoints/engine.py): a dataclass repr up to 0.5.16, a dict from 0.5.19.
Nothing in it is ever evaluated as code.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from specwatch.domain import NOTHING, Launch, Value
from specwatch.launch.flags import Flag, FlagTable, field_names, known_release, releases, table
from specwatch.lazy import compiled

MAX_CHARS = 1_000_000
_KEY = compiled(r"\s*(?:'([A-Za-z_]\w*)'\s*:|\"([A-Za-z_]\w*)\"\s*:|([A-Za-z_]\w*)\s*=(?!=))\s*")
_ENUM = compiled(r"<[\w.]+: (.+)>", re.S)
_BLOCK = frozenset({"DFLASH", "DSPARK", "UNO"})
_OPEN, _CLOSE = "([{<", ")]}>"
_STEP = compiled(r"['\"\\,()\[\]{}<>]")


# Reading


def parse(text: str) -> dict[str, Value]:
    """The arguments in a log line with `server_args=…`, or in the repr alone; empty when there are none.

    Reads what can be read: a value that is no literal, and what a cut line lost, is left out. Text beyond a million
    characters is not looked at.
    """
    text = text[:MAX_CHARS]
    found = re.search(r"server_args=(?=\{|ServerArgs\()", text)
    body = text[found.end() :] if found else text.strip()
    opened = re.match(r"\{|[A-Za-z_][\w.]*\(", body)
    if not opened:
        return {}
    inner = body[opened.end() :]
    whole = _whole_dict(body) if opened.group() == "{" else None
    return whole if whole is not None else dict(_pairs(inner))


def _whole_dict(body: str) -> dict[str, Value] | None:
    try:
        got = ast.literal_eval(body.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    if not isinstance(got, dict):
        return None
    return {key: _plain(value) for key, value in got.items() if isinstance(key, str)}


def _pairs(text: str) -> Iterator[tuple[str, Value]]:
    """`key=value` or `'key': value` one after the other, up to the bracket that closes them all."""
    at = 0
    while (key := _KEY.match(text, at)) is not None:
        end, closed = _value_end(text, key.end())
        if end < 0:
            return  # cut in the middle of a value
        value = _literal(text[key.end() : end].strip())
        if value is not _UNREADABLE:
            yield next(name for name in key.groups() if name), value  # type: ignore[misc]
        if closed:
            return
        at = end + 1


def _value_end(text: str, at: int) -> tuple[int, bool]:
    """Where a value ends, and whether that ends the whole; -1 where the text is cut before."""
    depth = 0
    quoted = ""
    while (step := _STEP.search(text, at)) is not None:
        char, place = step.group(), step.start()
        at = place + 1
        if quoted:
            if char == "\\":
                at += 1
            elif char == quoted:
                quoted = ""
        elif char in "'\"":
            quoted = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            if depth == 0:
                return place, True
            depth -= 1
        elif char == "," and depth == 0:
            return place, False
    return -1, False


_UNREADABLE = object()


def _literal(text: str) -> object:
    enum = _ENUM.fullmatch(text)
    if enum:
        text = enum[1]
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        return _plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return _UNREADABLE


def _plain(value: object) -> Value:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


# Which release


_ALIKE = 0.9
"""Share of the names of arguments that a whole `server_args=` line has in common with those of its release."""


def guess_release(values: Mapping[str, Value]) -> str:
    """The known release whose arguments have these names; where a line holds only some of them, the newest that fits.

    "" where none fits, and where the newest of all does: such a line tells nothing.
    """
    names = set(values)
    if not names:
        return ""
    known = {release: field_names(release) for release in releases()}
    likeness = {release: _likeness(names, fields) for release, fields in known.items()}
    best = max(likeness, key=likeness.__getitem__)
    if likeness[best] >= _ALIKE:
        return best
    fitting = [release for release, fields in known.items() if names <= fields]
    return fitting[-1] if fitting and fitting[-1] != releases()[-1] else ""


def _likeness(one: Set[str], other: Set[str]) -> float:
    same = len(one & other)
    return same / (len(one) + len(other) - same)


# Rebuilding a launch


def _same(name: str) -> Callable[[Value, Mapping[str, Value]], bool]:
    return lambda value, values: value == values.get(name)


def _is(*filled: Value) -> Callable[[Value, Mapping[str, Value]], bool]:
    return lambda value, _values: any(value == one and type(value) is type(one) for one in filled)


def _with_speculation(*filled: Value) -> Callable[[Value, Mapping[str, Value]], bool]:
    return lambda value, values: bool(values.get("speculative_algorithm")) and value in filled


def _with_block(value: Value, values: Mapping[str, Value]) -> bool:
    algorithm = str(values.get("speculative_algorithm"))
    return (algorithm in _BLOCK and value == 1) or algorithm == "NGRAM"


def _always(_value: Value, _values: Mapping[str, Value]) -> bool:
    return True


FILLED_IN: Mapping[str, Callable[[Value, Mapping[str, Value]], bool]] = MappingProxyType(
    {
        # Copies of the model path.
        "tokenizer_path": _same("model_path"),
        "served_model_name": _same("model_path"),
        "speculative_draft_model_path": _same("model_path"),
        "speculative_draft_model_revision": _is("main"),
        "speculative_draft_model_quantization": _same("quantization"),
        # Drawn or measured at every start, from the machine.
        "random_seed": _always,
        "device": _always,
        "mem_fraction_static": _always,
        "chunked_prefill_size": _always,
        "attention_backend": _always,
        "sampling_backend": _always,
        "grammar_backend": _always,
        "nccl_port": _always,
        "encoder_transfer_backend": _always,
        "mm_feature_transport": _always,
        "enable_tf32_matmul": _is(False),
        "page_size": _is(1),
        # CUDA graph sizes follow from the memory of the card.
        "cuda_graph_config": _always,
        "cuda_graph_max_bs": _always,
        "cuda_graph_bs": _always,
        "cuda_graph_max_bs_decode": _always,
        "cuda_graph_bs_decode": _always,
        "cuda_graph_max_bs_prefill": _always,
        "cuda_graph_bs_prefill": _always,
        "piecewise_cuda_graph_tokens": _always,
        "piecewise_cuda_graph_max_tokens": _always,
        # What speculation sets by itself.
        "max_running_requests": _with_speculation(48),
        "disable_overlap_schedule": _with_speculation(True),
        "speculative_num_steps": _with_block,
        "speculative_eagle_topk": _with_block,
        "speculative_draft_attention_backend": lambda _v, values: values.get("speculative_algorithm") == "DFLASH",
        "speculative_moe_runner_backend": _is("auto"),
        # Fallbacks of 0.5.21 and later that replace None.
        "prefill_decode_interval": _is(0),
        "swa_full_tokens_ratio": _is(0.8),
        "load_balance_method": _is("round_robin", "follow_bootstrap_room"),
        "dcp_comm_backend": _is("ag_rs"),
        "enable_tp_lm_head_all_to_all": _is(False),
        "boundary_reduction": _always,
        "expert_distribution_recorder_buffer_size": _is(1000),
        "mamba_full_memory_ratio": _is(0.9),
        "hicache_ratio": _is(2.0),
        "mm_enable_dp_encoder": _is(False),
        "mm_process_config": _is({}),
        "custom_weight_loader": _is([]),
        # Data-parallel attention changes these.
        "attn_dp_size": lambda _v, values: values.get("enable_dp_attention") is True,
        "schedule_conservativeness": lambda _v, values: values.get("enable_dp_attention") is True,
    }
)
"""Arguments that SGLang fills in by itself, with the test that a value is one of those: they are not typed again."""


@lru_cache(maxsize=4)  # a crash loop records the same arguments each time
def recorded(text: str, sglang: str = "") -> Launch:
    """A launch rebuilt from a `server_args=` line: `python -m sglang.launch_server` and what differs from the defaults.

    `values` is what that command types, `recorded` the whole line. Without a version the release is guessed from the
    names of the arguments. What SGLang fills in by itself (FILLED_IN), secrets that the log hides, and values that no
    flag can set are left out, so the command may miss what somebody typed: `origin` is "reconstructed".
    """
    values = parse(text)
    version = sglang or guess_release(values)
    guessed = not sglang and not (version and _likeness(set(values), field_names(version)) >= _ALIKE)
    flags = table(version)
    argv = ["python", "-m", "sglang.launch_server"]
    typed: dict[str, Value] = {}
    for name, value in values.items():
        flag = flags.by_dest(name)
        if flag is None or not _given(flags, flag, name, value, values):
            continue
        tokens = _tokens(flag, value)
        if tokens:
            argv += tokens
            typed[name] = value
    return Launch(
        sglang=version or known_release(""),
        argv=tuple(argv),
        values=MappingProxyType(typed),
        recorded=MappingProxyType(values),
        origin="reconstructed",
        guessed=guessed,
    )


def _given(flags: FlagTable, flag: Flag, name: str, value: Value, values: Mapping[str, Value]) -> bool:
    if value is None or value == "<redacted>" or name.startswith("_"):
        return False
    default = flags.fields.get(name)
    if value == default and type(value) is type(default):
        return False
    if isinstance(value, int | float) and isinstance(default, int | float) and value == default:
        return False
    if name in FILLED_IN and FILLED_IN[name](value, values):
        return False
    # A flag without value that is off stands for "not given" too, where the default is None.
    return not (value is False and flag.action != "optional")


def _tokens(flag: Flag, value: Value) -> list[str]:
    """A flag and its value as tokens, empty where no command line can say it."""
    if flag.action == "optional":
        return [flag.name if value else f"--no-{flag.names[0][2:]}"] if isinstance(value, bool) else []
    if flag.bare:
        return [flag.name] if value is True and flag.action == "true" else []
    if flag.action not in ("store", "lora"):
        return []
    items = value if isinstance(value, list) and flag.many else [value]
    texts = [_text(flag, item) for item in items]
    if any(text is None or "\0" in text for text in texts) or not texts:
        return []
    plain = [text for text in texts if text is not None]
    if any(text.startswith("-") for text in plain):
        return [f"{flag.name}={plain[0]}"] if len(plain) == 1 else []
    return [flag.name, *plain]


def _text(flag: Flag, value: Value) -> str | None:
    if flag.type in ("loads", "json_list_type") or (flag.action == "lora" and isinstance(value, dict)):
        import json

        return json.dumps(value)
    if isinstance(value, bool | list | dict) or value is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value)


def merge(typed: Launch, record: Launch) -> Launch:
    """The typed command with the log's record beside it: values and text from the first, `recorded` from the second."""
    guessed = record.guessed and not typed.sglang
    sglang = typed.sglang or record.sglang
    return replace(typed, sglang=sglang, guessed=guessed, recorded=record.recorded or NOTHING)
