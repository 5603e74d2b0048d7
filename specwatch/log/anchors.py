"""Finds the lines of a log that may change something while no crash is open, by the few short texts that they hold.

Every such line holds one of `FIXED`, or one of the anchors that the rule book chose for its messages
(`rulebook/anchors.py`). Where they stand in a line does not matter here: whoever asked looks at the whole line.

Where a rule book needs too many anchors, or no engine for them is installed, lines that are not routine are searched
for instead (`routine.py`): slower, but at a cost that does not grow with the number of rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from specwatch.log.routine import Hyperscan, Standard

FIXED = (
    # blocks, and what starts a server: `incidents.py`
    "Traceback (",
    "server_args=",
    "sglang.launch_server'",
    "[-h]",
    ": sglang",
    "rror: ",
    "terminate called",
    "what(): ",
    # what changes how lines are framed: `framing.py`
    " - [",
    "File ",
    "[rank",
    "stderr P",
    "stdout P",
    # single lines: `echoes.py`
    "igquit from a child",
    "SIGQUIT received",
    "kill_process_tree",
    "seconds ",
    "yspy ",
    "coredump",
    "cheduler ",
    "xit code",
    "Killed",
    "Aborted",
    "Terminated",
    "nanobind: ",
    "atchdog timeout (",
    "address already in use",
    "Assertion `",
    "ProcessGroup",
    "Gracefully exiting",
    "ed server process",
    "Load weight ",
    "KV Cache is all",
    "Memory pool end",
    "Capture ",
    "Init ",
    "max_total_num_tok",
    "Uvicorn running",
    "pplication startup",
    "server is fired",
)
"""Texts of which every line that the code of this package knows holds one; not of batches, answers, logged requests."""
_UNACCEPTED = "n: 1.00"
"""Of `accept len: 1.00`; the rest of it stands in every batch line."""
_AT_ONCE = 64
"""Texts that aho-corasick finds at once with vector instructions (for more it looks every byte up), and from which on
Hyperscan takes its faster way."""


class Engine(Protocol):
    """Finds the lines of a chunk that are to be looked at."""

    @property
    def anchored(self) -> bool:
        """Whether it finds only what matters while nothing is open, and not all lines that are not routine."""

    def scan(self, data: memoryview) -> tuple[list[int], list[int]]:
        """Places inside such lines; and, apart, inside those that may tell an acceptance of 1.00. Both in order."""


class Aho:
    """The search by Rust's aho-corasick. Raises ImportError where it is not installed."""

    anchored = True
    __slots__ = ("_find",)

    def __init__(self, words: Sequence[bytes]) -> None:
        import ahocorasick_rs

        # leftmost matches only: the vector instructions know no others, and one for each line is enough
        first = ahocorasick_rs.MatchKind.LeftmostFirst
        self._find = ahocorasick_rs.BytesAhoCorasick([_UNACCEPTED.encode(), *words], matchkind=first)

    def scan(self, data: memoryview) -> tuple[list[int], list[int]]:
        """As `Engine.scan`."""
        found = self._find.find_matches_as_indexes(data)
        return [place for which, place, _ in found if which], [place for which, place, _ in found if not which]


class Literals:
    """The same by Intel's Hyperscan. Raises ImportError where it is not installed or refuses the processor."""

    anchored = True
    __slots__ = ("_database",)

    def __init__(self, words: Sequence[bytes]) -> None:
        import hyperscan

        # Any: its stubs know bytes only, the engine takes every buffer
        self._database: Any = hyperscan.Database()
        expressions = [_UNACCEPTED.encode(), *words]
        # fewer texts are filled up with some that no log holds
        expressions += [b"\1\2specwatch %d\3" % number for number in range(_AT_ONCE - len(expressions))]
        ids = [int(number > 0) for number in range(len(expressions))]
        try:
            self._database.compile(expressions=expressions, ids=ids, elements=len(ids), flags=0, literal=True)
        except hyperscan.error as problem:
            raise ImportError(str(problem)) from problem

    def scan(self, data: memoryview) -> tuple[list[int], list[int]]:
        """As `Engine.scan`."""
        found: tuple[list[int], list[int]] = ([], [])
        adds = (found[1].append, found[0].append)

        def on_match(which: int, _start: int, end: int, _flags: int, _context: object) -> None:
            adds[which](end - 1)

        self._database.scan(data, match_event_handler=on_match)
        return found


def words(anchors: Sequence[str]) -> list[bytes]:
    """What to search for: those of the rules and those that are always needed, less any that holds another one."""
    texts = sorted({*FIXED, *anchors}, key=len)
    kept = [text for at, text in enumerate(texts) if not any(other in text for other in texts[:at])]
    return list(dict.fromkeys(spelt.encode() for text in kept for spelt in _spellings(text)))


def _spellings(text: str) -> Iterator[str]:
    """A text as it stands in a plain line, and in the JSON of most programs and of Go's."""
    yield text
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    yield text
    yield text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def engine(anchors: Sequence[str] = ()) -> Engine:
    """The fastest search of this machine for a rule book's anchors, or without any for all lines that are not routine.

    SPECWATCH_ENGINE names one that is to be used instead: `aho-corasick`, `hyperscan` or `standard`.
    """
    wanted = os.environ.get("SPECWATCH_ENGINE", "")
    texts = words(anchors)
    ways: list[tuple[str, Callable[[], Engine]]] = [("hyperscan", Hyperscan)]
    if anchors:
        ways = [("hyperscan", partial(Literals, texts)), ("aho-corasick", partial(Aho, texts))]
    for name, way in ways:
        if wanted in ("", name):
            try:
                return way()
            except ImportError:
                continue
    return Standard()
