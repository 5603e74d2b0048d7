"""One run of a server in a log: its start, its candidates for an incident, and which of them hold in the end.

**What ends as an incident.** Of the candidates that nothing denied, those that say why (STRONG) stand, each different
one by itself; what only says that something died (WEAK) or was perhaps caught (ASIDE) counts as their echo, and stands,
the first of them alone, only where nothing says why. Notes (messages that a rule asked for, no crash by themselves)
stand where no crash does, or where they come within NOTE_LEAD seconds before a WEAK one. Echoes alone give one incident
of role ECHO, so that a crash is not silent.

**What denies a candidate** (`Incident.outlived`). A client can write whole lines, and so whole crash blocks, into the
log of a server that listens; it can neither stop a living server from serving nor make a dead one serve. So:

1. *Its clock* lies outside its neighbours' by more than SKEW, or *its rank label* is of a kind that the schedulers of
   the run do not use: final.
2. *The same scheduler* (same rank label) writes a batch afterwards: final, as one process writes in order. Only a hard
   watchdog's time-out may precede batches of a dying server by some seconds.
3. *Others* write batches or a generation request is answered at least GRACE seconds later (without clocks: 20 such
   signs). Taken back when the server dies within DEATH_AFTER seconds and no later candidate explains that death: other
   ranks and answers under way outlive a real crash a little. Later signs of life deny it again, so a forged death helps
   nobody.
4. *Nothing but handlers speaks of it*: it was printed aside (no process says that it hit an exception) while the
   server served, and no death is noticed. It counts again as soon as one is.
5. *The server stops in order* afterwards ("Gracefully exiting", uvicorn's "Finished server process").

**Several servers in one log.** Where a transport names the stream of each line (`streams.py`), only signs of life,
stops and deaths of the same stream count. Without names: if servers of different ports or models started before any
listened, then a crash while one of them is not ready yet is that one's, once for each, and others' signs of life do
not deny it.

What a server writes before it listens cannot be a client's. A start-up line in the log of a listening server opens a
new run only once three seconds have gone by without a batch or an answer: no server starts faster, and a forged
start-up must not part a forged crash from the signs of life that deny it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from specwatch.domain import Incident, Launch, LogLine, Role
from specwatch.errors import LaunchError
from specwatch.log.candidates import SERVED, UNPROVED, Candidate, Weight
from specwatch.log.routine import Level
from specwatch.log.streams import ranks_of, stream_of

MOST_CANDIDATES = 1000
MOST_MILESTONES = 512
REFUSED_LINES = 3
REFUSED_STEPS = 120
"""Decode lines in a row, and steps that they sum up, with an acceptance of 1.00 before a draft counts as useless."""
NOTE_LEAD = 10.0
LED_SECONDS = 1
READY = ("INFO:     Uvicorn running on", "The server is fired up")
ENOUGH_SCHEDULERS = 100
"""Batches after which it is known whether a run's schedulers carry rank labels."""


class Quiet(NamedTuple):
    """Which routine lines tell a run nothing: up to a level, with clocks from `first` to before `last`.

    `unaccepted`: a batch line that says so tells something all the same.
    """

    level: Level
    first: float = -math.inf
    last: float = math.inf
    unaccepted: bool = False

    @property
    def timed(self) -> bool:
        """Whether the clocks matter."""
        return self.last < math.inf


_ROUTINE = {(level, unaccepted): Quiet(level, unaccepted=unaccepted) for level in Level for unaccepted in (False, True)}


@dataclass(slots=True, eq=False, repr=False)
class Start:
    """One start-up: `text` is the server's record of its arguments, empty when it died before it wrote one.

    `early`: no server of the log had listened before, so that no client can have written it.
    """

    number: int
    text: str = ""
    stream: tuple[str, ...] = ()
    early: bool = False
    _launch: Launch | None = None

    def launch(self) -> Launch | None:
        """What started it, parsed on first use; None when the log does not tell."""
        if self._launch is None and self.text:
            from specwatch.launch.server_args import recorded

            try:
                self._launch = recorded(self.text)
            except LaunchError:
                self.text = ""
        return self._launch


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """Everything between two start-ups; several starts where servers start into one log side by side."""

    starts: list[Start] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    open: list[Candidate] = field(default_factory=list)
    listening: bool = False
    died: bool = False
    ended: bool = False
    touched: bool = False
    labels: int = 0
    echoes: int = 0
    dropped: int = 0
    emitted: int = 0
    ready: dict[str, int] = field(default_factory=dict)
    """How often each of the lines came that a server writes once when it is ready."""
    lost: int = 0
    lost_at: float | None = None
    """How many servers died in their start-ups, and the clock of the latest of those deaths."""
    schedulers: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    """By stream: how many lines of schedulers came without a rank label, and with one."""
    unaccepted: int = 0
    """Decode lines in a row whose drafts were all refused; negative once that was said."""
    milestones: dict[tuple[tuple[str, ...], str], LogLine] = field(default_factory=dict)
    """By rank and first words: the last line of each step of the start-up, such as `Load weight end. …`."""

    def add(self, found: Candidate) -> Candidate:
        """Takes a candidate in; the same error again, or from another rank, joins the one that still holds.

        Gives the one that now stands for it.
        """
        self.touched = True
        if not found.outlived and found.weight >= Weight.WEAK and not found.starting:
            found.starting = self.is_starting(found)
        for known in reversed(self.open):
            if found.repeats(known):
                known.echoes += found.weight is not Weight.ECHO
                known.ranks += [rank for rank in found.ranks if rank not in known.ranks]
                return known
        if len(self.candidates) >= MOST_CANDIDATES:
            # those that are never told first: a caught exception that was outlived
            denied = next((old for old in self.candidates if old.outlived and old.weight is Weight.ASIDE), None)
            denied = denied or next((old for old in self.candidates if old.outlived), None)
            if denied is None:
                self.dropped += 1
                return found
            self.candidates.remove(denied)
        self.candidates.append(found)
        if not found.outlived:
            self.open.append(found)
        return found

    def saw_clock(self, now: float) -> None:
        """A headed line of another record, with its clock."""
        for candidate in self.open:
            candidate.saw_clock(now)
        self._sweep()

    def saw_life(self, line: LogLine, now: float | None, *, batch: bool) -> None:
        """A batch was run or a generation request answered."""
        for candidate in self.open:
            candidate.saw_life(line, now, batch=batch)
        self._sweep()

    def saw_progress(self, line: LogLine) -> None:
        """A start-up went on: an exception that was printed aside had been caught."""
        if self.candidates:
            stream = stream_of(line)
            self.candidates, self.open = (
                [old for old in kept if old.weight is not Weight.ASIDE or old.stream != stream]
                for kept in (self.candidates, self.open)
            )
        if line.text.startswith(READY):
            words = line.text[:20]
            self.ready[words] = self.ready.get(words, 0) + 1

    def is_starting(self, found: Candidate) -> bool:
        """Whether one of several servers, whose starts no client can have written, may have died of it unready."""
        servers = self._servers()
        if servers < 2:
            return False
        near = self.lost_at is not None and found.clock is not None and abs(found.clock - self.lost_at) <= LED_SECONDS
        if near:
            return True
        if servers - self.lost <= max(self.ready.values(), default=int(self.listening)):
            return False
        if found.weight is Weight.STRONG:
            self.lost, self.lost_at = self.lost + 1, found.clock
        return True

    def _servers(self) -> int:
        """How many different servers start in this run side by side, as far as no client can have said so."""
        early = [start for start in self.starts if start.early and start.text]
        if len(early) < 2:
            return len(early)
        launches = [launch for start in early if (launch := start.launch())]
        return len({(launch.value("port"), launch.value("model_path")) for launch in launches})

    def saw_acceptance(self, text: str) -> bool:
        """A decode line of a server that speculates; True once, where drafts have been refused for long enough.

        One line sums up `--decode-log-interval` steps (40 unless the server recorded another value).
        """
        if self.unaccepted < 0:
            return False
        if "accept len: 1.00" not in text:
            self.unaccepted = 0
            return False
        self.unaccepted += 1
        if self.unaccepted < REFUSED_LINES:
            return False
        own = self.starts[-1].launch() if self.starts else None
        interval = own.value("decode_log_interval", 40) if own else 40
        if isinstance(interval, int) and self.unaccepted * interval < REFUSED_STEPS:
            return False
        self.unaccepted = -1  # said once for a run
        return True

    def routine(self) -> Quiet:
        """What tells nothing while no candidate is open."""
        if not self.listening:
            level = Level.REQUESTS
        elif self.labels < ENOUGH_SCHEDULERS or self.unaccepted > 0:
            level = Level.ACCESS
        else:
            level = Level.BATCHES
        return _ROUTINE[level, self.unaccepted == 0]

    def quiet(self, led: float | None) -> Quiet | None:
        """What tells nothing while candidates are open, and since a message at `led` that may have led to one."""
        first, last = -math.inf, math.inf if led is None else led + LED_SECONDS + 0.5
        for candidate in self.open:
            span = candidate.silent()
            if span is None:
                return None
            first, last = max(first, span[0]), min(last, span[1])
        usual = self.routine()
        return Quiet(usual.level, first, last, usual.unaccepted) if first < last else None

    def saw_milestone(self, line: LogLine) -> None:
        """A step of the start-up that tells about memory: rules may quote it beside a later failure."""
        key = (line.ranks, line.text[:15])
        if key in self.milestones or len(self.milestones) < MOST_MILESTONES:
            self.milestones[key] = line

    def _milestones(self, ranks: tuple[str, ...]) -> tuple[LogLine, ...]:
        """The steps that a rank wrote; those of all where it wrote none, or the failure names no rank."""
        own = [line for (whose, _), line in self.milestones.items() if whose == ranks]
        return tuple(sorted(own or self.milestones.values(), key=lambda line: line.number))[-16:]

    def saw_orderly_end(self, line: LogLine) -> None:
        """The server stopped as it was told to."""
        self.ended = True
        for candidate in self.open:
            candidate.saw_orderly_end(line)
        self._sweep()

    def saw_death(self, now: float | None, stream: tuple[str, ...] = ()) -> None:
        """The server ended itself: the last crash that only others' answers denied holds again."""
        self.died = self.touched = True
        crashes = [old for old in self.candidates if old.weight >= Weight.WEAK and old.stream == stream]
        if crashes and crashes[-1] not in self.open and crashes[-1].saw_death(now):
            self.open.append(crashes[-1])

    def saw_scheduler(self, line: LogLine) -> None:
        """A scheduler's line shows whether this run's schedulers carry rank labels."""
        self.labels += 1
        counts = self.schedulers.setdefault(stream_of(line), [0, 0])
        counts[bool(ranks_of(line))] += 1

    def mislabelled(self, line: LogLine) -> str:
        """Why a scheduler's block cannot be of this run by its label; empty when it can."""
        ranks = ranks_of(line)
        unlabelled, labelled = self.schedulers.get(stream_of(line), (0, 0))
        if self._servers() > 1:
            return ""
        if ranks and unlabelled >= 2 and not labelled:
            return f"the label {' '.join(ranks)} of the block is none of this run, whose schedulers have no label"
        if not ranks and labelled >= 2 and not unlabelled:
            return "the block has no rank label, and this run's schedulers always write theirs"
        return ""

    def merge(self, later: Run) -> None:
        """Takes back what was split off at a start-up that was none, or one of another server beside this."""
        self.starts = later.starts + self.starts  # in front: the less likely ones
        self.echoes += later.echoes
        self.milestones |= later.milestones
        for candidate in later.candidates:
            self.add(candidate)

    def take(self) -> list[Incident]:
        """The incidents of the run as far as it is known; they are not given again."""
        self._deny_ready()
        chosen = self._standing()
        denied = [old for old in self.candidates if old.outlived and old.weight is not Weight.ASIDE]
        chosen += [old for old in denied if old.weight is not Weight.ECHO]
        if not chosen and not self.emitted:
            chosen = self._unproved()
        taken = sorted(chosen, key=lambda old: old.root.number)
        self.candidates, self.open = [], []
        self.emitted += len(taken)
        self.echoes = self.dropped = 0
        return [self._incident(candidate) for candidate in taken]

    def _unproved(self) -> list[Candidate]:
        """The last exception that a serving server caught, or died of without another word: to be shown, no crash."""
        last = [old for old in self.candidates if old.weight is Weight.ASIDE and not old.outlived][-1:]
        for old in last:
            old.outlived = UNPROVED
        return last

    def _deny_ready(self) -> None:
        """Where all servers became ready in the end, none had died while it started."""
        starting = [old for old in self.candidates if old.starting and not old.outlived]
        if starting and max(self.ready.values(), default=0) >= sum(1 for start in self.starts if start.text):
            for old in starting:
                old.outlived = f"{SERVED}: all servers of the log were ready afterwards"

    def _standing(self) -> list[Candidate]:
        live = sorted((old for old in self.candidates if not old.outlived), key=lambda old: old.root.number)
        strong = [old for old in live if old.weight is Weight.STRONG]
        whole = [old for old in strong if old.complete] or strong[:1]
        lesser = [old for old in live if old.weight in (Weight.WEAK, Weight.ASIDE)]
        if not self._may_have_died(live):
            lesser = []
        notes = [old for old in live if old.weight is Weight.NOTE]
        if whole:
            chosen = whole
        elif lesser:
            first = lesser[0]
            led = [old for old in notes if _within(old, first, NOTE_LEAD)]
            chosen = led or [first]
        elif notes:
            return notes
        elif self.emitted == 0:
            return [old for old in live if old.weight is Weight.ECHO][:1]
        else:
            return []
        silenced = [old for old in live if old not in chosen and old.weight is not Weight.ECHO]
        chosen[0].echoes += self.echoes + self.dropped + sum(1 + old.echoes for old in silenced)
        for old in silenced:
            if not old.complete:
                chosen[0].ranks += [rank for rank in old.ranks if rank not in chosen[0].ranks]
        return chosen

    def _incident(self, found: Candidate) -> Incident:
        starts = self._likeliest(found)
        launches = [launch for start in starts if (launch := start.launch())]
        return Incident(
            error=found.error,
            root=_error_line(found),
            lines=(*self._milestones(found.root.ranks), *found.lines),
            frames=found.frames,
            callers=found.callers,
            chain=found.chain,
            ranks=tuple(sorted(found.ranks)),
            run=starts[0].number if starts else 1,
            launches=tuple(launches),
            role=Role.ECHO if found.weight is Weight.ECHO else Role.CAUSE,
            echoes=found.echoes,
            outlived=found.outlived,
        )

    def _may_have_died(self, live: list[Candidate]) -> bool:
        """Whether anything but caught exceptions says so: a serving server does not die of those."""
        if not self.listening or self.died or self.echoes:
            return True
        return any(old.weight in (Weight.ECHO, Weight.WEAK) for old in live)

    def _likeliest(self, found: Candidate) -> list[Start]:
        """The starts that may have brought it about: those whose own values it speaks of first, then the latest."""
        own = [start for start in self.starts if start.stream == found.stream] or self.starts
        starts = [start for start in reversed(own) if start.text] or own[-1:]
        distinct = list({start.text: start for start in reversed(starts)}.values())[::-1]
        if len(distinct) < 2:
            return distinct
        told = " ".join([found.error, *(frame.file for frame in found.frames)]).lower()
        return sorted(distinct, key=lambda start: -_speaks_of(told, start, distinct))

    def _sweep(self) -> None:
        self.open = [candidate for candidate in self.open if not candidate.outlived]


def _error_line(found: Candidate) -> LogLine:
    """The line on which the error itself begins: the last of a traceback, with the clock and ranks of its record."""
    first = found.error.split("\n", 1)[0]
    for line in reversed(found.lines):
        if first and line.text == first:
            return line._replace(at=line.at or found.root.at, ranks=line.ranks or found.root.ranks)
    return found.root


def _within(first: Candidate, second: Candidate, span: float) -> bool:
    return first.clock is not None and second.clock is not None and 0 <= second.clock - first.clock <= span


def _speaks_of(told: str, start: Start, starts: list[Start]) -> int:
    """How many string values that only this start has an error mentions."""
    own = start.launch()
    if own is None or own.recorded is None:
        return 0
    launches = [launch for other in starts if other is not start and (launch := other.launch())]
    others = [launch.recorded for launch in launches if launch.recorded]
    return sum(
        1
        for name, value in own.recorded.items()
        if isinstance(value, str) and len(value) >= 4 and value.lower() in told
        if not any(record.get(name) == value for record in others)
    )
