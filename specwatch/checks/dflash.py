"""The draft configuration of DFLASH as SGLang parses it, field by field, in its order.

Mirrors srt/speculative/dflash_utils.py: parse_dflash_draft_config. A DSPARK draft goes through the same parse first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from specwatch.checks.subject import OVERRIDE, Answer, Subject, broken, fact
from specwatch.domain import Value
from specwatch.models.base import ModelConfig

DEFAULT_MASK_TOKEN = "<|MASK|>"  # noqa: S105 - a vocabulary entry: srt/speculative/dflash_utils.py


class Setting(NamedTuple):
    """One value of the draft's configuration, and where it stands: `key` as a path, `source` the file or flag."""

    value: Value
    key: str
    source: str

    @property
    def overridden(self) -> bool:
        """Whether the value comes from the command line rather than from the model's files."""
        return self.source.startswith(OVERRIDE)


def section(config: ModelConfig) -> Mapping[str, Value]:
    """The `dflash_config` of a draft; anything that is no mapping counts as one that is empty."""
    raw = config.top.get("dflash_config")
    if isinstance(raw, dict):
        return raw
    try:
        return dict(raw)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {}


def setting(config: ModelConfig, key: str) -> Setting:
    """A value by SGLang's precedence: `dflash_config` (null included) before the top level."""
    inner = section(config)
    if key in inner:
        return Setting(inner[key], f"dflash_config.{key}", config.top.origin("dflash_config"))
    return Setting(config.top.get(key), key, config.top.origin(key) if config.top.has(key) else "")


class Malformed(Exception):  # noqa: N818 - carries what SGLang raises
    """The draft's configuration holds a value that SGLang refuses."""

    def __init__(self, cause: str, message: str, at: Setting, exception: str = "ValueError") -> None:
        super().__init__(message)
        self.cause, self.message, self.at, self.exception = cause, message, at, exception


def parse_number(at: Setting, label: str, least: int = 1) -> int | None:
    """A value as a whole number, None where it is absent. Raises Malformed.

    Mirrors srt/speculative/dflash_utils.py: _parse_optional_int.
    """
    if at.value is None:
        return None
    try:
        number = int(at.value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed("malformed", f"Invalid {label}={at.value!r}.", at) from error
    if number < least:
        wanted = "positive" if least == 1 else f">= {least}"
        raise Malformed("malformed", f"{label} must be {wanted}, got {number}.", at)
    return number


def whole_number(config: ModelConfig, key: str, label: str, least: int = 1) -> int | None:
    """A number of the draft's configuration, None where it is absent. Raises Malformed."""
    return parse_number(setting(config, key), label, least)


def layer_ids(config: ModelConfig) -> list[int] | None:
    """`target_layer_ids` of the draft, None where it names none. Raises Malformed."""
    at = setting(config, "target_layer_ids")
    if at.value is None:
        return None
    if not isinstance(at.value, list):
        kind = type(at.value).__name__
        raise Malformed(
            "malformed", f"DFLASH dflash_config.target_layer_ids must be a list of ints, got type={kind}.", at
        )
    try:
        ids = [int(entry) for entry in at.value]  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed("malformed", str(error), at, type(error).__name__) from error
    if not ids:
        text = "DFLASH dflash_config.target_layer_ids must be non-empty. Got len(target_layer_ids)=0."
        raise Malformed("malformed", text, at)
    return ids


def mask_token(config: ModelConfig) -> Setting:
    """The mask token's text, SGLang's default where the draft names none. Raises Malformed."""
    at = setting(config, "mask_token")
    if at.value is None:
        return Setting(DEFAULT_MASK_TOKEN, "mask_token", "SGLang's default")
    if not isinstance(at.value, str) or not at.value:
        text = f"DFLASH dflash_config.mask_token must be a non-empty string, got {at.value!r}."
        raise Malformed("mask-token-malformed", text, at)
    return at


def mask_token_id(config: ModelConfig) -> Setting:
    """The mask token's id; its value is None where the tokenizer has to tell. Raises Malformed."""
    at = setting(config, "mask_token_id")
    if at.value is None:
        return at
    if isinstance(at.value, bool) or not isinstance(at.value, int):
        kind = type(at.value).__name__
        text = f"DFLASH dflash_config.mask_token_id must be an integer, got {at.value!r} (type={kind})."
        raise Malformed("mask-token-malformed", text, at)
    if at.value < 0:
        text = f"DFLASH dflash_config.mask_token_id must be non-negative, got {at.value}."
        raise Malformed("mask-token-malformed", text, at)
    return at


def layers(config: ModelConfig) -> int | None:
    """The number of the draft's own layers, None where it names none. Raises Malformed."""
    value = config.text.get("num_hidden_layers")
    at = Setting(value, "num_hidden_layers", config.text.origin("num_hidden_layers"))
    return parse_number(at, "DFLASH draft num_hidden_layers")


def refused(check: str, subject: Subject, draft: ModelConfig, error: Malformed) -> Answer:
    """The answer for a value that SGLang refuses; the cause tells whether the command line set it.

    An override of `dflash_config` replaces the dict as a whole, so a key that is missing may be missing because of it.
    """
    at = error.at
    hidden = at.value is None and draft.top.origin("dflash_config").startswith(OVERRIDE)
    source = at.source or (draft.top.origin("dflash_config") if hidden else draft.source)
    return broken(
        error.cause + ("-overridden" if at.overridden or hidden else ""),
        error.exception,
        error.message,
        fact(check, at.key, at.value, source),
        draft=subject.draft_path or subject.target_path,
        target=subject.target_path,
        key=at.key,
        value=repr(at.value),
        source=source.partition(" ")[0] if at.overridden or hidden else source,
        said=error.message,
    )
