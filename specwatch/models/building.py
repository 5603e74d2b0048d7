"""What transformers 5 does to build a configuration object from the content of a config.json.

Mirrors transformers 5.19 `configuration_utils.py: PreTrainedConfig`: the fields of the class in their order, then its
derived values, then what is left of the file, then the class's checks, as the shipped table says that it has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from specwatch.errors import ModelError
from specwatch.models import library, rope, strict
from specwatch.models.library import GENERIC, UNSET, LibraryConfig, refuse

SUB_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config", "talker_config")
# torch's names for types: a file's `dtype` has to be an attribute of the torch module.
DTYPES = frozenset(
    (
        "bfloat16",
        "bool",
        "cdouble",
        "cfloat",
        "chalf",
        "complex128",
        "complex32",
        "complex64",
        "double",
        "float",
        "float16",
        "float32",
        "float64",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
        "half",
        "int",
        "int16",
        "int32",
        "int64",
        "int8",
        "long",
        "short",
        "uint16",
        "uint32",
        "uint64",
        "uint8",
    )
)
_ATTENTION_LAYERS = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "window_attention",
    "indexed_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "minimax_m3_sparse",
    "conv",
    "moe",
    "hybrid",
    "hybrid_sliding",
    "linear_attention",
)
_MLP_LAYERS = ("sparse", "dense")
_OLD_LAYER_NAMES = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}
# sglang/srt/configs/internvl.py: InternVLChatConfig chooses the class of its llm_config by the architecture.
_INTERNVL = {
    "LlamaForCausalLM": "llama",
    "InternLM2ForCausalLM": "+InternLM2Config",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3ForCausalLM": "qwen3",
    "GptOssForCausalLM": "gpt_oss",
}


def build(name: str, data: Mapping[str, Any], source: str, *, table: Mapping[str, Any] | None = None) -> LibraryConfig:
    """The object that the class of model type `name` makes of a configuration's content.

    `name` may be GENERIC for a plain PreTrainedConfig. Raises ModelError, with `exception` where the class refuses.
    """
    known = table if table is not None else library.table()
    entry: Mapping[str, Any] = known["classes"].get(name, UNSET)
    if not entry and name != GENERIC:
        raise ModelError(
            f"{source}: model type {name!r} is not one of a language model; its defaults are not known here"
        )
    class_name = entry.get("class", GENERIC)
    config = LibraryConfig(class_name, name if entry else "", entry, source)
    values = dict(entry.get("values", UNSET))
    usual = UNSET if entry.get("untyped") else known["types"]
    types = {key: entry.get("types", UNSET).get(key, usual.get(key, "")) for key in values}
    origin = f"transformers class default of {name.lstrip('+')}"
    config.fill({"architectures": None, "dtype": None} | values, types, origin)
    rules = tuple(entry.get("rules", ())) if entry else ("even",)
    _fields_then_extras(config, dict(data), values, rules, entry, known)
    if "lax" not in rules:
        _check(config, rules)
    return config


def _fields_then_extras(
    config: LibraryConfig,
    data: dict[str, Any],
    values: Mapping[str, Any],
    rules: tuple[str, ...],
    entry: Mapping[str, Any],
    known: Mapping[str, Any],
) -> None:
    source = config.source
    data.pop("model_type", None)
    if "no-rope-parameters" in rules:
        data.pop("rope_parameters", None)
    fixed = entry.get("fixed", ())
    fields = {key for key in data if (key in values and key not in fixed) or key in ("architectures", "dtype")}
    # In the order of the class's fields, so that of several wrong ones the same is complained of.
    for key in [key for key in ("architectures", "dtype", *values) if key in fields]:
        config.give(key, data.pop(key), source)
    _sub_configs(config, data, rules, entry, known)
    _derive(config, rules)
    old_dtype = data.pop("torch_dtype", None)
    if old_dtype is not None and config.raw("dtype") is None:
        config.give("dtype", old_dtype, source)
    dtype = config.raw("dtype")
    if isinstance(dtype, str) and dtype not in DTYPES:
        refuse("AttributeError", f"module 'torch' has no attribute '{dtype}'", source)
    if "raw-rope" not in rules:
        rope.convert(config, data, standard="rope" in rules, nested="nested-rope" in rules)
        if "phi-rope" in rules:
            rope.phi(config)
    for key, value in data.items():
        config.give(key, value, source)
    for key in ("layer_types", "mtp_layer_types"):
        layers = config.raw(key)
        if isinstance(layers, list):
            config.set(
                key, [_OLD_LAYER_NAMES.get(x, x) if isinstance(x, str) else x for x in layers], config.origin(key)
            )


def _sub_configs(
    config: LibraryConfig,
    data: dict[str, Any],
    rules: tuple[str, ...],
    entry: Mapping[str, Any],
    known: Mapping[str, Any],
) -> None:
    """Sub-configurations: an object where the class makes one of the file's dict, or has one by itself."""
    for key, kind in entry.get("subs", UNSET).items():
        given = data.pop(key, None)
        if given is None and kind.startswith("none:"):
            config.set(key, None, config.source)
            continue
        if given is not None and not isinstance(given, dict):
            raise ModelError(f"{config.source}: {key} is not an object; what its class makes of that is not known here")
        name = kind.partition(":")[2] if ":" in kind else kind
        if kind.startswith("auto:") and given and "model_type" in given:
            name = given["model_type"]
            if not isinstance(name, str):
                refuse("KeyError", repr(name), f"{config.source}: {key}")
            if name not in known["classes"]:
                _unknown_type(config, key, name, known)
        if config.model_type == "internvl_chat" and given:
            name = _internvl(config, given)
        if given is None and key in entry.get("unsure", ()):
            raise ModelError(
                f"{config.source}: without {key}; what {config.model_type} takes instead is not known here"
            )
        if "flat" in rules or "flat-pop" in rules:
            wanted = {
                *known["classes"].get(name, UNSET).get("values", UNSET),
                "rope_parameters",
                "rope_scaling",
                "rope_theta",
            }
            flat = {k: data[k] for k in data if k in wanted}
            if "flat-pop" in rules:
                for moved in flat:
                    del data[moved]
            if "dtype" in data or "torch_dtype" in data:
                flat["dtype"] = data.get("torch_dtype", data.get("dtype"))
            given = flat if given is None else given
        made = build(name, given or {}, f"{config.source}: {key}" if given else config.source, table=known)
        if given:
            config.give(key, made, config.source)
        else:
            config.set(key, made, f"transformers class default of {config.model_type}")


def _internvl(config: LibraryConfig, given: dict[str, Any]) -> str:
    architectures = given.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        refuse("TypeError", "'NoneType' object is not subscriptable", config.source)
    if architectures[0] not in _INTERNVL:
        refuse("ValueError", f"Unsupported architecture: {architectures[0]}", config.source)
    return _INTERNVL[architectures[0]]


def _unknown_type(config: LibraryConfig, key: str, name: str, known: Mapping[str, Any]) -> NoReturn:
    if name in known["known"]:
        raise ModelError(f"{config.source}: {key} has model type {name!r}, whose defaults are not known here")
    refuse("KeyError", repr(name), f"{config.source}: {key}")


def _derive(config: LibraryConfig, rules: tuple[str, ...]) -> None:
    """The derived values of a class's `__post_init__`, as far as the table says that it has them."""
    heads, hidden = config.raw("num_attention_heads"), config.raw("hidden_size")
    origin = f"transformers class default of {config.model_type}"
    for rule in rules:
        kind, _, how = rule.partition(":")
        if kind == "kv" and config.raw("num_key_value_heads") is None:
            config.set("num_key_value_heads", heads, origin)
        elif kind == "head" and how and isinstance(config.raw(how), int):
            config.set("head_dim", config.raw(how), origin)
        elif kind == "head" and not how and config.raw("head_dim") is None:
            if isinstance(heads, int) and isinstance(hidden, int):
                if heads == 0 and not config.fixed("head_dim"):
                    refuse("ZeroDivisionError", "integer division or modulo by zero", config.source)
                config.set("head_dim", hidden // heads if heads else None, origin)
        elif kind == "window" and not config.raw("use_sliding_window"):
            config.set("sliding_window", None, origin)
        elif kind == "layers" and config.raw("layer_types") is None:
            config.set("layer_types", _layers(config, how), origin)


def _layers(config: LibraryConfig, how: str) -> list[str] | None:
    count = config.raw("num_hidden_layers")
    if not isinstance(count, int):
        return None
    kind, _, rest = how.partition(":")
    if kind == "window":
        window, first = config.raw("sliding_window"), config.raw("max_window_layers")
        slides = window is not None and isinstance(first, int)
        return ["sliding_attention" if slides and i >= first else "full_attention" for i in range(count)]
    if kind == "all":
        return [rest] * count
    every, common, other = rest.split(":")
    return [common if (i + 1) % int(every) else other for i in range(count)]


def _check(config: LibraryConfig, rules: tuple[str, ...]) -> None:
    """The class's own checks, in the order in which the library makes them (by name)."""
    heads, hidden = config.raw("num_attention_heads"), config.raw("hidden_size")
    if "divisible" in rules and isinstance(heads, int) and isinstance(hidden, int):
        if heads == 0:
            refuse("ZeroDivisionError", "integer modulo by zero", config.source)
        if hidden % heads:
            text = f"The hidden size ({hidden}) is not a multiple of the number of attention heads ({heads})."
            refuse(
                "StrictDataclassClassValidationError", strict.class_error("validate_architecture", text), config.source
            )
    _check_layers(config, mtp="mtp-layers" in rules)
    if "raw-rope" not in rules:
        rope.check(config, even="even" in rules, phi="phi-rope" in rules)
    _check_token_ids(config)


def _check_token_ids(config: LibraryConfig) -> None:
    """`validate_token_ids` only warns, but it compares before it does."""
    vocab_size = config.raw("vocab_size")
    if isinstance(vocab_size, str | list | dict) and config.raw("text_config") is None:
        kind = type(vocab_size).__name__
        text = f"'<' not supported between instances of 'int' and '{kind}'"
        if any(key.endswith("_token_id") and isinstance(config.raw(key), int) for key in config):
            message = strict.class_error("validate_token_ids", text, "TypeError")
            refuse("StrictDataclassClassValidationError", message, config.source)


def _check_layers(config: LibraryConfig, *, mtp: bool) -> None:
    count = config.raw("num_hidden_layers")
    for allowed, key in ((_ATTENTION_LAYERS, "layer_types"), (_MLP_LAYERS, "mlp_layer_types")):
        layers = config.raw(key)
        if layers is None or not config.has("num_hidden_layers"):
            return
        if not isinstance(layers, list):
            raise ModelError(f"{config.source}: {key} is not a list; what the library makes of that is not known here")
        text = ""
        if not all(layer in allowed for layer in layers):
            text = f"The `{key}` entries must be in {allowed} but got {layers}"
        elif count is not None and count != len(layers):
            extra = config.raw("num_nextn_predict_layers") if mtp else 0
            if extra and isinstance(extra, int) and count + extra == len(layers):
                continue
            text = f"`num_hidden_layers` ({count}) must be equal to the number of `{key}` ({len(layers)})"
        if text:
            refuse(
                "StrictDataclassClassValidationError", strict.class_error("validate_layer_type", text), config.source
            )
