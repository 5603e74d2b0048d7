"""Launches where they really live: unit files, Compose files, manifests, objects of a cluster, scripts, processes.

systemd:UNIT · compose:FILE#SERVICE · k8s:FILE#CONTAINER · k8s://NAMESPACE/KIND/NAME#CONTAINER · script:FILE · pid:N ·
a bare path, known by its content. All are read; all but a process can be changed, losslessly (`plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from specwatch.domain import Change
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.targets import compose, composefiles, kubectl, kubernetes, process, script, systemd
from specwatch.launch.targets.base import DISK, ApiPatch, Edit, Files, Rewrite, Targeted


def _kubernetes(spec: str, files: Files = DISK) -> Iterator[Targeted]:
    return kubectl.read(spec) if spec.startswith("//") else kubernetes.read(spec, files)


KINDS: Mapping[str, Callable[[str, Files], Iterator[Targeted]]] = {
    "systemd": systemd.read,
    "compose": compose.read,
    "k8s": _kubernetes,
    "script": script.read,
    "pid": process.read,
}
SUFFIXES = {".service", ".yaml", ".yml", ".sh", ".bash"}


def read(target: str, files: Files = DISK) -> tuple[Targeted, ...]:
    """The launches of SGLang servers that a target holds.

    Raises ConfigError where it cannot be read or holds none, naming it and what was expected.
    """
    kind, colon, rest = target.partition(":")
    if colon and kind in KINDS:
        found = tuple(KINDS[kind](rest, files))
    elif Path(target).is_dir():
        found = tuple(_folder(Path(target)))
    elif files.is_file(Path(target)):
        shown = kind_of(Path(target), files)
        found = tuple(KINDS[shown](_spec(target), files)) if shown else ()
    else:
        kinds = ", ".join(f"{name}:…" for name in KINDS)
        raise ConfigError(f"{target}: no such file, and not one of {kinds}")
    if not found:
        raise ConfigError(
            f"{target}: holds no launch of an SGLang server (sglang serve, python -m sglang.launch_server)"
        )
    return found


def plan(target: str, changes: Sequence[Change], sglang: str, files: Files = DISK) -> tuple[Edit, ...]:
    """The edits that make changes where the launch really stands; none where there is nothing to change.

    Once they are written, `read(target)` gives the launch that `launch.command.edit` makes of the one before, and
    everything else is as it was, byte for byte. Raises LaunchError with the reason where that cannot be done without
    loss or without guessing, ConfigError where the target cannot be read.
    """
    from specwatch.launch.targets import planning

    kind, _, rest = target.partition(":")
    if kind == "pid":
        process.plan(rest)
    if kind not in KINDS:
        if Path(target).is_dir():
            raise LaunchError(f"{target}: a directory; give the one file whose launch is to be changed")
        kind = (kind_of(Path(target), files) if files.is_file(Path(target)) else "") or ""
        rest = _spec(target)
    found = read(f"{kind}:{rest}" if kind else target, files)
    if len(found) > 1:
        names = dict.fromkeys(one.name for one in found)
        if len(names) == 1:  # two objects of one file
            raise LaunchError(f"{target}: {len(found)} containers have this name; change them together, by hand")
        raise LaunchError(f"{target}: holds {len(found)} launches; name one of {', '.join(names)}")
    return planning.edits(kind, rest, found[0], changes, sglang, files) if changes else ()


def compose_files(named: str, files: Files = DISK) -> tuple[str, ...]:
    """The files that `docker compose` makes a project of, where a target names these. Raises ConfigError."""
    return tuple(str(path) for path in composefiles.made_of(named, files))


def _spec(path: str) -> str:
    """A path that cannot be taken for the name of a unit."""
    return path if "/" in path else f"./{path}"


def _folder(folder: Path) -> Iterator[Targeted]:
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
    kinds = {path: kind for path in paths if (kind := kind_of(path))}
    parts: set[Path] = set()
    for path in (path for path, kind in kinds.items() if kind == "compose"):
        parts |= {part.resolve() for part in composefiles.parts(str(path), DISK)} - {path.resolve()}
    for path, kind in kinds.items():
        if path.resolve() not in parts:  # an override, or what others include or extend, is no launch of its own
            yield from KINDS[kind](_spec(str(path)), DISK)


def kind_of(path: Path, files: Files = DISK) -> str | None:
    """What kind of target a file shows itself to be by its content; None where it is none of ours."""
    text = files.text(path)
    if path.suffix == ".service" or "\n[Service]" in f"\n{text}":
        return "systemd"
    if path.suffix in (".yaml", ".yml"):
        return "compose" if "\nservices:" in f"\n{text}" else "k8s" if "\nkind:" in f"\n{text}" else None
    return "script"


__all__ = ["DISK", "ApiPatch", "Edit", "Files", "Rewrite", "Targeted", "compose_files", "plan", "read"]
