"""The draft configuration of DFLASH as SGLang parses it, and the layers of the target that it names.

Mirrors srt/speculative/dflash_utils.py: parse_dflash_draft_config and resolve_target_layer_ids, and
srt/model_executor/model_runner_components/spec_aux_hidden_state.py: _resolve_dflash_aux_hidden_state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specwatch.checks.subject import OVERRIDE, Answer, Check, Subject, broken, fact
from specwatch.domain import Phase, Value
from specwatch.models.base import ModelConfig

DEFAULT_MASK_TOKEN = "<|MASK|>"  # noqa: S105 - a vocabulary entry: srt/speculative/dflash_utils.py


@dataclass(frozen=True, slots=True)
class Setting:
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


def whole_number(config: ModelConfig, key: str, label: str, least: int = 1) -> int | None:
    """A number of the draft's configuration, None where it is absent. Raises Malformed.

    Mirrors srt/speculative/dflash_utils.py: _parse_optional_int.
    """
    at = setting(config, key)
    if at.value is None:
        return None
    try:
        number = int(at.value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise Malformed("bad-number", f"Invalid {label}={at.value!r}.", at) from error
    if number < least:
        wanted = "positive" if least == 1 else f">= {least}"
        raise Malformed("bad-number", f"{label} must be {wanted}, got {number}.", at)
    return number


def layer_ids(config: ModelConfig) -> list[int] | None:
    """`target_layer_ids` of the draft, None where it names none. Raises Malformed."""
    at = setting(config, "target_layer_ids")
    if at.value is None:
        return None
    if not isinstance(at.value, list):
        kind = type(at.value).__name__
        raise Malformed(
            "layer-ids", f"DFLASH dflash_config.target_layer_ids must be a list of ints, got type={kind}.", at
        )
    try:
        ids = [int(entry) for entry in at.value]  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise Malformed("layer-ids", str(error), at, type(error).__name__) from error
    if not ids:
        text = "DFLASH dflash_config.target_layer_ids must be non-empty. Got len(target_layer_ids)=0."
        raise Malformed("layer-ids", text, at)
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


def default_layer_ids(target_layers: int, draft_layers: int) -> list[int]:
    """The target layers that SGLang picks when the draft names none (dflash_utils.py: build_target_layer_ids)."""
    if draft_layers == 1:
        return [target_layers // 2]
    last = target_layers - 3
    if last < 1:
        text = f"DFlash layer selection requires num_target_layers >= 4. Got num_target_layers={target_layers}."
        raise Malformed("layers-too-few", text, Setting(None, "target_layer_ids", ""))
    return [int(round(1 + i * (last - 1) / (draft_layers - 1))) for i in range(draft_layers)]  # noqa: RUF046


def _draft_layers(config: ModelConfig) -> int | None:
    value = config.text.get("num_hidden_layers")
    at = Setting(value, "num_hidden_layers", config.text.origin("num_hidden_layers"))
    if value is None:
        return None
    label = "DFLASH draft num_hidden_layers"
    try:
        number = int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise Malformed("bad-number", f"Invalid {label}={value!r}.", at) from error
    if number < 1:
        raise Malformed("bad-number", f"{label} must be positive, got {number}.", at)
    return number


def _parse(subject: Subject) -> Answer | None:
    """The parse in SGLang's own order, so that the first fault is the one it names."""
    if subject.algorithm != "DFLASH" or subject.draft_path is None:
        return None
    draft = subject.draft()
    try:
        _draft_layers(draft)
        whole_number(draft, "num_target_layers", "DFLASH draft num_target_layers")
        whole_number(draft, "block_size", "DFLASH block_size")
        layer_ids(draft)
        mask_token(draft)
        mask_token_id(draft)
    except Malformed as error:
        return _malformed(subject, draft, error)
    return Answer()


def _malformed(subject: Subject, draft: ModelConfig, error: Malformed) -> Answer:
    at = error.at
    return broken(
        error.cause + ("-overridden" if at.overridden and error.cause == "mask-token-malformed" else ""),
        error.exception,
        error.message,
        fact("dflash_draft_config", at.key, at.value, at.source or draft.source),
        draft=subject.draft_path,
        target=subject.target_path,
        key=at.key,
        value=repr(at.value),
        source=at.source,
    )


def _target_layers(subject: Subject) -> Answer | None:
    """Every layer that the draft listens to must exist in the target."""
    if subject.algorithm != "DFLASH" or subject.draft_path is None:
        return None
    name = "dflash_target_layers"
    target, draft = subject.target(), subject.draft()
    layers = target.text.get("num_hidden_layers")
    if not isinstance(layers, int):
        return broken(
            "target-layers",
            "ValueError",
            f"Block-draft-with-target-kv spec requires target num_hidden_layers in config. Got target={layers}.",
            fact(name, "target num_hidden_layers", layers, target.source),
        )
    loops = target.text.get("num_loops", 1)
    layers *= loops if isinstance(loops, int) else 1
    try:
        ids = layer_ids(draft)
        if ids is None:
            ids = default_layer_ids(layers, _draft_layers(draft) or 1)
    except Malformed as error:
        return _malformed(subject, draft, error) if error.cause == "layers-too-few" else None
    at = setting(draft, "target_layer_ids")
    for place, layer in enumerate(ids):
        if not 0 <= layer < layers:
            return broken(
                "layer-out-of-range",
                "ValueError",
                "DFLASH target_layer_ids contains an out-of-range layer id. "
                f"target_layer_ids[{place}]={layer}, target_num_layers={layers}.",
                fact(name, "target num_hidden_layers", layers, target.source),
                fact(name, at.key, list(ids), at.source),
                draft=subject.draft_path,
                target=subject.target_path,
                layer=layer,
                layers=layers,
            )
    return Answer(evidence=(fact(name, "target num_hidden_layers", layers, target.source),))


CHECKS = (
    Check(
        name="dflash_draft_config",
        phase=Phase.TARGET,
        mirrors="srt/speculative/dflash_utils.py: parse_dflash_draft_config",
        run=_parse,
    ),
    Check(
        name="dflash_target_layers",
        phase=Phase.TARGET,
        mirrors="srt/speculative/dflash_utils.py: DFlashDraftConfig.resolve_target_layer_ids",
        run=_target_layers,
    ),
)
