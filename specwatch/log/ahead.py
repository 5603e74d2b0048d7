"""Searches the later two thirds of a very large log in a second process, so that two cores work on it.

The helper reads the same chunks by the same code, and sends for each where its lines lie that are to be looked at and
how many lines it has. It knows nothing of the log's state and decides nothing: a chunk for which nothing fits (it died,
or the file changed in between) is searched by whoever asked.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from specwatch.errors import SpecwatchError
from specwatch.log.anchors import Engine
from specwatch.log.colours import View
from specwatch.sources.blocks import BLOCK
from specwatch.sources.chunks import Chunk, later_chunks

FEWEST = 96 * 1024 * 1024
"""Bytes of a log from which a second process pays."""
_HEAD = struct.Struct("<qqqqq")
_PIPE = 1 << 20
"""Bytes of answers that may wait, as much as anybody may ask for: half of a gigabyte has a tenth of that."""


class Scan(NamedTuple):
    """What is known of a chunk: what `Engine.scan` gives for it, and its lines."""

    others: list[int]
    unaccepted: list[int]
    lines: int


class Helper:
    """The search of one log from a place on, chunk by chunk, in the order of the log."""

    def __init__(self, answers: BinaryIO, first: int) -> None:
        self._answers: BinaryIO | None = answers
        self._first = first

    def scan(self, chunk: Chunk) -> Scan | None:
        """The answer for a chunk; None before its part, and where none fits."""
        if self._answers is None or chunk.offset + chunk.end <= self._first:
            return None
        head = self._answers.read(_HEAD.size)
        if len(head) == _HEAD.size:
            offset, end, lines, *counts = _HEAD.unpack(head)
            found = [array("I"), array("I")]
            with suppress(EOFError):
                for one, count in zip(found, counts, strict=True):
                    one.fromfile(self._answers, count)
                if (offset, end) == (chunk.offset, chunk.end):
                    return Scan(found[0].tolist(), found[1].tolist(), lines)
        self._answers = None
        return None


@contextmanager
def helper(path: str, search: Callable[[], Engine]) -> Iterator[Helper | None]:
    """A helper for a log, None where it would not pay or processes cannot be forked."""
    first = _first(path)
    if not first:
        yield None
        return
    reading, writing = os.pipe()
    with suppress(OSError):  # more than the user's pipes may hold together
        _widen(writing)
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(path, first, writing, search)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=1 << 16) as answers:
        try:
            yield Helper(answers, first)
        finally:
            answers.close()  # before the wait: a child that still writes ends by it
            os.waitpid(child, 0)


def _first(path: str) -> int:
    """Where the helper begins, a whole number of blocks; 0 where it would not pay."""
    if sys.platform != "linux" or path == "-" or len(os.sched_getaffinity(0)) < 2:
        return 0
    try:
        size = os.path.getsize(path) if os.path.isfile(path) else 0  # noqa: PTH113, PTH202
    except OSError:
        return 0
    # who asks has the state of the log to keep in all of it, and so searches the smaller part
    return size // BLOCK // 3 * BLOCK if size >= FEWEST else 0


def _widen(writing: int) -> None:
    import fcntl

    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE)


def _work(path: str, first: int, writing: int, search: Callable[[], Engine]) -> None:
    """The child: answers until the end, and leaves without running anything of the parent's."""
    try:
        engine = search()
        with os.fdopen(writing, "wb", buffering=1 << 16) as sink:
            for chunk in later_chunks(path, first):
                view = View(chunk)
                found = [array("I", places) for places in engine.scan(memoryview(view.data)[: view.end])]
                lines = chunk.lines(1, chunk.end)
                sink.write(_HEAD.pack(chunk.offset, chunk.end, lines, len(found[0]), len(found[1])))
                for places in found:
                    places.tofile(sink)
                sink.flush()
    except (OSError, SpecwatchError, KeyboardInterrupt):
        pass  # the parent sees the end of the pipe, and meets the same error itself
    finally:
        os._exit(0)
