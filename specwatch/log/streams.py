"""Which process tree of a merged log wrote a line: its service, pod, actor, unit or task, and whether to believe that.

A transport puts its name in front of every line, a client's forged ones too. So the outermost name is believed in a
source that has had it since its first line of a server, and in no other; names further in, or in a source that has
lines without, may be a client's. They are labelled as well, so that blocks are put together, but with DOUBTFUL before.
"""

from __future__ import annotations

from specwatch.domain import LogLine
from specwatch.lazy import compiled

DOUBTFUL = "~"
_RANK = compiled(r"[A-Z][A-Z_]*\d+$|DisaggregationMode\.")
_MOST = 512

_SERVERS = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]\n]{0,80}\] |  File \"|\S+\.py:\d+: \w*Warning: |usage: )"
"""What stands behind a name that only context tells from text: the beginning of a line that is surely a server's."""
_LEADS = compiled(
    rf"(?:(?P<task> {{0,4}}\d{{1,5}}): "  # srun -l
    r"|(?P<host>(?!\w*(?:Error|Exception|Warning|usage):)[A-Za-z][\w.-]{0,80}): "  # pdsh
    rf"|(?P<pod>[a-z0-9][a-z0-9.-]{{0,80}}(?: [a-z0-9][a-z0-9.-]{{0,80}}){{1,2}}) )(?={_SERVERS})"  # stern
)


def ranks_of(line: LogLine) -> tuple[str, ...]:
    """The rank labels of a line, without what tells services or actors apart."""
    return tuple(label for label in line.ranks if _RANK.match(label)) if line.ranks else ()


def voice_of(line: LogLine) -> tuple[str, ...]:
    """What tells the services, containers or actors of one log apart, believed or not: whose block a line goes on."""
    return tuple(label for label in line.ranks if not _RANK.match(label)) if line.ranks else ()


def stream_of(line: LogLine) -> tuple[str, ...]:
    """The believed part of that: signs of life of one stream say nothing about a crash in another."""
    return tuple(label for label in voice_of(line) if label[:1] != DOUBTFUL) if line.ranks else ()


class Streams:
    """What the lines of one source so far tell about its names. `plain`: it had a server's line without a name."""

    __slots__ = ("_first", "_inner", "_leads", "plain")

    def __init__(self) -> None:
        self.plain = False
        self._first = ""
        self._inner = ""
        self._leads: dict[str, str] = {}

    def lead(self, text: str) -> tuple[str, str]:
        """A name without any mark of its own (`0: `, `node1: `, `pod container `), and the line without it.

        It is learned from a line on which a server's own beginning follows, unless the source has lines without.
        """
        for lead, name in self._leads.items():
            if text.startswith(lead):
                return name, text[len(lead) :]
        if not self.plain and len(self._leads) < _MOST and (match := _LEADS.match(text)):
            name = f"task{match['task'].strip()}" if match["task"] else match["host"] or match["pod"].replace(" ", "/")
            self._leads[match[0]] = name
            return name, text[match.end() :]
        return "", text

    def labels(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The labels for a line with these names, the outermost first; the first of a source needs none.

        In a source that has had lines without names, none is learned any more: lines with names may be run past.
        """
        if not names:
            return ()
        outer, inner = names[0], "@".join(names[1:])
        told: list[str] = []
        if not self._first and not self.plain:
            self._first = outer
        if outer != self._first:
            told.append(f"{DOUBTFUL if self.plain else ''}{_label(outer)}")
        if inner and not self._inner and not self.plain:
            self._inner = inner
        if inner and inner != self._inner:
            told.append(DOUBTFUL + _label(inner))
        return tuple(told)

    @property
    def leads(self) -> int:
        """How many names are known that only context tells from text."""
        return len(self._leads)

    def copy(self) -> Streams:
        """The same, for lines that are to change nothing here."""
        other = Streams()
        other.plain, other._first, other._inner, other._leads = self.plain, self._first, self._inner, {**self._leads}
        return other

    def saw(self, names: tuple[str, ...], text: str, *, headed: bool) -> None:
        """A line was framed: does it show that a server writes here without a name in front?"""
        if not names and not self.plain:
            self.plain = headed or text.startswith(("INFO:", "[2")) or "/sglang/" in text


def _label(name: str) -> str:
    return name.replace(", ", "@").replace(" ", "@")
