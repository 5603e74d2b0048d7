"""What a draft's `mask_embedding.pt` says of itself: the token id that it was trained for.

The file is a zip archive with a pickle inside. The pickle is read as a list of opcodes and never executed; values that
are anything but plain numbers behind plain keys are not understood.
"""

from __future__ import annotations

import os
from pathlib import Path

from specwatch.errors import ModelError
from specwatch.models import reading
from specwatch.models.base import MaskEmbedding

NAME = "mask_embedding.pt"
PICKLE_CAP = 1 << 20


def read(folder: Path) -> MaskEmbedding | None:
    """The saved id, None where the folder has no such file. Raises ModelError for one that is not understood."""
    path = folder / NAME
    descriptor = reading.open_regular(path)
    if descriptor is None:
        return None
    import zipfile

    try:
        with os.fdopen(descriptor, "rb") as file, zipfile.ZipFile(file) as archive:
            inner = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
            if inner is None or archive.getinfo(inner).file_size > PICKLE_CAP:
                raise ModelError(f"{path}: not a file that torch.save wrote")
            values = _plain_values(archive.read(inner))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    number = values.get("mask_token_id")
    if number is None or isinstance(number, bool):
        raise ModelError(f"{path}: does not say for which mask_token_id it was trained")
    return MaskEmbedding(mask_token_id=number, per_position=bool(values.get("per_position", False)))


def _plain_values(pickle: bytes) -> dict[str, int | bool]:
    """The numbers and booleans that directly follow a text: the plain entries of a pickled dict."""
    import pickletools

    found: dict[str, int | bool] = {}
    key: str | None = None
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name in ("BINPUT", "LONG_BINPUT", "MEMOIZE", "PUT"):
            continue
        if key is not None and opcode.name in ("BININT", "BININT1", "BININT2", "INT", "LONG1", "LONG"):
            found[key] = argument  # type: ignore[assignment]
        elif key is not None and opcode.name in ("NEWTRUE", "NEWFALSE"):
            found[key] = opcode.name == "NEWTRUE"
        key = argument if isinstance(argument, str) and "UNICODE" in opcode.name else None
    return found
