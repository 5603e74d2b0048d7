"""What may turn out to be an incident once its run has ended, and the evidence for and against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from specwatch.domain import Frame, LogLine
from specwatch.lazy import compiled
from specwatch.log.clock import SKEW
from specwatch.log.streams import stream_of

GRACE = 3.0
"""Seconds for which others may go on answering after a real crash: other ranks, answers on their way out."""
DEATH_AFTER = 120.0
"""Seconds within which a failing server is gone; its crash diagnostics take up to 70."""
LIVES_WITHOUT_CLOCK = 20
MOST_LINES = 200
_MOST_TEXT = 128 * 1024

_NUMBERS = compiled(r"[0-9]+")

SERVED = "the server went on"
STOPPED = "the server was stopped in order"
UNPROVED = "nothing in the log says that the server died of it"


def is_denied_by_clock_or_label(outlived: str) -> bool:
    """Whether the block itself is impossible, rather than survived: true of no real message, however harmless.

    A message that claims no crash (a degraded server) is expected to be outlived by serving.
    """
    return bool(outlived) and not outlived.startswith((SERVED, STOPPED))


class Weight(IntEnum):
    """How much a block says: an ECHO nothing new, a NOTE no crash, ASIDE a caught one perhaps, WEAK who, STRONG why."""

    ECHO = 0
    NOTE = 1
    ASIDE = 2
    WEAK = 3
    STRONG = 4


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Candidate:
    """One possible incident while its run goes on.

    `clock` is its own clock or, once that has come, the next one below it; `before` the trusted clock above it, both in
    seconds. `same` is what makes a repetition of it, the error itself unless something else says so.
    `scheduler`: a scheduler wrote it about itself, so that a later batch of the same rank denies it.
    `starting`: it came from one of several servers' start-ups of which not all are ready, so that the others' signs of
    life do not deny it.
    `outlived` is the sentence that denies it, `final` says that no later line may take that back.
    """

    weight: Weight
    error: str
    root: LogLine
    lines: list[LogLine] = field(default_factory=list)
    frames: tuple[Frame, ...] = ()
    callers: tuple[Frame, ...] = ()
    chain: tuple[str, ...] = ()
    ranks: list[str] = field(default_factory=list)
    clock: float | None = None
    before: float | None = None
    own_clock: bool = False
    scheduler: bool = False
    hard_watchdog: bool = False
    complete: bool = True
    in_main: bool = False
    starting: bool = False
    lives: int = 0
    echoes: int = 0
    outlived: str = ""
    final: bool = False
    same: str = ""
    _key: str = ""

    @property
    def key(self) -> str:
        """Equal for the same error of two ranks, whose numbers (a GPU, bytes free) may differ."""
        if not self._key:
            self._key = f"{self.weight} {_NUMBERS.sub('0', (self.same or self.error)[:4000])}"
        return self._key

    @property
    def stream(self) -> tuple[str, ...]:
        """What tells its process tree from the others of the log."""
        return stream_of(self.root)

    def repeats(self, known: Candidate) -> bool:
        """Whether this is an earlier candidate once more, or the same failure of another rank."""
        if self.key != known.key:
            return False
        if (self.same or self.error) == (known.same or known.error):
            return True
        return not set(self.ranks) <= set(known.ranks)

    def keep(self, lines: list[LogLine]) -> None:
        """Keeps the lines that will be shown, as many as memory allows."""
        room = _MOST_TEXT
        for line in lines[:MOST_LINES]:
            room -= len(line.text)
            if room < 0:
                break
            self.lines.append(line)

    def saw_clock(self, now: float) -> None:
        """A headed line of clock `now` follows: does the block's own clock fit between its neighbours'?"""
        if self.clock is None or (not self.own_clock and now + SKEW < self.clock and self._fits(now)):
            self.clock = now  # also where the first that followed was ahead of its time, and so perhaps a client's
        if self.final or not self.own_clock or self.clock is None or self.before is None or not self._fits(now):
            return
        if self.clock + SKEW < self.before or now + SKEW < self.clock:
            self.outlived = f"the clock of the block, {self.root.at}, does not fit between the lines around it"
            self.final = True

    def _fits(self, now: float) -> bool:
        """Whether a clock that follows is not older than the log was before."""
        return self.before is None or now >= self.before - SKEW

    def saw_life(self, line: LogLine, now: float | None, *, batch: bool) -> None:
        """A batch or an answer follows: can the process that the block declares dead have written it?"""
        if self.outlived or self.starting or (line.ranks != self.root.ranks and stream_of(line) != self.stream):
            return
        if batch and self.scheduler and line.ranks == self.root.ranks:
            self.outlived = f"{SERVED}: the same scheduler runs batches afterwards (line {line.number})"
            self.final = not self.hard_watchdog
        elif now is not None and self.clock is not None:
            if now - self.clock >= GRACE:
                self.outlived = f"{SERVED}: requests are answered {now - self.clock:.0f} s later (line {line.number})"
        elif (lives := self.lives + 1) < LIVES_WITHOUT_CLOCK:
            self.lives = lives
        else:
            self.outlived = f"{SERVED}: requests are answered afterwards (line {line.number})"

    def silent(self) -> tuple[float, float] | None:
        """From when to before when clocks and signs of life cannot deny it; None where any line may."""
        if self.clock is None or self.scheduler:
            return None
        if self.own_clock and self.before is not None and self.clock + SKEW < self.before:
            return None
        return self.clock - SKEW, self.clock + GRACE

    def saw_orderly_end(self, line: LogLine) -> None:
        """The server ends in order: a crashed one could not."""
        if not self.outlived and not self.starting and stream_of(line) == self.stream:
            self.outlived = f"{STOPPED} afterwards (line {line.number})"

    def saw_death(self, now: float | None) -> bool:
        """A death follows with nothing else to explain it: takes back what only others' answers denied."""
        if self.final or not self.outlived or self.outlived.startswith(STOPPED):
            return False
        if now is None or self.clock is None or not 0 <= now - self.clock <= DEATH_AFTER:
            return False
        self.outlived = ""
        self.lives = 0
        return True
