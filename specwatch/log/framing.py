"""From raw lines to log lines: prefixes off, split records joined, glued ones split, one clock and rank each.

Nothing in the middle of a line starts a record, with two exceptions that no client can reach: what follows an open
progress bar, and the parts of a line that a container runtime split. A record that is one JSON string gives several
lines with the same `number`, of which only the first is `headed`, and a forged header in the others stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specwatch.domain import LogLine
from specwatch.lazy import compiled
from specwatch.log.clock import Dates
from specwatch.log.prefixes import CRI, Peeled, bars, header, peel, uncoloured
from specwatch.log.records import Record, Records
from specwatch.log.routine import BARE, Level
from specwatch.log.streams import Streams
from specwatch.sources.once import Raw, decoded

_JOINED_CAP = 1024 * 1024
_MOST_PARTS = 256
_HEADERS = 64
_NEVER_HEADED = ("[rank", "terminate called ", "Fatal Python error: ")
_QUOTED = compiled(r"(?:> ?){1,5}")
_NUMBERED = compiled(r" *\d{1,9}[:\t ](?=\[\d{4}-\d\d-\d\d \d\d:)")
_NUMBER = compiled(r" *\d{1,9}(?:[:\t]| |$)")
_OPENED = compiled(r'"[^"\n]{1,300}" (?:\[[^\]\n]{1,40}\] )?\d+L, \d+[BC]$')
"""What stands before each line of a log that somebody quoted, or copied with the line numbers of `cat -n`, `grep -n` or
an editor (vim says first what it opened), from the first one on: users write such lines too."""
_CHILDS = (*_NEVER_HEADED, "Traceback (most recent call last):", '  File "')
"""What shows that a parent program relays its child's output line by line, though no line has a header of its own."""


class Framer:
    """Takes the raw lines of one source in order and gives log lines; keeps what it must know between them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._records = Records()
        self._parts: dict[tuple[str, str], tuple[Raw, str]] = {}
        self._headers: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._streams = Streams()
        self._relays = False
        self._escaped = False
        self._unescaped = False
        self._margin: re.Pattern[str] | None = None
        self._margins_known = False
        self._dater: Framer | None = None
        self._dated_by: tuple[bool, bool, int] | None = None

    def feed(self, raw: Raw) -> list[LogLine]:
        """The log lines of one raw line: usually one, none for the part of a line, several for a record of lines."""
        text = raw.text
        if self._parts and (held := self._given_up(text)):
            return [*held, *self.feed(raw)]
        if text[:2] == "[2" and "\x1b" not in text and (got := self._header(text)):
            at, ranks, message = got
            self._streams.plain = True
            self._records.heard(message)
            return [_line(raw, message, at, ranks, True)]
        if text[:1] == "{" and (record := self._records.accept(text)):
            return self._record(raw, record)
        return self._plain(raw, text)

    def quiet(self) -> Level | None:
        """Up to which level routine lines would change nothing here; None where any line may.

        Where lines are `shaped`, only those of a known shape (`shapes.py`), else all.
        """
        if self._parts or self._escaped or self._unescaped or self._margin is not None:
            return None
        if self.shaped:
            return Level.BATCHES
        if self._streams.leads:
            return None
        return Level.BATCHES if self._records.serving else Level.ACCESS

    @property
    def shaped(self) -> bool:
        """Whether the source writes records, or names in front of all of its lines."""
        return self._records.writes or not self._streams.plain

    @property
    def plain(self) -> bool:
        """Whether the source has had a server's line without a name, so that no name changes anything."""
        return self._streams.plain

    @property
    def writes_records(self) -> bool:
        """Whether the source has had a JSON record."""
        return self._records.writes

    @property
    def leads(self) -> int:
        """How many names are known that only context tells from text."""
        return self._streams.leads

    def dates(self) -> Dates:
        """What reads a clock off a line as `feed` would now, where `quiet` allows to run past it."""
        if not self.shaped:
            return _date_of_relayed if self._relays else _date
        of_now = self._relays, self._records.writes, self._streams.leads
        if self._dater is None or self._dated_by != of_now:
            self._dater, self._dated_by = Framer(self._source), of_now
            self._dater._relays, self._dater._records.writes = self._relays, self._records.writes
            self._dater._streams = self._streams.copy()
        return self._dater._dated

    def _dated(self, data: bytes) -> str | None:
        """The clock of a line of a known shape."""
        lines = self.feed(Raw(self._source, 0, 0, decoded(data)))
        return lines[-1].at if lines and lines[-1].headed else None

    def flush(self) -> list[LogLine]:
        """What is still held back: parts of lines whose end never came."""
        held, self._parts = self._parts, {}
        return [line for raw, text in held.values() for line in self._plain(raw, text)]

    def frames(self, raws: Iterable[Raw]) -> Iterator[LogLine]:
        """The log lines of a whole source, with what is held back at its end."""
        for raw in raws:
            yield from self.feed(raw)
        yield from self.flush()

    def _header(self, text: str) -> tuple[str, tuple[str, ...], str] | None:
        """SGLang's header off a line; lines of one second have the same few, so those are remembered."""
        end = text.find("] ", 1, 80) + 2
        if got := self._headers.get(text[:end]):
            return got[0], got[1], text[end:]
        found = header(text)
        if found and len(found[2]) == len(text) - end:
            if len(self._headers) >= _HEADERS:
                self._headers.clear()
            self._headers[text[:end]] = found[:2]
        return found

    def _record(self, raw: Raw, record: Record, names: tuple[str, ...] = ()) -> list[LogLine]:
        text = record.text
        self._unescaped = self._unescaped or record.unescaped
        part = (f"json {record.name}", record.stream)
        held = self._parts.pop(part, None)
        if held:
            raw, text = held[0], held[1] + text
        if record.more and len(text) < _JOINED_CAP and len(self._parts) < _MOST_PARTS:
            self._parts[part] = (raw, text)
            return []
        first, *rest = text.split("\n")
        lines = self._plain(raw, first, record.at, (*names, record.name) if record.name else names, recorded=True)
        if record.own and lines and not lines[-1].headed:
            got = lines.pop()
            lines.append(_line(raw, got.text, record.at, got.ranks, True))
        ranks = lines[-1].ranks if lines else ()
        lines += [_line(raw, uncoloured(text), record.at, ranks) for text in rest]
        if record.trace:
            start, *rest = record.trace.split("\n")
            lines.append(_line(raw, uncoloured(start), record.at, ranks, True))
            lines += [_line(raw, uncoloured(text), record.at, ranks) for text in rest]
        return lines

    def _plain(
        self, raw: Raw, text: str, outer: str | None = None, names: tuple[str, ...] = (), *, recorded: bool = False
    ) -> list[LogLine]:
        if not self._margins_known:
            self._margin = None if self._streams.plain else _margin_of(text)
            self._margins_known = self._margin is not None or not _OPENED.match(text)
        if self._margin is not None and (margin := self._margin.match(text)):
            text = text[margin.end() :]
        if not recorded and text[:1].isdecimal() and (match := CRI.match(text)):
            joined = self._join(raw, match, text)
            if joined is None:
                return []
            raw, text = joined
        name, rest = self._streams.lead(text) if not (names or recorded) else ("", text)
        line = peel(rest)
        at, names = line.at or outer, (*names, *((name,) if name else ()), *line.names)
        headed = line.headed
        if line.relayed and not headed:
            # a relayed line without a header of its own may be the middle of the child's traceback
            headed = _is_headed(line, relays=self._relays)
        self._relays = self._relays or (line.relayed and (line.headed or line.text.startswith(_CHILDS)))
        if text[:1] != "{" and line.text[:1] == "{" and (record := self._records.accept(line.text)):
            return self._record(raw, record._replace(at=record.at or at), names)
        self._streams.saw(names, line.text, headed=headed or recorded)
        if headed and not names and not recorded:
            self._records.heard(line.text)
        ranks = line.ranks + self._streams.labels(names)
        if headed:
            return [_line(raw, line.text, at, ranks, True)]
        return self._bare(raw, line.text, at, ranks)

    def _given_up(self, text: str) -> list[LogLine]:
        """Parts whose rest cannot come, as a line follows that no container runtime wrote.

        A client can write what looks like a part; held back to the end, nothing would come after it to deny it.
        """
        if self._margin is not None and (margin := self._margin.match(text)):
            text = text[margin.end() :]
        if CRI.match(text):
            return []
        keys = ("cri", "stdout"), ("cri", "stderr")
        held = [self._parts.pop(key) for key in keys if key in self._parts]
        return [line for raw, part in held for line in self._plain(raw, part)]

    def _join(self, raw: Raw, match: re.Match[str], text: str) -> tuple[Raw, str] | None:
        """The whole of a line that a container runtime split, None while its end is missing."""
        stream, body = match["stream"], text[match.end() :]
        whole = text[: match.start("tag")] + "F" + text[match.end("tag") : match.end()]
        raw, start = self._parts.pop(("cri", stream), (raw, whole))
        if match["tag"] == "P" and len(start) < _JOINED_CAP:
            self._parts["cri", stream] = (raw, start + body)
            return None
        return raw, start + body

    def _bare(self, raw: Raw, text: str, at: str | None, ranks: tuple[str, ...]) -> list[LogLine]:
        if text.startswith(BARE):
            return [_line(raw, text, at, ranks)]
        if "UserWarning: 'python -m sglang.launch_server'" in text:
            self._records.starts()
        if self._unescaped:
            text = text.removesuffix('"}')
        if '\\"' in text:
            self._escaped = self._escaped or text.lstrip().startswith('File \\"')
            text = text.replace('\\"', '"') if self._escaped else text
        bar, rest = bars(text)
        if not bar:
            return [_line(raw, text, at, ranks)]
        lines = [_line(raw, bar, at, ranks)]
        if rest:
            got = header(rest)
            lines.append(_line(raw, got[2], got[0], got[1] + ranks, True) if got else _line(raw, rest, at, ranks))
        return lines


def _margin_of(first: str) -> re.Pattern[str] | None:
    """What to take off every line of a log whose first one is this."""
    if first[:1] == ">":
        return _QUOTED
    return _NUMBER if _NUMBERED.match(first) else None


def _is_headed(line: Peeled, *, relays: bool) -> bool:
    """Whether a relayed line without a header of its own begins a record."""
    return not relays and line.text[:1] not in (" ", "") and not line.text.startswith(_NEVER_HEADED)


def _date(data: bytes, *, relays: bool = False) -> str | None:
    """The clock of a line that is no record and no part of one, None where it has no header."""
    if data.startswith(b"INFO:"):
        return None
    line = peel(decoded(data))
    if line.headed or (line.relayed and _is_headed(line, relays=relays)):
        return line.at
    rest = "" if line.text.startswith(BARE) else bars(line.text)[1]
    got = header(rest) if rest else None
    return got[0] if got else None


def _date_of_relayed(data: bytes) -> str | None:
    return _date(data, relays=True)


def _line(raw: Raw, text: str, at: str | None, ranks: tuple[str, ...], headed: bool = False) -> LogLine:
    text = text.rstrip(" \t")
    return LogLine(
        source=raw.source, number=raw.number, offset=raw.offset, text=text, at=at, ranks=ranks, headed=headed
    )
