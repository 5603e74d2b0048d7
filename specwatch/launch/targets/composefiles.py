"""Which files make a service of Compose, and in which order: overrides, `extends`, `include` (compose-spec 13 and 14).

Mirrors compose-go: cli/options.go (default file names), loader/extends.go, loader/include.go. A file's own services
come over those that it includes, a service over the one that it extends, a later file over an earlier one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specwatch.errors import ConfigError
from specwatch.launch.targets import interpolation
from specwatch.launch.targets.base import Files
from specwatch.launch.yamltext import Path_, YamlText

DEFAULTS = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
OVERRIDES = (
    "compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml",
)  # fmt: skip
DEEPEST = 16
"""Files that include, or services that extend, one another in a row."""
_MOST = 5000
"""Times that a project may have a file included or a service extended: a few files can ask for billions."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one file says of a service, where it stands, the folder of its paths, and the variables filled in there.

    `dotenv` is the file that the variables come from beside the environment, None for those of an included file.
    """

    path: Path
    doc: YamlText
    at: Path_
    folder: Path
    variables: Mapping[str, str]
    dotenv: Path | None = None

    @property
    def table(self) -> Mapping[str, Any]:
        """The service as it is written here, merge keys looked through."""
        found = self.doc.value(self.at)
        return found if isinstance(found, dict) else {}


def split(named: str, files: Files) -> tuple[Path, ...]:
    """The files of a target: one, or several with colons between them, as in `COMPOSE_FILE`."""
    whole = Path(named)
    if ":" not in named or files.is_file(whole):
        return (whole,)
    return tuple(Path(one) for one in named.split(":") if one) or (whole,)


def made_of(named: str, files: Files) -> tuple[Path, ...]:
    """The files that Compose makes a project of: those that are named, else with one what goes with it in its folder.

    That is the list of `COMPOSE_FILE` in the folder's `.env` where the file is on it, or an override beside the file
    that `docker compose` takes there without being told.
    """
    given = split(named, files)
    if len(given) > 1:
        return given
    (file,) = given
    beside = _beside(file.parent, files)
    if any(_same(one, file) for one in beside):
        return beside
    standing = [name for name in DEFAULTS if files.is_file(file.parent / name)]
    overrides = [file.parent / name for name in OVERRIDES if files.is_file(file.parent / name)]
    return (file, overrides[0]) if standing[:1] == [file.name] and overrides and not beside else (file,)


def _beside(folder: Path, files: Files) -> tuple[Path, ...]:
    held = interpolation.read(folder / ".env", files, {})
    separator = held.get("COMPOSE_PATH_SEPARATOR") or ":"
    return tuple(folder / one for one in held.get("COMPOSE_FILE", "").split(separator) if one)


def _same(one: Path, other: Path) -> bool:
    return os.path.normpath(one) == os.path.normpath(other)


def services(named: str, files: Files) -> dict[str, tuple[Piece, ...]]:
    """The services of a project by name, each as its pieces, the last one wins. Raises ConfigError."""
    paths = made_of(named, files)
    project = _Project(files)
    folder = paths[0].parent
    dotenv = folder / ".env"
    variables = {**interpolation.read(dotenv, files, os.environ), **os.environ}
    found: dict[str, tuple[Piece, ...]] = {}
    for path in paths:
        for name, pieces in _of_file(_File(path, folder, variables, dotenv), project, 0).items():
            found[name] = (*found.get(name, ()), *pieces)
    if not found:
        raise ConfigError(f"{named}: not a Compose file: no 'services'")
    return found


def parts(named: str, files: Files) -> set[Path]:
    """Every file that a project is made of. Raises ConfigError."""
    pieces = (piece.path for found in services(named, files).values() for piece in found)
    return {*made_of(named, files), *pieces}


@dataclass(frozen=True, slots=True)
class _File:
    """One file that is read: `folder` is where its relative paths begin."""

    path: Path
    folder: Path
    variables: Mapping[str, str]
    dotenv: Path | None = None

    def pieces(self, doc: YamlText) -> Iterator[tuple[str, Piece]]:
        for number, document in enumerate(doc.data):
            table = document.get("services") if isinstance(document, dict) else None
            for name, service in table.items() if isinstance(table, dict) else ():
                if isinstance(service, dict):
                    at = (number, "services", name)
                    yield str(name), Piece(self.path, doc, at, self.folder, self.variables, self.dotenv)


class _Project:
    """What is read of a project: each file once, and of all together no more than is sane."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._docs: dict[Path, YamlText] = {}
        self._left = _MOST

    def doc(self, path: Path) -> YamlText:
        """A file of the project. Raises ConfigError."""
        if path not in self._docs:
            self._docs[path] = YamlText(self.files.text(path), str(path), compose=True)
        return self._docs[path]

    def another(self, path: Path) -> None:
        """A file is included, or a service extended, once more. Raises ConfigError."""
        self._left -= 1
        if self._left < 0:
            raise ConfigError(f"{path}: files are included, or services extended, more than {_MOST} times")


def _of_file(file: _File, project: _Project, depth: int) -> dict[str, tuple[Piece, ...]]:
    if depth > DEEPEST:
        raise ConfigError(f"{file.path}: files include, or services extend, one another more than {DEEPEST} deep")
    project.another(file.path)
    doc = project.doc(file.path)
    if not all(isinstance(one, dict) and isinstance(one.get("services") or {}, dict) for one in doc.data):
        raise ConfigError(f"{file.path}: not a Compose file: no 'services'")
    found: dict[str, tuple[Piece, ...]] = {}
    for document in doc.data:
        for entry in _many(document.get("include")) if isinstance(document, dict) else ():
            for one in _included(entry, file, project.files):
                for name, pieces in _of_file(one, project, depth + 1).items():
                    found[name] = (*found.get(name, ()), *pieces)
    own: dict[str, tuple[Piece, ...]] = {}
    for name, piece in file.pieces(doc):
        own[name] = (*own.get(name, ()), piece)
    here = {**found, **own}
    for name, pieces in own.items():
        below = [base for piece in pieces for base in _extended(piece, name, file, project, here, depth)]
        found[name] = (*found.get(name, ()), *below, *pieces)
    return found


def _included(entry: object, file: _File, files: Files) -> Iterator[_File]:
    """The files of one entry of `include`. Raises ConfigError for one that is somewhere else."""
    table: Mapping[str, Any] = entry if isinstance(entry, dict) else {"path": entry}
    paths = [_place(one, file, "include") for one in _many(table.get("path"))]
    if not paths:
        raise ConfigError(f"{file.path}: 'include' names no file")
    given = table.get("project_directory")
    folder = _place(given, file, "include") if given else paths[0].parent
    named = [_place(one, file, "include") for one in _many(table.get("env_file"))]
    held: dict[str, str] = {}
    for one in named or [folder / ".env"]:
        held |= interpolation.read(one, files, {**held, **file.variables})
    variables = {**held, **file.variables}
    for path in paths:
        yield _File(path, folder, variables)


def _extended(
    piece: Piece, name: str, file: _File, project: _Project, here: Mapping[str, tuple[Piece, ...]], depth: int
) -> tuple[Piece, ...]:
    """The pieces of the service that one extends, none where it extends none. Raises ConfigError."""
    given = piece.table.get("extends")
    if given is None:
        return ()
    project.another(piece.path)
    table: Mapping[str, Any] = given if isinstance(given, dict) else {"service": given}
    base = str(table.get("service") or name)
    if table.get("file"):
        path = _place(table["file"], file, f"'extends' of service '{name}'")
        there = _of_file(_File(path, path.parent, piece.variables), project, depth + 1)
        if base not in there:
            raise ConfigError(f"{path}: no service '{base}', which '{name}' of {piece.path} extends")
        return there[base]
    if base not in here or base == name:
        raise ConfigError(f"{piece.path}: no service '{base}', which '{name}' extends")
    below = tuple(
        more
        for one in here[base] if one.path == piece.path
        for more in _extended(one, base, file, project, here, _deeper(depth, piece))
    )  # fmt: skip
    return (*below, *here[base])


def _deeper(depth: int, piece: Piece) -> int:
    if depth >= DEEPEST:
        raise ConfigError(f"{piece.path}: services extend one another more than {DEEPEST} deep")
    return depth + 1


def _place(value: object, file: _File, what: str) -> Path:
    """A path that a file names, from its folder. Raises ConfigError for what only Docker could fetch."""
    try:
        text = interpolation.filled(str(value), file.variables).value
    except ConfigError as error:
        raise ConfigError(f"{file.path}: {what}: {error}") from None
    if "://" in text or text.startswith(("git@", "github.com/")) or not text:
        raise ConfigError(
            f"{file.path}: {what} names {text or 'nothing'}, which is not read here; give the file itself"
        )
    return placed(text, file.folder)


def placed(text: str, folder: Path) -> Path:
    """A path of a file whose paths begin in a folder; `~` is the home, never another's (compose-go: paths/home.go).

    Raises ConfigError for what no path can be.
    """
    if "\0" in text:
        raise ConfigError(f"{folder}: a path holds a NUL character, and is none")
    return Path.home() / text[1:].lstrip("/") if text.startswith("~") else folder / text


def _many(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
