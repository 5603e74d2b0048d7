"""What every kind of target yields, and how files are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specwatch.errors import ConfigError

LARGEST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Targeted:
    """One launch in a target: its name, the command as text or as tokens, and the environment it is started with.

    `path_maps` are the container paths that the target itself mounts from the host.
    """

    name: str
    command: str | tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    path_maps: tuple[tuple[str, str], ...] = ()


def text_of(path: Path) -> str:
    """The text of a file of at most a megabyte. Raises ConfigError naming the file and the reason."""
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path}: larger than {LARGEST >> 20} MB, not a file of launches")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def is_server(command: str) -> bool:
    """Whether a command starts an SGLang server."""
    return (
        "sglang.launch_server" in command
        or "sglang serve" in " ".join(command.split())
        or "launch_server.py" in command
    )


def yaml_documents(path: Path) -> list[object]:
    """The documents of a YAML file. Raises ConfigError naming the file, line and reason."""
    import yaml

    try:
        return list(yaml.safe_load_all(text_of(path)))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
