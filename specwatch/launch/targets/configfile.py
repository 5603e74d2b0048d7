"""The file of SGLang's own `--config FILE.yaml`: its keys are changed where a flag's value comes from there."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specwatch.domain import Change, Launch
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.convert import Refusal
from specwatch.launch.flags import Flag, FlagTable, table
from specwatch.launch.locate import locate
from specwatch.launch.parsing import read
from specwatch.launch.targets.base import Files, Rewrite, Targeted
from specwatch.launch.yamlconfig import config_path
from specwatch.launch.yamltext import YamlText


def path_of(launch: Launch, target: Targeted) -> Path | None:
    """The file that a launch takes arguments from, as a path of this host; None without one. Raises LaunchError."""
    flags = table(launch.sglang)
    if flags.exact("--config") is None:
        return None
    try:
        given = config_path(read(locate(launch.text), flags, None, strict=False).tokens)
    except (Refusal, LaunchError):
        return None
    if given is None:
        return None
    path = Path(given) if Path(given).is_absolute() else Path(target.folder or "?") / given
    for inside, outside in sorted(target.path_maps, reverse=True):
        if path.is_relative_to(inside):
            return Path(outside) / path.relative_to(inside)
    return path


def held(path: Path | None, sglang: str, files: Files) -> frozenset[str]:
    """The arguments that a file sets."""
    if path is None or not files.is_file(path):
        return frozenset()
    doc = YamlText(files.text(path), str(path))
    data = doc.data[0] if doc.data else {}
    flags = table(sglang)
    found = (_flag(flags, key) for key in data if isinstance(data, dict))
    return frozenset(flag.dest for flag in found if flag is not None)


def _flag(flags: FlagTable, key: object) -> Flag | None:
    try:
        return flags.resolve(f"--{key}") if isinstance(key, str) else None
    except LaunchError:
        return None  # SGLang refuses it, or knows it by a newer release


def plan(path: Path, changes: Sequence[Change], sglang: str, files: Files) -> tuple[Rewrite, ...]:
    """The edit of a file that sets and removes keys. Raises LaunchError."""
    doc = YamlText(files.text(path), str(path))
    flags = table(sglang)
    for change in changes:
        dest = flags.resolve(change.name).dest
        keys = [key for key in doc.data[0] if (flag := _flag(flags, key)) is not None and flag.dest == dest]
        if change.op == "remove":
            for key in keys:
                doc = doc.delete((0, key))
        elif len(keys) != 1:
            raise LaunchError(f"{path}: {', '.join(keys)} set the same argument; change them by hand")
        else:
            doc = _set(doc, keys[0], change, flags.resolve(change.name))
    return files.rewrite(path, doc.text)


def _set(doc: YamlText, key: str, change: Change, flag: Flag) -> YamlText:
    value: Any = change.new or ""
    if flag.bare or flag.action == "optional":
        value = "false" if change.name.startswith("--no-") else "true"
        return doc.replaced((0, key), value, raw=True)
    if flag.many:
        return doc.replaced((0, key), shlex.split(value))
    if isinstance(doc.value((0, key)), list | dict):
        return doc.replaced((0, key), value)
    if flag.type in ("int", "float"):
        return doc.replaced((0, key), value, raw=True)
    try:
        return doc.set((0, key), value)
    except ConfigError as error:
        raise LaunchError(str(error)) from error
