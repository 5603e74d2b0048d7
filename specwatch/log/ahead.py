"""Searches a very large log ahead in a second process, so that two cores work on it.

The helper reads the same chunks by the same code, and sends for each where its lines lie that are not routine and how
many lines it has. It knows nothing of the log's state and decides nothing: a chunk for which nothing fits (it died, or
the file changed in between) is searched by whoever asked.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from specwatch.errors import SpecwatchError
from specwatch.log import routine
from specwatch.sources.chunks import Chunk, chunks
from specwatch.sources.once import Stats

FEWEST = 96 * 1024 * 1024
"""Bytes of a log from which a second process pays."""
_HEAD = struct.Struct("<qqqqq")


class Scan(NamedTuple):
    """What is known of a chunk: ends of what tells lines from routine ones, ends of low acceptances, its lines."""

    others: list[int]
    unaccepted: list[int]
    lines: int


class Helper:
    """The search of one log, chunk by chunk, in the order of the log."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers: BinaryIO | None = answers

    def scan(self, chunk: Chunk) -> Scan | None:
        """The answer for the next chunk; None from the first one on that does not fit."""
        if self._answers is None:
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
def helper(path: str) -> Iterator[Helper | None]:
    """A helper for a log, None where it would not pay or processes cannot be forked."""
    if not _pays(path):
        yield None
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(path, writing)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=1 << 20) as answers:
        try:
            yield Helper(answers)
        finally:
            answers.close()  # before the wait: a child that still writes ends by it
            os.waitpid(child, 0)


def _pays(path: str) -> bool:
    if sys.platform != "linux" or path == "-" or len(os.sched_getaffinity(0)) < 2:
        return False
    try:
        return os.path.isfile(path) and os.path.getsize(path) >= FEWEST  # noqa: PTH113, PTH202
    except OSError:
        return False


def _work(path: str, writing: int) -> None:
    """The child: answers until the end, and leaves without running anything of the parent's."""
    try:
        with os.fdopen(writing, "wb", buffering=1 << 16) as sink:
            engine = routine.engine()
            for part in chunks(path, Stats()):
                if isinstance(part, Chunk):
                    data, end, _ = part
                    got = engine.scan(memoryview(data)[:end]) if engine else routine.scan(data, end)
                    found = [array("I", places) for places in got]
                    lines = part.lines(1, part.end)
                    sink.write(_HEAD.pack(part.offset, part.end, lines, len(found[0]), len(found[1])))
                    for places in found:
                        places.tofile(sink)
    except (OSError, SpecwatchError, KeyboardInterrupt):
        pass  # the parent sees the end of the pipe, and meets the same error itself
    finally:
        os._exit(0)
