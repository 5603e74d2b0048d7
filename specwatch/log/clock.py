"""The clocks of a log: seconds from text, and which of a log's clocks to believe."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from specwatch.lazy import compiled

SKEW = 60.0
"""Seconds by which the clocks of one log's processes and hosts may differ."""
LOOKBACK = 64 * 1024
"""Bytes of a log before a line that tell its time."""
MOST_CLOCKS = 32
"""Headers before a line that tell its time."""
_TRIMMED = 4 * MOST_CLOCKS
_JUMP = 3600.0
_ENOUGH = 20

HEADER = compiled(
    rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,6})?(?: (?:DisaggregationMode\.\w+|[A-Z][A-Z_]*\d+))*\] ?"
)
"""SGLang's header in bytes, as `prefixes.HEADER` is in text."""

Dates = Callable[[bytes], str | None]
"""Reads the clock off the header of a line of some other form than HEADER; None for a line without one."""


class Skipped(NamedTuple):
    """Whole lines, `data[begin:end]`, that were run past; `offset` is where `data[0]` would be in the log."""

    data: bytes
    begin: int
    end: int
    offset: int
    dates: Dates


def seconds(at: str | None) -> float | None:
    """A clock in seconds on a common scale, None where it has no day. Only differences mean anything."""
    if at is None or len(at) < 19 or at[4] != "-":
        return None
    try:
        year, month, day = int(at[0:4]), int(at[5:7]), int(at[8:10])
        hour, minute, second = int(at[11:13]), int(at[14:16]), int(at[17:19])
    except ValueError:
        return None
    if month < 3:
        year, month = year - 1, month + 12
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day
    return days * 86400.0 + hour * 3600 + minute * 60 + second


class Clock:
    """The time of a log, told by the last few headers before a line; single ones that disagree do not move it.

    Of the last MOST_CLOCKS dated headers within LOOKBACK bytes, one that is older than those before it by more than
    SKEW is odd (a forged one, or one of a file that was appended to another); only when many follow does the log's time
    go back. After a jump of more than SKEW the earlier time counts until some more headers have confirmed the jump.

    Nothing further back matters, so that lines can be skipped: `skipped` takes them, and their last bytes are only read
    when a time is asked for.
    """

    __slots__ = ("_key", "_most", "_now", "_seen", "_since")

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float | Skipped]] = deque()
        self._most = _TRIMMED
        self._since = 0
        self._key = ""
        self._now: float | None = None

    def see(self, at: str | None, offset: int) -> float | None:
        """Takes in the clock of the header at a place of the log and gives it in seconds."""
        if at is None:
            return None
        key = at[:19]
        if key != self._key:
            self._key, self._now = key, seconds(at)
        if self._now is not None:
            self._seen.append((offset, self._now))
            if len(self._seen) > self._most:
                self._trim(offset)
        return self._now

    def skipped(self, lines: Skipped) -> None:
        """Takes in lines that were run past; the last LOOKBACK bytes of them count."""
        self._seen.append((lines.offset + lines.begin, lines))
        if len(self._seen) > self._most or self._seen[0][0] < lines.offset + lines.end - 4 * LOOKBACK:
            self._trim(lines.offset + lines.end)

    def _trim(self, offset: int) -> None:
        """Forgets what tells no time any more: of a place too far back, or with enough headers behind it."""
        kept: deque[tuple[int, float | Skipped]] = deque()
        clocks = 0
        for place, what in reversed(self._seen):
            end = what.offset + what.end if isinstance(what, Skipped) else place
            clocks += isinstance(what, float)
            if end < offset - 2 * LOOKBACK or clocks > MOST_CLOCKS + 1:  # one is that of the line itself
                break
            kept.appendleft((place, what))
        self._seen = kept
        self._most = max(_TRIMMED, 2 * len(kept))

    def restart(self, now: float | None, offset: int) -> None:
        """A new run begins: its clock is believed, whatever the last one's was."""
        if now is not None:
            self._since = offset
            self._seen.clear()
            self._seen.append((offset, now))

    def before(self, offset: int) -> float | None:
        """The time of the log above a line; before a jump that few lines have confirmed yet."""
        earlier, trusted = self._judged(offset)
        return trusted if earlier is None else earlier

    def latest(self, offset: int) -> float | None:
        """The latest believed time above a line."""
        return self._judged(offset)[1]

    def is_odd(self, now: float | None, offset: int) -> bool:
        """Whether a line's clock lies before the time of the log above it."""
        trusted = self.latest(offset)
        return now is not None and trusted is not None and now < trusted - SKEW

    def _judged(self, offset: int) -> tuple[float | None, float | None]:
        """The time before an unconfirmed jump, if there is one, and the latest believed time."""
        earlier = trusted = previous = None
        since_jump = old = 0
        for now in self._clocks(offset):
            if now == previous:
                continue
            previous = now
            if trusted is None:
                trusted = now
            elif now >= trusted - SKEW:
                since_jump, old = since_jump + 1, 0
                if now > trusted + SKEW:
                    earlier, since_jump = trusted if earlier is None else earlier, 0
                elif since_jump >= _ENOUGH:
                    earlier, since_jump = None, 0
                trusted = max(trusted, now)
            elif earlier is not None and earlier - SKEW <= now <= earlier + _JUMP:
                earlier, trusted, since_jump, old = None, now, 0, 0
            else:
                old += 1
                if old >= _ENOUGH:
                    earlier, trusted, since_jump, old = None, now, 0, 0
        return earlier, trusted

    def _clocks(self, offset: int) -> Iterable[float]:
        """The clocks that tell the time of a line at `offset`, oldest first."""
        first = max(self._since, offset - LOOKBACK)
        found: deque[float] = deque()
        for place, what in reversed(self._seen):
            if place >= offset:
                continue
            if isinstance(what, Skipped):
                _last_clocks(what, max(what.begin, first - what.offset), found)
            elif place >= first:
                found.appendleft(what)
            if len(found) >= MOST_CLOCKS:
                break
        return found


def _last_clocks(lines: Skipped, first: int, found: deque[float]) -> None:
    """Puts the clocks of the headers in some lines in front, from the last to the one at `first`."""
    data, _, end, _, dates = lines
    while end > first and len(found) < MOST_CLOCKS:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if start < first:
            return
        match = HEADER.match(data, start, end)
        at = seconds(match[1].decode() if match else dates(data[start : end - 1]))
        if at is not None:
            found.appendleft(at)
        end = start
