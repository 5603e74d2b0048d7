"""A service of a Compose file (compose-spec): entrypoint and command, environment, bind mounts; read and changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from specwatch.domain import Container
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.container import KEYS
from specwatch.launch.layers import Layer, Splice, spliced
from specwatch.launch.rewriting import Wanted
from specwatch.launch.targets import interpolation
from specwatch.launch.targets.base import DISK, Files, Rewrite, Targeted, is_server
from specwatch.launch.targets.composefiles import Piece, placed, services
from specwatch.launch.targets.yamlwords import Holder, Kept, holder, plain_text, write
from specwatch.launch.yamltext import YamlText

_DEV_SHM = "/dev/shm"  # noqa: S108 - where the shared memory of a container is, not a place to write to


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a project, as `file` names it: the pieces that it is made of, the last one wins."""

    file: str
    name: str
    pieces: tuple[Piece, ...]

    @property
    def target(self) -> str:
        """The service as a target."""
        return f"compose:{self.file}#{self.name}"

    def holders(self) -> tuple[tuple[Piece, Holder], ...]:
        """What gives the words of the command, and in which piece. Raises LaunchError."""
        found = []
        for key in ("entrypoint", "command"):
            piece = self.giving(key)
            one = holder(piece.doc, (*piece.at, key)) if piece is not None else None
            if piece is not None and one is not None:
                found.append((piece, one))
        return tuple(found)

    def giving(self, key: str) -> Piece | None:
        """The piece that has the last word on a key, None where none has it."""
        return next((piece for piece in reversed(self.pieces) if key in piece.table), None)

    def text(self, key: str) -> str:
        """A scalar of the service with its variables filled in, empty where nothing gives one."""
        found = [(piece, value) for piece in self.pieces if (value := piece.table.get(key)) is not None]
        return fill(found[-1][0], plain_text(found[-1][1])).value if found else ""


def fill(piece: Piece, text: str) -> Layer:
    """A scalar with its variables filled in. Raises ConfigError."""
    try:
        return interpolation.filled(text, piece.variables)
    except ConfigError as error:
        raise ConfigError(f"{piece.path}: {error}") from None


def read(spec: str, files: Files = DISK) -> Iterator[Targeted]:
    """The services of a project that start SGLang, or the one named after `#`."""
    for service in _services(spec, files):
        tokens = _tokens(service)
        if is_server(" ".join(tokens)):
            yield Targeted(
                name=service.target,
                command=tokens,
                env=_environment(service, files),
                path_maps=tuple(_mounts(service)),
                folder=service.text("working_dir"),
                container=_container(service),
            )


def _services(spec: str, files: Files) -> Iterator[Service]:
    file, _, wanted = spec.partition("#")
    found = services(file, files)
    if wanted and wanted not in found:
        raise ConfigError(f"{file}: no service '{wanted}'; there are {', '.join(found)}")
    yield from (Service(file, name, pieces) for name, pieces in found.items() if wanted in ("", name))


def _tokens(service: Service) -> tuple[str, ...]:
    try:
        return tuple(word for piece, one in service.holders() for word in one.filled(partial(fill, piece)))
    except LaunchError as error:
        raise ConfigError(f"{service.file}: service '{service.name}': {error}") from error


def _environment(service: Service, files: Files) -> dict[str, str]:
    """The variables of the container: those of `environment`, those of the shell left out, go before `env_file`."""
    own: dict[str, str | None] = {}
    for piece in service.pieces:
        given = piece.table.get("environment", {})
        if isinstance(given, dict):
            own |= {str(n): None if v is None else fill(piece, plain_text(v)).value for n, v in given.items()}
        elif isinstance(given, list):
            pairs = (fill(piece, str(entry)).value.partition("=") for entry in given)
            own |= {name: value if equals else None for name, equals, value in pairs}
    known = {name: value for name, value in own.items() if value is not None}
    env: dict[str, str] = {}
    for piece in service.pieces:
        for path, raw in _env_files(piece, files):
            text = files.text(path) if files.is_file(path) else ""
            variables = {**known, **service.pieces[-1].variables}
            env |= _raw(text) if raw else _meant(path, text, variables, env)
    return {name: value for name, value in {**env, **own}.items() if value is not None}


def _meant(path: Path, text: str, known: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    try:
        return interpolation.meant(text, known, earlier)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _raw(text: str) -> dict[str, str]:
    """The variables of an `env_file` of `format: raw`: nothing in a value means anything."""
    pairs = (line.removesuffix("\r").partition("=") for line in text.split("\n") if not line.startswith("#"))
    return {name.strip(): value for name, equals, value in pairs if equals}


def _env_files(piece: Piece, files: Files) -> Iterator[tuple[Path, bool]]:
    """The files of `env_file`, and whether each is raw. Raises ConfigError where one is missing."""
    for entry in _many(piece.table.get("env_file", [])):
        table = entry if isinstance(entry, dict) else {"path": entry}
        if table.get("path"):
            path = placed(fill(piece, str(table["path"])).value, piece.folder)
            if table.get("required", True) is not False and not files.is_file(path):
                raise ConfigError(f"{piece.path}: env_file {path} is not there, and Compose starts nothing without it")
            yield path, table.get("format") == "raw"


def _many(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _mounts(service: Service) -> Iterator[tuple[str, str]]:
    """The folders of the host by where the container sees them; of two in one place the last one counts."""
    found = {target: (piece, source) for piece in service.pieces for target, source in _volumes(piece)}
    for target, (piece, source) in found.items():
        if target.startswith("/") and source.startswith(("/", ".", "~")):
            yield target, os.path.realpath(placed(source, piece.folder))


def _volumes(piece: Piece) -> Iterator[tuple[str, str]]:
    volumes = piece.table.get("volumes", [])
    for volume in volumes if isinstance(volumes, list) else []:
        if isinstance(volume, dict):
            yield tuple(fill(piece, str(volume.get(key, ""))).value for key in ("target", "source"))  # type: ignore[misc]
        else:
            source, _, rest = fill(piece, str(volume)).value.partition(":")
            yield (rest.partition(":")[0], source) if rest else (source, "")


def _container(service: Service) -> Container:
    """What the fixes have to know of the container (compose-spec 05: ipc, shm_size, network_mode, tmpfs)."""
    tmpfs = [fill(piece, str(one)).value for piece in service.pieces for one in _many(piece.table.get("tmpfs"))]
    places = {target for piece in service.pieces for target, _ in _volumes(piece)}
    places |= {one.partition(":")[0] for one in tmpfs}
    return Container(
        kind="compose",
        options={key: value for key in ("shm_size", "ipc") if (value := service.text(key))},
        mounted=_DEV_SHM in {place.rstrip("/") for place in places},
        host_network=service.text("network_mode") == "host",
    )


# Changes


def plan(spec: str, ask: Callable[[Targeted], Wanted], files: Files) -> tuple[Rewrite, ...]:
    """The edits of a service's file, and of the `.env` files that hold what is to change. Raises LaunchError."""
    target = next(read(spec, files))
    service = next(one for one in _services(spec, files) if one.target == target.name)
    want = ask(target)
    piece = _alone(service)
    for other in _services(service.file, files):
        if other.name != service.name and any((one.path, one.at) == (piece.path, piece.at) for one in other.pieces):
            raise LaunchError(f"service '{other.name}' is made of '{service.name}' as well; change it by hand")
    kept = Kept(lambda name: _only_here(piece, name, files), {})
    doc = piece.doc
    if isinstance(want.command, tuple):
        doc = write(doc, [one for _, one in service.holders()], want.command, partial(fill, piece), kept)
    edits: dict[Path, str] = {}
    for name, value in want.variables.items():
        doc = _variable(replace(piece, doc=doc), name, value, edits, files)
    for option, value in want.options.items():
        doc = _option(replace(piece, doc=doc), option, value)
    if kept.values and piece.dotenv is not None:
        edits[piece.dotenv] = _assigned(edits.get(piece.dotenv) or files.text(piece.dotenv), piece.dotenv, kept.values)
    changed = files.rewrite(piece.path, doc.text)
    return (*changed, *(edit for path, text in edits.items() for edit in files.rewrite(path, text)))


def _alone(service: Service) -> Piece:
    """The one piece of a service. Raises LaunchError where there are several: which to change is a person's choice."""
    if len(service.pieces) == 1:
        return service.pieces[0]
    names = ", ".join(dict.fromkeys(str(piece.path) for piece in service.pieces))
    last = service.giving("command") or service.pieces[-1]
    raise LaunchError(
        f"service '{service.name}' is put together from {len(service.pieces)} places ({names}; an override, `extends` "
        f"or `include`): change it by hand, its command stands in {last.path}"
    )


def _only_here(piece: Piece, name: str, files: Files) -> bool:
    """Whether a variable comes from `.env`, is used once in the file, and set once there, by a value of its own."""
    if piece.dotenv is None or name in os.environ or not files.is_file(piece.dotenv):
        return False
    uses = re.findall(rf"\$\{{?{name}\b", piece.doc.text)
    text = files.text(piece.dotenv)
    lines = [text[start:end] for found, start, end, _ in interpolation.assignments(text) if found == name]
    plain = len(lines) == 1 and (lines[0].startswith("'") or "$" not in lines[0])
    in_env_file = piece.dotenv in [path for path, _ in _env_files(piece, files)]
    elsewhere = len(re.findall(rf"\$\{{?{name}\b", text))
    return len(uses) == 1 and plain and not in_env_file and not elsewhere and not piece.doc.shared(piece.at)


def _assigned(text: str, path: Path, values: Mapping[str, str]) -> str:
    out = []
    for name, start, end, _ in interpolation.assignments(text):
        if name in values:
            raw = interpolation.quoted(values[name])
            if raw is None:
                raise LaunchError(f"{path}: {name} cannot hold the new value; set it by hand")
            out.append(Splice(start, end, raw))
    return spliced(text, out)


def _variable(piece: Piece, name: str, value: str | None, edits: dict[Path, str], files: Files) -> YamlText:
    doc, at = piece.doc, (*piece.at, "environment")
    given = doc.value(at)
    if value is None:
        return _unset(piece, name, edits, files)
    raw = value.replace("$", "$$")
    if given is None:
        if doc.node(at) is not None:
            raise LaunchError(f"{piece.path}: 'environment' of {piece.at[-1]} is empty; change it by hand")
        behind = "command" if "command" in piece.table else "entrypoint"
        return doc.put(piece.at, "environment", {name: raw}, behind)
    if isinstance(given, list):
        for index, entry in enumerate(given):
            if str(entry).partition("=")[0] == name:
                return doc.set((*at, index), f"{name}={raw}")
        return doc.insert(at, len(given), [f"{name}={raw}"])
    if doc.node(at) is None:  # from a merge key, which an `environment` of its own would hide
        copy = {str(n): plain_text(v) for n, v in given.items() if v is not None}
        if len(copy) != len(given):
            raise LaunchError(f"{piece.path}: 'environment' of {piece.at[-1]} comes from an anchor; write it out")
        return doc.put(piece.at, "environment", {**copy, name: raw})
    if doc.node((*at, name)) is not None:
        return doc.set((*at, name), raw)
    return doc.put(at, name, raw)


def _unset(piece: Piece, name: str, edits: dict[Path, str], files: Files) -> YamlText:
    doc, at = piece.doc, (*piece.at, "environment")
    given = doc.value(at)
    if isinstance(given, list):
        for index in reversed([i for i, entry in enumerate(given) if str(entry).partition("=")[0] == name]):
            doc = doc.delete((*at, index))
    elif isinstance(given, dict) and name in given:
        doc = doc.delete((*at, name))
    for path, _ in _env_files(piece, files):
        text = edits.get(path) or (files.text(path) if files.is_file(path) else "")
        held = [found for found in interpolation.assignments(text) if found[0] == name]
        lines = len(held) > 1 or any("\n" in text[start:end] for _, start, end, _ in held)
        if held and (piece.doc.text.count(path.name) > 1 or lines):
            raise LaunchError(f"{path}: sets {name}, for other services too or in several lines; take it out by hand")
        if held:
            edits[path] = _without_line(text, held[0][1])
    return doc


def _without_line(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return text[:start] + (text[end + 1 :] if end >= 0 else "")


def _option(piece: Piece, option: str, value: str) -> YamlText:
    key = next(key for key, name in KEYS.items() if name == option)
    if piece.doc.node((*piece.at, key)) is not None:
        return piece.doc.set((*piece.at, key), value)
    return piece.doc.put(piece.at, key, value, "image")
