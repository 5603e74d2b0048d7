"""Routine lines, of which a serving log consists but for one line in a hundred, and how to run past them.

A line is routine by how it begins: batch statistics, uvicorn's access lines, logged requests. What such a line says
beyond its beginning is never looked at by `incidents.py`, except for its clock and for an acceptance length of 1.00.
So long stretches of them can be skipped without being framed (`prefilter.py` says when).

The search is for the first line that does not begin as one of these, not for what rules look for: its cost does not
grow with the number of rules, and no rule can be overlooked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

BATCHES = ("Decode batch", "Prefill batch")
ACCESS = "INFO:     "
REQUESTS = ("Receive: ", "Finish: ")
BARE = ("[2", "INFO:", *BATCHES, *REQUESTS)
"""How a line without a header begins that starts nothing, whatever follows."""
ACCEPTED = b"accept len: "
UNACCEPTED = b"accept len: 1.00"
"""In a batch line: no token of the draft was accepted."""
FEWEST = 1 << 22
"""Bytes of a log from which loading a faster engine pays."""


class Level(IntEnum):
    """Which routine lines tell nothing: logged requests alone, access lines too, batches too."""

    REQUESTS = 0
    ACCESS = 1
    BATCHES = 2


_ANSWER = ACCESS + r"\d"
WORDS: dict[Level, tuple[str, ...]] = {
    Level.REQUESTS: REQUESTS,
    Level.ACCESS: (*REQUESTS, _ANSWER),
    Level.BATCHES: (*REQUESTS, _ANSWER, *BATCHES),
}
"""How the messages of routine lines begin."""


@cache
def other(level: Level) -> re.Pattern[bytes]:
    """A newline before a line that is not routine.

    A bracket that is no header begins a bare line with [2, which starts nothing either.
    """
    return re.compile(rb"\n(?!\[2[^\]\n]*+(?:\n|\] (?:%b))|INFO:)" % "|".join(WORDS[level]).encode())


def next_other(data: bytes | bytearray, start: int, end: int, level: Level) -> int:
    """Where the next line begins that is not routine, `end` if there is none.

    Lines begin at `start`, which has a newline before it, and end with the newline before `end`.
    """
    found = other(level).search(data, start - 1, end)
    return found.end() if found else end


def others(words: Iterable[str], bare: Iterable[str]) -> str:
    """An expression for the first byte by which a line differs from all routine ones, without looking ahead.

    For engines that make one automaton of it: every prefix of a routine beginning, then a character that leaves all of
    them. `\\d` in a word stands for a digit.
    """
    message = _leaving(re.findall(r"\\d|.", word) for word in words)
    first = _leaving([*beginning] for beginning in bare)
    return rf"\n(?:{first}|\[2[^\]\n]*\](?:[^ ]| {message}))"


def _leaving(words: Iterable[Sequence[str]]) -> str:
    following: dict[tuple[str, ...], set[str]] = {}
    for word in words:
        for at, char in enumerate(word):
            following.setdefault(tuple(word[:at]), set()).add(char if char == r"\d" else re.escape(char))
    ways = ("".join(map(re.escape, stem)) + f"[^{''.join(sorted(chars))}]" for stem, chars in following.items())
    return f"(?:{'|'.join(ways)})"


class Standard:
    """The search by the standard library."""

    anchored = False
    __slots__ = ()

    def scan(self, data: memoryview) -> tuple[list[int], list[int]]:
        """The first bytes of lines that are not routine, and the ends of UNACCEPTED; both in order."""
        lines = [found.end() for found in other(Level.BATCHES).finditer(data)]
        if lines and lines[-1] == len(data):
            lines.pop()
        return lines, [found.end() - 1 for found in _unaccepted().finditer(data)]


@cache
def _unaccepted() -> re.Pattern[bytes]:
    return re.compile(re.escape(UNACCEPTED))


class Hyperscan:
    """The search by Intel's Hyperscan: one automaton, and the interpreter's lock released meanwhile.

    Raises ImportError where it is not installed or refuses the processor; `next_other` does the same work then.
    """

    anchored = False
    __slots__ = ("_database",)

    def __init__(self) -> None:
        import hyperscan

        # Any: its stubs know bytes only, the engine takes every buffer
        self._database: Any = hyperscan.Database()
        expressions = [others(WORDS[Level.BATCHES], ("[2", "INFO:")).encode(), re.escape(UNACCEPTED)]
        try:
            self._database.compile(expressions=expressions, ids=[0, 1], elements=2, flags=0)
        except hyperscan.error as problem:  # a processor without what it needs
            raise ImportError(str(problem)) from problem

    def scan(self, data: memoryview) -> tuple[list[int], list[int]]:
        """The last bytes that tell lines from routine ones, and the ends of UNACCEPTED; both in order."""
        found: tuple[list[int], list[int]] = ([], [])
        adds = (found[0].append, found[1].append)

        def on_match(which: int, _start: int, end: int, _flags: int, _context: object) -> None:
            adds[which](end - 1)

        self._database.scan(data, match_event_handler=on_match)
        return found
