"""Room on the disk that is kept for the worst moment: given free when the disk is full, so that a crash is still told.

A disk that fills up is itself what ends servers. Whatever a receiver is told has to be stored first (nobody could say
otherwise what it knows), so a few megabytes are held by a file of ours for as long as there is room.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

SIZE = 4 * 1024 * 1024
"""Bytes that are kept: hundreds of findings with the log around them."""
PLENTY = 8 * SIZE
"""Bytes that have to be free before so much is taken."""


class Reserve:
    """The file that holds the room, in a directory of state."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "reserve"

    def keep(self) -> None:
        """Take the room, unless it is held already or the disk has not plenty."""
        with suppress(OSError):
            if self.path.exists() and self.path.stat().st_size >= SIZE:
                return
            found = os.statvfs(self.path.parent)
            if found.f_bavail * found.f_frsize < PLENTY:
                return
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, SIZE)
            finally:
                os.close(fd)

    def release(self) -> bool:
        """Give the room free; False where none was held."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True


def is_full(error: sqlite3.Error) -> bool:
    """Whether a database could not be written for want of room (sqlite.org, Result Codes)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
