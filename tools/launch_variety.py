"""What `tools/compare_real.py` varies beside speculation: any flag of the release, and how words are typed."""

from __future__ import annotations

import json
import random
from pathlib import Path

from specwatch.launch.flags import Flag, table

RELEASE = "0.5.23"
_OWN = {"help", "config", "model_path", "port", "speculative_algorithm", "speculative_draft_model_path"}
_MACHINE = {
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "enable_mis", "mamba_backend"),
    *("speculative_draft_attention_backend", "quantization", "kv_cache_dtype", "moe_a2a_backend", "moe_runner_backend"),
    *("mm_feature_transport", "enable_http2", "enable_amd_monokernel", "enable_nvidia_megakernel", "watermark_config"),
    *("enable_deepseek_v4_fp4_indexer", "tokenizer_path", "enable_expert_pack", "lora_paths", "load_publish_endpoint"),
}
"""What is answered by the machine, its GPU or its files: a machine without a GPU says nothing about others."""
_VALUES = {
    "int": ("0", "1", "2", "4", "-1", "16", "4096"),
    "float": ("0", "0.5", "1", "-1", "2"),
    "loads": ("{}", "1", "[]", '{"a": 1}'),
    "str": ("x", "", "auto", "none", "1"),
}
_ODD = ("x", "", "1.0", "1e3", "+4", "8k", "null", "true")


def any_flag(dice: random.Random) -> list[str]:
    """One flag of the release that nobody thought of, with a value of its kind, or rarely of another."""
    flags = [
        flag for flag in table(RELEASE).flags if flag.dest not in _OWN | _MACHINE and flag.action in ("store", "true")
    ]
    flag = dice.choice(flags)
    name = dice.choice(flag.names)
    if flag.action == "true":
        return [name]
    value = dice.choice(_ODD) if dice.random() < 0.05 else _value(dice, flag)
    return [f"{name}={value}"] if value.startswith("-") or not value else [name, value]


def _value(dice: random.Random, flag: Flag) -> str:
    if flag.choices:
        return str(dice.choice(flag.choices))
    return dice.choice(_VALUES.get(flag.type or "str", _VALUES["str"]))


def respelled(dice: random.Random, words: list[str]) -> list[str]:
    """The same words as people type them: glued by `=`, abbreviated, given twice, rarely with `_` in the flag."""
    typed: list[str] = []
    for index, word in enumerate(words):
        flag = word.startswith("--") and "=" not in word
        if flag and dice.random() < 0.15 and len(word) > 8:
            word = word[: dice.randrange(7, len(word))]
        elif flag and dice.random() < 0.03:
            word = "--" + word[2:].replace("-", "_")
        before = words[index - 1] if index else ""
        glue = before.startswith("--") and "=" not in before and not word.startswith("-") and dice.random() < 0.15
        if glue and typed:
            typed[-1] += f"={word}"
        else:
            typed.append(word)
    if dice.random() < 0.2 and len(words) > 4:
        at = dice.randrange(len(words) - 1)
        if words[at].startswith("--") and not words[at + 1].startswith("--"):
            typed += words[at : at + 2]
    return typed


def in_a_file(dice: random.Random, words: list[str], root: Path, name: str) -> list[str]:
    """Some of the flags moved into a YAML file, for `--config`."""
    kept: list[str] = []
    lines: list[str] = []
    index = 0
    while index < len(words):
        end = index + 1
        while end < len(words) and not words[end].startswith("--"):
            end += 1
        flag, values = words[index], words[index + 1 : end]
        movable = flag.startswith("--") and "=" not in flag and len(values) <= 1
        if movable and dice.random() < 0.5:
            value = dice.choice((values[0], json.dumps(values[0]))) if values and values[0] else "true"
            lines.append(f"{flag[2:]}: {value}")
        else:
            kept += [flag, *values]
        index = end
    file = root / "yaml" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    place = dice.choice((0, len(kept)))
    return [*kept[:place], "--config", str(file.relative_to(root)), *kept[place:]]
