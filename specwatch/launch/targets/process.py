"""A running server, by its process id (proc(5)): read only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.targets.base import DISK, Files, Targeted, is_server

# what of a process's environment a launch hangs on: the rest is the machine's business
PREFIXES = ("SGLANG_", "SGL_", "HF_", "NCCL_", "GLOO_", "CUDA_", "TORCH_", "FLASHINFER_")


def read(spec: str, files: Files = DISK) -> Iterator[Targeted]:  # noqa: ARG001 - as every target is read
    """The command line and environment of a process. Raises ConfigError where it is gone or not ours to read."""
    try:
        folder = Path("/proc") / str(int(spec))
        tokens = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except ValueError as error:
        raise ConfigError(f"pid:{spec}: expected a number") from error
    except OSError as error:
        raise ConfigError(f"pid:{spec}: cannot be read: {error.strerror}") from error
    env = dict(variable.split("=", 1) for variable in variables if "=" in variable)
    if is_server(" ".join(tokens)):
        mine = {name: value for name, value in env.items() if name.startswith(PREFIXES)}
        yield Targeted(name=f"pid:{spec}", command=tuple(tokens), env=mine)


def refusal(spec: str, cgroup: str) -> LaunchError:
    """Why a process cannot be changed, with the target that can: the unit or container that its cgroup names."""
    units = [part for line in cgroup.split("\n") for part in line.split("/") if part.endswith(".service")]
    container = re.search(r"(?:docker|libpod|cri-containerd|crio)[-/]([0-9a-f]{12})[0-9a-f]*", cgroup)
    if "kubepods" in cgroup:
        instead = "it runs in a pod: give k8s://NAMESPACE/KIND/NAME#CONTAINER"
    elif container:
        instead = (
            f"it runs in the container {container[1]}: give the Compose file (compose:FILE#SERVICE) that starts it"
        )
    elif units and not re.match(r"user@\d+\.service", units[-1]):
        instead = f"it was started by systemd: give --target systemd:{units[-1]}"
    else:
        instead = "give what starts it: systemd:UNIT, compose:FILE#SERVICE, k8s:FILE#CONTAINER or script:FILE"
    return LaunchError(f"pid:{spec}: the command of a running process cannot be changed; {instead}")


def plan(spec: str) -> NoReturn:
    """Never changes anything. Raises LaunchError that names the target to give instead."""
    try:
        cgroup = (Path("/proc") / str(int(spec)) / "cgroup").read_text(errors="replace")
    except (ValueError, OSError):
        cgroup = ""
    raise refusal(spec, cgroup)
