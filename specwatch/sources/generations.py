"""Which file is which: identity by device, inode and content, and where the rest of a rotated file is now.

A name says nothing: it is given to the next file at each rotation. An inode says little: it is used again. So a
generation of a log (one life of one file) is known by device and inode *and* by its first bytes *and* by the bytes just
before the offset up to which it was read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from specwatch.errors import SourceError
from specwatch.sources.base import Splitter
from specwatch.sources.blocks import blocks

HEAD = 1024
TAIL = 256
_PACKED = re.compile(r"(?i)\.(?:gz|zst|zstd|bz2|xz)$")
_TURNED = re.compile(r"[.-]\d[\dTZ.:_-]*(?:\.(?:gz|zst|zstd|bz2|xz))?$")


def is_packed(name: str) -> bool:
    """Whether a name says that the file is compressed."""
    return _PACKED.search(name) is not None


def base_name(name: str) -> str | None:
    """The log that a rotated part belongs to by its name: `a.log` for `a.log.1`, `a.log-20261130.gz`, `a-2.log`."""
    plain = _PACKED.sub("", name)
    if match := _TURNED.search(plain):
        return plain[: match.start()] or None
    stem, dot, suffix = plain.rpartition(".")
    if dot and suffix.isalpha() and (match := re.search(r"[.-]\d[\dTZ:_-]*$", stem)):
        return f"{stem[: match.start()]}.{suffix}"
    return plain if plain != name else None


@dataclass(slots=True, eq=False)
class Generation:
    """One life of a log file. `read` and `lines` count what was handed out, `safe` and `safe_lines` what was marked.

    `head` are its first bytes, `tail` those just before `read`. `base` is the number of lines in the stream
    before it, -1 until it has a line.
    Either `fd` is open, or `chunks` gives what is left of a compressed part, or it is only remembered.
    """

    id: int
    dev: int
    ino: int
    base: int = -1
    read: int = 0
    lines: int = 0
    safe: int = 0
    safe_lines: int = 0
    head: bytes = b""
    tail: bytes = b""
    safe_tail: bytes = b""
    fd: int = -1
    chunks: Iterator[bytes] | None = None
    quiet_since: float = 0.0
    split: Splitter = field(default_factory=Splitter)
    past: tuple[int, str] | None = None
    """The mark of one that was read before a restart and was not found again."""

    def took(self, data: bytes) -> None:
        """These bytes were read."""
        if self.read <= len(self.head) < HEAD:
            self.head = max(self.head, (self.head[: self.read] + data)[:HEAD], key=len)
        self.tail = (self.tail + data)[-TAIL:]
        self.read += len(data)

    def is_unchanged(self, fd: int) -> bool:
        """Whether a file still has the bytes that were read of this generation."""
        if self.head and os.pread(fd, len(self.head), 0) != self.head:
            return False
        return not self.tail or os.pread(fd, len(self.tail), self.read - len(self.tail)) == self.tail

    def mark(self) -> None:
        """What was handed out is understood."""
        unfinished = self.split.pending
        self.safe, self.safe_lines = self.split.offset, self.lines
        self.safe_tail = self.tail[: len(self.tail) - unfinished] if unfinished < len(self.tail) else b""

    def save(self) -> dict[str, object]:
        """As JSON."""
        return {
            "id": self.id, "dev": self.dev, "ino": self.ino, "base": self.base, "offset": self.safe,
            "lines": self.safe_lines, "head": mark_of(self.head),
            "tail": [len(self.safe_tail), _hash(self.safe_tail)],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stored:
    """A generation as it was stored."""

    id: int
    dev: int
    ino: int
    base: int
    offset: int
    lines: int
    head: tuple[int, str]
    tail: tuple[int, str]

    @classmethod
    def load(cls, saved: dict[str, object]) -> Stored:
        """From JSON. Raises KeyError, TypeError or ValueError for what is none."""
        numbers = {name: int(cast("int", saved[name])) for name in ("id", "dev", "ino", "base", "offset", "lines")}
        hashes = []
        for name in ("head", "tail"):
            length, digest = cast("tuple[int, str]", saved[name])
            hashes.append((int(length), str(digest)))
        return cls(**numbers, head=hashes[0], tail=hashes[1])

    def generation(self) -> Generation:
        """To go on from."""
        made = Generation(self.id, self.dev, self.ino, self.base, split=Splitter(self.offset))
        made.read = made.safe = self.offset
        made.lines = made.safe_lines = self.lines
        return made

    def fits(self, fd: int) -> bool:
        """Whether an open file begins with what was read of this generation, up to the offset."""
        head, tail = os.pread(fd, self.head[0], 0), os.pread(fd, self.tail[0], max(0, self.offset - self.tail[0]))
        return (
            os.fstat(fd).st_size >= max(self.offset, self.head[0])
            and (len(head), _hash(head)) == self.head
            and (len(tail), _hash(tail)) == self.tail
        )

    def tells_anything(self) -> bool:
        """Whether there is content to know it by."""
        return self.head[0] > 0


class Found(NamedTuple):
    """Where a generation goes on: an open file, or (`fd` is -1) what is left of a compressed part."""

    fd: int
    chunks: Iterator[bytes] | None
    dev: int
    ino: int
    head: bytes


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def siblings(path: Path) -> list[Path]:
    """The rotated parts of a log beside it, oldest change first."""
    found = []
    stem = path.stem
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if not entry.name.startswith(stem):  # cheap, in a directory of a thousand logs
                    continue
                if entry.name != path.name and base_name(entry.name) == path.name and entry.is_file():
                    found.append((entry.stat().st_mtime_ns, Path(entry.path)))
    except OSError:
        return []
    return [part for _, part in sorted(found)]


def unpacked_rest(path: Path, stored: Stored) -> Iterator[bytes] | None:
    """What a compressed part holds behind the offset of a generation; None where it is not that generation."""
    at, kept = 0, b""
    try:
        head = b""
        source = blocks(str(path))
        for block in source:
            if len(head) < stored.head[0]:
                head = (head + block)[: stored.head[0]]
                if len(head) == stored.head[0] and _hash(head) != stored.head[1]:
                    return None
            at += len(block)
            kept = (kept + block)[-max(TAIL + len(block), 1) :]
            if at >= stored.offset:
                over = at - stored.offset
                before = kept[: len(kept) - over][-stored.tail[0] :] if stored.tail[0] else b""
                if _hash(before) != stored.tail[1] or _hash(head) != stored.head[1]:
                    return None
                return _then(kept[len(kept) - over :] if over else b"", source)
    except SourceError:
        return None
    return None


def _then(first: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    try:
        yield from source
    except SourceError:
        return


Mark = tuple[int, str]
"""Length and hash of the first bytes of a file, by which it is known again."""


def mark_of(head: bytes) -> Mark:
    """The mark of a file that begins with these bytes."""
    return len(head), _hash(head)


def is_marked(head: bytes, mark: Mark) -> bool:
    """Whether a file that begins with `head` is the one of a mark: it may have grown since, if the mark is long."""
    length, digest = mark
    long_enough = length >= HEAD // 4 or length == len(head)
    return 0 < length <= len(head) and long_enough and _hash(head[:length]) == digest


def unpacked_head(path: Path) -> bytes:
    """The first bytes of a compressed part, empty where it cannot be read."""
    try:
        return next(blocks(str(path)), b"")[:HEAD]
    except SourceError:
        return b""
