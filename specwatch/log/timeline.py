"""Which run a line belongs to: start-ups open runs, and a run's incidents are ready once it is over.

Before a server listens a start-up line is believed at once. In the log of a listening server a client may have written
it, so the run before it is kept for `_SETTLES` seconds, in which no server can have started; a batch or an answer in
that time shows that it goes on, and the two are one run (with two launches, if it was another server's start).
"""

from __future__ import annotations

from specwatch.domain import Incident
from specwatch.log.clock import Clock
from specwatch.log.runs import Run, Start

_SETTLES = 3.0
_LINES_TO_SETTLE = 50
"""In place of the seconds, in a log whose clocks have no day."""


class Timeline:
    """The current run of one log, the one `before` it while that may go on, and the time.

    `now` is the clock of the last header in seconds, `starts` how many start-ups were seen, `ready` the incidents of
    runs that are over.
    """

    __slots__ = ("_listened", "_since_split", "_split_at", "before", "clock", "now", "ready", "run", "starts")

    def __init__(self) -> None:
        self.run = Run()
        self.clock = Clock()
        self.now: float | None = None
        self.starts = 0
        self.ready: list[Incident] = []
        self.before: Run | None = None
        self._split_at: float | None = None
        self._since_split = 0
        self._listened = False

    def start(self, text: str, now: float | None, offset: int, stream: tuple[str, ...] = ()) -> None:
        """A server starts at a place of the log: `text` is its record of its arguments, empty before it wrote one."""
        run = self.run
        if run.listening and self.clock.is_odd(now, offset):
            return
        over = self.is_over()
        self._listened = self._listened or run.listening
        announced = next((old for old in run.starts if not old.text and old.stream == stream), None)
        if text and announced is not None and not over:
            announced.text = text
            return
        if over:
            if not run.starts and not self.starts:
                self.starts = 1
            self._part(run, now, offset)
        self.starts += 1
        self.run.starts.append(Start(self.starts, text, stream, early=not self._listened))
        self.run.touched = True

    def is_over(self) -> bool:
        """Whether a start-up now is not another step, or a neighbour, of the one that the run is in."""
        run = self.run
        return bool(run.listening or run.died or run.ended or run.candidates)

    def tick(self, offset: int) -> None:
        """A record went by: the last start-up is real once the log has gone on for longer than a start takes."""
        if self.before is not None:
            self._since_split += 1
            if not self._too_soon():
                self.ready += self.before.take()
                self.before = None
                self.clock.restart(self.now, offset)

    def alive(self) -> None:
        """A batch or an answer: what the last start-up parted too soon for a real one belongs together."""
        if self.before is not None and self._too_soon():
            self.before.merge(self.run)
            self.run, self.before = self.before, None

    def finish(self) -> None:
        """The end of the log, as far as is known."""
        if self.before is not None:
            self.ready += self.before.take()
            self.before = None
        self.ready += self.run.take()

    def _part(self, run: Run, now: float | None, offset: int) -> None:
        self.run = Run()
        if not run.listening:
            self.ready += run.take()
            self.clock.restart(now, offset)
            return
        if self.before is not None:
            self.before.merge(run)
            run = self.before
        self.before, self._split_at, self._since_split = run, now, 0

    def _too_soon(self) -> bool:
        if self.now is None or self._split_at is None:
            return self._since_split < _LINES_TO_SETTLE
        return self.now - self._split_at < _SETTLES
