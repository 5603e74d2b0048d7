"""A service of a Compose file (compose-spec): entrypoint and command, environment, bind mounts; read and changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.layers import Splice, spliced
from specwatch.launch.rewriting import Wanted
from specwatch.launch.targets import interpolation
from specwatch.launch.targets.base import DISK, Files, Rewrite, Targeted, is_server
from specwatch.launch.targets.yamlwords import Holder, Kept, holder, plain_text, write
from specwatch.launch.yamltext import Path_, YamlText

_KEYS = {"--shm-size": "shm_size", "--ipc": "ipc"}


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a file: where it stands, and the variables that its values are filled in with."""

    path: Path
    doc: YamlText
    at: Path_
    variables: Mapping[str, str]

    @property
    def name(self) -> str:
        """The service's own name."""
        return str(self.at[-1])

    @property
    def table(self) -> Mapping[str, Any]:
        """The service as it is written, merge keys looked through."""
        found = self.doc.value(self.at)
        return found if isinstance(found, dict) else {}

    def holders(self) -> tuple[Holder, ...]:
        """What gives the words of the command. Raises LaunchError."""
        found = (holder(self.doc, (*self.at, key)) for key in ("entrypoint", "command"))
        return tuple(one for one in found if one is not None)

    def fill(self, text: str) -> Any:
        """A scalar with its variables filled in."""
        return interpolation.filled(text, self.variables)


def read(spec: str, files: Files = DISK) -> Iterator[Targeted]:
    """The services of a file that start SGLang, or the one named after `#`."""
    for service in _services(spec, files):
        tokens = _tokens(service)
        if is_server(" ".join(tokens)):
            yield Targeted(
                name=f"compose:{service.path}#{service.name}",
                command=tokens,
                env=_environment(service, files),
                path_maps=tuple(_mounts(service)),
                folder=plain_text(service.table.get("working_dir")),
            )


def _services(spec: str, files: Files) -> Iterator[Service]:
    file, _, wanted = spec.partition("#")
    path = Path(file)
    doc = YamlText(files.text(path), file)
    variables = {**_dotenv(path.parent / ".env", files), **os.environ}
    for number, document in enumerate(doc.data):
        services = document.get("services") if isinstance(document, dict) else None
        if not isinstance(services, dict):
            raise ConfigError(f"{file}: not a Compose file: no 'services'")
        if wanted and wanted not in services:
            raise ConfigError(f"{file}: no service '{wanted}'; there are {', '.join(map(str, services))}")
        for name, service in services.items():
            if wanted in ("", name) and isinstance(service, dict):
                yield Service(path, doc, (number, "services", name), variables)


def _tokens(service: Service) -> tuple[str, ...]:
    try:
        return tuple(word for one in service.holders() for word in one.filled(service.fill))
    except LaunchError as error:
        raise ConfigError(f"{service.path}: service '{service.name}': {error}") from error


def _environment(service: Service, files: Files) -> dict[str, str]:
    env: dict[str, str] = {}
    for file in _env_files(service):
        env |= _dotenv(file, files)
    given = service.table.get("environment", {})
    if isinstance(given, dict):
        env |= {str(n): service.fill(plain_text(v)).value for n, v in given.items() if v is not None}
    elif isinstance(given, list):
        pairs = (str(entry).partition("=") for entry in given)
        env |= {name: service.fill(value).value for name, equals, value in pairs if equals}
    return env


def _env_files(service: Service) -> list[Path]:
    given = service.table.get("env_file", [])
    names = [entry.get("path") if isinstance(entry, dict) else entry for entry in _many(given)]
    return [service.path.parent / service.fill(str(name)).value for name in names if name]


def _many(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _mounts(service: Service) -> Iterator[tuple[str, str]]:
    volumes = service.table.get("volumes", [])
    for volume in volumes if isinstance(volumes, list) else []:
        if isinstance(volume, dict):
            source, target = str(volume.get("source", "")), str(volume.get("target", ""))
        else:
            source, _, rest = service.fill(str(volume)).value.partition(":")
            target = rest.partition(":")[0]
        if target.startswith("/") and source.startswith(("/", ".", "~")):
            yield target, str((service.path.parent / Path(source).expanduser()).resolve())


def _dotenv(path: Path, files: Files) -> dict[str, str]:
    if not files.is_file(path):
        return {}
    return {name: value for name, _, _, value in interpolation.assignments(files.text(path))}


# Changes


def plan(spec: str, ask: Callable[[Targeted], Wanted], files: Files) -> tuple[Rewrite, ...]:
    """The edits of a service's file, and of the `.env` files that hold what is to change. Raises LaunchError."""
    target = next(read(spec, files))
    service = next(one for one in _services(spec, files) if f"compose:{one.path}#{one.name}" == target.name)
    want = ask(target)
    dotenv = service.path.parent / ".env"
    kept = Kept(lambda name: _only_here(service, name, dotenv, files), {})
    doc = service.doc
    if isinstance(want.command, tuple):
        doc = write(doc, service.holders(), want.command, service.fill, kept)
    edits: dict[Path, str] = {}
    for name, value in want.variables.items():
        doc = _variable(replaced(service, doc), name, value, edits, files)
    for option, value in want.options.items():
        doc = _option(replaced(service, doc), option, value)
    if kept.values:
        edits[dotenv] = _assigned(edits.get(dotenv) or files.text(dotenv), dotenv, kept.values)
    changed = files.rewrite(service.path, doc.text)
    return (*changed, *(edit for path, text in edits.items() for edit in files.rewrite(path, text)))


def replaced(service: Service, doc: YamlText) -> Service:
    """The service in a changed document."""
    return Service(service.path, doc, service.at, service.variables)


def _only_here(service: Service, name: str, dotenv: Path, files: Files) -> bool:
    """Whether a variable comes from `.env`, and is used once in the file and set once there."""
    if name in os.environ or not files.is_file(dotenv):
        return False
    uses = re.findall(rf"\$\{{?{name}\b", service.doc.text)
    also = service.table.get("env_file")
    lines = [found for found, _, _, _ in interpolation.assignments(files.text(dotenv)) if found == name]
    in_env_file = also is not None and dotenv in _env_files(service)
    return len(uses) == 1 and len(lines) == 1 and not in_env_file and not service.doc.shared(service.at)


def _assigned(text: str, path: Path, values: Mapping[str, str]) -> str:
    out = []
    for name, start, end, _ in interpolation.assignments(text):
        if name in values:
            raw = interpolation.quoted(values[name])
            if raw is None:
                raise LaunchError(f"{path}: {name} cannot hold the new value; set it by hand")
            out.append(Splice(start, end, raw))
    return spliced(text, out)


def _variable(service: Service, name: str, value: str | None, edits: dict[Path, str], files: Files) -> YamlText:
    doc, at = service.doc, (*service.at, "environment")
    given = doc.value(at)
    if value is None:
        return _unset(service, name, edits, files)
    raw = value.replace("$", "$$")
    if given is None:
        if doc.node(at) is not None:
            raise LaunchError(f"{service.path}: 'environment' of {service.name} is empty; change it by hand")
        behind = "command" if "command" in service.table else "entrypoint"
        return doc.put(service.at, "environment", {name: raw}, behind)
    if isinstance(given, list):
        for index, entry in enumerate(given):
            if str(entry).partition("=")[0] == name:
                return doc.set((*at, index), f"{name}={raw}")
        return doc.insert(at, len(given), [f"{name}={raw}"])
    if doc.node(at) is None:  # from a merge key, which an `environment` of its own would hide
        copy = {str(n): plain_text(v) for n, v in given.items() if v is not None}
        if len(copy) != len(given):
            raise LaunchError(f"{service.path}: 'environment' of {service.name} comes from an anchor; write it out")
        return doc.put(service.at, "environment", {**copy, name: raw})
    if doc.node((*at, name)) is not None:
        return doc.set((*at, name), raw)
    return doc.put(at, name, raw)


def _unset(service: Service, name: str, edits: dict[Path, str], files: Files) -> YamlText:
    doc, at = service.doc, (*service.at, "environment")
    given = doc.value(at)
    if isinstance(given, list):
        for index in reversed([i for i, entry in enumerate(given) if str(entry).partition("=")[0] == name]):
            doc = doc.delete((*at, index))
    elif isinstance(given, dict) and name in given:
        doc = doc.delete((*at, name))
    for path in _env_files(service):
        text = edits.get(path) or (files.text(path) if files.is_file(path) else "")
        held = [found for found in interpolation.assignments(text) if found[0] == name]
        if held and (service.doc.text.count(path.name) > 1 or len(held) > 1):
            raise LaunchError(f"{path}: sets {name}, for other services too or twice; take it out by hand")
        if held:
            edits[path] = _without_line(text, held[0][1])
    return doc


def _without_line(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return text[:start] + (text[end + 1 :] if end >= 0 else "")


def _option(service: Service, option: str, value: str) -> YamlText:
    key = _KEYS[option]
    if service.doc.node((*service.at, key)) is not None:
        return service.doc.set((*service.at, key), value)
    return service.doc.put(service.at, key, value, "image")
