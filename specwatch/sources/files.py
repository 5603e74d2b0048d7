"""Finds the files that the configured paths and globs name, now and later, and says which of them may have news.

Each directory is watched once, however many logs lie in it. Where inotify cannot hear (network and overlay file
systems, no watches left) the files are polled, and new ones looked for every `UNHEARD` seconds. Everything is looked at
again every `RESCAN` seconds anyway.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from specwatch.sources.file import Followed
from specwatch.sources.generations import base_name, is_packed
from specwatch.sources.inotify import DEAF, Inotify, file_system

POLL = 0.1
RESCAN = 10.0
"""Seconds; three times as long where no pattern has a wildcard in a directory's name, as new files are announced."""
UNHEARD = 2.0
"""Seconds between two looks for new files in a directory that announces none, or is not there yet."""
_MAGIC = ("*", "?", "[")


class Pattern(NamedTuple):
    """A path or glob of a server; `wants` narrows what the glob gives."""

    server: str
    glob: str
    wants: Callable[[str], bool] | None = None


Restore = Callable[[str], dict[str, object] | None]


class Files:
    """The files of all servers. `restore` gives the stored position of a stream."""

    def __init__(self, restore: Restore, *, listen: bool = True) -> None:
        self._restore = restore
        self._patterns: list[Pattern] = []
        self._followed: dict[str, tuple[str, Followed]] = {}
        self._by_path: dict[Path, list[str]] = {}
        self._deaf: set[Path] = set()
        self._polled: set[str] = set()
        self._notes: list[str] = []
        self._next_scan = 0.0
        self._next_look = 0.0
        self._unheard: dict[str, list[str]] = {}
        self._inotify: Inotify | None = None
        if listen:
            try:
                self._inotify = Inotify()
            except OSError as error:
                self._notes.append(f"inotify cannot be used ({error}); all files are polled")

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when something happened."""
        return self._inotify.fileno() if self._inotify else None

    def follow(self, patterns: Iterable[Pattern]) -> None:
        """From now on these are followed; streams that are no longer named are let go."""
        self._patterns = list(patterns)
        for stream, (_, followed) in list(self._followed.items()):
            server, _, path = stream.partition("|")
            if not any(server == one.server and _names(one.glob, path) for one in self._patterns):
                followed.close()
                self._forget(stream)
        self._next_scan = 0.0

    @property
    def followed(self) -> dict[str, tuple[str, Followed]]:
        """By stream: the server and the source."""
        return self._followed

    def due(self, now: float) -> float:
        """Seconds until `wake` has to be called without an event."""
        scan = max(0.0, min(self._next_scan, self._next_look if self._unheard else self._next_scan) - now)
        return min(POLL, scan) if self._polled else scan

    def wake(self, now: float) -> set[str]:
        """The streams that may have news."""
        woken = set(self._polled)
        lost = False
        if self._inotify is not None:
            paths, lost = self._inotify.wakes()
            for path in paths:
                known = self._by_path.get(path)
                if known is None and (base := base_name(path.name)):
                    known = self._by_path.get(path.with_name(base))
                if known is None and any(_names(one.glob, str(path)) for one in self._patterns):
                    lost = True  # a new file
                woken.update(known or ())
        if self._unheard and now >= self._next_look:
            # only their names are asked for: a look at everything costs milliseconds where there are many files
            self._next_look = now + UNHEARD
            lost = lost or any(_given(pattern) != names for pattern, names in self._unheard.items())
        if lost or now >= self._next_scan:
            self._scan()
            self._next_look = now + UNHEARD
            wild = any(sign in str(Path(one.glob).parent) for one in self._patterns for sign in _MAGIC)
            self._next_scan = now + (RESCAN if wild or self._polled else 3 * RESCAN)
            woken.update(self._followed)
        return woken

    def notes(self) -> list[str]:
        """What has to be said."""
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> None:
        """Let go of everything."""
        for _, followed in self._followed.values():
            followed.close()
        if self._inotify:
            self._inotify.close()

    def _scan(self) -> None:
        self._unheard = {}
        held = {inode for _, followed in self._followed.values() for inode in followed.held}
        for server, pattern, wants in self._patterns:
            magic = any(sign in pattern for sign in _MAGIC)
            # listened to first: a file that comes meanwhile is seen or announced
            heard = self._listen(_fixed_part(pattern) if magic else Path(pattern).parent)
            names = _given(pattern) if magic else [pattern]
            if magic and not heard:
                self._unheard[pattern] = names
            known = set(names)
            for name in names:
                stream = f"{server}|{name}"
                if stream in self._followed or (magic and self._is_part(name, known, held)):
                    continue
                if wants is None or wants(name):
                    self._follow(server, stream, Path(name))
        for stream, (_, followed) in self._followed.items():
            self._hear(stream, followed.path)

    def _is_part(self, name: str, names: set[str], held: set[tuple[int, int]]) -> bool:
        """Whether a file that a glob gives is a rotated part of another log, not a log of its own."""
        path = Path(name)
        base = base_name(path.name)
        if is_packed(path.name) or (
            base and (str(path.with_name(base)) in names or path.with_name(base) in self._by_path)
        ):
            return True
        try:
            seen = path.stat()
        except OSError:
            return True
        return not stat.S_ISREG(seen.st_mode) or (seen.st_dev, seen.st_ino) in held

    def _follow(self, server: str, stream: str, path: Path) -> None:
        self._followed[stream] = (server, Followed(path, stream, self._restore(stream)))
        self._by_path.setdefault(path, []).append(stream)

    def _forget(self, stream: str) -> None:
        _, followed = self._followed.pop(stream)
        self._polled.discard(stream)
        self._by_path[followed.path].remove(stream)

    def _hear(self, stream: str, path: Path) -> None:
        """Listen to the directory of a name and, behind a symlink, of the file; poll where that cannot be."""
        heard = self._listen(path.parent)
        real = Path(os.path.realpath(path))
        if real.parent != path.parent:
            heard = self._listen(real.parent) and heard
            if stream not in self._by_path.setdefault(real, []):
                self._by_path[real].append(stream)
        (self._polled.discard if heard else self._polled.add)(stream)

    def _listen(self, folder: Path) -> bool:
        if self._inotify is None or folder in self._deaf:
            return False
        if self._inotify.watches(folder):
            return True
        if (kind := file_system(folder)) in DEAF:
            self._deaf.add(folder)
            self._notes.append(f"{folder}: is on {kind}, where changes are not announced; its logs are polled")
            return False
        try:
            self._inotify.watch(folder)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._deaf.add(folder)
                reason = "no inotify watches are left" if error.errno == errno.ENOSPC else error.strerror
                self._notes.append(f"{folder}: cannot be watched ({reason}); its logs are polled")
            return False
        return True


def _given(pattern: str) -> list[str]:
    """The names that a glob gives now."""
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (absolute)


def _fixed_part(pattern: str) -> Path:
    """The directory of a glob before its first wildcard."""
    parts = Path(pattern).parts
    end = next(n for n, part in enumerate(parts) if any(sign in part for sign in _MAGIC))
    return Path(*parts[:end])


def _names(pattern: str, path: str) -> bool:
    """Whether a pattern names a path, as `glob` would see it (dots and `**` included)."""
    if pattern == path:
        return True
    if not any(sign in pattern for sign in _MAGIC):
        return False
    import fnmatch

    wild, parts = Path(pattern).parts, Path(path).parts
    if "**" in wild:
        return fnmatch.fnmatchcase(path, pattern.replace("**/", "*"))
    return len(wild) == len(parts) and all(
        fnmatch.fnmatchcase(part, one) for one, part in zip(wild, parts, strict=True)
    )
