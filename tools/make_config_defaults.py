#!/usr/bin/env python3
"""Write specwatch/models/config_defaults.json: what the library fills into a model's config.json.

    PYTHONPATH=.:STUBS python tools/make_config_defaults.py [--check]

Needs torch (CPU), transformers 5.19 and sglang 0.5.23 importable (STUBS: whatever makes sglang import without a
GPU). Each class of transformers' CONFIG_MAPPING, in which sglang has registered its own, is instantiated and asked;
then specwatch's own reading is compared with the class on a set of odd configurations, and every key on which the two
disagree is marked `unsure`, so that specwatch says "could not tell" instead of a guess. `--check` only compares.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import importlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

OUT = Path(__file__).resolve().parent.parent / "specwatch" / "models" / "config_defaults.json"

KEYS = tuple(
    """
vocab_size padded_vocab_size vision_vocab_size hidden_size intermediate_size moe_intermediate_size num_hidden_layers
num_attention_heads num_key_value_heads head_dim v_head_dim swa_head_dim n_inner ffn_dim
n_embd n_layer n_head n_positions n_ctx num_heads num_layers d_model
max_sequence_length seq_length max_seq_len model_max_length max_position_embeddings
sliding_window use_sliding_window max_window_layers layer_types mlp_layer_types
tie_word_embeddings hidden_act hidden_activation activation_function
kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim num_experts num_local_experts n_routed_experts
num_experts_per_tok num_nextn_predict_layers mtp_num_hidden_layers
rope_parameters original_max_position_embeddings attention_chunk_size block_size num_loops
partial_rotary_factor n_head_kv num_kv_heads
multi_query multi_query_group_num num_attention_groups new_decoder_architecture
mask_token_id draft_vocab_size target_hidden_size
""".split()  # noqa: SIM905 (a table to read)
)

SUBS = ("text_config", "llm_config", "language_config", "thinker_config", "talker_config")
LAYERS = {"num_hidden_layers": 5}
SHAPE: dict[str, Any] = {
    "hidden_size": 96,
    "num_attention_heads": 6,
    "vocab_size": 777,
    "max_position_embeddings": 1234,
}
PROBES: list[dict[str, Any]] = [
    {},
    SHAPE,
    SHAPE | LAYERS,
    SHAPE | {"num_key_value_heads": 3},
    SHAPE | {"num_key_value_heads": None, "head_dim": None},
    SHAPE | {"head_dim": 24},
    SHAPE | {"tie_word_embeddings": True, "torch_dtype": "bfloat16"},
    SHAPE | LAYERS | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2},
    SHAPE | LAYERS | {"sliding_window": 64},
    SHAPE | LAYERS | {"layer_types": ["full_attention"] * 5},
    SHAPE | LAYERS | {"layer_types": ["full_attention"] * 4},
    SHAPE | {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 5000.0},
    SHAPE | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rope_theta": 5000.0},
    SHAPE | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 300}},
    SHAPE | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    SHAPE | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "rope_theta": 5000.0},
    SHAPE | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}},
    SHAPE | {"head_dim": 17},
    {"vocab_size": None},
    {"vocab_size": "777"},
    {"hidden_size": 100, "num_attention_heads": 7},
    {"max_position_embeddings": 2048.0},
    {"seq_length": 4096, "model_max_length": 512},
]
SUB_PROBES: list[dict[str, Any]] = [
    {},
    {"text_config": SHAPE},
    {"text_config": SHAPE | LAYERS | {"tie_word_embeddings": True}},
    SHAPE,
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--verbose", action="store_true", help="each disagreement")
    return parser.parse_args()


def mapping() -> dict[str, Any]:
    """model_type → class, as sglang sees it."""
    sglang_common()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found = {}
    for name in CONFIG_MAPPING.keys():  # noqa: SIM118 (lazy mapping)
        try:
            found[name] = CONFIG_MAPPING[name]
        except Exception as error:
            print(f"not importable: {name}: {error!r}"[:200], file=sys.stderr)
    # sglang reads a configuration of these types a second time, with its own class.
    for name, own in sglang_common()._CONFIG_REGISTRY.items():
        if found.get(name) is not own and name in found:
            found[f"+first-{name}"] = found[name]
        found[name] = own
    return found


def registry() -> set[str]:
    return set(sglang_common()._CONFIG_REGISTRY)


def sglang_common() -> Any:
    """sglang's module of helpers; importing it registers sglang's own classes with transformers."""
    return importlib.import_module("sglang.srt.utils.hf_transformers.common")


def plain(value: Any) -> Any:
    """A value as JSON has it, or a marker for what JSON cannot hold."""
    if isinstance(value, tuple):
        value = list(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list) and len(value) <= 200:
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return f"<{type(value).__name__}>"


def annotation(cls: Any, name: str) -> str:
    """The annotation against which the class checks a field, empty when it does not."""
    checks = getattr(cls, "__validators__", {}).get(name)
    if not checks:
        return ""
    field = next(
        (c.cell_contents for c in checks[0].__closure__ or () if isinstance(c.cell_contents, dataclasses.Field)), None
    )
    if field is None or isinstance(field.type, str):
        return ""
    kind = field.type
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return kind.__name__
    text = str(kind)
    text = text.replace("transformers.modeling_rope_utils.RopeParameters", "RopeParameters").replace(
        "typing.Any", "Any"
    )
    return text if "Optional" not in text and "Literal" not in text else ""


def attribute(config: Any, key: str) -> tuple[bool, Any]:
    try:
        return True, plain(getattr(config, key))
    except AttributeError:
        return False, None
    except Exception as error:
        return False, f"!{error}"


def describe(name: str, cls: Any, classes: dict[str, Any]) -> dict[str, Any] | None:
    """The raw entry of one class: values of an untouched instance, types, aliases, sub-configurations."""
    try:
        untouched = cls()
    except Exception as error:
        print(f"no default instance: {name}: {error!r}"[:160], file=sys.stderr)
        return None
    entry: dict[str, Any] = {"class": cls.__name__}
    aliases = {k: v for k, v in cls.attribute_map.items() if k in KEYS or v in KEYS}
    values = {}
    for key in dict.fromkeys([*KEYS, *aliases.values()]):
        has, value = attribute(untouched, key)
        if key not in KEYS and isinstance(value, list):
            entry["odd"] = entry["unsure"] = ["layer_types", key]
            continue
        if has and key not in aliases and not (isinstance(value, str) and value.startswith("<")):
            values[key] = value
    order = [field.name for field in dataclasses.fields(cls)]
    values = dict(sorted(values.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
    if (dtype := getattr(untouched, "dtype", None)) is not None:
        values["dtype"] = str(dtype).removeprefix("torch.")
    entry["values"] = values
    entry["types"] = {key: kind for key in values if (kind := annotation(cls, key))}
    if aliases:
        entry["map"] = aliases
    if isinstance(values.get("rope_parameters"), dict) and "factor" not in values["rope_parameters"]:
        values["rope_parameters"] = None
    subs = {}
    for sub in SUBS:
        has, _ = attribute(untouched, sub)
        inner = getattr(untouched, sub, None) if has else None
        kind = cls.sub_configs.get(sub)
        if inner is not None and hasattr(inner, "model_type"):
            auto = kind is not None and kind.__name__ == "AutoConfig"
            subs[sub] = ("auto:" if auto else "") + type_name(type(inner), classes)
        elif kind is not None and kind.__name__ != "AutoConfig":
            subs[sub] = "none:" + type_name(kind, classes)
    if subs:
        entry["subs"] = subs
    entry["module"] = cls.__module__.split(".")[0]
    if name in registry():
        entry["registry"] = True
        if f"+first-{name}" in classes:
            entry["first"] = f"+first-{name}"
    fixed = [key for key in values if isinstance(found := getattr(cls, key, None), property) and found.fset is None]
    fixed += [key for key in aliases.values() if key not in values and isinstance(getattr(cls, key, None), property)]
    if fixed:
        entry["fixed"] = sorted(set(fixed))
    return entry


def type_name(cls: Any, classes: dict[str, Any]) -> str:
    for name, known in classes.items():
        if known is cls:
            return name
    classes[f"+{cls.__name__}"] = cls
    return f"+{cls.__name__}"


def build(cls: Any, values: dict[str, Any]) -> Any:
    return cls(**copy.deepcopy(values))


def rules_of(cls: Any, entry: dict[str, Any]) -> list[str]:
    """Which of the usual ways to derive one key from another the class has, found out by trying."""
    rules = []

    def tried(values: dict[str, Any], key: str) -> Any:
        try:
            return attribute(build(cls, values), key)[1]
        except Exception:
            return "!"

    values = entry["values"]
    shape = {"hidden_size": 96, "num_attention_heads": 6}
    for heads in (6, 3):
        trial = {"hidden_size": 96, "num_attention_heads": heads}
        if (
            "num_key_value_heads" in values
            and tried(trial | {"num_key_value_heads": None}, "num_key_value_heads") != heads
        ):
            break
    else:
        if "num_key_value_heads" in values:
            rules.append("kv")
            if (
                tried(shape, "num_key_value_heads") == 6
                and tried(shape | {"num_attention_heads": 3}, "num_key_value_heads") == 3
            ):
                values["num_key_value_heads"] = None
    if "head_dim" in values:
        follows = tried(shape, "head_dim") == 16 and tried(shape | {"num_attention_heads": 3}, "head_dim") == 32
        explicit = tried(shape | {"head_dim": None}, "head_dim") == 16
        if follows or explicit:
            rules.append("head")
            if follows:
                values["head_dim"] = None
        elif tried({"qk_rope_head_dim": 48}, "head_dim") == 48:
            rules.append("head:qk_rope_head_dim")
    if (
        "sliding_window" in values
        and tried({"sliding_window": 64, "use_sliding_window": False}, "sliding_window") is None
        and tried({"sliding_window": 64, "use_sliding_window": True}, "sliding_window") == 64
    ):
        rules.append("window")
        values["sliding_window"] = class_default(cls, "sliding_window", values["sliding_window"])
    if isinstance(values.get("layer_types"), list):
        rule = layer_rule(tried)
        if rule:
            rules.append(rule)
        else:
            entry.setdefault("unsure", []).append("layer_types")
        values["layer_types"] = None
    if isinstance(values.get("mlp_layer_types"), list):
        entry.setdefault("unsure", []).append("mlp_layer_types")
        values["mlp_layer_types"] = None
    if "text_config" in entry.get("subs", {}):
        try:
            flat = build(cls, {"vocab_size": 777})
            if flat.text_config.vocab_size == 777:
                rules.append("flat" if getattr(flat, "vocab_size", None) == 777 else "flat-pop")
        except Exception as error:
            print(f"flat? {entry['class']}: {error!r}"[:160], file=sys.stderr)
    with contextlib.suppress(Exception):
        parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
        if context(cls, SHAPE | {"rope_parameters": parameters}) == context(cls, SHAPE) == 1234:
            rules.append("no-rope-parameters")
    try:
        parameters = {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 1.0}
        shape = {"head_dim": 17, "hidden_size": 68, "num_attention_heads": 4}
        build(cls, shape | {"rope_scaling": parameters, "rope_theta": 5000.0})
    except Exception as error:
        if "even rotary dimension" in str(error):
            rules.append("even")
    try:
        build(cls, SHAPE | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 5000.0})
    except Exception as error:
        if "must be one of ['longrope']" in str(error):
            rules.append("phi-rope")
    message = "is not a multiple of the number of attention heads"
    try:
        build(cls, {"hidden_size": 100, "num_attention_heads": 7})
    except Exception as error:
        if message in str(error).replace("attention heads", "attention heads") and "validate_architecture" in str(
            error
        ):
            rules.append("divisible")
    scaling = {"rope_type": "yarn", "factor": 4.0}
    if tried({"rope_scaling": dict(scaling), "rope_theta": 5000.0}, "rope_scaling") == scaling:
        rules.append("raw-rope")
    elif hasattr(cls, "rope_parameters") or "rope_parameters" in {f.name for f in dataclasses.fields(cls)}:
        rules.append("rope")
    try:
        build(cls, {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 3, "num_nextn_predict_layers": 1})
    except Exception:
        pass
    else:
        try:
            build(cls, {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 3})
        except Exception:
            rules.append("mtp-layers")
    return rules


def class_default(cls: Any, key: str, otherwise: Any) -> Any:
    for field in dataclasses.fields(cls):
        if field.name == key and field.default is not dataclasses.MISSING:
            return plain(field.default)
    return otherwise


def layer_rule(tried: Any) -> str:
    """How layer_types comes about when the file does not say."""
    windowed = {"num_hidden_layers": 7, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}
    full, sliding = "full_attention", "sliding_attention"
    if (
        tried(windowed, "layer_types") == [full] * 2 + [sliding] * 5
        and tried({"num_hidden_layers": 7}, "layer_types") == [full] * 7
    ):
        return "layers:window"
    long = tried({"num_hidden_layers": 25}, "layer_types")
    if not isinstance(long, list) or len(long) != 25:
        return ""
    if len(set(long)) == 1:
        return f"layers:all:{long[0]}"
    for every in range(2, 13):
        for other in sorted(set(long)):
            common = next(item for item in long if item != other)
            if long == [common if (i + 1) % every else other for i in range(25)]:
                return f"layers:every:{every}:{common}:{other}"
    return ""


def exceptions(name: str, cls: Any, table: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the class accepts what our checks would refuse, and whether its context ignores a rope factor."""
    from specwatch.errors import ModelError
    from specwatch.models import building

    lax = False
    for probe in PROBES:
        try:
            build(cls, probe)
        except Exception:
            continue
        try:
            building.build(name, copy.deepcopy(probe), "probe", table=table)
        except ModelError as error:
            lax = lax or error.exception is not None
    linear = context(cls, SHAPE | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "rope_theta": 5000.0})
    return lax, isinstance(linear, int) and linear == context(cls, SHAPE) != 2048


def context(cls: Any, values: dict[str, Any]) -> int | str:
    try:
        return int(sglang_common().get_context_length(build(cls, values)))
    except Exception as error:
        return repr(error)


def compare(name: str, cls: Any, table: dict[str, Any], verbose: bool) -> tuple[set[str], int]:
    """The keys on which specwatch reads a configuration of this class otherwise than the class does."""
    from specwatch.errors import ModelError
    from specwatch.models import building

    wrong: set[str] = set()
    failures = 0
    for probe in PROBES + (SUB_PROBES if "subs" in table["classes"][name] else []):
        real: Any = None
        said: tuple[str, str] | None = None
        try:
            real = build(cls, probe)
        except Exception as error:
            said = (type(error).__name__, str(error))
        ours: Any = None
        ours_said: tuple[str, str] | None = None
        try:
            ours = building.build(name, copy.deepcopy(probe), "probe", table=table)
        except ModelError as error:
            ours_said = (error.exception or "?", error.message or str(error))
        if said != ours_said:
            failures += 1
            if verbose:
                print(f"{name} {probe}: real {said} ours {ours_said}")
            continue
        if real is None or ours is None:
            continue
        for key in [*KEYS, "dtype", "rope_scaling"]:
            has, value = attribute(real, key)
            if key == "dtype":
                value = str(getattr(real, "dtype", None)).removeprefix("torch.")
                value = None if value == "None" else value
            if isinstance(value, str) and value.startswith("<"):
                continue
            if unsettled(table["classes"][name], key, probe):
                continue
            try:
                same = ours.has(key) == has and (not has or rope(ours.get(key), key) == rope(value, key))
            except ModelError:
                continue
            if not same:
                wrong.add(("odd " if given_by_file(key, probe) else "") + key)
                if verbose:
                    print(f"{name}.{key} {probe}: real {has} {value} ours {ours.raw(key)}"[:400])
        derived = context(cls, probe)
        if isinstance(derived, int) and ours.plain_context() != derived:
            wrong.add("odd context")
            if verbose:
                print(f"{name}.context {probe}: real {derived} ours {ours.plain_context()}")
        for sub in SUBS:
            inner, mine = getattr(real, sub, None), ours.sub(sub)
            if (inner is None or isinstance(inner, dict)) and mine is None:
                continue
            if (
                mine is None
                or inner is None
                or any(
                    attribute(inner, key)[1] != mine.raw(key)
                    for key in (
                        "vocab_size",
                        "hidden_size",
                        "num_hidden_layers",
                        "num_attention_heads",
                        "max_position_embeddings",
                    )
                )
            ):
                wrong.add(f"odd {sub}" if sub in probe else sub)
                if verbose:
                    print(f"{name}.{sub} {probe}: differs {type(inner)} {mine}")
    return wrong, failures


def unsettled(entry: dict[str, Any], key: str, probe: dict[str, Any]) -> bool:
    return key in entry.get("unsure", ()) and key not in probe


def given_by_file(key: str, probe: dict[str, Any]) -> bool:
    return key in probe or (key in ("rope_parameters", "rope_scaling") and "rope_scaling" in probe)


def rope(value: Any, key: str) -> Any:
    """Rope parameters without what no check asks for."""
    if key in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in ("rope_theta", "partial_rotary_factor")}
        return value or None
    return value


def language(entries: dict[str, Any]) -> set[str]:
    """The classes of language models, and of the parts of them that matter here."""
    from transformers.models.auto import modeling_auto as auto

    seeds = {name for name, entry in entries.items() if entry and entry["module"] == "sglang"}
    seeds |= {entry["first"] for entry in entries.values() if "first" in entry}
    for mapping_of in (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    ):
        seeds |= set(mapping_of)
    found: set[str] = set()
    while seeds:
        name = seeds.pop()
        entry = entries.get(name)
        if entry and name not in found and ("vocab_size" in entry["values"] or entry.get("subs")):
            found.add(name)
            seeds |= {kind.rpartition(":")[2] for kind in entry.get("subs", {}).values()}
    return found


def main() -> int:
    given = arguments()
    classes = mapping()
    names = list(classes)
    entries: dict[str, Any] = {}
    while pending := [name for name in classes if name not in entries]:
        for name in pending:
            described = describe(name, classes[name], classes)
            entries[name] = described if described is not None else {}
    wanted = language(entries)
    kept = {name: entry for name, entry in entries.items() if name in wanted}
    for name, entry in kept.items():
        entry["rules"] = rules_of(classes[name], entry)
    types: dict[str, str] = {}
    for key in KEYS:
        kinds = [entry["types"][key] for entry in kept.values() if key in entry["types"]]
        if kinds:
            types[key] = max(sorted(set(kinds)), key=kinds.count)
    for entry in kept.values():
        kinds = entry["types"]
        entry["types"] = {
            key: kinds.get(key, "") for key in entry["values"] if kinds.get(key, "") != types.get(key, "")
        }
        if not kinds:
            entry["untyped"], entry["types"] = True, {}
        if entry.pop("module") != "transformers":
            entry["own"] = True
        for optional in ("types", "rules"):
            if not entry[optional]:
                del entry[optional]
    table = {
        "about": "What the library fills into a config.json. Written by tools/make_config_defaults.py, not by hand.",
        "versions": versions(),
        "types": types,
        "known": sorted(name for name in names if name not in kept),
        "classes": dict(sorted(kept.items())),
    }
    unsure = failures = 0
    for name, entry in kept.items():
        lax, flat_rope = exceptions(name, classes[name], table)
        extra = [rule for rule, holds in (("lax", lax), ("nested-rope", flat_rope)) if holds]
        if extra:
            entry["rules"] = [*entry.get("rules", ()), *extra]
    for name, entry in kept.items():
        wrong, failed = compare(name, classes[name], table, given.verbose)
        failures += bool(failed)
        unsure += bool(wrong)
        odd = {key.removeprefix("odd ") for key in wrong if key.startswith("odd ")} | set(entry.get("odd", ()))
        unsure_keys = sorted({*entry.get("unsure", ()), *(key for key in wrong if not key.startswith("odd "))})
        if unsure_keys:
            entry["unsure"] = unsure_keys
        if odd:
            entry["odd"] = sorted({"rope_parameters" if key == "rope_scaling" else key for key in odd})
    print(
        f"{len(names)} types, {len(kept)} described, {unsure} with unsure keys, {failures} refuse otherwise in a probe",
        file=sys.stderr,
    )
    if not given.check:
        OUT.write_text(render(table))
        print(f"{OUT}: {OUT.stat().st_size} bytes", file=sys.stderr)
    return 0


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("transformers", "sglang")}


def render(table: dict[str, Any]) -> str:
    """One line a class, so that a new release shows up as a readable difference."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items() if key != "classes"]
    classes = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in table["classes"].items()
    )
    return "{\n" + ",\n".join(lines) + ',\n"classes": {\n' + classes + "\n}\n}\n"


if __name__ == "__main__":
    sys.exit(main())
