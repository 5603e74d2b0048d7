"""A systemd unit: its file, then its drop-ins, as systemd.unit(5) and systemd.exec(5) merge them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.launch.targets.base import Targeted, is_server, text_of

FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
_PREFIXES = re.compile(r"^[-@:+!|]*")


def read(spec: str) -> Iterator[Targeted]:
    """The launch of a unit by name (`sglang.service`, `sglang@llama.service`) or by the path of its file."""
    path = Path(spec)
    if "/" in spec:
        yield from of_text(text_of(path), spec, path.name)
        return
    name = spec if "." in spec else f"{spec}.service"
    template = re.sub(r"@[^.]*\.", "@.", name)
    texts = []
    for candidate in dict.fromkeys((name, template)):
        file = next((Path(folder) / candidate for folder in FOLDERS if (Path(folder) / candidate).is_file()), None)
        if file is not None:
            texts = [text_of(file)]
            break
    if not texts:
        raise ConfigError(f"systemd:{spec}: no such unit in {', '.join(FOLDERS)}")
    for candidate in dict.fromkeys((template, name)):
        dropins: dict[str, Path] = {}
        for folder in reversed(FOLDERS):
            dropins |= {file.name: file for file in (Path(folder) / f"{candidate}.d").glob("*.conf")}
        texts += [text_of(dropins[file]) for file in sorted(dropins)]
    yield from of_text("\n".join(texts), f"systemd:{spec}", name)


def of_text(text: str, where: str, unit: str) -> Iterator[Targeted]:
    """The launch of a unit's text; later lines win, an empty `ExecStart=` forgets the earlier ones."""
    command = ""
    env: dict[str, str] = {}
    for key, value in _settings(text):
        value = _specified(value, unit)
        if key == "ExecStart":
            command = (
                _PREFIXES.sub("", value)
                if value and (is_server(value) or not command)
                else ""
                if not value
                else command
            )
        elif key == "Environment":
            env = {**env, **_assignments(value)} if value else {}
        elif key == "EnvironmentFile" and value:
            env = {**env, **_environment_file(value)}
        elif key == "UnsetEnvironment":
            env = {name: given for name, given in env.items() if name not in value.split()}
    if is_server(command):
        name = where if ":" in where else f"systemd:{where}"
        yield Targeted(name=name, command=_expanded(command, env), env=env)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """The settings of [Service], continued lines joined by a space, comments between them left out."""
    section, pending = "", ""
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith(("#", ";")):
            continue
        if not pending and stripped.startswith("[") and stripped.endswith("]"):
            section = stripped
            continue
        if stripped.endswith("\\"):
            pending += stripped[:-1] + " "
            continue
        whole, pending = pending + stripped, ""
        key, equals, value = whole.partition("=")
        if equals and section == "[Service]":
            yield key.strip(), value.strip()


def _specified(value: str, unit: str) -> str:
    """The specifiers that a launch uses: the instance, the unit's name, a percent sign."""
    prefix, _, instance = unit.rpartition(".")[0].partition("@")
    known = {
        "i": instance,
        "I": instance.replace("-", "/"),
        "n": unit,
        "N": unit.rpartition(".")[0],
        "p": prefix,
        "%": "%",
    }
    return re.sub(r"%([iInNp%])", lambda found: known[found[1]], value)


def _assignments(value: str) -> dict[str, str]:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ConfigError(f"Environment={value}: {error}") from error
    return dict(word.split("=", 1) for word in words if "=" in word)


def _environment_file(value: str) -> dict[str, str]:
    """The variables of a file; one with a leading `-` may be missing (systemd.exec(5))."""
    path = Path(value.removeprefix("-"))
    if value.startswith("-") and not path.is_file():
        return {}
    found = {}
    for line in text_of(path).split("\n"):
        name, equals, given = line.strip().partition("=")
        if equals and not name.startswith(("#", ";")):
            found[name.strip()] = " ".join(shlex.split(given)) if given.strip()[:1] in ("'", '"') else given.strip()
    return found


def _expanded(command: str, env: dict[str, str]) -> str:
    """`${NAME}` and `$NAME` as systemd.service(5) fills them in; `$$` is a dollar."""

    def filled(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found[1] or found[2]
        value = env.get(name, found[0])
        return value if found[2] else shlex.quote(value) if value != found[0] else value

    return re.sub(r"\$\$|\$\{(\w+)\}|\$(\w+)", filled, command)
