"""Merges `--config FILE` into the arguments as sglang does it, with the differences between releases.

Mirrors sglang/srt/utils/server_args_config_parser.py: ConfigArgumentMerger. Only the two-token form is read there, and
the file's arguments come first, so that the command line wins.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from specwatch.errors import LaunchError
from specwatch.launch.convert import Refusal
from specwatch.launch.flags import FlagTable, version_key

MAX_NODES = 100_000
"""More values than this in a file are an attack by aliases, not a configuration."""

_CLASSES = {"optional": "BooleanOptionalAction", "lora": "LoRAPathAction", "ignored": "DeprecatedAction"}


def config_path(tokens: Sequence[str]) -> str | None:
    """The file of `--config FILE`, None without one. Raises Refusal as sglang does for two or for a missing name."""
    places = [i for i, word in enumerate(tokens) if word == "--config"]
    if not places:
        return None
    if len(places) > 1:
        raise Refusal("ValueError: Multiple config files specified! Only one allowed.")
    if places[0] == len(tokens) - 1:
        raise Refusal("ValueError: No config file specified after --config flag!")
    return tokens[places[0] + 1]


def config_arguments(table: FlagTable, path: str, read_file: Callable[[str], str] | None) -> list[str]:
    """The arguments that a configuration file stands for.

    Raises LaunchError where the file cannot be read here, and Refusal where sglang would refuse it.
    """
    suffix = PurePosixPath(path).suffix
    if suffix.lower() not in (".yaml", ".yml"):
        raise Refusal(f"ValueError: Config file must be YAML format, got: {suffix}")
    if read_file is None:
        raise LaunchError(f"the launch takes arguments from {path}, which was not read; give the file or its arguments")
    try:
        text = read_file(path)
    except FileNotFoundError:
        raise LaunchError(f"{path}: no such file here, and the launch takes arguments from it (--config)") from None
    except (OSError, UnicodeError) as error:
        raise LaunchError(
            f"{path}: the launch takes arguments from it (--config), and it cannot be read: {error}"
        ) from None
    return _arguments(table, _load(path, text))


class _Named(io.StringIO):
    """A text with the name that PyYAML quotes in its errors."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


def _load(path: str, text: str) -> dict[Any, Any]:
    import yaml

    try:
        data = yaml.safe_load(_Named(text, path))
    except yaml.YAMLError as error:
        kind = type(error)
        raise Refusal(f"{kind.__module__}.{kind.__qualname__}: {error}") from None
    except (RecursionError, ValueError) as error:
        raise LaunchError(f"{path}: expected a small YAML mapping of arguments, got {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise Refusal("ValueError: Config file must contain a dictionary at root level")
    _bounded(path, data)
    return data


def _bounded(path: str, data: object) -> None:
    """Refuse what aliases would blow up when it is written out."""
    todo, seen = [data], 0
    while todo:
        seen += 1
        if seen > MAX_NODES:
            raise LaunchError(f"{path}: more than {MAX_NODES} values; expected a small mapping of arguments")
        node = todo.pop()
        if isinstance(node, dict):
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)


def _arguments(table: FlagTable, data: dict[Any, Any]) -> list[str]:
    key = version_key(table.release)
    bare, unsupported = _kinds(table, all_spellings=key >= (0, 5, 19))
    out: list[str] = []
    for name, value in data.items():
        if not isinstance(name, str):
            raise Refusal(f"AttributeError: '{type(name).__name__}' object has no attribute 'replace'")
        plain = name.replace("-", "_")
        if key >= (0, 5, 10) and plain in unsupported:
            raise Refusal(f"ValueError: Unsupported config option '{plain}' with action '{unsupported[plain]}'")
        if isinstance(value, bool):
            if plain in bare or key < (0, 5, 10):  # before 0.5.10 every true became a bare flag
                out += [f"--{name}"] if value else []
            else:
                out += [f"--{name}", str(value).lower()]
        elif isinstance(value, list):
            out += [f"--{name}", *map(str, value)] if value else []
        elif isinstance(value, dict) and key >= (0, 5, 14):
            out += [f"--{name}", json.dumps(value)]
        else:
            out += [f"--{name}", str(value)]
    return out


def _kinds(table: FlagTable, *, all_spellings: bool) -> tuple[set[str], dict[str, str]]:
    """The keys of store_true flags, and those of actions that a file may not use, with the class that is named."""
    bare: set[str] = set()
    supported: set[str] = set()
    unsupported: dict[str, str] = {}
    for flag in table.flags:
        keys = {name[2:].replace("-", "_") for name in flag.names if name.startswith("--")} if all_spellings else set()
        keys.add(flag.dest)
        store_true = flag.action == "true" and not flag.deprecated
        if flag.action == "help" or "--config" in flag.names:
            continue
        if store_true:
            bare |= keys
        plain_store = flag.action == "store" and (all_spellings or not flag.deprecated)
        if store_true or plain_store or (all_spellings and flag.nargs is None):
            supported |= keys
        else:
            unsupported |= dict.fromkeys(keys, _class_name(flag.action, deprecated=flag.deprecated))
    if all_spellings:
        unsupported = {key: name for key, name in unsupported.items() if key not in supported}
    return bare, unsupported


def _class_name(action: str, *, deprecated: bool) -> str:
    if deprecated:
        kinds = {"true": "DeprecatedStoreTrueAction", "const": "DeprecatedStoreConstAction"}
        return kinds.get(action, "DeprecatedAliasStoreAction" if action == "store" else "DeprecatedAction")
    return _CLASSES.get(action, action)
