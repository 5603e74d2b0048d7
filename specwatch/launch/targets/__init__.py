"""Launches where they really live: unit files, Compose files, manifests, scripts, running processes. Read only.

systemd:UNIT · compose:FILE#SERVICE · k8s:FILE#CONTAINER · script:FILE · pid:N · a bare path, known by its content
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.launch.targets import compose, kubernetes, process, script, systemd
from specwatch.launch.targets.base import Targeted

KINDS: Mapping[str, Callable[[str], Iterator[Targeted]]] = {
    "systemd": systemd.read,
    "compose": compose.read,
    "k8s": kubernetes.read,
    "script": script.read,
    "pid": process.read,
}
SUFFIXES = {".service", ".yaml", ".yml", ".sh", ".bash"}


def read(target: str) -> tuple[Targeted, ...]:
    """The launches of SGLang servers that a target holds.

    Raises ConfigError where it cannot be read or holds none, naming it and what was expected.
    """
    kind, colon, rest = target.partition(":")
    if colon and kind in KINDS:
        found = tuple(KINDS[kind](rest))
    elif Path(target).is_dir():
        found = tuple(_folder(Path(target)))
    elif Path(target).is_file():
        found = tuple(_by_content(Path(target)))
    else:
        kinds = ", ".join(f"{name}:…" for name in KINDS)
        raise ConfigError(f"{target}: no such file, and not one of {kinds}")
    if not found:
        raise ConfigError(
            f"{target}: holds no launch of an SGLang server (sglang serve, python -m sglang.launch_server)"
        )
    return found


def _folder(folder: Path) -> Iterator[Targeted]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            yield from _by_content(path)


def _by_content(path: Path) -> Iterator[Targeted]:
    """A file's launches, by what kind of file it shows itself to be; none where it is none of ours."""
    text = base_text(path)
    if path.suffix == ".service" or "\n[Service]" in f"\n{text}":
        yield from systemd.of_text(text, str(path), path.name)
    elif path.suffix in (".yaml", ".yml"):
        if "\nservices:" in f"\n{text}":
            yield from compose.read(str(path))
        elif "\nkind:" in f"\n{text}":
            yield from kubernetes.read(str(path))
    else:
        yield from script.read(str(path))


def base_text(path: Path) -> str:
    """The text of a file of at most a megabyte. Raises ConfigError."""
    from specwatch.launch.targets.base import text_of

    return text_of(path)


__all__ = ["Targeted", "read"]
