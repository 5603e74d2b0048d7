"""Where the lines of a chunk begin that have to be looked at; searched for when they are asked for."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from specwatch.log import shapes
from specwatch.log.ahead import Scan
from specwatch.log.anchors import Engine
from specwatch.log.colours import View
from specwatch.log.routine import ACCEPTED, UNACCEPTED, Level
from specwatch.log.runs import Quiet
from specwatch.log.shapes import How, Seen


class Stops:
    """The lines of one view at which somebody who runs past the others has to stop."""

    __slots__ = ("_engine", "_foreign", "_foreign_to", "_found", "_lines", "_scan", "_strictly", "_unaccepted", "_view")

    def __init__(self, view: View, engine: Engine | None, scan: Scan | None) -> None:
        self._scan = scan
        self._view = view
        self._engine = engine
        self._found = False
        self._lines: list[int] = []
        self._unaccepted: list[int] = []
        self._foreign: list[int] = []
        self._foreign_to: Seen | None = None
        self._strictly: tuple[tuple[shapes.Shape, ...], How] | None = None

    def after(self, start: int, quiet: Quiet, seen: Seen) -> Iterator[int]:
        """Such lines from `start` on, and the end of the view after them.

        While clocks matter they are all that are not routine, else at least those that may be news to anybody; and
        where lines are shaped, all that are of no known shape.
        """
        engine, known = self._engine, seen.shapes
        if engine is None or quiet.level is not Level.BATCHES or (quiet.timed if engine.anchored else known):
            return self._searched(start, quiet, seen)
        if not self._found:
            self._find(engine, known)
        if seen.shaped and self._foreign_to != seen:
            self._foreign = _others(self._view, shapes.other(known, None, how=self._how(seen)))
            self._foreign_to = seen
        lines = self._unaccepted if quiet.unaccepted else self._lines
        stops = islice(lines, bisect_left(lines, start), None)
        if not seen.shaped or not self._foreign:
            return stops
        return merge(islice(self._foreign, bisect_left(self._foreign, start), None), stops)

    def _how(self, seen: Seen) -> How:
        """How strictly the lines of the view have to be looked at to be sure of their shape."""
        if self._strictly is None or self._strictly[0] is not seen.shapes:
            loosely = seen.plain and all(shape.may_be_loose for shape in seen.shapes)
            if self._view.has(shapes.TAB):
                how = How.STRICT
            else:
                how = How.LOOSE if loosely and not self._view.has(shapes.ESCAPE) else How.UNTABBED
            self._strictly = seen.shapes, how
        return self._strictly[1]

    def _find(self, engine: Engine, known: tuple[shapes.Shape, ...]) -> None:
        data, end = self._view.data, self._view.end
        others, unaccepted = self._scan[:2] if self._scan else engine.scan(memoryview(data)[:end])
        self._found = True
        batch = shapes.batch(known)
        lines, lasting = _starts(data, others), []
        for start in _starts(data, unaccepted):
            if batch.match(data, start - 1, end) is None:
                lines.append(start)
            else:
                place = data.find(UNACCEPTED, start, data.index(b"\n", start))
                if place >= 0 and _lasts(data, place, end, batch):
                    lasting.append(start)
        self._lines = [*sorted(set(lines)), end]
        self._unaccepted = [*sorted({*lines, *lasting}), end]

    def _searched(self, start: int, quiet: Quiet, seen: Seen) -> Iterator[int]:
        known = seen.shapes
        data, end = self._view.data, self._view.end
        telling = quiet.unaccepted and quiet.level is Level.BATCHES
        other = shapes.plain_or(known, quiet.level)
        if seen.shaped:
            other = shapes.other(known, quiet.level, timed=quiet.timed, how=self._how(seen))
        batch = shapes.batch(known)
        while start < end:
            match = other.search(data, start - 1, end)
            stop = match.end() if match else end
            found = data.find(UNACCEPTED, start, stop) if telling else -1
            while found >= 0:
                if _lasts(data, found, end, batch):
                    yield _line_at(data, found)
                found = data.find(UNACCEPTED, data.index(b"\n", found), stop)
            if stop < end:
                yield stop
            start = data.find(b"\n", stop) + 1 if stop < end else end
        yield end


def _others(view: View, other: re.Pattern[bytes]) -> list[int]:
    found = [match.end() for match in other.finditer(view.data, 0, view.end)]
    if found and found[-1] == view.end:
        found.pop()
    return found


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


def _lasts(data: bytes, place: int, end: int, batch: re.Pattern[bytes]) -> bool:
    """Whether an acceptance of 1.00 may go on: the next batch line that tells one does not say better."""
    following = data.find(ACCEPTED, data.index(b"\n", place), end)
    if following < 0 or data.startswith(UNACCEPTED, following):
        return True
    line = _line_at(data, following)
    return batch.match(data, line - 1) is None or data.find(UNACCEPTED, following, data.index(b"\n", following)) >= 0
