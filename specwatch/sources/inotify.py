"""Wakes from the kernel when something happens in a directory (inotify, Linux): hints only, the file is the truth.

Hand-written over the C library rather than the `watchdog` package: one descriptor in the daemon's own loop, no threads,
and the failures that matter (no watches left, a file system that does not tell) are seen where they happen.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE, _GONE = 0x2, 0x4, 0xC0, 0x100, 0x200, 0xC00
_MASK = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _GONE
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_EVENT = struct.Struct("iIII")

DEAF = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "gpfs", "afs", "overlay",
                  "beegfs", "virtiofs", "vboxsf"})  # fmt: skip
"""File systems on which another machine or layer may write without the kernel telling us: they are polled."""


class Inotify:
    """One inotify instance; `fileno` becomes readable when `wakes` has something."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._folders: dict[int, Path] = {}
        self._numbers: dict[Path, int] = {}

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def watch(self, folder: Path) -> None:
        """Begin to watch a directory. Raises OSError: ENOSPC when no watches are left, else as for opening it."""
        number = int(self._libc.inotify_add_watch(self._fd, os.fsencode(folder), ctypes.c_uint32(_MASK)))
        if number < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
        self._folders[number] = folder
        self._numbers[folder] = number

    def watches(self, folder: Path) -> bool:
        """Whether a directory is watched."""
        return folder in self._numbers

    def wakes(self) -> tuple[set[Path], bool]:
        """The paths that something happened to, and whether anything may have happened (events were lost)."""
        paths: set[Path] = set()
        lost = False
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return paths, lost
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                lost = lost or bool(mask & _OVERFLOW)
                folder = self._folders.get(number)
                if mask & (_IGNORED | _GONE):
                    gone = self._folders.pop(number, None)
                    if gone is not None and self._numbers.get(gone) == number:
                        del self._numbers[gone]
                    lost = True
                if folder is not None and name:
                    paths.add(folder / os.fsdecode(name))

    def close(self) -> None:
        """Give the descriptor free."""
        os.close(self._fd)


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that a path lies on, empty where that cannot be told."""
    best, kind = "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        return ""
    real = os.path.realpath(path)
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ")
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, kind = point, after.split()[0]
    return kind
