"""What runs the servers, one file a kind: is it up, start it anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from specwatch.errors import ApplyError, ConfigError
from specwatch.runtime.base import Life, Runtime, State
from specwatch.runtime.compose import Compose
from specwatch.runtime.kubernetes import Kubernetes, Manifest
from specwatch.runtime.running import Run, run
from specwatch.runtime.script import Script
from specwatch.runtime.systemd import Systemd

__all__ = ["Life", "Runtime", "State", "of"]

_OBJECT = re.compile(r"//(?P<namespace>[^/#]+)/(?P<kind>[^/#]+)/(?P<name>[^/#]+)(?:#(?P<container>.+))?")


def of(target: str, restart: Sequence[str] = (), runs: Run = run) -> Runtime:
    """What runs the server whose launch stands in a target; `restart` is the command that
    restarts one that a script starts.

    Raises ApplyError where a target cannot be restarted.
    """
    if target.startswith("/"):
        target = f"{_kind(target)}:{target}"
    kind, _, rest = target.partition(":")
    found: Runtime
    if kind == "systemd" and rest:
        found = Systemd(rest.rpartition("/")[2], runs)
    elif kind == "compose" and "#" in rest:
        file, _, service = rest.rpartition("#")
        found = Compose(_made_of(file), service, runs)
    elif kind == "k8s" and (named := _OBJECT.fullmatch(rest)):
        found = Kubernetes(named["namespace"], named["kind"], named["name"], named["container"] or "", runs)
    elif kind == "k8s" and "#" in rest and not rest.startswith("//"):
        file, _, container = rest.rpartition("#")
        found = Manifest(file, container, runs)
    elif kind == "script" and rest:
        found = Script(restart, runs)
    else:
        raise ApplyError(
            f"{target or 'no target'}: cannot be changed and restarted; expected systemd:UNIT, compose:FILE#SERVICE, "
            "k8s:FILE#CONTAINER, k8s://NAMESPACE/KIND/NAME#CONTAINER or script:FILE"
        )
    return found


def _made_of(file: str) -> tuple[str, ...]:
    """The files of a Compose project. Raises ApplyError."""
    from specwatch.launch.targets import compose_files

    try:
        return compose_files(file)
    except ConfigError as error:
        raise ApplyError(str(error)) from None


def _kind(path: str) -> str:
    """What kind of target a file shows itself to be. Raises ApplyError."""
    from specwatch.launch.targets import kind_of

    try:
        return kind_of(Path(path)) or ""
    except ConfigError as error:
        raise ApplyError(str(error)) from None
