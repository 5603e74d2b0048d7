"""A service of a Compose file (compose-spec): entrypoint and command, environment, bind mounts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.launch.targets.base import Targeted, is_server, text_of, yaml_documents

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:?[-?+])([^}]*))?\}|\$(\w+)")


def read(spec: str) -> Iterator[Targeted]:
    """The services of a file that start SGLang, or the one named after `#`."""
    file, _, wanted = spec.partition("#")
    path = Path(file)
    variables = {**_dotenv(path.parent / ".env"), **os.environ}
    for document in yaml_documents(path):
        services = document.get("services") if isinstance(document, dict) else None
        if not isinstance(services, dict):
            raise ConfigError(f"{file}: not a Compose file: no 'services'")
        if wanted and wanted not in services:
            raise ConfigError(f"{file}: no service '{wanted}'; there are {', '.join(map(str, services))}")
        for name, service in services.items():
            if wanted in ("", name) and isinstance(service, dict):
                yield from _service(path, str(name), service, variables)


def _service(path: Path, name: str, service: Mapping[str, object], variables: Mapping[str, str]) -> Iterator[Targeted]:
    tokens = (*_tokens(service.get("entrypoint"), variables), *_tokens(service.get("command"), variables))
    if is_server(" ".join(tokens)):
        yield Targeted(
            name=f"compose:{path}#{name}",
            command=tokens,
            env=_environment(path, service, variables),
            path_maps=tuple(_mounts(path, service, variables)),
        )


def _tokens(value: object, variables: Mapping[str, str]) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(shlex.split(_filled(value, variables)))
    return tuple(_filled(str(word), variables) for word in value) if isinstance(value, list) else ()


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """Interpolation as Compose does it: ${NAME}, ${NAME:-default}, $NAME; `$$` is a dollar."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        value = variables.get(found[1] or found[4])
        operator, word = found[2] or "", found[3] or ""
        missing = value is None or (operator.startswith(":") and not value)
        if operator.endswith("+"):
            return "" if missing else word
        return word if missing and operator.endswith("-") else value or ""

    return _VARIABLE.sub(one, text)


def _environment(path: Path, service: Mapping[str, object], variables: Mapping[str, str]) -> dict[str, str]:
    files = service.get("env_file", [])
    env: dict[str, str] = {}
    for entry in files if isinstance(files, list) else [files]:
        name = entry.get("path") if isinstance(entry, dict) else entry
        env |= _dotenv(path.parent / str(name))
    given = service.get("environment", {})
    if isinstance(given, dict):
        env |= {str(name): _filled(_plain(value), variables) for name, value in given.items() if value is not None}
    elif isinstance(given, list):
        pairs = (str(entry).partition("=") for entry in given)
        env |= {name: _filled(value, variables) for name, equals, value in pairs if equals}
    return env


def _plain(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _mounts(path: Path, service: Mapping[str, object], variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    volumes = service.get("volumes", [])
    for volume in volumes if isinstance(volumes, list) else []:
        if isinstance(volume, dict):
            source, target = str(volume.get("source", "")), str(volume.get("target", ""))
        else:
            source, _, rest = _filled(str(volume), variables).partition(":")
            target = rest.partition(":")[0]
        if target.startswith("/") and source.startswith(("/", ".", "~")):
            yield target, str((path.parent / Path(source).expanduser()).resolve())


def _dotenv(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    found = {}
    for line in text_of(path).split("\n"):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("'\"")
    return found
