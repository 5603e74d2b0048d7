"""Where the lines of a chunk begin that have to be looked at; searched for when they are asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice

from specwatch.lazy import compiled
from specwatch.log import routine
from specwatch.log.ahead import Scan
from specwatch.log.anchors import Engine
from specwatch.log.clock import HEADER
from specwatch.log.routine import ACCEPTED, BATCHES, UNACCEPTED, Level
from specwatch.log.runs import Quiet
from specwatch.sources.chunks import Chunk

_BATCH = compiled(HEADER.pattern + b"(?:%b)" % "|".join(BATCHES).encode())


class Stops:
    """The lines of one chunk at which somebody who runs past the others has to stop."""

    __slots__ = ("_chunk", "_engine", "_found", "_lines", "_scan", "_unaccepted")

    def __init__(self, chunk: Chunk, engine: Engine | None, scan: Scan | None) -> None:
        self._scan = scan
        self._chunk = chunk
        self._engine = engine
        self._found = False
        self._lines: list[int] = []
        self._unaccepted: list[int] = []

    def after(self, start: int, quiet: Quiet) -> Iterator[int]:
        """Such lines from `start` on, and the end of the chunk after them.

        While clocks matter they are all that are not routine, else at least those that may be news to anybody.
        """
        if self._engine is None or quiet.level is not Level.BATCHES or (quiet.timed and self._engine.anchored):
            return self._searched(start, quiet)
        if not self._found:
            self._find(self._engine)
        lines = self._unaccepted if quiet.unaccepted else self._lines
        return islice(lines, bisect_left(lines, start), None)

    def _find(self, engine: Engine) -> None:
        data, end, _ = self._chunk
        others, unaccepted = self._scan[:2] if self._scan else engine.scan(memoryview(data)[:end])
        self._found = True
        lines, lasting = _starts(data, others), []
        for start in _starts(data, unaccepted):
            if _BATCH.match(data, start, end) is None:
                lines.append(start)
            elif (place := data.find(UNACCEPTED, start, data.index(b"\n", start))) >= 0 and _lasts(data, place, end):
                lasting.append(start)
        self._lines = [*sorted(set(lines)), end]
        self._unaccepted = [*sorted({*lines, *lasting}), end]

    def _searched(self, start: int, quiet: Quiet) -> Iterator[int]:
        data, end, _ = self._chunk
        telling = quiet.unaccepted and quiet.level is Level.BATCHES
        while start < end:
            stop = routine.next_other(data, start, end, quiet.level)
            found = data.find(UNACCEPTED, start, stop) if telling else -1
            while found >= 0:
                if _lasts(data, found, end):
                    yield _line_at(data, found)
                found = data.find(UNACCEPTED, data.index(b"\n", found), stop)
            if stop < end:
                yield stop
            start = data.find(b"\n", stop) + 1 if stop < end else end
        yield end


def _line_at(data: bytes, place: int) -> int:
    """Where the line begins that a place lies in; its newline belongs to it."""
    return data.rfind(b"\n", 0, place) + 1 if place > 0 else 1


def _starts(data: bytes, places: Iterable[int]) -> list[int]:
    """Where the lines begin that some places, in order, lie in; each once."""
    starts: list[int] = []
    end = 0
    for place in places:
        if place >= end:
            starts.append(data.rfind(b"\n", 0, place) + 1)
            end = data.find(b"\n", place) + 1
    return starts


def _lasts(data: bytes, place: int, end: int) -> bool:
    """Whether an acceptance of 1.00 may go on: the next batch line that tells one does not say better."""
    following = data.find(ACCEPTED, data.index(b"\n", place), end)
    if following < 0 or data.startswith(UNACCEPTED, following):
        return True
    line = _line_at(data, following)
    return _BATCH.match(data, line) is None or data.find(UNACCEPTED, following, data.index(b"\n", following)) >= 0
