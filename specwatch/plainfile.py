"""Opens files that somebody else may have put there: whatever is no file is refused and never waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, cast


def opened(path: Path | str, *, dir_fd: int | None = None, follow: bool = True) -> BinaryIO:
    """A regular file, open for reading; a name within the directory `dir_fd` where that is given.

    A pipe would be waited for, and a device has no end. Raises OSError.
    """
    # without O_NONBLOCK the opening of a pipe waits for a writer (fifo(7))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(path, flags, dir_fd=dir_fd)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, "is a directory" if code == errno.EISDIR else "is no plain file", str(path))
    return cast("BinaryIO", os.fdopen(fd, "rb"))
