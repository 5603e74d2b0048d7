"""Turns the text of a flag's value into what the parser of sglang makes of it, or refuses it in the same words.

Mirrors the `type=` callables of sglang/srt/utils/common.py (human_readable_int, json_list_type, nullable_str) and
sglang/srt/model_executor/cuda_graph_config.py, and argparse's _get_value and _check_value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from specwatch.domain import Value
from specwatch.launch.flags import Flag


class Refusal(Exception):  # noqa: N818 - carries the parser's text, becomes a LaunchError
    """What the parser says after `error: `."""


class _WrongType(Exception):  # noqa: N818
    """A converter's own text, as argparse.ArgumentTypeError."""


def human_int(text: str) -> int:
    """`2k` is 2000, `2Ki` is 2048, `1.5k` is 1500; suffixes are case-sensitive, decimals need k, M, G or T."""
    text = text.strip()
    si = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    iec = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", text)
    if found:
        from decimal import Decimal

        number, suffix = found.groups()
        if suffix in iec and "." in number:
            raise _WrongType(
                f"Decimals are not allowed with IEC suffixes like '{suffix}'. Use an integer IEC value such as "
                f"'{int(Decimal(number))}{suffix}', or an SI value such as '{number}{suffix[0]}'."
            )
        return int(number) * iec[suffix] if suffix in iec else int(Decimal(number) * si[suffix])
    try:
        return int(text)
    except ValueError:
        raise _WrongType(
            f"Invalid integer value: '{text}'. Use a plain integer, SI suffixes (1k, 1M), or IEC suffixes (1Ki, 1Mi). "
            "Suffixes are case-sensitive."
        ) from None


def _json(text: str) -> Value:
    try:
        value: Value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _json_list(text: str) -> Value:
    try:
        return _json(text)
    except ValueError:
        raise _WrongType(f"Invalid JSON list: {text}. Please provide a valid JSON list.") from None


def _nullable(text: str) -> Value:
    return None if not text or text == "None" else text


def _graph_config(text: str) -> Value:
    try:
        value = _json(text)
    except ValueError as error:
        raise _WrongType(f"--cuda-graph-config must be JSON: {error}") from None
    if not isinstance(value, dict):
        raise _WrongType(f"--cuda-graph-config must be a JSON object, got {type(value).__name__}")
    return value


def _graph_backend(text: str) -> Value:
    if text == "tc_piecewise":
        raise _WrongType("tc_piecewise was removed; select breakable, full, or disabled")
    return text


_CONVERTERS: dict[str, Callable[[str], Value]] = {
    "str": str,
    "int": int,
    "float": float,
    "human_readable_int": human_int,
    "loads": _json,
    "json_list_type": _json_list,
    "nullable_str": _nullable,
    "parse_cuda_graph_config_arg": _graph_config,
    "parse_cuda_graph_backend_arg": _graph_backend,
}


def one(flag: Flag, text: str) -> Value:
    """One value of a flag. A type that is not known here stays text. Raises Refusal."""
    convert = _CONVERTERS.get(flag.type or "str", str)
    try:
        value = convert(text)
    except _WrongType as error:
        raise Refusal(f"argument {flag.label}: {error}") from None
    except (ValueError, OverflowError):
        raise Refusal(f"argument {flag.label}: invalid {flag.type} value: {text!r}") from None
    if flag.choices is not None and value not in flag.choices:
        options = ", ".join(map(repr, flag.choices))
        raise Refusal(f"argument {flag.label}: invalid choice: {value!r} (choose from {options})")
    return value


def stored(flag: Flag, option: str, texts: list[str]) -> Value:
    """What a flag stores for the values that it was given; `option` is the full spelling. Raises Refusal."""
    if flag.action == "optional":
        return not option.startswith("--no-")
    if flag.action == "const":
        for text in texts:
            one(flag, text)
        return flag.const
    if flag.bare:
        return flag.const
    if flag.nargs == "?" and not texts:
        return flag.const
    values = [one(flag, text) for text in texts]
    if flag.action == "lora":
        return [_lora(str(value).strip()) for value in values]
    if flag.action == "lora-dict":
        pairs = [str(value).split("=", 1) for value in values]
        return {pair[0]: pair[-1] for pair in pairs}
    return values[0] if flag.nargs in (None, "?") else values


def _lora(text: str) -> Value:
    if not (text.startswith("{") and text.endswith("}")):
        return text
    try:
        return _json(text)
    except ValueError as error:
        raise Refusal(f"json.decoder.JSONDecodeError: {error}") from None
