"""A model's configuration as SGLang's `ModelConfig` sees it.

Mirrors, for sglang 0.5.23 with transformers 5.19: `utils/hf_transformers/config.py: HfModelConfigParser, get_config`,
`utils/hf_transformers/common.py: get_hf_text_config`, `configs/model_config.py: ModelConfig` and transformers'
`models/auto/configuration_auto.py: AutoConfig`. Nothing here opens a file: `files.LocalModels` hands in what it read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models import autoconfig, building, library
from specwatch.models.base import ModelConfig
from specwatch.models.library import GENERIC, LibraryConfig, refuse

OVERRIDES = "--json-model-override-args"
MAX_DEPTH = 200
"""How deep a config.json may be nested. Real ones stay below 10; the library's own limit is Python's recursion."""

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
_LONGCAT = frozenset({"LongcatCausalLM", "LongcatFlashForCausalLM", "LongcatFlashNgramForCausalLM"})
_PURE_SSM = frozenset({"Mamba2ForCausalLM", "MambaForCausalLM", "FalconMambaForCausalLM"})
# What sglang/srt/configs/model_config.py: ModelConfig._derive_model_shapes reads for classes with latent attention, in
# its order.
_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
_LATENT_KIMI = ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "qk_nope_head_dim")
_MLA: Mapping[str, tuple[str, ...]] = {
    "DeepseekV2ForCausalLM": _LATENT,
    "DeepseekV32ForCausalLM": _LATENT,
    "DeepseekV3ForCausalLM": _LATENT,
    "Glm4MoeLiteForCausalLM": _LATENT,
    "GlmMoeDsaForCausalLM": _LATENT,
    "LongcatFlashForCausalLM": _LATENT,
    "HYV4ForCausalLM": _LATENT,
    "DotsVLMForCausalLM": _LATENT,
    "MistralLarge3ForCausalLM": _LATENT,
    "MistralLarge3ForCausalLMEagle": _LATENT,
    "KimiK25ForConditionalGeneration": _LATENT,
    "Eagle3DeepseekV2ForCausalLM": _LATENT,
    "GigaChat35ForCausalLM": _LATENT,
    "KimiVLForConditionalGeneration": _LATENT_KIMI,
    "KimiLinearForCausalLM": _LATENT_KIMI,
    "KimiK3LinearForCausalLM": _LATENT_KIMI,
    "KimiK3ForConditionalGeneration": _LATENT_KIMI,
}


def parse(content: bytes, named: str) -> dict[str, Any]:
    """The content of a configuration file. `named` is the file as the server names it.

    Refuses as transformers' `configuration_utils.py: PreTrainedConfig._get_config_dict` does; nesting deeper than
    MAX_DEPTH raises ModelError without a verdict.
    """
    try:
        data = json.loads(content.decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        refuse("OSError", f"It looks like the config file at '{named}' is not a valid JSON file.", named)
    except RecursionError:
        raise ModelError(f"{named}: nested too deep to be read; expected a model configuration") from None
    except ValueError as error:
        # Python's limit on the digits of an integer: not a JSONDecodeError, so the library lets it through.
        refuse("ValueError", str(error), named)
    if _deeper_than(data, MAX_DEPTH):
        raise ModelError(f"{named}: nested deeper than {MAX_DEPTH} levels; expected a model configuration")
    kind = type(data).__name__
    if isinstance(data, str | list):
        refuse("AttributeError", f"'{kind}' object has no attribute 'get'", named)
    if not isinstance(data, dict):
        refuse("TypeError", f"argument of type '{kind}' is not iterable", named)
    return data


def model_config(
    data: Mapping[str, Any],
    *,
    path: str,
    source: str,
    local: bool = True,
    overrides: Mapping[str, Value] | None = None,
    trust_remote_code: bool = False,
    registry_data: Callable[[], Mapping[str, Any]] | None = None,
) -> ModelConfig:
    """What SGLang makes of the content of a config.json.

    `path` is the model as the server names it, `source` the file on this host (shown as the origin of values),
    `local` whether `path` is a folder there rather than a repository id. `registry_data` gives the plain config.json
    where another file was read: SGLang reads models of its own classes from that one all the same. Raises ModelError;
    with `exception` where SGLang refuses the model.
    """
    if _mistral_format(path):
        raise ModelError(f"{path}: SGLang reads this name through Mistral's own format, which is not read here")
    top, remote = _top_config(data, path, source, local, trust_remote_code, registry_data)
    _apply(top, overrides or {})
    text = text_config(top)
    return _derived(top, text, path=path, source=source, remote=remote)


def _mistral_format(path: str) -> bool:
    lower = path.lower()
    names = ("mistral-large-3", "mistral-small-4", "leanstral")
    return any(name in lower for name in names) or ("eagle" in lower and "mistral" in lower)


def _top_config(
    data: Mapping[str, Any],
    path: str,
    source: str,
    local: bool,
    trust: bool,
    registry_data: Callable[[], Mapping[str, Any]] | None,
) -> tuple[LibraryConfig, bool]:
    """The configuration object before overrides, and whether the repository's own code would have built it."""
    if "configuration_files" in data:
        raise ModelError(f"{source}: names other configuration files by version, which are not followed here")
    architectures = data.get("architectures") or []
    if not isinstance(architectures, list | str):
        raise ModelError(
            f"{source}: architectures is {architectures!r}; what the library makes of that is not known here"
        )
    if any(name in _LONGCAT for name in architectures if isinstance(name, str)):
        top = building.build("longcat_flash", data, source)
        top.set("architectures", ["LongcatFlashForCausalLM"], source)
        return top, False
    raw_mamba = _raw_mamba(data, source)
    if raw_mamba is not None:
        return raw_mamba, False
    name, remote = autoconfig.class_of(data, path, source, local, trust)
    entry = library.table()["classes"].get(name, {})
    if "first" in entry:
        # Read once with transformers' own class, which may refuse what sglang's would take.
        text_config(building.build(entry["first"], data, source))
    if remote:
        top = building.build(name if name in library.table()["classes"] else GENERIC, data, source)
    else:
        top = building.build(name, data, source)
    _auto_map_specials(data, source)
    _first_architecture(top)
    inner = text_config(top)
    if entry.get("registry"):
        # read a second time with sglang's own class, always from config.json and as it stands there
        top = building.build(name, registry_data() if registry_data is not None else data, source)
        if name == "internvl_chat" and (llm := top.sub("llm_config")) is not None:
            _flatten(llm, top)
        return top, remote
    if inner is not top:
        _flatten(inner, top)
    return top, remote


def _auto_map_specials(data: Mapping[str, Any], source: str) -> None:
    auto_map = data.get("auto_map")
    if isinstance(auto_map, dict) and str(auto_map.get("AutoModel", "")).startswith("modeling_deepseekocr"):
        raise ModelError(f"{source}: SGLang rebuilds the configuration of DeepSeek-OCR in a way not mirrored here")


def _raw_mamba(data: Mapping[str, Any], source: str) -> LibraryConfig | None:
    """The original state-spaces checkpoints: sglang's `config.py: _try_load_raw_mamba_config`."""
    if data.get("model_type") or data.get("architectures") or "d_model" not in data or "ssm_cfg" not in data:
        return None
    pad, vocab = data.get("pad_vocab_size_multiple", 1), data.get("vocab_size", 50280)
    if not isinstance(pad, int) or not isinstance(vocab, int) or "n_layer" not in data:
        raise ModelError(f"{source}: not the configuration of a state-spaces Mamba model that can be read here")
    if pad > 1:
        vocab = (vocab + pad - 1) // pad * pad
    values = {
        "vocab_size": vocab,
        "hidden_size": data["d_model"],
        "num_hidden_layers": data["n_layer"],
        "architectures": ["MambaForCausalLM"],
    }
    return building.build("mamba", values, source)


def _flatten(inner: LibraryConfig, top: LibraryConfig) -> None:
    """Copy the text model's attributes to the top where that has none (HfModelConfigParser.parse)."""
    for key in inner:
        value = inner.raw(key)
        if value is not None and not top.has(key):
            top.set(key, value, inner.origin(key))


def _apply(top: LibraryConfig, overrides: Mapping[str, Value]) -> None:
    """`--json-model-override-args`, as `utils/hf_transformers/config.py: get_config` applies it."""
    for key, value in overrides.items():
        current: Any = top.sub(key) or top.raw(key)
        if isinstance(value, dict) and isinstance(current, LibraryConfig):
            for inner, item in value.items():
                current.give(inner, item, OVERRIDES)
        elif isinstance(value, dict) and key in ("rope_scaling", "rope_parameters") and isinstance(current, dict):
            top.give(key, {**current, **value}, OVERRIDES)
        else:
            top.give(key, value, OVERRIDES)


def _first_architecture(top: LibraryConfig) -> str | None:
    """`architectures[0]`, with Python's own complaint where there is none."""
    architectures = top.raw("architectures")
    if architectures is None:
        return None
    if not isinstance(architectures, list | str):
        raise ModelError(f"{top.source}: architectures is {architectures!r}, expected a list of names")
    if not architectures:
        kind = "list" if isinstance(architectures, list) else "string"
        refuse("IndexError", f"{kind} index out of range", top.source)
    first = architectures[0]
    if not isinstance(first, str):
        refuse("AttributeError", f"'{type(first).__name__}' object has no attribute 'startswith'", top.source)
    return first


def text_config(top: LibraryConfig) -> LibraryConfig:
    """The part that describes the language model; `top` itself for a plain text model.

    Mirrors sglang's `utils/hf_transformers/common.py: get_hf_text_config`: dicts under the usual names become objects.
    """
    name = _first_architecture(top)
    if name is not None and name.startswith("Llava") and name.endswith("ForCausalLM"):
        top.set("dtype", "float16", "sglang, for Llava")
        return top
    dtype = top.raw("dtype")
    for key in _TEXT_KEYS:
        value = top.raw(key)
        if isinstance(value, dict):
            top.set(key, building.build(GENERIC, value, f"{top.source}: {key}"), top.origin(key))
        inner = top.sub(key)
        if inner is not None and dtype is not None and inner.raw("dtype") is None:
            inner.set("dtype", dtype, top.origin("dtype"))
    inner = _language_part(top)
    if inner is None:
        return top
    for key in ("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"):
        if top.has(key) and not inner.has(key):
            inner.set(key, top.raw(key), top.origin(key))
        elif inner.has(key) and not top.has(key):
            top.set(key, inner.raw(key), inner.origin(key))
    return inner


def _language_part(top: LibraryConfig) -> LibraryConfig | None:
    if top.has("thinker_config"):
        thinker = top.sub("thinker_config")
        if thinker is None or not thinker.has("text_config"):
            return thinker
        inner = thinker.sub("text_config")
        if inner is None:
            kind = type(thinker.raw("text_config")).__name__
            refuse("AttributeError", f"'{kind}' object has no attribute 'dtype'", top.source)
        inner.set("dtype", thinker.raw("dtype"), thinker.origin("dtype"))
        return inner
    for key in ("llm_config", "language_config", "text_config"):
        if top.has(key):
            inner = top.sub(key)
            if key != "language_config" and (inner is None or not inner.has("num_attention_heads")):
                refuse("AssertionError", "", f"{top.source}: {key} has no num_attention_heads")
            return inner
    return None


def _derived(top: LibraryConfig, text: LibraryConfig, *, path: str, source: str, remote: bool) -> ModelConfig:
    """The values that `ModelConfig.__init__` derives, in its order, as far as they can stop it."""
    architectures = top.raw("architectures")
    if architectures is None:
        refuse("TypeError", "'NoneType' object is not subscriptable", f"{source}: no architectures")
    _sure_text(top, text)
    context = text.context()
    names = (architectures,) if isinstance(architectures, str) else tuple(str(name) for name in architectures)
    _shapes(text, names)
    vocab_size = text.get("vocab_size")
    if names[:1] == ("GlmImageForConditionalGeneration",):
        _need(text, "vision_vocab_size")
        vocab_size = text.get("vision_vocab_size")
    if remote and not text.origin("vocab_size").startswith(source):
        raise ModelError(f"{source}: vocab_size is left to the repository's own code, which is never run here")
    if vocab_size is not None and (not isinstance(vocab_size, int) or isinstance(vocab_size, bool)):
        raise ModelError(f"{source}: vocab_size is {vocab_size!r}, expected a number")
    model_type = top.raw("model_type")
    return ModelConfig(
        path=path,
        source=source,
        top=top,
        text=text,
        architectures=names,
        model_type=model_type if isinstance(model_type, str) else top.model_type,
        vocab_size=vocab_size,
        context_length=context,
        remote_code=remote,
    )


def _sure_text(top: LibraryConfig, text: LibraryConfig) -> None:
    if text is not top:
        for key in _TEXT_KEYS:
            if top.sub(key) is text:
                top.get(key)


def _shapes(text: LibraryConfig, architectures: tuple[str, ...]) -> None:
    if text.raw("head_dim") is None and not _PURE_SSM.intersection(architectures):
        hidden, heads = _need(text, "hidden_size"), _need(text, "num_attention_heads")
        if heads == 0 and isinstance(hidden, int):
            refuse("ZeroDivisionError", "integer division or modulo by zero", text.source)
    for key in next((_MLA[name] for name in _MLA if name in architectures), ()):
        _need(text, key)
    for key in ("hidden_size", "num_hidden_layers", "vocab_size"):
        _need(text, key)


def _need(config: LibraryConfig, key: str) -> Any:
    if not config.has(key):
        refuse("AttributeError", f"'{config.class_name}' object has no attribute '{key}'", config.source)
    return config.raw(key)


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = (
            [
                inner
                for item in level
                for inner in (item.values() if isinstance(item, dict) else item)
                if isinstance(inner, dict | list)
            ]
            if level and isinstance(level[0], dict | list)
            else []
        )
        if not level:
            return False
    return True
