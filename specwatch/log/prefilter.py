"""The fast way from a log to its incidents: routine lines are run past, the others framed one by one.

It gives exactly what `Framer` and `Assembler` give of every line, because they say themselves (`quiet`) which routine
lines would change nothing in the state they are in:

- *no candidate is open* (nearly always): only lines that hold a known text change anything (`anchors.py`), and of those
  only the ones whose message is known to somebody (`Assembler.is_news`);
- *a candidate waits for what denies it*: batches, access lines and logged requests change nothing as long as their
  clocks lie within its grace;
- *lines are records or have names in front*: the same, of lines whose shape is known (`shapes.py`); all others count;
- *colours are in the text*: the same, of the lines without them (`colours.py`);
- *a traceback is being read, a start-up settles, parts of a line wait for the rest*: every line counts.

What a skipped line leaves behind is its number, counted, and its clock, read from the last bytes if it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from specwatch.domain import Incident, LogLine
from specwatch.errors import SourceError
from specwatch.lazy import compiled
from specwatch.log import shapes
from specwatch.log.ahead import Helper, Scan, helper
from specwatch.log.anchors import Engine, engine
from specwatch.log.clock import Skipped, seconds
from specwatch.log.colours import View, without_colours
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler, Known
from specwatch.log.routine import FEWEST, REQUESTS
from specwatch.log.runs import Quiet
from specwatch.log.shapes import Seen, Shape, Shapes
from specwatch.log.stops import Stops
from specwatch.sources.blocks import name_of
from specwatch.sources.chunks import Chunk, Piece, chunks
from specwatch.sources.once import LINE_CAP, LongLine, Raw, Stats, decoded

_SAME_SECOND = compiled(rb"(\[2.{18})[^\n]*+\n(?:\1[^\n]*+\n|INFO:[^\n]*+\n)*+")
_LONGEST_MESSAGE = 4096
WORTH = 256 * 1024
"""Bytes of a log that are read line by line before expressions are compiled to skip any."""
_REPEATED = b" across cluster]"
"""What Ray puts behind a message that came from several actors."""
_REQUESTS = tuple(word.encode() for word in REQUESTS)

Search = Callable[[], Engine]


def incidents(
    path: str, stats: Stats, known: Known | None = None, *, cores: int = 1, search: Search = engine
) -> Iterator[Incident]:
    """The incidents of one log as `log.incidents` gives them for all its lines; `stats` counts along.

    `search` is asked for a faster engine once a log turns out to be long, and with more than one of `cores` a very long
    one is searched ahead in a second process. Raises SourceError as `sources.once.read`.
    """
    if cores < 2:
        yield from skim(chunks(path, stats), name_of(path), stats, known, search)
        return
    with helper(path, search) as ahead:
        yield from skim(chunks(path, stats), name_of(path), stats, known, search, ahead=ahead)


def skim(
    parts: Iterable[Chunk | Piece],
    source: str,
    stats: Stats,
    known: Known | None = None,
    search: Search = engine,
    fewest: int = FEWEST,
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
        self.engine: Engine | None = None
        self.skips = True
        self._source = source
        self._stats = stats
        self._framer = Framer(source)
        self._assembler = Assembler(known)
        self._shapes = Shapes()
        self._leads = 0

    def chunk(self, chunk: Chunk, scan: Scan | None = None) -> Iterator[Incident]:
        """Takes whole lines in, with what was found in them already."""
        data, end = chunk.data, chunk.end
        view = View(chunk) if self.skips else None
        stops = Stops(view, self.engine, scan) if view else None
        start = 1
        while start < end:
            if view and stops and (quiet := self._quiet(view)):
                stop = self._next_news(view, stops, start, quiet)
                if stop > start:
                    self._stats.lines += scan.lines if scan and stop - start == end - 1 else chunk.lines(start, stop)
                    self._assembler.skipped(Skipped(data, start, stop, chunk.offset, self._framer.dates()))
                    start = stop
                    continue
            stop = data.index(b"\n", start)
            yield from self.line(_text(data, start, stop), chunk.offset + start, view)
            start = stop + 1

    def line(self, text: str, offset: int, view: View | None = None) -> Iterator[Incident]:
        """Takes one line in, of the chunk that is seen through a view."""
        self._stats.lines += 1
        lines = self._framer.feed(Raw(self._source, self._stats.lines, offset, text))
        if view:
            self._learn(text, lines, view)
        for line in lines:
            yield from self._assembler.feed(line)

    def flush(self) -> Iterator[Incident]:
        """The log has ended."""
        for line in self._framer.flush():
            yield from self._assembler.feed(line)
        yield from self._assembler.flush()
        self._stats.runs = self._assembler.runs

    def _learn(self, text: str, lines: list[LogLine], view: View) -> None:
        """Takes note of what a line looks like; a name that was learned may be part of what was known before."""
        if self._framer.leads != self._leads:
            self._leads = self._framer.leads
            self._shapes = Shapes()
        if view.coloured or view.escaped:
            text = decoded(without_colours(text.encode(), escaped=view.escaped))
        self._shapes.learn(text, lines, shaped=self._framer.shaped)

    def _quiet(self, view: View) -> Quiet | None:
        framer = self._framer
        level = framer.quiet()
        if level is None or view.odd or (framer.shaped and not self._shapes.known):
            return None
        # a colour in front of a record or of a name makes it none; a record's escapes mean nothing in other lines
        if framer.writes_records if view.coloured else view.escaped and not framer.writes_records:
            return None
        if view.coloured and framer.leads:
            return None
        quiet = self._assembler.quiet()
        if quiet is None or quiet.level <= level:
            return quiet
        return Quiet(level, quiet.first, quiet.last, quiet.unaccepted)

    def _next_news(self, view: View, stops: Stops, start: int, quiet: Quiet) -> int:
        """Where the next line of the chunk begins that may change something."""
        seen = Seen(self._shapes.known, self._framer.shaped, self._framer.plain)
        known = seen.shapes
        start = view.place(start)
        found = stops.after(start, quiet, seen)
        if quiet.timed:
            return view.origin(_in_time(view.data, start, next(found), quiet, known))
        data, end = view.data, view.end
        is_news, head, whole = self._assembler.is_news, shapes.head(known), shapes.other(known, None)
        for stop in found:
            match = head.match(data, stop, end) if stop < end else None
            if match is None:
                return view.origin(stop)
            if (seen.shaped or not data.startswith(b"[2", stop)) and whole.match(data, stop - 1, end):
                return view.origin(stop)
            if data.startswith(_REQUESTS, match.end()):
                continue
            line_end = data.index(b"\n", stop)
            message = data[match.end() : line_end]
            if len(message) > _LONGEST_MESSAGE or _REPEATED in message or is_news(decoded(message)):
                return view.origin(stop)
        return view.origin(end)


def _in_time(data: bytes, start: int, stop: int, quiet: Quiet, known: tuple[Shape, ...]) -> int:
    """The first line from `start` to `stop`, routine ones all, that has a clock for which it is not quiet."""
    clocks = shapes.clocks(known) if known else None
    while start < stop:
        if data[start : start + 2] == b"[2":
            now = seconds(data[start + 1 : start + 20].decode("latin-1"))
            if now is None or not quiet.first <= now < quiet.last:
                return start
            same = _SAME_SECOND.match(data, start, stop)
            start = same.end() if same else data.index(b"\n", start) + 1
        elif clocks and (match := clocks.match(data, start, stop)) and match[1]:
            now = seconds(match[1][1:20].decode("latin-1"))
            if now is None or not quiet.first <= now < quiet.last:
                return start
            start = data.index(b"\n", start) + 1
        else:
            start = data.index(b"\n", start) + 1
    return stop


def _text(data: bytes, start: int, stop: int) -> str:
    if stop - start <= LINE_CAP:
        return decoded(data[start:stop])
    line = LongLine()
    line.add(data[start:stop])
    return line.text()
