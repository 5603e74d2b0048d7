"""A chunk of a log as it reads without colours, so that it can be searched; line for line the same.

Somebody's colours may stand in the middle of a word. What is left of escape sequences afterwards (one within another, a
very long one) makes the whole chunk one to be read line by line.
"""

from __future__ import annotations

import re

from specwatch.lazy import compiled
from specwatch.sources.chunks import Chunk

_RAW = compiled(rb"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9])")
_ESCAPED = compiled(rb"\\u001[bB](?<!\\\\u001.)(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")
"""The same in a JSON string."""
_ESCAPE = b"\x1b"
_UNICODE = b"\\u001"
_SAMPLE = 4096
"""Bytes of a chunk in which coloured records show that they are; a few elsewhere are read line by line."""


class View:
    """Whole lines, `data[1:end]` with a newline in front as in a chunk, and where each begins in the chunk.

    `coloured` and `escaped`: sequences were taken out, or the JSON escapes of some. `odd`: some may be left.
    """

    __slots__ = ("_chunk", "coloured", "data", "end", "escaped", "odd")

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self.data, self.end = chunk.data, chunk.end
        self.coloured = self.data.find(_ESCAPE, 1, self.end) >= 0
        self.escaped = not self.coloured and self.data.startswith(b"\n{") and self.data.find(_UNICODE, 1, _SAMPLE) >= 0
        self.odd = False
        if self.coloured or self.escaped:
            self.data = without_colours(self.data[: self.end], escaped=self.escaped)
            self.end = len(self.data)
            self.odd = _ESCAPE in self.data

    def has(self, what: re.Pattern[bytes]) -> bool:
        """Whether a text is in some line."""
        return what.search(self.data, 1, self.end) is not None

    def place(self, start: int) -> int:
        """Where a line of the chunk, or its end, is in the view."""
        if self.end == self._chunk.end:
            return start
        return _same_line(self._chunk.data, start, self.data, start * self.end // self._chunk.end)

    def origin(self, start: int) -> int:
        """Where a line of the view, or its end, is in the chunk."""
        if self.end == self._chunk.end:
            return start
        return _same_line(self.data, start, self._chunk.data, start * self._chunk.end // self.end)


def without_colours(data: bytes, *, escaped: bool) -> bytes:
    """Some lines without escape sequences, or without those that JSON strings hold in escapes."""
    return (_ESCAPED if escaped else _RAW).sub(b"", data)


def _same_line(data: bytes, start: int, other: bytes, guess: int) -> int:
    """Where a line of some data begins in other data of as many lines, near a guess."""
    wanted = data.count(b"\n", 0, start)
    at = other.rfind(b"\n", 0, max(guess, 1)) + 1
    count = other.count(b"\n", 0, at)
    for _ in range(count, wanted):
        at = other.index(b"\n", at) + 1
    for _ in range(wanted, count):
        at = other.rfind(b"\n", 0, at - 1) + 1
    return at
