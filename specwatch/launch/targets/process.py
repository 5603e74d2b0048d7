"""A running server, by its process id (proc(5)): read only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.launch.targets.base import Targeted, is_server

# what of a process's environment a launch hangs on: the rest is the machine's business
PREFIXES = ("SGLANG_", "SGL_", "HF_", "NCCL_", "GLOO_", "CUDA_", "TORCH_", "FLASHINFER_")


def read(spec: str) -> Iterator[Targeted]:
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
