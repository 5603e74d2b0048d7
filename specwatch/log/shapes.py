"""What the lines of a log look like that are not plain: what stands before SGLang's header, and records around it.

A shape is learned from a line that was framed: a transport's prefix as it stands there, any clock in it, and for a JSON
record its keys in their order. What tells services, streams and parts of lines apart has to be the same to the letter.
A line of a known shape is framed as the one that it was learned from, and changes nothing in the framer; so of such
lines only the message counts, and routine ones can be run past (`prefilter.py`).

Expressions allow in a record's message only those escapes that cannot spell a text which somebody looks for
(`anchors.py` searches the raw bytes). A line that holds others is of no known shape, and looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from specwatch.domain import LogLine, Value
from specwatch.lazy import compiled
from specwatch.log import records, routine
from specwatch.log.clock import HEADER as HEADER_BYTES
from specwatch.log.prefixes import HEADER
from specwatch.log.routine import ACCESS, BATCHES, REQUESTS, WORDS, Level

MOST = 12
"""Shapes of one log; of more the oldest are forgotten (a day in a prefix is part of it)."""
_MOST_LEARNED = 64
_LONGEST = 8 * 1024
_MOST_VALUES = 40
"""Values of a record that may be any, at most: with them, its message and the rest it is within `once.LINE_CAP`."""
_CONSTANT = 200
"""Characters of a value from which on it is taken to be the same in every record, such as a command line."""
_WAIT = 64
"""Lines that are let go by, at most, between two from which nothing could be learned."""

_HEADER = HEADER_BYTES.pattern.decode()
_CLOCK = compiled(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_HEADED = compiled(r"\[2\d{3}-\d\d-\d\d ")
_BARE = ("INFO:", *BATCHES, *REQUESTS)
_SENTENCE = r"[A-Z][a-z]{1,30} [a-z]"
"""How a message begins that holds no prefix (`prefixes.py`), whatever follows but tabs."""
_CHAR = r'[^"\\\x00-\x1f]'
_ESCAPES = r'\\(?:["\\t]|u(?!00)[0-9a-fA-F]{4}|u003[ceCE]|u0026)'
"""`"`, `\\`, tab, what is not Latin, and <, >, & as Go writes them."""
_NEWLINE = r"\\n"
_STRING = rf'"(?:{_CHAR}{{1,64}}+|\\["\\/bfnrt]){{0,8}}+"'
TAB = compiled(rb"\t")
ESCAPE = compiled(rb'\\(?!"|n")')
"""Any escape but for a quote, and a newline that ends a string."""
_NAIVE = compiled(r'\\\{"(?:asctime|timestamp|time|ts)"')
_NUMBER = r"-?(?:0|[1-9]\d{0,30}+)(?:\.\d{1,30}+)?+"
_TO_THE_LETTER = {"stream", "logtag", "_p", "_HOSTNAME", *records.MESSAGE, *records.TRACE, *records.NAMING}


class How(Enum):
    """How a line is proved to be of a shape: always; where no tab is; where no name, `ESCAPE` or naive record is."""

    STRICT = 0
    UNTABBED = 1
    LOOSE = 2


class Shape(NamedTuple):
    """Expressions for what stands before and behind a message.

    `record`: it is JSON, `own` the program's own, `ended`: the message ends with a newline. `loosely` is the same as
    `after` for lines whose escapes are known.
    """

    before: str
    after: str = ""
    loosely: str = ""
    record: bool = False
    own: bool = False
    ended: bool = False

    @property
    def may_be_loose(self) -> bool:
        """Whether nothing changes where a line of the shape turns out to be no record."""
        return self.record and _NAIVE.search(self.before) is None

    def line(self, level: Level | None, *, timed: bool, how: How) -> str:
        """A line that is routine up to a level, or with None of any message behind SGLang's header; a record is whole.

        `timed`: whoever asks wants the header's clock, which an own record without a header does not have. A tab
        might make a line one of another transport (`prefixes.py`).
        """
        words = "" if level is None else f"(?:{'|'.join(WORDS[level])})"
        bare: Sequence[str] = _BARE
        if self.own:
            bare = () if timed else (ACCESS, *BATCHES, *REQUESTS, _SENTENCE) if level is None else WORDS[level]
        if not self.record:
            return rf"{self.before}(?:{_HEADER}{words}|INFO:)" + (r"[^\t\n]*+\n" if how is How.STRICT else "")
        if how is How.LOOSE:
            # to the first quote that is not escaped: faster by half than looking at each character's kind
            text = "|".join([_HEADER + words, *bare])
            ended = f"(?<={_NEWLINE})" if self.ended else ""
            return rf'{self.before}(?:{text})[^"]*+(?:(?<=\\)"[^"]*+)*+{ended}{self.loosely}\r?\n'
        text = rf"{_HEADER}{words}(?:{_CHAR}{{1,128}}+|{_ESCAPES}){{0,256}}+"
        if bare:
            text += rf'|(?:{"|".join(bare)})(?:{_CHAR}{{1,128}}+|\\"){{0,256}}+'
        return rf"{self.before}(?:{text}){_NEWLINE if self.ended else ''}{self.after}\r?\n"


class Seen(NamedTuple):
    """What is known of a log's lines. `shaped`: only those of these shapes change nothing; `plain`: names are believed
    in no line (`streams.py`)."""

    shapes: tuple[Shape, ...]
    shaped: bool
    plain: bool


class Shapes:
    """The shapes of one log so far."""

    __slots__ = ("_learned", "_skip", "_wait", "known")

    def __init__(self) -> None:
        self.known: tuple[Shape, ...] = ()
        self._learned = 0
        self._skip = 0
        self._wait = 0

    def learn(self, text: str, lines: Sequence[LogLine], *, shaped: bool = True) -> None:
        """Takes note of a raw line, without colours, that was framed to some log lines.

        Plain ones are of no interest in a source that is not `shaped` (`framing.py`).
        """
        if len(lines) != 1 or len(text) > _LONGEST or self._learned >= _MOST_LEARNED:
            return
        if self._skip:
            self._skip -= 1
            return
        if not shaped and lines[0].headed and text.startswith("[2"):
            return
        if self.known and other(self.known, None).match(b"\n" + text.encode() + b"\n") is None:
            return
        got = _record(text, lines[0]) or _plain(text, lines[0])
        if got is None or got in self.known:
            self._wait = self._skip = min(2 * self._wait + 1, _WAIT)
            return
        self._wait = 0
        self._learned += 1
        self.known = (*self.known, got)[-MOST:]


@lru_cache(64)
def other(
    shapes: tuple[Shape, ...], level: Level | None, *, timed: bool = False, how: How = How.STRICT
) -> re.Pattern[bytes]:
    """A newline before a line that is of none of some shapes, or not routine up to a level (`Shape.line`)."""
    lines = "|".join(shape.line(level, timed=timed, how=how) for shape in shapes)
    return re.compile(rb"\n(?!%b)" % lines.encode())


@lru_cache(64)
def plain_or(shapes: tuple[Shape, ...], level: Level) -> re.Pattern[bytes]:
    """A newline before a line that is routine neither by itself nor in one of some shapes."""
    if not shapes:
        return routine.other(level)
    lines = "".join(f"|{shape.line(level, timed=True, how=How.UNTABBED)}" for shape in shapes)
    words = "|".join(WORDS[level])
    return re.compile(rf"\n(?!\[2[^\]\n]*+(?:\n|\] (?:{words}))|INFO:{lines})".encode())


@lru_cache(64)
def clocks(shapes: tuple[Shape, ...]) -> re.Pattern[bytes]:
    """The beginning of a line of some shapes, or of a plain one, up to its clock, which is the first group."""
    heads = "".join(f"|{shape.before}" for shape in shapes)
    return re.compile(rf"(?:{heads})(?=(\[2.{{18}})|INFO:|{'|'.join(BATCHES + REQUESTS)})".encode())


@lru_cache(64)
def batch(shapes: tuple[Shape, ...]) -> re.Pattern[bytes]:
    """A batch line, plain or of some shapes, from the newline before it."""
    batches = "|".join(BATCHES)
    heads = "".join(
        rf"|(?={shape.before}{_HEADER}(?:{batches})){shape.line(None, timed=False, how=How.STRICT)}" for shape in shapes
    )
    return re.compile(rf"\n(?:{_HEADER}(?:{batches}){heads})".encode())


@lru_cache(64)
def head(shapes: tuple[Shape, ...]) -> re.Pattern[bytes]:
    """The prefix and SGLang's header of a line that is no record."""
    heads = "".join(f"|{shape.before}" for shape in shapes if not shape.record)
    return re.compile(rf"(?:{heads}){_HEADER}".encode())


def _plain(text: str, line: LogLine) -> Shape | None:
    """The shape of a line with a prefix before SGLang's header."""
    found = _HEADED.search(text)
    own = HEADER.match(text, found.start()) if found and line.headed else None
    if own is None or text[own.end() :].rstrip(" \t") != line.text:
        return None
    before = _opening(text[: own.start()])
    return None if before is None else Shape(before)


def _opening(text: str) -> str | None:
    """An expression for a prefix, whatever the clocks in it say; None where it is not to be trusted."""
    if "\t" in text or not text.isascii():
        return None
    parts, end = [], 0
    for clock in _CLOCK.finditer(text):
        parts += [re.escape(text[end : clock.start()]), re.sub(r"\d", r"\\d", re.escape(clock[0]))]
        end = clock.end()
    return "".join([*parts, re.escape(text[end:])])


def _record(text: str, line: LogLine) -> Shape | None:
    """The shape of a JSON record, behind a prefix or alone."""
    start = text.find("{")
    got = records.record(text[start:]) if start >= 0 else None
    if got is None or got.unescaped or got.more or got.trace or got.text.rstrip(" \t") == "":
        return None
    own = HEADER.match(got.text)
    if own is None and not got.text.startswith(_BARE):
        return None
    message = got.text[own.end() :] if own else got.text
    if line.text != message.rstrip(" \t") or line.headed != bool(own or got.own):
        return None
    before, members = _opening(text[:start]), _members(text, start)
    if before is None or members is None or len(members) > _MOST_VALUES:
        return None
    keys = {member.key for member in members}
    told = next(key for key in records.MESSAGE if key in keys)
    parts = [before]
    around, ended = "", False
    for member in members:
        parts.append(re.escape(text[member.start : member.value_start]))
        if member.key == told and isinstance(member.value, str):
            around, parts, ended = "".join([*parts, '"']), ['"'], member.value.endswith("\n")
        else:
            parts.append(_any_such(member, text[member.value_start : member.end]))
    parts.append(re.escape(text[members[-1].end :]))
    loose = ['"[^"]*+"' if part == _STRING else part for part in parts]
    return Shape(around, "".join(parts), "".join(loose), record=True, own=got.own, ended=ended) if around else None


def _any_such(member: _Member, written: str) -> str:
    """An expression for the values that a member may have in other records of the shape."""
    if member.key not in _TO_THE_LETTER and len(written) < _CONSTANT:
        if isinstance(member.value, str):
            return _STRING
        if isinstance(member.value, (int, float)) and not isinstance(member.value, bool):
            return _NUMBER
    return re.escape(written)


class _Member(NamedTuple):
    """A member of a JSON object, and where it stands; what separates it from the one before belongs to it."""

    key: str
    start: int
    value_start: int
    end: int
    value: Value


def _members(text: str, start: int) -> list[_Member] | None:
    """The members of the JSON object that ends a line; None where a key comes twice."""
    decode = json.JSONDecoder().raw_decode
    found: list[_Member] = []
    at = start
    while text[at] != "}":
        key_at = at
        key, at = decode(text, _past(text, at + 1))
        value_at = _past(text, _past(text, at) + 1)
        value, end = decode(text, value_at)
        if any(key == old.key for old in found):
            return None
        found.append(_Member(key, key_at, value_at, end, value))
        at = _past(text, end)
    return found if found and not text[at + 1 :].strip() else None


def _past(text: str, at: int) -> int:
    while text[at] in " \t\r":
        at += 1
    return at
