"""An object of the Kubernetes API, through kubectl: `k8s://NAMESPACE/KIND/NAME#CONTAINER`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from specwatch.domain import Value
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.layers import differences, spliced, word_edits
from specwatch.launch.rewriting import Wanted
from specwatch.launch.targets.base import ApiPatch, Files, Targeted
from specwatch.launch.targets.kubernetes import (
    Container,
    containers,
    filled,
    refuse_options,
    refuse_references,
    servers,
)

TIMEOUT = 30.0
"""Seconds for one answer of the API."""
LARGEST = 4 << 20
"""etcd holds objects of 1.5 MB; managed fields are added to that."""

_SPEC = re.compile(r"//(?P<namespace>[^/#]+)/(?P<kind>[^/#]+)/(?P<name>[^/#]+)(?:#(?P<container>[^#]+))?")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

Operation = dict[str, Value]


def read(spec: str, files: Files | None = None) -> Iterator[Targeted]:  # noqa: ARG001 - as every target is read
    """The containers of an object that start SGLang, or the one named after `#`. Raises ConfigError."""
    for container, name in _wanted(spec, fetched(spec)):
        yield container.targeted(name)


def taken_apart(spec: str) -> dict[str, str]:
    """Namespace, kind, name and container (`leader/NAME` of a LeaderWorkerSet) of a target. Raises ConfigError."""
    found = _SPEC.fullmatch(spec)
    parts = {key: value or "" for key, value in found.groupdict().items()} if found else {}
    plain = {**parts, "container": re.sub("^(?:leader|worker)/", "", parts.get("container", ""))}
    if not parts or not all(_PART.fullmatch(value) for key, value in plain.items() if value or key != "container"):
        raise ConfigError(f"k8s:{spec}: expected k8s://NAMESPACE/KIND/NAME#CONTAINER")
    return parts


def fetched(spec: str) -> dict[str, Any]:
    """The object as the API has it now. Raises ConfigError with what kubectl said."""
    part = taken_apart(spec)
    program = os.environ.get("KUBECTL") or "kubectl"
    argv = [program, "get", part["kind"], part["name"], "--namespace", part["namespace"], "--output", "json"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise ConfigError(f"k8s:{spec}: {program} is not installed; install it or set KUBECTL to its path") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"k8s:{spec}: {program} gave no answer in {TIMEOUT:.0f} s") from None
    except OSError as error:
        raise ConfigError(f"k8s:{spec}: {program} cannot be started: {error}") from error
    if done.returncode:
        said = _said(done.stderr.decode(errors="replace"))
        raise ConfigError(f"k8s:{spec}: {program} failed ({done.returncode}): {said or 'it said nothing'}")
    if len(done.stdout) > LARGEST:
        raise ConfigError(f"k8s:{spec}: an object of more than {LARGEST >> 20} MB")
    try:
        value = json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"k8s:{spec}: {program} gave no JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        raise ConfigError(f"k8s:{spec}: {program} gave no object of Kubernetes")
    return value


def _said(errors: str) -> str:
    """What kubectl says to people, its log lines (`E1130 18:24:31…`) left out where there is more."""
    lines = [line.strip() for line in errors.split("\n") if line.strip()]
    plain = [line for line in lines if not re.match(r"[EWIF]\d{4} ", line)]
    return "; ".join(plain or lines)[-500:]


def _wanted(spec: str, value: Mapping[str, Any]) -> Iterator[tuple[Container, str]]:
    every = list(containers(value.get("spec"), ("spec",)))
    for one in servers(every, taken_apart(spec)["container"], f"k8s:{spec}"):
        yield one, f"k8s:{spec.partition('#')[0]}#{one.shown(every)}"


# Changes


def plan(spec: str, ask: Callable[[Targeted], Wanted]) -> tuple[ApiPatch, ...]:
    """The patch that makes a change, and the one that takes it back. Raises LaunchError."""
    value = fetched(spec)
    version = str(value["metadata"].get("resourceVersion") or "")
    if not version:
        raise LaunchError(f"k8s:{spec}: the object has no resourceVersion, so a change could not be made safely")
    part = taken_apart(spec)
    container, name = next(iter(_wanted(spec, value)))
    want = ask(container.targeted(name))
    refuse_options(want)
    new = _changed(container, want, spec)
    changed = [key for key in ("command", "args", "env") if container.table.get(key) != new.get(key)]
    if not changed:
        return ()
    base = "".join(f"/{_escaped(str(step))}" for step in container.at)
    operations: list[Operation] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "test", "path": f"{base}/name", "value": container.name},
    ]
    undo: list[Operation] = [{"op": "test", "path": f"{base}/name", "value": container.name}]
    for key in changed:
        operations += _move(f"{base}/{key}", container.table.get(key), new.get(key))
        undo += _move(f"{base}/{key}", new.get(key), container.table.get(key))
    return (
        ApiPatch(
            namespace=part["namespace"],
            kind=part["kind"],
            name=part["name"],
            container=container.name,
            operations=tuple(operations),
            undo=tuple(undo),
            resource_version=version,
        ),
    )


def _move(path: str, old: Value, new: Value) -> Iterator[Operation]:
    """The operations from an old value to a new one, which fail where it is not the old one any more."""
    if old is not None:
        yield {"op": "test", "path": path, "value": old}
    if new is None:
        yield {"op": "remove", "path": path}
    else:
        yield {"op": "add" if old is None else "replace", "path": path, "value": new}


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _changed(container: Container, want: Wanted, where: str) -> dict[str, Any]:
    """The container with its words and variables changed."""
    new = dict(container.table)
    if isinstance(want.command, tuple):
        _words(new, container, want.command)
    for name, value in want.variables.items():
        given = [dict(entry) for entry in new.get("env") or []]
        mine = [entry for entry in given if entry.get("name") == name]
        refuse_references(name, list(mine), f"k8s:{where}")
        if value is None:
            given = [entry for entry in given if entry.get("name") != name]
        elif mine:
            mine[-1]["value"] = value.replace("$", "$$")
        else:
            given.append({"name": name, "value": value.replace("$", "$$")})
        new["env"] = given or None
    return new


def _words(new: dict[str, Any], container: Container, words: tuple[str, ...]) -> None:
    env = container.env
    raws = {key: [str(word) for word in container.table.get(key) or []] for key in ("command", "args")}
    edge = len(raws["command"])
    every = [*raws["command"], *raws["args"]]
    for edit in reversed(word_edits([filled(word, env).value for word in every], list(words))):
        if edit.end - edit.start == 1 and len(edit.new) == 1:
            layer = filled(every[edit.start], env)
            lowered = [layer.down(one) for one in differences(layer.value, edit.new[0])]
            every[edit.start] = spliced(every[edit.start], lowered)
            continue
        every[edit.start : edit.end] = [word.replace("$", "$$") for word in edit.new]
        removed = len(range(max(edit.start, 0), min(edit.end, edge)))
        edge += (len(edit.new) if edit.start <= edge and (edit.start < edge or not raws["args"]) else 0) - removed
    for key, part in (("command", every[:edge]), ("args", every[edge:])):
        if raws[key] or part:
            new[key] = part or None
