"""Reads a server's logs for an action: what is in them now, and what comes after a restart.

The same assembler as everywhere (`watching.live`), over files from a byte on and over the journal from a cursor on.
No position is stored: an action begins at the end of what there is.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from specwatch.domain import Value
from specwatch.errors import ApplyError
from specwatch.log.incidents import Known
from specwatch.plainfile import opened
from specwatch.settings import Server
from specwatch.sources import container
from specwatch.sources.base import Splitter
from specwatch.sources.journal import OWN, Journal
from specwatch.sources.once import Raw
from specwatch.watching.live import Change, Live

TAIL = 64 * 1024 * 1024
"""Bytes at the end of a log that a diagnosis reads."""
JOURNAL_SINCE = "-24h"
JOURNAL_LINES = 200_000
_BLOCK = 1024 * 1024
_MARK = 1024


def files(server: Server) -> list[Path]:
    """The files that a server's logs name now, the one that was written last at the end."""
    found: dict[Path, float] = {}
    for log in server.logs:
        for name in _names(server, log):
            with contextlib.suppress(OSError):
                found[Path(name)] = _written(name)
    return sorted(found, key=found.__getitem__)


def newest(server: Server) -> list[Path]:
    """Of each log that is a file, the one that was written last."""
    last: list[Path] = []
    for log in server.logs:
        dated = []
        for name in _names(server, log):
            with contextlib.suppress(OSError):
                dated.append((_written(name), Path(name)))
        last += [max(dated)[1]] if dated else []
    return list(dict.fromkeys(last))


def _written(name: str) -> float:
    """When a file was written last. Raises OSError for what is none, as a pipe."""
    found = os.stat(name)  # noqa: PTH116
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is no plain file", name)
    return found.st_mtime


def units(server: Server) -> list[str]:
    """The units whose journal a server's logs name."""
    return [log.partition(":")[2] for log in server.logs if log.startswith("journal:")]


def _names(server: Server, log: str) -> Iterator[str]:
    kind, _, rest = log.partition(":")
    if log.startswith("/"):
        pattern, wants = log, None
    elif kind == "docker":
        _, pattern, wants = container.docker(server.name, rest)
    elif kind == "pods":
        _, pattern, wants = container.pods(server.name, rest)
    else:
        return
    names = glob.glob(pattern, recursive=True) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207 (absolute)
    packed = (".gz", ".zst", ".xz", ".bz2")
    yield from (name for name in names if not name.endswith(packed) and (wants is None or wants(name)))


def lines(path: Path, most: int = TAIL) -> Iterator[Raw]:
    """The lines at the end of a file, places as offsets from its start. Raises ApplyError."""
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - most)
            file.seek(start)
            if start:
                file.readline()
            splitter, number = Splitter(file.tell()), 0
            while block := file.read(min(_BLOCK, max(0, size - file.tell()))):
                for offset, text in splitter.feed(block):
                    number += 1
                    yield Raw(str(path), number, offset, text)
            if splitter.pending:
                yield Raw(str(path), number + 1, splitter.offset, splitter.text())
    except OSError as error:
        raise ApplyError(f"{path}: the log cannot be read: {error.strerror or error}") from None


def journal(unit: str) -> Iterator[tuple[bool, Raw]]:
    """The entries of a unit, each with whether another run of it began right before. Raises ApplyError."""
    command = ("journalctl", f"--unit={unit}", "--merge", "--output=json", "--all", "--quiet", "--no-pager")
    last, count = "", 0
    for line in _output((*command, f"--since={JOURNAL_SINCE}", f"--lines={JOURNAL_LINES}")):
        try:
            entry = json.loads(line)
            message = entry.get("MESSAGE")
        except (ValueError, AttributeError):
            continue
        if message is None or entry.get("_COMM") == OWN or entry.get("SYSLOG_IDENTIFIER") in (OWN, "systemd"):
            continue
        invocation = str(entry.get("_SYSTEMD_INVOCATION_ID") or "")
        began, last = bool(invocation and last and invocation != last), invocation or last
        count += 1
        kept = {name: entry[name] for name in ("MESSAGE", "__REALTIME_TIMESTAMP") if name in entry}
        yield began, Raw(f"journal:{unit}", count, count, json.dumps(kept))


def _output(words: tuple[str, ...]) -> Iterator[bytes]:
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise ApplyError(f"{words[0]}: cannot be run: {error.strerror or error}") from None
    with process:
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018
        yield from process.stdout
        said = process.stderr.read(2000).decode("utf-8", "replace").strip()
    if process.returncode:
        raise ApplyError(f"{' '.join(words[:2])}: {said or process.returncode}")


def _cursor(unit: str) -> str:
    """The end of a unit's journal, empty where it has no entry or cannot be read."""
    words = ("journalctl", f"--unit={unit}", "--merge", "--output=json", "--quiet", "--no-pager", "--lines=1")
    with contextlib.suppress(ApplyError, ValueError, KeyError):
        for line in _output(words):
            return str(json.loads(line)["__CURSOR"])
    return ""


@dataclass(slots=True)
class _File:
    """One file that is followed: which one it is, how far it was read.

    `mark` stands for what is written before `begin`, where the tail began in it: copies of the file have it, too.
    """

    inode: int
    offset: int
    splitter: Splitter
    live: Live
    number: int = 0
    begin: int = 0
    mark: str = ""


@dataclass(slots=True)
class Tail:
    """What a server's logs say from now on, or from where another tail began. `changes` asks; nothing is awaited."""

    server: Server
    role_of: Known
    begin: Mapping[str, Value] = field(default_factory=dict)
    _files: dict[Path, _File] = field(default_factory=dict)
    _ever: list[_File] = field(default_factory=list)
    _journals: list[tuple[Journal, Live]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin = self.begin or self._now()
        for log, place in self.begin.items():
            if not log.startswith("journal:") and isinstance(place, list):
                inode, offset = (one if isinstance(one, int) else 0 for one in place[:2])
                self._files[Path(log)] = self._followed(Path(log), inode, offset, "".join(map(str, place[2:])))
        for unit in units(self.server):
            cursor = str(self.begin.get(f"journal:{unit}") or "")
            position = cast("dict[str, object] | None", {"cursor": cursor} if cursor else None)
            stream = f"{self.server.name}|journal:{unit}"
            self._journals.append((Journal(unit, stream, position), Live(stream, self.role_of)))

    def changes(self, now: float) -> list[Change]:
        """What is new: incidents, those that no longer stand, that the server is ready."""
        found: list[Change] = []
        for path in files(self.server):
            with contextlib.suppress(OSError):
                found += self._file(path, now)
        for source, live in self._journals:
            while True:
                raws = source.read(now)
                found += live.restart(now) if source.broke() else []
                for raw in raws:
                    live.feed(raw, now)
                if not source.more:
                    break
            found += _looked(live, now)
        return found

    def _now(self) -> dict[str, Value]:
        """The ends of all logs: inode and offset of a file and what stands before it, the cursor of a journal."""
        begin: dict[str, Value] = {f"journal:{unit}": _cursor(unit) for unit in units(self.server)}
        for path in files(self.server):
            with contextlib.suppress(OSError), opened(path) as file:
                found = os.fstat(file.fileno())
                begin[str(path)] = [found.st_ino, found.st_size, _mark(file, found.st_size)]
        return begin

    def close(self) -> None:
        """Let go of everything."""
        for source, _ in self._journals:
            source.close()

    def _followed(self, path: Path, inode: int, offset: int, mark: str = "") -> _File:
        live = Live(f"{self.server.name}|{path}", self.role_of)
        begin = offset if mark else 0
        made = _File(inode=inode, offset=offset, splitter=Splitter(offset), live=live, begin=begin, mark=mark)
        self._ever.append(made)
        return made

    def _anew(self, path: Path, file: BinaryIO, found: os.stat_result) -> _File:
        """What is in the place of a name now: a file that was renamed, or copied, goes on where it was read to."""
        for known in self._ever:
            there = known.inode == found.st_ino
            if found.st_size < known.offset or not (_mark(file, known.begin) == known.mark if known.begin else there):
                continue
            return known if there else self._followed(path, found.st_ino, known.offset)
        return self._followed(path, found.st_ino, 0)

    def _file(self, path: Path, now: float) -> list[Change]:
        with opened(path) as file:
            found = os.fstat(file.fileno())
            known = self._files.get(path)
            if known is None or known.inode != found.st_ino or found.st_size < known.offset:
                known = self._files[path] = self._anew(path, file, found)  # new, rotated or truncated
            file.seek(known.offset)
            while block := file.read(_BLOCK):
                known.offset += len(block)
                for offset, text in known.splitter.feed(block):
                    known.number += 1
                    known.live.feed(Raw(str(path), known.number, offset, text), now)
        return _looked(known.live, now)


def _mark(file: BinaryIO, end: int) -> str:
    """Stands for the bytes before a place in a file, empty for its start; the file is left somewhere else."""
    file.seek(max(0, end - _MARK))
    data = file.read(min(end, _MARK))
    return hashlib.sha256(data).hexdigest() if data else ""


def _looked(live: Live, now: float) -> list[Change]:
    due = live.due(now)
    return live.look(now) if due is not None and due <= 0 else []
