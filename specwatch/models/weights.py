"""The shapes of a model's tensors, from the headers of its safetensors files; no weights are read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from specwatch.errors import ModelError
from specwatch.lazy import compiled
from specwatch.models import reading

HEADER_CAP = 100 << 20
"""Largest header in bytes: the format's own limit."""
MAX_SHARDS = 2000

_OTHER_BIN = compiled(r"(training_args|optimizer|scheduler|scaler|random_states.*|rng_state.*)\.(bin|pt|pth)")
_OTHER_PT = ("mask_embedding.pt", "head.pt")


def shapes(folder: Path) -> Mapping[str, tuple[int, ...]]:
    """Name to shape of every tensor in the folder's *.safetensors; empty where there are none.

    Raises ModelError for a file that is cut off or is no safetensors file.
    """
    found: dict[str, tuple[int, ...]] = {}
    shards = [name for name in reading.names(folder) if name.endswith(".safetensors")]
    if len(shards) > MAX_SHARDS:
        raise ModelError(f"{folder}: {len(shards)} safetensors files, expected at most {MAX_SHARDS}")
    for name in shards:
        found |= header(folder / name)
    return found


def header(path: Path) -> dict[str, tuple[int, ...]]:
    """Name to shape of the tensors in one safetensors file."""
    descriptor = reading.open_regular(path)
    if descriptor is None:
        raise ModelError(f"{path}: not there (a link without its target?); download the model again")
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise ModelError(f"{path}: cut off: {size} bytes are fewer than its header needs; download it again")
        if length > HEADER_CAP:
            raise ModelError(f"{path}: header of {length} bytes; the format allows {HEADER_CAP}")
        content = file.read(length)
    try:
        entries = json.loads(content)
        end = 0
        found = {}
        for name, entry in entries.items():
            if name != "__metadata__":
                found[name] = tuple(int(extent) for extent in entry["shape"])
                end = max(end, int(entry["data_offsets"][1]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path}: its header is not that of a safetensors file") from error
    if 8 + length + end > size:
        raise ModelError(f"{path}: cut off: {size} of {8 + length + end} bytes; download it again")
    return found


def weight_files(folder: Path) -> tuple[str, ...]:
    """The names of the files that hold weights: safetensors where there are some, else torch's formats, else gguf."""
    names = [name for name in reading.names(folder) if reading.is_file(folder / name)]
    for suffixes in ((".safetensors",), (".bin", ".pt", ".pth"), (".gguf",)):
        found = [n for n in names if n.endswith(suffixes) and not _OTHER_BIN.fullmatch(n) and n not in _OTHER_PT]
        if found:
            return tuple(found)
    return ()


def weight_bytes(folder: Path) -> int:
    """The size of all weights in bytes, 0 where there are none."""
    return sum((folder / name).stat().st_size for name in weight_files(folder))
