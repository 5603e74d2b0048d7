"""Which kind of GPU a server runs on: by the name that somebody gives, or by what the log of a crash tells.

SGLang takes some defaults by the GPU (srt/runtime_context.py: PlatformContext), and no launch command names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from specwatch.lazy import compiled


class Gpu(NamedTuple):
    """One kind of GPU. `capability` is NVIDIA's compute capability, None for AMD (`rocm`)."""

    name: str
    capability: tuple[int, int] | None = None

    @property
    def rocm(self) -> bool:
        """Whether it is AMD's."""
        return self.capability is None

    def is_sm(self, major: int) -> bool:
        """Whether it is of an NVIDIA generation: 8 Ampere and Ada, 9 Hopper, 10 Blackwell, 12 its desktop kind."""
        return self.capability is not None and self.capability[0] == major


_NVIDIA: dict[tuple[int, int], str] = {
    (7, 0): "V100",
    (7, 5): "T4",
    (8, 0): "A100 A800 A30",
    (8, 6): "A10 A10G A16 A40 A6000",
    (8, 9): "L4 L20 L40 L40S RTX4090",
    (9, 0): "H100 H200 H800 H20 GH200",
    (10, 0): "B200 GB200",
    (10, 3): "B300 GB300",
    (12, 0): "RTX5090 RTXPRO6000",
    (12, 1): "GB10",
}
_AMD = "MI210 MI250 MI250X MI300A MI300X MI308X MI325X MI350X MI355X"
GPUS = {name: Gpu(name=name, capability=at) for at, names in _NVIDIA.items() for name in names.split()}
GPUS |= {name: Gpu(name=name) for name in _AMD.split()}

_MODEL = compiled(r"(?<![A-Z0-9])(?:RTX[ -]?(?:PRO[ -]?)?\d{4}|[A-Z]{1,2}\d{1,4}[A-Z]?)(?![A-Z0-9])")
_CAPABILITY = compiled(r"(?:SM_?|COMPUTE CAPABILITY:? *)?(\d{1,2})\.?(\d)A?$")


@cache
def kind(name: str) -> Gpu | None:
    """The GPU that a name means: `H100`, `NVIDIA H100 80GB HBM3`, `sm_90`, `9.0`; None for one that is not known."""
    name = name.strip().upper()
    if found := _CAPABILITY.match(name):
        at = int(found[1]), int(found[2])
        return Gpu(name=f"sm_{at[0]}{at[1]}", capability=at) if at in _NVIDIA else None
    for model in _MODEL.findall(name.replace("_", " ")):
        if got := GPUS.get(re.sub(r"[ -]", "", model)):
            return got
    return None


_MARKS = ("Compute capability", "NVIDIA", "device_name=")
"""Texts of which every line that names a GPU holds one."""
_TOLD = compiled(
    r"(?:- )?Compute capability: (?P<capability>\d{2,3})\b"
    r"|(?:\S+\.py:\d+: UserWarning: )?(?P<named>NVIDIA [\w .-]{2,60}?) with CUDA capability sm_"
    r"|\|\s+\d+\s+(?P<smi>NVIDIA [\w .-]{2,40}?)\s+(?:On|Off)\s+\|"
    r"|.{0,300}?\bdevice_name=(?P<device>(?:NVIDIA|AMD)_\w{2,60})[,.]"
)
"""How the server's own lines name its GPU: sgl_kernel, torch, nvidia-smi, and the files of tuned kernels."""


def told(lines: Iterable[str]) -> str:
    """The GPU that lines of a server's log name; "" where none does, or where they name several kinds."""
    found: dict[Gpu, None] = {}
    for line in lines:
        if not any(mark in line for mark in _MARKS):
            continue
        if (match := _TOLD.match(line.strip())) and (gpu := kind(next(filter(None, match.groups())))):
            found[gpu] = None
    kinds = {gpu.capability for gpu in found}
    return next(iter(found)).name if len(kinds) == 1 else ""
