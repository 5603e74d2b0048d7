"""From log lines to incidents: tracebacks and other blocks put together, ranks merged, echoes counted, runs told apart.

Lines go by once and in order. Ordinary lines cost a few comparisons; what may be a failure becomes a candidate of its
run (`runs.py` says which candidates become incidents, and what denies one), and a run's incidents come when the next
run begins or at `flush`. Memory is bounded: lines per block, candidates per run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from specwatch.domain import Incident, LogLine, Role
from specwatch.log import echoes, routine, traceback
from specwatch.log.blocks import BAR, BREAK, USAGE_ERROR, Block, Kind
from specwatch.log.candidates import Candidate, Weight
from specwatch.log.clock import Skipped, seconds
from specwatch.log.collector import HIT, Collector, candidate, weight_of
from specwatch.log.runs import ENOUGH_SCHEDULERS, LED_SECONDS, Quiet
from specwatch.log.streams import stream_of
from specwatch.log.timeline import Timeline

Known = Callable[[str], Role | None]
"""What a rule book says of the text of one line: a CAUSE, an ECHO, ADVICE, or nothing."""

_ANNOUNCED = "UserWarning: 'python -m sglang.launch_server'"


def incidents(lines: Iterable[LogLine], known: Known | None = None) -> Iterator[Incident]:
    """The incidents of a log, in the order in which their runs end."""
    assembler = Assembler(known)
    for line in lines:
        yield from assembler.feed(line)
    yield from assembler.flush()


class Assembler:
    """Takes log lines in order and gives incidents as soon as their runs are over.

    `known` is asked about single lines that are no part of a block. A change of `line.source` ends a log.
    """

    def __init__(self, known: Known | None = None) -> None:
        self._known = known
        self._source: str | None = None
        self._ready: list[Incident] = []
        self._begin()

    @property
    def runs(self) -> int:
        """How many start-ups the lines so far showed; one for a log that begins in the middle of a run."""
        return max(self._time.starts, 0 if self._source is None else 1)

    def feed(self, line: LogLine) -> list[Incident]:
        """Takes one line; gives the incidents of a run that this line shows to be over."""
        if line.source != self._source:
            if self._source is not None:
                self._finish()
            self._source = line.source
            self._begin()
        if line.headed:
            self._headed(line)
        elif line.text:
            self._bare(line)
        elif self._blocks.open:
            self._continues(line)
        return self._take() if self._time.ready or self._ready else []

    def quiet(self) -> Quiet | None:
        """Which routine lines would change nothing if they came now; None while any line may matter."""
        time = self._time
        if self._first or self._blocks.open or time.before is not None or time.ready or self._ready:
            return None
        led = self._led
        if not time.run.open and led is None:
            return time.run.routine()
        if led is not None and led.clock is None:
            return None
        return time.run.quiet(None if led is None else led.clock)

    def is_news(self, message: str) -> bool:
        """Whether the message of a headed line that is not routine may change anything while no crash is open."""
        message = message.rstrip(" \t")
        if message.startswith(("INFO:", "server_args=")) or message.endswith(traceback.START):
            return True
        if echoes.says_something(message):
            return True
        return self._known is not None and self._known(message) is not None

    def skipped(self, lines: Skipped) -> None:
        """Lines went by that `quiet` allowed, or that are no news."""
        self._time.clock.skipped(lines)

    def flush(self) -> list[Incident]:
        """What is known so far, at the end of a log or when it has been quiet; each incident is given once."""
        self._finish()
        return self._take()

    def _begin(self) -> None:
        self._time = Timeline()
        self._blocks = Collector()
        self._record = -1
        self._led: Candidate | None = None
        self._first = True

    def _finish(self) -> None:
        self._close_all()
        self._time.finish()
        self._ready = self._take()

    def _take(self) -> list[Incident]:
        ready = self._ready + self._time.ready
        self._ready, self._time.ready = [], []
        return ready

    # headed lines

    def _headed(self, line: LogLine) -> None:
        text = line.text
        if self._blocks.open:
            for block in self._blocks.interrupt(line):
                self._judge(block)
        time = self._time
        now = time.now = time.clock.see(line.at, line.offset)
        self._record, self._first = line.number, False
        run = self._time.run
        run.touched = True
        if run.open and now is not None:
            run.saw_clock(now)
        if self._led is not None and now is not None:
            self._expire(self._led, now)
        if text.startswith(echoes.BATCH):
            self._life(line, batch=True)
        elif text.startswith("INFO:"):
            self._access(line)
        elif text.startswith("server_args="):
            self._starts(text, now, line)
        else:
            self._message(line)
        if time.before is not None:
            time.tick(line.offset)

    def _expire(self, led: Candidate, now: float) -> None:
        """What leads to an exception comes at most a second before it."""
        if led.clock is None:
            led.clock = now
        elif now - led.clock > LED_SECONDS:
            self._led = None

    def _access(self, line: LogLine) -> None:
        if echoes.is_served(line.text):
            self._life(line, batch=False)
            return
        run = self._time.run
        if not run.listening and echoes.shows_listening(line.text):
            run.listening = True
        if echoes.is_progress(line.text):
            run.saw_progress(line)
        elif echoes.is_orderly_end(line.text):
            run.saw_orderly_end(line)

    def _life(self, line: LogLine, *, batch: bool) -> None:
        self._time.alive()
        run = self._time.run
        run.listening = True
        if batch and run.labels < ENOUGH_SCHEDULERS:
            run.saw_scheduler(line)
        if batch and "accept len: " in line.text and run.saw_acceptance(line.text):
            self._ask(line)
        if run.open:
            run.saw_life(line, self._time.now, batch=batch)

    def _message(self, line: LogLine) -> None:
        text, run = line.text, self._time.run
        if echoes.is_about_users(text):
            return
        if text.endswith(traceback.START):
            self._blocks.open.append(self._block(Kind.EXCEPTION, line, weight_of(text)))
            return
        if self._led is not None and set(line.ranks) <= set(self._led.ranks):
            self._led = None
        if self._single(line):
            return
        if echoes.is_orderly_end(text):
            run.saw_orderly_end(line)
        elif echoes.is_progress(text):
            run.saw_progress(line)
            run.saw_milestone(line)
            if echoes.is_schedulers(text):
                run.saw_scheduler(line)
            run.listening = run.listening or echoes.shows_listening(text)
        else:
            self._ask(line)

    def _single(self, line: LogLine) -> bool:
        """One line that says by itself that, or why, something died."""
        text, run = line.text, self._time.run
        if echoes.is_echo(text):
            self._echo(line)
        elif echoes.is_cause(text):
            self._note(line, Weight.STRONG)
        elif echoes.is_weak_cause(text):
            self._note(line, Weight.WEAK)
        elif match := echoes.ASSERTION.match(text):
            self._note(line, Weight.STRONG, match["what"])  # one line for each GPU thread
        else:
            return False
        run.touched = True
        return True

    def _echo(self, line: LogLine) -> None:
        self._time.run.echoes += 1
        if echoes.notices_death(line.text):
            self._note(line, Weight.ECHO)
        if echoes.is_death(line.text):
            self._time.run.saw_death(self._time.now if line.headed else None, stream_of(line))

    def _ask(self, line: LogLine) -> None:
        role = self._known(line.text) if self._known is not None else None
        if role is Role.CAUSE:
            last = not line.headed and echoes.is_last_word(line.text)
            self._led = self._note(line, Weight.STRONG if last else Weight.NOTE)
        elif role is Role.ADVICE:
            self._led = self._led_by(line)
        elif role is Role.ECHO:
            self._time.run.echoes += 1

    def _note(self, line: LogLine, weight: Weight, same: str = "") -> Candidate:
        return self._time.run.add(self._single_line(line, weight, same))

    def _led_by(self, line: LogLine) -> Candidate:
        """A message that is nothing by itself, and the cause where an exception of the same rank follows at once."""
        found = self._single_line(line, Weight.NOTE)
        if self._led is not None and found.repeats(self._led):
            self._led.ranks += [rank for rank in found.ranks if rank not in self._led.ranks]
            return self._led
        return found

    def _single_line(self, line: LogLine, weight: Weight, same: str = "") -> Candidate:
        found = Candidate(weight=weight, error=line.text, root=line, ranks=list(line.ranks), same=same)
        found.scheduler = found.hard_watchdog = echoes.HARD_WATCHDOG.match(line.text) is not None
        found.lines.append(line)
        self._date(found, self._time.clock.before(line.offset))
        return found

    def _date(self, found: Candidate, before: float | None) -> None:
        own = seconds(found.root.at) if found.root.headed else None
        found.own_clock = own is not None
        found.clock = own
        found.before = before

    # lines without a header

    def _bare(self, line: LogLine) -> None:
        text = line.text
        if "%" in text and BAR.match(text):
            return
        if self._blocks.open and self._continues(line):
            return
        inside = line.number == self._record
        first, self._first = self._first, False
        if inside or text.startswith(routine.BARE):
            return  # nothing in a line of a JSON string, or in a routine line, starts anything
        if text[:1] in (" ", "\t"):
            if "+ Exception Group Traceback (" in text or (first and traceback.FRAME.match(text)):
                self._blocks.open.append(self._block(Kind.EXCEPTION, line, Weight.ASIDE))
            self._first = first and not self._blocks.open  # a log that begins in the middle of a traceback
            return
        if text == traceback.START:
            self._blocks.open.append(self._block(Kind.EXCEPTION, line, Weight.ASIDE))
        elif HIT.match(text):
            self._blocks.open.append(self._block(Kind.EXCEPTION, line, Weight.STRONG))
        elif text.startswith("Initialization failed. ") and text.endswith(traceback.START):
            self._blocks.open.append(self._block(Kind.EXCEPTION, line, weight_of(text)))  # before 0.3
        elif text.startswith("usage: ") and ("[-h]" in text or text.startswith("usage: sglang")):
            if self._time.is_over() or not self._time.run.starts:
                self._starts("", self._time.clock.latest(line.offset), line)
            self._blocks.open.append(self._block(Kind.USAGE, line, Weight.STRONG))
        elif text.startswith("Fatal Python error: "):
            self._blocks.open.append(self._block(Kind.FAULT, line, Weight.WEAK))
        elif text.startswith(("terminate called ", "what(): ")):
            self._blocks.open.append(self._block(Kind.TERMINATE, line, Weight.WEAK))
        elif _ANNOUNCED in text and BREAK.match(text):
            self._starts("", self._time.clock.latest(line.offset), line)
        elif USAGE_ERROR.match(text) and "sglang" in text.partition(":")[0] + text[:40]:
            if not self._time.run.listening:  # a start that fails prints its usage first; clients print neither
                self._note(line, Weight.STRONG)
        elif first and traceback.is_exception(text) and not echoes.is_cancelled(text):
            self._blocks.open.append(self._block(Kind.EXCEPTION, line, Weight.ASIDE, complete=True))
        elif not self._single(line):
            self._ask(line)

    def _block(self, kind: Kind, line: LogLine, weight: Weight, *, complete: bool = False) -> Block:
        return Block(kind, line, weight, self._time.clock.before(line.offset), complete=complete)

    def _continues(self, line: LogLine) -> bool:
        taken, closed = self._blocks.continues(line)
        for block in closed:
            self._judge(block)
        return taken

    def _close_all(self) -> None:
        for block in self._blocks.close():
            self._judge(block)

    def _judge(self, block: Block) -> None:
        found = candidate(block)
        if found is None:
            return
        self._date(found, block.before)
        if found.in_main and not self._time.run.starts and any(old.in_main for old in self._time.run.open):
            self._starts("", self._time.clock.latest(block.head.offset), block.head)
        if found.scheduler:
            found.outlived = self._time.run.mislabelled(found.root)
            found.final = bool(found.outlived)
        if not self._follows(found):
            self._time.run.add(found)

    def _follows(self, found: Candidate) -> bool:
        """Whether an exception is what a device-side assertion, or the line right before it, leads to."""
        cause = None
        if "device-side assert" in found.error:
            cause = next((old for old in self._time.run.open if echoes.ASSERTION.match(old.error)), None)
        elif found.weight is Weight.STRONG and (led := self._led) is not None and not led.outlived:
            near = found.root.headed and found.root.number == led.root.number + 1  # their clocks may have no day
            if found.clock is not None and led.clock is not None:
                near = 0 <= found.clock - led.clock <= LED_SECONDS
            cause = led if near and set(found.ranks) <= set(led.ranks) else None
        if cause is None or found.outlived:
            return False
        self._led = None
        if cause not in self._time.run.open:
            cause = self._time.run.add(cause)
        if cause.weight is not Weight.STRONG:
            cause.weight = Weight.STRONG
            cause.starting = cause.starting or self._time.run.is_starting(cause)
        cause.frames, cause.callers = found.frames, found.callers
        cause.chain += (found.error, *found.chain)
        cause.ranks += [rank for rank in found.ranks if rank not in cause.ranks]
        cause.scheduler = cause.scheduler or (found.scheduler and found.root.ranks == cause.root.ranks)
        cause.keep(found.lines)
        return True

    def _starts(self, text: str, now: float | None, line: LogLine) -> None:
        self._close_all()
        self._time.start(text, now, line.offset, stream_of(line))
