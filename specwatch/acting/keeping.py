"""Keeps what an action needs to be taken back, or finished, by whoever comes after it: on the disk, of root only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from specwatch.errors import ApplyError
from specwatch.launch.targets.base import ApiPatch, Edit, Rewrite
from specwatch.settings import Server
from specwatch.storage.audit import sync_folder

FILE = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The server as it was configured, the edits, and what they have to read back as.

    `argv` is the argument list of the launch that was checked, empty where that could not be told; `env` the variables
    that were changed, None for one that has to be gone. `error` is the first line of what the server crashed with.
    """

    server: Server
    edits: tuple[Edit, ...]
    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()
    release: str = ""
    error: str = ""


def keep(folder: Path, plan: Plan) -> None:
    """Put a plan onto the disk. Raises ApplyError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        edits = [_edit(folder, number, edit) for number, edit in enumerate(plan.edits)]
        content = {
            "server": asdict(plan.server),
            "edits": edits,
            "argv": list(plan.argv),
            "env": plan.env,
            "release": plan.release,
            "error": plan.error,
        }
        _write(folder / FILE, json.dumps(content).encode())
        sync_folder(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise ApplyError(f"{folder}: the old launch cannot be kept: {error.strerror or error}", retry=True) from None


def kept(folder: Path) -> Plan:
    """The plan of a folder. Raises ApplyError where it is not there or not whole."""
    try:
        content = json.loads((folder / FILE).read_bytes())
        edits = tuple(_read(folder, one) for one in content["edits"])
        env = tuple((str(name), value) for name, value in content["env"])
        return Plan(
            server=_server(content["server"]),
            edits=edits,
            argv=tuple(content["argv"]),
            env=env,
            error=content["error"],
            release=content["release"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ApplyError(f"{folder}: what was kept of the old launch cannot be read: {error}") from None


def _edit(folder: Path, number: int, edit: Edit) -> dict[str, Any]:
    if isinstance(edit, ApiPatch):
        plain = {one.name: getattr(edit, one.name) for one in fields(edit)}
        return {"patch": {**plain, **{name: [dict(op) for op in plain[name]] for name in ("operations", "undo")}}}
    names: dict[str, str | None] = {}
    for name, data in (("before", edit.before), ("after", edit.after)):
        names[name] = None if data is None else f"{number}.{name}"
        if data is not None:
            _write(folder / f"{number}.{name}", data)
    return {"path": str(edit.path), "mode": edit.mode, **names}


def _read(folder: Path, entry: Mapping[str, Any]) -> Edit:
    if "patch" in entry:
        patch = dict(entry["patch"])
        return ApiPatch(**{**patch, "operations": tuple(patch["operations"]), "undo": tuple(patch["undo"])})

    def data(name: str | None) -> bytes | None:
        return None if name is None else (folder / name).read_bytes()

    return Rewrite(
        path=Path(entry["path"]), before=data(entry["before"]), after=data(entry["after"]), mode=entry["mode"]
    )


def _server(entry: Mapping[str, Any]) -> Server:
    pairs = {name: tuple((a, b) for a, b in entry[name]) for name in ("path_map", "labels")}
    lists: dict[str, Sequence[str]] = {name: tuple(entry[name]) for name in ("logs", "models", "restart")}
    return Server(**{**entry, **pairs, **lists})


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:  # noqa: PTH123 (a descriptor)
        file.write(data)
        file.flush()
        os.fsync(fd)
