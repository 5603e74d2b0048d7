"""Opening files of model folders, which are downloads and so not to be trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from specwatch.errors import ModelError

CONFIG_CAP = 64 << 20
"""Largest JSON file that is read, in bytes; a config.json has a few kB, a tokenizer.json up to 40 MB."""


def open_regular(path: Path) -> int | None:
    """A descriptor of a regular file, None where there is none.

    Follows symbolic links. Raises ModelError for pipes, devices, sockets and for what may not be read.
    """
    try:
        # Without O_NONBLOCK the opening of a pipe would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {_reason(error)}") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        return None
    raise ModelError(f"{path}: not a regular file; expected a model's file")


def read(path: Path, cap: int = CONFIG_CAP) -> bytes | None:
    """The content of a file, None where there is none. Raises ModelError for a file larger than `cap` bytes."""
    descriptor = open_regular(path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(cap + 1)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {_reason(error)}") from error
    if len(content) > cap:
        raise ModelError(f"{path}: larger than {cap >> 20} MB; expected a configuration, not read")
    return content


def is_file(path: Path) -> bool:
    """Whether there is a regular file, or a link to one."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def names(folder: Path) -> list[str]:
    """The names in a folder, sorted. Raises ModelError where they cannot be listed."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 (names are all that is needed)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: cannot be listed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
