"""Reads a log once in large chunks of whole lines, for a reader that skips most of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from specwatch.errors import SourceError
from specwatch.sources.blocks import BLOCK, blocks, later_blocks, name_of
from specwatch.sources.once import LINE_CAP, LongLine, Stats, judged


class Chunk(NamedTuple):
    """Whole lines: `data[1:end]`, with a newline in front as well; `offset` is where `data[0]` would be in the log."""

    data: bytes
    end: int
    offset: int

    def lines(self, start: int, end: int) -> int:
        """How many lines end between two places of the data."""
        if end == self.end and start == 1:
            return len(self.data) - len(self.data.replace(b"\n", b"")) - 1
        if end - start < LINE_CAP or sys.version_info >= (3, 13):
            return self.data.count(b"\n", start, end)
        part = self.data[start:end]
        return len(part) - len(part.replace(b"\n", b""))  # before 3.13 counting takes nearly twice as long


class Piece(NamedTuple):
    """One line that is longer than a chunk, or has no end: its text as far as it is kept, and where it begins."""

    text: str
    offset: int


def chunks(path: str, stats: Stats) -> Iterator[Chunk | Piece]:
    """The lines of a log, `-` for standard input, in order and in bounded memory; `stats.bytes` counts along.

    Raises SourceError as `once.read` does: for what cannot be read, after what could be.
    """
    return cut(judged(blocks(path), name_of(path)), stats)


def cut(source: Iterable[bytes], stats: Stats) -> Iterator[Chunk | Piece]:
    """The lines of some blocks of bytes."""
    cutter = _Cutter()
    try:
        for block in source:
            stats.bytes += len(block)
            yield from cutter.cut(block)
    except SourceError:
        if stats.bytes:
            yield from cutter.rest()
        raise
    yield from cutter.rest()


def later_chunks(path: str, start: int) -> Iterator[Chunk]:
    """Of the chunks of a plain log those that `chunks` cuts behind a place, a whole number of blocks from its start.

    None of a compressed one. The first are others where a line is longer than a block.
    """
    cutter = _Cutter(start - BLOCK)
    for block in later_blocks(path, start - BLOCK):
        for part in cutter.cut(block):
            if isinstance(part, Chunk) and part.offset + part.end > start:
                yield part


class _Cutter:
    """Cuts blocks after their last newline and keeps what follows it for the next one."""

    __slots__ = ("_kept", "_long", "_offset")

    def __init__(self, start: int = 0) -> None:
        self._kept = b"\n"
        self._long: LongLine | None = None
        self._offset = start - 1

    def cut(self, block: bytes) -> Iterator[Chunk | Piece]:
        if self._long is not None:
            newline = block.find(b"\n")
            self._long.add(block if newline < 0 else block[:newline])
            if newline < 0:
                return
            long, self._long = self._long, None
            yield Piece(long.text(), self._offset + 1)
            self._offset += 1 + long.length
            self._kept, block = b"\n", block[newline + 1 :]
        data = self._kept + block
        end = data.rfind(b"\n") + 1
        if end > 1:
            offset = self._offset
            self._kept = data[end - 1 :]
            self._offset += end - 1
            yield Chunk(data, end, offset)
        elif len(data) <= LINE_CAP:
            self._kept = data
        else:
            self._long = LongLine()
            self._long.add(data[1:])

    def rest(self) -> Iterator[Piece]:
        """The line that the log ends in."""
        long = self._long
        if long is None:
            long = LongLine()
            long.add(self._kept[1:])
        if long.length:
            yield Piece(long.text(), self._offset + 1)
