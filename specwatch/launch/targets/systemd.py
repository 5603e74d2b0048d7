"""A systemd unit: its file, then its drop-ins, as systemd.unit(5) and systemd.exec(5) merge them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.launch import words as shell_words
from specwatch.launch.targets import script, unitfile
from specwatch.launch.targets.base import DISK, Files, Targeted, is_server
from specwatch.launch.words import Placed

FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
_SHELLS = frozenset({"sh", "bash", "dash"})


@dataclass(frozen=True, slots=True)
class Command:
    """One command line of `ExecStart=`: the line it is in, its own words there, its prefix, and what they give.

    `tokens` are what the process gets, each with the word that it comes from; a word `$NAME` gives as many as the
    variable holds. A variable that nothing known sets stays in them as it is written (`open`).
    """

    line: int
    raw: str
    prefix: str
    words: tuple[Placed, ...]
    tokens: tuple[tuple[str, int], ...]
    open: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The words of the process."""
        return tuple(token for token, _ in self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit with all its drop-ins. `env` comes from `environment` and then from `files`, less `unset`."""

    name: str
    where: str
    dropins: Path | None
    texts: tuple[tuple[Path | None, str], ...]
    lines: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    held: Mapping[str, Path] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def specifiers(self) -> Mapping[str, str]:
        """What `%` and a letter stand for."""
        return unitfile.specifiers(self.name)

    def commands(self) -> Iterator[Command]:
        """The command lines of `ExecStart=`. Raises ConfigError."""
        for number, line in enumerate(self.lines):
            prefix = unitfile.PREFIXES.match(line)
            head = prefix.end() if prefix else 0
            group: list[Placed] = []
            for word in [*unitfile.words(f"{' ' * head}{line[head:]}", self.specifiers), None]:
                if word is not None and line[word.start : word.end] != ";":
                    group.append(word)
                elif group:
                    yield self._command(number, line, line[:head], group)
                    group, head = [], 0

    def _command(self, number: int, line: str, prefix: str, group: Sequence[Placed]) -> Command:
        tokens: list[tuple[str, int]] = []
        unknown = False
        for index, word in enumerate(group):
            value = ";" if line[word.start : word.end] == "\\;" else word.layer.value
            name = unitfile.listed(value)
            if ":" in prefix:
                tokens.append((value, index))
            elif name is not None and name in self.env and index:
                tokens += [(one.layer.value, index) for one in shell_words.split(self.env[name])]
            elif name is not None and not unitfile.settable(name):
                pass  # systemd takes it for a variable that is not set
            else:
                unknown = unknown or name is not None or bool(unitfile.open_variables(value, self.env))
                tokens.append((unitfile.expanded(value, self.env).value, index))
        return Command(number, line, prefix, tuple(group), tuple(tokens), unknown)


def read(spec: str, files: Files = DISK) -> Iterator[Targeted]:
    """The launch of a unit by name (`sglang.service`, `sglang@llama.service`) or by the path of its file."""
    unit = load(spec, files)
    for command in unit.commands():
        if is_server(" ".join(command.values)):
            yield _targeted(unit, _text(command))
            continue
        path = wrapper(command, files)
        if path is not None and is_server(text := files.text(path)):
            yield _targeted(unit, script.virtual(text).value)


def _targeted(unit: Unit, command: str) -> Targeted:
    return Targeted(name=unit.where, command=command, env=unit.env, folder=unit.folder)


def _text(command: Command) -> str:
    """A command as shell text, in which variables that are not known are as open."""
    if not command.open:
        return shlex.join(command.values)
    return " ".join(
        word if unitfile.listed(word) else shlex.quote(word) if "${" not in word else f'"{_escaped(word)}"'
        for word in command.values
    )


def _escaped(word: str) -> str:
    return re.sub(r'(["\\`]|\$(?!\{))', r"\\\1", word)


def wrapper(command: Command, files: Files) -> Path | None:
    """The script that a command starts, itself or by a shell; None where it is none that can be read as text."""
    values = command.values
    first = 1 if len(values) > 1 and Path(values[0]).name in _SHELLS else 0
    path = Path(values[first]) if values else Path()
    if not path.is_absolute() or not files.is_file(path):
        return None
    try:
        text = files.text(path)
    except ConfigError:
        if path.suffix in (".sh", ".bash"):
            raise
        return None
    return path if first or re.match(r"#!.*\b(?:ba|da)?sh\b", text) else None


# From the files


def load(spec: str, files: Files) -> Unit:
    """A unit by its name, or by the path of its file. Raises ConfigError."""
    path = Path(spec)
    if "/" in spec:
        dropins = path.parent / f"{path.name}.d"
        texts: list[tuple[Path | None, str]] = [(path, files.text(path))]
        texts += [(file, files.text(file)) for file in _sorted([dropins], files)]
        return merged(texts, path.name, f"systemd:{spec}", dropins, files)
    name = spec if "." in spec else f"{spec}.service"
    template = re.sub(r"@[^.]*\.", "@.", name)
    folders = files.units or FOLDERS
    for candidate in dict.fromkeys((name, template)):
        found = [file for folder in folders if files.is_file(file := Path(folder) / candidate)]
        if found:
            break
    else:
        raise ConfigError(f"systemd:{spec}: no such unit in {', '.join(folders)}")
    # systemd.unit(5): the more special directory wins, then the earlier folder
    names = [Path(folder) / f"{n}.d" for n in _dropin_names(name, template) for folder in reversed(folders)]
    texts = [(found[0], files.text(found[0]))]
    texts += [(file, files.text(file)) for file in _sorted(names, files)]
    return merged(texts, name, f"systemd:{spec}", Path(folders[0]) / f"{name}.d", files)


def _dropin_names(name: str, template: str) -> Iterator[str]:
    stem, dot, kind = name.rpartition(".")
    yield kind
    plain = stem.partition("@")[0]
    at = stem[len(plain) :]
    for place in [i for i, letter in enumerate(plain) if letter == "-" and i + 1 < len(plain)]:
        yield f"{plain[: place + 1]}{'@' if at else ''}{dot}{kind}"
    yield from dict.fromkeys((template, name))


def _sorted(folders: Sequence[Path], files: Files) -> list[Path]:
    """The drop-ins of some directories by name; a later directory replaces a name of an earlier one."""
    found: dict[str, Path] = {}
    for folder in folders:
        found |= {file.name: file for file in files.named(folder, ".conf")}
    return [found[name] for name in sorted(found)]


def of_text(text: str, where: str, unit: str) -> Iterator[Targeted]:
    """The launch of a unit's text alone."""
    loaded = merged([(None, text)], unit, where if ":" in where else f"systemd:{where}", None, DISK)
    for command in loaded.commands():
        if is_server(" ".join(command.values)):
            yield _targeted(loaded, _text(command))


def merged(texts: Sequence[tuple[Path | None, str]], name: str, where: str, dropins: Path | None, files: Files) -> Unit:
    """A unit of its texts; later lines win, an empty assignment forgets the earlier ones. Raises ConfigError."""
    lines: list[str] = []
    others: list[str] = []
    environment: dict[str, str] = {}
    sources: list[str] = []
    unset: list[str] = []
    folder = ""
    known = unitfile.specifiers(name)
    for _, text in texts:
        for key, value in unitfile.settings(text):
            if key == "ExecStart":
                lines = [*lines, value] if value else []
            elif key.startswith("Exec"):
                others.append(value)
            elif key == "Environment":
                environment = {**environment, **unitfile.assigned(value, known)} if value else {}
            elif key == "EnvironmentFile":
                sources = [*sources, _filled(value, known)] if value else []
            elif key == "UnsetEnvironment":
                unset = [*unset, *value.split()] if value else []
            elif key == "WorkingDirectory":
                folder = _filled(value, known).removeprefix("-").replace("~", "/root", 1)
    of_files, held = _of_files(sources, files)
    env = {**environment, **of_files}
    return Unit(
        name=name,
        where=where,
        dropins=dropins,
        texts=tuple(texts),
        lines=tuple(lines),
        others=tuple(others),
        environment=environment,
        files=tuple(sources),
        held=held,
        unset=tuple(unset),
        env={name: value for name, value in env.items() if name not in unset and f"{name}={value}" not in unset},
        folder=folder,
    )


def _filled(value: str, specifiers: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda found: specifiers.get(found[1], found[0]), value)


def _of_files(sources: Sequence[str], files: Files) -> tuple[dict[str, str], dict[str, Path]]:
    """The variables of `EnvironmentFile=`, and the file that each comes from; one with `-` may be missing."""
    env: dict[str, str] = {}
    held: dict[str, Path] = {}
    for source in sources:
        pattern = Path(source.removeprefix("-"))
        paths = sorted(pattern.parent.glob(pattern.name)) if re.search(r"[*?\[]", pattern.name) else [pattern]
        for path in paths:
            if source.startswith("-") and not files.is_file(path):
                continue
            for name, _, _, value in unitfile.of_file(files.text(path)):
                env[name], held[name] = value, path
    return env, held
