"""The fast way from a log to its incidents: routine lines are run past, the others framed one by one.

It gives exactly what `Framer` and `Assembler` give of every line, because they say themselves (`quiet`) which routine
lines would change nothing in the state they are in:

- *no candidate is open* (nearly always): batches, access lines and logged requests change nothing, and of the other
  lines only those whose message is known to somebody (`Assembler.is_news`);
- *a candidate waits for what denies it*: the same lines as long as their clocks lie within its grace;
- *a traceback is being read, a start-up settles, records may be JSON, colours are in the text*: every line counts.

What a skipped line leaves behind is its number, counted, and its clock, read from the last bytes if it is asked for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from specwatch.domain import Incident
from specwatch.errors import SourceError
from specwatch.log import routine
from specwatch.log.ahead import Helper, Scan, helper
from specwatch.log.clock import HEADER, LOOKBACK, seconds
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler, Known
from specwatch.log.routine import ACCEPTED, BATCHES, UNACCEPTED, Level
from specwatch.log.runs import Quiet
from specwatch.sources.blocks import name_of
from specwatch.sources.chunks import Chunk, Piece, chunks
from specwatch.sources.once import LINE_CAP, LongLine, Raw, Stats, decoded

_SAME_SECOND = re.compile(rb"(\[2.{18})[^\n]*+\n(?:\1[^\n]*+\n|INFO:[^\n]*+\n)*+")
_LONGEST_MESSAGE = 4096
WORTH = 256 * 1024
"""Bytes of a log that are read line by line before expressions are compiled to skip any."""
_COLOURS = b"\x1b"
_TWO = ord("2")
_BATCH = re.compile(HEADER.pattern + b"(?:%b)" % "|".join(BATCHES).encode())

Search = Callable[[], routine.Hyperscan | None]


def incidents(
    path: str, stats: Stats, known: Known | None = None, *, cores: int = 1, search: Search = routine.engine
) -> Iterator[Incident]:
    """The incidents of one log as `log.incidents` gives them for all its lines; `stats` counts along.

    `search` is asked for a faster engine once a log turns out to be long, and with more than one of `cores` a very long
    one is searched ahead in a second process. Raises SourceError as `sources.once.read`.
    """
    if cores < 2:
        yield from skim(chunks(path, stats), name_of(path), stats, known, search)
        return
    with helper(path) as ahead:
        yield from skim(chunks(path, stats), name_of(path), stats, known, search, ahead=ahead)


def skim(
    parts: Iterable[Chunk | Piece],
    source: str,
    stats: Stats,
    known: Known | None = None,
    search: Search = routine.engine,
    fewest: int = routine.FEWEST,
    ahead: Helper | None = None,
) -> Iterator[Incident]:
    """The incidents of a log that was cut into parts; `search` is asked from `fewest` bytes on, lines skipped
    from WORTH on, or from the first if `fewest` is less."""
    skimmer = Skimmer(source, stats, known)
    unasked = True
    try:
        for part in parts:
            if isinstance(part, Piece):
                yield from skimmer.line(part.text, part.offset)
                continue
            if unasked and stats.bytes >= fewest:
                skimmer.engine, unasked = search(), False
            skimmer.skips = stats.bytes >= min(fewest, WORTH)
            yield from skimmer.chunk(part, ahead.scan(part) if ahead else None)
    except SourceError:
        yield from skimmer.flush()
        raise
    yield from skimmer.flush()


class Skimmer:
    """Takes the chunks of one log in order and gives incidents."""

    def __init__(self, source: str, stats: Stats, known: Known | None = None) -> None:
        self.engine: routine.Hyperscan | None = None
        self.skips = True
        self._source = source
        self._stats = stats
        self._framer = Framer(source)
        self._assembler = Assembler(known)

    def chunk(self, chunk: Chunk, scan: Scan | None = None) -> Iterator[Incident]:
        """Takes whole lines in, with what was found in them already."""
        data, end = chunk.data, chunk.end
        others = _Others(chunk, self.engine, scan)
        plain = self.skips and data.find(_COLOURS, 1, end) < 0
        start = 1
        while start < end:
            if plain and (quiet := self._quiet()):
                stop = self._next_news(chunk, others, start, quiet)
                if stop > start:
                    self._stats.lines += scan.lines if scan and stop - start == end - 1 else chunk.lines(start, stop)
                    self._assembler.skipped(
                        data[max(start, _line_at(data, stop - LOOKBACK)) : stop], chunk.offset + stop
                    )
                    start = stop
                    continue
            stop = data.index(b"\n", start)
            yield from self.line(_text(data, start, stop), chunk.offset + start)
            start = stop + 1

    def line(self, text: str, offset: int) -> Iterator[Incident]:
        """Takes one line in."""
        self._stats.lines += 1
        for line in self._framer.feed(Raw(self._source, self._stats.lines, offset, text)):
            yield from self._assembler.feed(line)

    def flush(self) -> Iterator[Incident]:
        """The log has ended."""
        for line in self._framer.flush():
            yield from self._assembler.feed(line)
        yield from self._assembler.flush()
        self._stats.runs = self._assembler.runs

    def _quiet(self) -> Quiet | None:
        level = self._framer.quiet()
        quiet = self._assembler.quiet() if level is not None else None
        if quiet is None or level is None or quiet.level <= level:
            return quiet
        return Quiet(level, quiet.first, quiet.last, quiet.unaccepted)

    def _next_news(self, chunk: Chunk, others: _Others, start: int, quiet: Quiet) -> int:
        """Where the next line begins that may change something."""
        if quiet.timed:
            return _in_time(chunk.data, start, next(others.after(start, quiet)), quiet)
        data, end, _ = chunk
        is_news = self._assembler.is_news
        for stop in others.after(start, quiet):
            head = HEADER.match(data, stop, end)
            if head is None or data[stop + 1] != _TWO:
                return stop
            line_end = data.index(b"\n", stop)
            if line_end - stop > _LONGEST_MESSAGE or is_news(decoded(data[head.end() : line_end])):
                return stop
        return end


class _Others:
    """Where the lines of a chunk begin that are not routine, searched for when they are asked for."""

    __slots__ = ("_chunk", "_engine", "_lines", "_scan", "_unaccepted")

    def __init__(self, chunk: Chunk, engine: routine.Hyperscan | None, scan: Scan | None) -> None:
        self._scan = scan
        self._chunk = chunk
        self._engine = engine
        self._lines: list[int] = []
        self._unaccepted: list[int] = []

    def after(self, start: int, quiet: Quiet) -> Iterator[int]:
        """Such lines from `start` on, and the end of the chunk after them."""
        if quiet.level is not Level.BATCHES or (self._engine is None and self._scan is None):
            return self._searched(start, quiet)
        if not self._lines:
            self._find()
        lines = self._unaccepted if quiet.unaccepted else self._lines
        return islice(lines, bisect_left(lines, start), None)

    def _find(self) -> None:
        data, end, _ = self._chunk
        if self._scan is not None:
            others, unaccepted, _ = self._scan
        elif self._engine is not None:
            others, unaccepted = self._engine.scan(memoryview(data)[:end])
        self._lines = [data.rfind(b"\n", 0, place) + 1 for place in others]
        lasting = (_line_at(data, place) for place in unaccepted if _lasts(data, place, end))
        self._unaccepted = sorted({*self._lines, *lasting})
        self._lines.append(end)
        self._unaccepted.append(end)

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


def _lasts(data: bytes, place: int, end: int) -> bool:
    """Whether an acceptance of 1.00 may go on: the next batch line that tells one does not say better."""
    following = data.find(ACCEPTED, data.index(b"\n", place), end)
    if following < 0 or data.startswith(UNACCEPTED, following):
        return True
    line = _line_at(data, following)
    return _BATCH.match(data, line) is None or data.find(UNACCEPTED, following, data.index(b"\n", following)) >= 0


def _line_at(data: bytes, place: int) -> int:
    """Where the line begins that a place lies in; its newline belongs to it."""
    return data.rfind(b"\n", 0, place) + 1 if place > 0 else 1


def _in_time(data: bytes, start: int, stop: int, quiet: Quiet) -> int:
    """The first line from `start` to `stop`, routine ones all, that has a clock for which it is not quiet."""
    while start < stop:
        if data[start : start + 2] == b"[2":
            now = seconds(data[start + 1 : start + 20].decode("latin-1"))
            if now is None or not quiet.first <= now < quiet.last:
                return start
            same = _SAME_SECOND.match(data, start, stop)
            start = same.end() if same else data.index(b"\n", start) + 1
        else:
            start = data.index(b"\n", start) + 1
    return stop


def _text(data: bytes, start: int, stop: int) -> str:
    if stop - start <= LINE_CAP:
        return decoded(data[start:stop])
    line = LongLine()
    line.add(data[start:stop])
    return line.text()
