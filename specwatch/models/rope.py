"""Rotary position parameters as transformers 5 standardizes them.

Mirrors transformers 5.19 `modeling_rope_utils.py: RotaryEmbeddingConfigMixin` with sglang 0.5.23's guard for classes
without `max_position_embeddings` (`utils/hf_transformers_patches.py: _patch_rope_parameters_validation`).
"""

from __future__ import annotations

from typing import Any

from specwatch.models import strict
from specwatch.models.library import LibraryConfig, refuse

_DEFAULT_THETA = 10000.0
_REQUIRED = {
    "default": ("rope_type",),
    "axial": ("rope_type",),
    "linear": ("rope_type", "factor"),
    "dynamic": ("rope_type", "factor"),
    "yarn": ("rope_type", "factor", "original_max_position_embeddings"),
    "longrope": ("rope_type", "short_factor", "long_factor", "original_max_position_embeddings"),
    "llama3": (
        "rope_type",
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
        "rope_theta",
    ),
    "proportional": ("rope_type", "rope_theta"),
}


def convert(config: LibraryConfig, data: dict[str, Any], *, standard: bool, nested: bool) -> None:
    """Turn `rope_scaling` and `rope_theta` of a file (`data`) into `rope_parameters`, where the library does.

    `standard` tells that the class has `rope_parameters`; others convert only when the file has both old keys.
    `nested` tells of classes that keep one set of parameters for each type of layer, as Gemma 3 does.
    """
    if not standard and not (data.get("rope_scaling") and data.get("rope_theta")):
        return
    scaling = data.pop("rope_scaling", None)
    written = "file" if scaling or config.raw("rope_parameters") else ""
    origin = config.source if written else f"transformers class default of {config.model_type}"
    if scaling and not nested:
        config.give("rope_parameters", scaling, origin)
    params = config.raw("rope_parameters") or {}
    if nested and isinstance(scaling or {}, dict):
        default = {"rope_type": "default"}
        params = params or {"sliding_attention": default, "full_attention": default | (scaling or {})}
    if not isinstance(params, dict):
        text = f"'{type(params).__name__}' object has no attribute 'setdefault'"
        refuse("AttributeError", text, config.source)
    params = {key: dict(value) if isinstance(value, dict) else value for key, value in params.items()}
    theta = data.pop("rope_theta", config.raw("rope_theta") if config.has("rope_theta") else _DEFAULT_THETA)
    partial = data.get("partial_rotary_factor", config.raw("partial_rotary_factor"))
    keys = [key for key in params if key in ("sliding_attention", "full_attention")] if nested else []
    for part in [params[key] for key in keys or _nested(config, params)] or [params]:
        if isinstance(part, dict):
            part.setdefault("rope_theta", theta)
            if partial is not None:
                part.setdefault("partial_rotary_factor", partial)
            part.setdefault("rope_type", part.get("type", "default"))
            _original_length(config, part, nested=part is not params)
    config.set("rope_parameters", params, origin)


def _original_length(config: LibraryConfig, part: dict[str, Any], *, nested: bool) -> None:
    if part["rope_type"] not in ("llama3", "yarn", "longrope"):
        return
    if config.has("original_max_position_embeddings") and not nested:
        part["original_max_position_embeddings"] = config.raw("original_max_position_embeddings")
    elif config.has("max_position_embeddings"):
        part.setdefault("original_max_position_embeddings", config.raw("max_position_embeddings"))


def _nested(config: LibraryConfig, params: dict[str, Any]) -> list[str]:
    labels = config.raw("layer_types")
    return [key for key in params if key in labels] if isinstance(labels, list) else []


def phi(config: LibraryConfig) -> None:
    """Phi's classes take the old names of their own kind of scaling for it."""
    params = config.raw("rope_parameters")
    if isinstance(params, dict) and params.get("rope_type") in ("su", "yarn"):
        config.set("rope_parameters", params | {"rope_type": "longrope"}, config.origin("rope_parameters"))


def check(config: LibraryConfig, *, even: bool, phi: bool) -> None:
    """Refuse rope parameters that the library refuses.

    `even` tells that the class wants an even head_dim, `phi` that it knows but one kind of scaling.
    """
    params = config.raw("rope_parameters")
    if not params or not isinstance(params, dict):
        return
    nested = _nested(config, params)
    for layer, part in [(key, params[key]) for key in nested] or [("full_attention", params)]:
        if not isinstance(part, dict):
            continue
        kind = part.get("rope_type", part.get("type", "default"))
        part["rope_type"] = kind
        missing = [key for key in _REQUIRED.get(kind, ()) if key not in part] if isinstance(kind, str) else []
        if missing:
            shown = "{" + ", ".join(map(repr, missing)) + "}"
            text = f"Missing required keys in `rope_parameters` for 'rope_type'='{kind}': {shown}"
            refuse("KeyError", repr(text), config.source)
        if kind in ("yarn", "llama3") and not config.has("max_position_embeddings"):
            text = f"'{config.class_name}' object has no attribute 'max_position_embeddings'"
            refuse("AttributeError", text, config.source)
        if even:
            _check_even(config, part, layer)
        if phi and kind not in ("default", "longrope"):
            text = f"`rope_parameters`'s type field must be one of ['longrope'], got {kind}"
            refuse("StrictDataclassClassValidationError", strict.class_error("validate_rope", text), config.source)


def _check_even(config: LibraryConfig, part: dict[str, Any], layer: str) -> None:
    head_dim, partial = config.raw("head_dim"), part.get("partial_rotary_factor", 1.0)
    if not isinstance(partial, int | float):
        return
    text, kind = "", "ValueError"
    if head_dim is not None and not isinstance(head_dim, int | float):
        kind = "TypeError"
        text = f"'>' not supported between instances of '{type(head_dim).__name__}' and 'int'"
    elif head_dim is not None and head_dim > 4 and head_dim % 2 and int(head_dim * partial) == head_dim:
        text = (
            f"RoPE requires an even rotary dimension, but got `head_dim`={head_dim} with "
            f"`partial_rotary_factor`={partial} for `{layer}`."
        )
    if text:
        refuse("StrictDataclassClassValidationError", strict.class_error("validate_rope", text, kind), config.source)
