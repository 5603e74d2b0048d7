"""What every live source is: lines that come as they are written, and a position from which they can be read again.

A source never blocks and never waits. The daemon asks `read` for lines when something woke it, `mark`s what it has
understood so far, and stores `position`; a source that is made with that position gives the lines after the mark again,
with the same places.

**Places.** `Raw.offset` of a live line is its *place*: the generation of the file in the upper bits, the byte offset in
the lower `PLACE_BITS`. Places grow along a stream over rotations and restarts, so that they order lines and name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specwatch.sources.once import LINE_CAP, RECORD_CAP, Raw

PLACE_BITS = 40
OFFSET_MASK = (1 << PLACE_BITS) - 1
BUDGET = 1024 * 1024
"""Bytes that a source may hand out at once, so that one busy log does not keep the others waiting."""


def place(generation: int, offset: int) -> int:
    """The place of a byte: of two in one stream the later one is greater."""
    return generation << PLACE_BITS | offset


class Source(Protocol):
    """One stream of lines of one server."""

    @property
    def stream(self) -> str:
        """The name under which the position is stored; unique in the daemon."""

    @property
    def more(self) -> bool:
        """Whether `read` may have lines at once, without anything new happening."""

    @property
    def ended(self) -> bool:
        """Whether no line will ever come again."""

    def read(self, now: float) -> list[Raw]:
        """Complete lines that are there now, about BUDGET bytes at most."""

    def rest(self) -> Raw | None:
        """The beginning of a line whose end is not written yet."""

    def broke(self) -> bool:
        """Whether another run of the server began right before the lines of the last `read`."""

    def mark(self) -> None:
        """All lines handed out so far are understood; `position` may move behind them."""

    def position(self) -> dict[str, object]:
        """Where to go on reading, as JSON: before everything that is not marked."""

    def where(self, spot: int, number: int) -> tuple[int, int]:
        """Line number and byte offset for people: in the file as they see it."""

    def notes(self) -> list[str]:
        """What has to be said about the source since the last call: gaps, unreadable files."""

    def filenos(self) -> Sequence[int]:
        """Descriptors that become readable when there is something to read; none for files."""

    def close(self) -> None:
        """Let go of everything."""


class Splitter:
    """Cuts the bytes of one file into lines at `\\n` only, in bounded memory; keeps the unfinished last one.

    Very long lines are cut to LINE_CAP (RECORD_CAP for the server's record of its arguments) and say so.
    """

    __slots__ = ("_cap", "_kept", "_length", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """Where the unfinished line begins."""
        self._kept = bytearray()
        self._length = 0
        self._cap = LINE_CAP

    def feed(self, data: bytes) -> list[tuple[int, str]]:
        """The lines that `data` completes, each with the offset of its first byte."""
        lines = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._length:
                self._keep(data[start:end])
                lines.append((self.offset, self.text()))
                self.offset += self._length + 1
                self._kept.clear()
                self._length = 0
            else:
                piece = data[start:end]
                if len(piece) > LINE_CAP:
                    self._keep(piece)
                    lines.append((self.offset, self.text()))
                    self._kept.clear()
                    self._length = 0
                else:
                    lines.append((self.offset, decode(piece)))
                self.offset += len(piece) + 1
            start = end + 1
        if start < len(data):
            self._keep(data[start:])
        return lines

    def skip(self, length: int) -> None:
        """Bytes of a hole, which belong to no line, before the unfinished one."""
        self.offset += length

    @property
    def pending(self) -> int:
        """Bytes of the unfinished line."""
        return self._length

    def text(self) -> str:
        """The unfinished line as far as it goes."""
        text = decode(bytes(self._kept))
        if self._length > len(self._kept):
            text += f" … [cut by specwatch: the line has {self._length} bytes]"
        return text

    def _keep(self, piece: bytes) -> None:
        if not self._length:
            self._cap = RECORD_CAP if b"server_args=" in piece[:1024] else LINE_CAP
        self._length += len(piece)
        room = self._cap - len(self._kept)
        if room > 0:
            self._kept += piece[:room]


def decode(data: bytes) -> str:
    """One line as text: without its carriage return and the hole before it, what is not UTF-8 as U+FFFD."""
    if data[-1:] == b"\r":
        data = data[:-1]
    if data[:1] == b"\0":
        data = data.lstrip(b"\0")
    return data.decode("utf-8", "replace")
