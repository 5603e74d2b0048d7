"""The clocks of a log: seconds from text, and which of a log's clocks to believe."""

from __future__ import annotations

SKEW = 60.0
"""Seconds by which the clocks of one log's processes and hosts may differ."""
_JUMP = 3600.0
_ENOUGH = 20


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
    """The time of a log as its lines go by; single lines that disagree with those around them do not move it.

    `trusted` is the latest believed clock in seconds. A line that is older than it by more than SKEW is odd (a forged
    one, or one of a file that was appended to another); only when many follow does the log's time go back. After a jump
    of more than an hour the earlier time is remembered, in case the jump was the odd line.
    """

    __slots__ = ("_earlier", "_key", "_now", "_old", "_since_jump", "trusted")

    def __init__(self) -> None:
        self.trusted: float | None = None
        self._earlier: float | None = None
        self._key = ""
        self._now: float | None = None
        self._since_jump = 0
        self._old = 0

    def see(self, at: str | None) -> float | None:
        """Takes in a header's clock and gives it in seconds."""
        if at is None:
            return None
        key = at[:19]
        if key == self._key:
            return self._now
        self._key, self._now = key, seconds(at)
        if self._now is not None:
            self._judge(self._now)
        return self._now

    def restart(self, now: float | None) -> None:
        """A new run begins: its clock is believed, whatever the last one's was."""
        if now is not None:
            self.trusted, self._earlier, self._since_jump, self._old = now, None, 0, 0

    @property
    def settled(self) -> float | None:
        """The trusted clock, but before a jump that few lines have confirmed yet."""
        return self._earlier if self._earlier is not None else self.trusted

    def is_odd(self, now: float | None) -> bool:
        """Whether a clock lies before the time of the log."""
        return now is not None and self.trusted is not None and now < self.trusted - SKEW

    def _judge(self, now: float) -> None:
        if self.trusted is None:
            self.trusted = now
        elif now >= self.trusted - SKEW:
            self._since_jump += 1
            if now > self.trusted + _JUMP:
                self._earlier, self._since_jump = self.settled, 0
            elif self._since_jump >= _ENOUGH:
                self._earlier, self._since_jump = None, 0
            self.trusted = max(self.trusted, now)
        elif self._earlier is not None and self._earlier - SKEW <= now <= self._earlier + _JUMP:
            self.restart(now)
        else:
            self._old += 1
            if self._old >= _ENOUGH:
                self.restart(now)
            return
        self._old = 0
