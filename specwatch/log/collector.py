"""The blocks that are still being read, and which line goes on with which of them.

Several can be open at once: the tracebacks of two ranks may be mixed line by line, and those of two services or actors
always are where a shipper merged them.
"""

from __future__ import annotations

from specwatch.domain import LogLine
from specwatch.lazy import compiled
from specwatch.log import echoes, traceback
from specwatch.log.blocks import Block, Kind
from specwatch.log.candidates import GRACE, Candidate, Weight
from specwatch.log.clock import seconds
from specwatch.log.streams import stream_of, voice_of

_MULTIPROCESSING = "/multiprocessing/process.py"
_LOGGING = ("/logging/__init__.py", "/logging/handlers.py")
_INTERRUPTIONS = 50
"""Records after which a traceback without its exception line is not waited for any longer."""
_BATCHES_WITHOUT_CLOCK = 5
HIT = compiled(r"(?P<who>[A-Z]\w*) hit an exception: Traceback \(most recent call last\):$")


class Collector:
    """The open blocks of one log; closed ones are handed back for judgement."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: list[Block] = []

    def continues(self, line: LogLine) -> tuple[bool, list[Block]]:
        """Gives a line without header to the block that it belongs to, if any; and the blocks that it ends."""
        stream = voice_of(line)
        blocks = [block for block in self.open if voice_of(block.head) == stream]
        closed = []
        for block in [block for block in blocks if not block.takes(line.text)]:
            blocks.remove(block)
            if block.complete or block.kind is not Kind.EXCEPTION:
                closed.append(block)
        if blocks:
            # of equals the latest: a forged beginning from before must not take the lines of a real traceback
            block = max(reversed(blocks), key=lambda block: (not block.interrupted, block.wants(line.text)))
            block.add(line)
            if block.kind is Kind.USAGE and block.complete:
                closed.append(block)
        return bool(blocks), self._without(closed)

    def interrupt(self, line: LogLine) -> list[Block]:
        """A record begins: the blocks that it ends. One in the middle of its frames may go on below it.

        Another rank's traceback does not count as an interruption, for then both go on line by line. A batch of the
        same scheduler, or of any some seconds later, shows that nothing more will come. So does time for a block under
        a name that a client may have made up: it must not stay open until all signs of life have gone by.
        """
        voice = voice_of(line)
        opens = line.text.endswith(traceback.START)
        closed = []
        for block in self.open:
            if voice_of(block.head) != voice:
                if stream_of(block.head) == stream_of(line) and _passed(block, line):
                    closed.append(block)
            else:
                block.interrupted += not opens
                ended = block.complete or block.kind is not Kind.EXCEPTION or block.interrupted > _INTERRUPTIONS
                if ended or (line.text.startswith(echoes.BATCH) and _over(block, line)):
                    closed.append(block)
        return self._without(closed)

    def close(self) -> list[Block]:
        """All that is open."""
        return self._without(list(self.open))

    def _without(self, closed: list[Block]) -> list[Block]:
        if closed:
            self.open = [block for block in self.open if not any(block is other for other in closed)]
        return closed


def _passed(block: Block, line: LogLine) -> bool:
    """Whether so much has gone by under other names that a block will hardly go on."""
    block.passed += 1
    begun, now = seconds(block.head.at) if block.head.at else block.before, seconds(line.at)
    if begun is None or now is None:
        return block.passed > _BATCHES_WITHOUT_CLOCK
    return now - begun >= GRACE or block.passed > _INTERRUPTIONS


def _over(block: Block, batch: LogLine) -> bool:
    """Whether a batch shows that an unfinished block will not go on."""
    if block.head.headed and block.head.ranks == batch.ranks:
        return True
    begun, now = seconds(block.head.at) if block.head.at else block.before, seconds(batch.at)
    if begun is None or now is None:
        return block.interrupted > _BATCHES_WITHOUT_CLOCK
    return now - begun >= GRACE


def candidate(block: Block) -> Candidate | None:
    """What a closed block may be; None for a Ctrl-C, and for what `logging` says of a line that it could not write."""
    got = block.parsed()
    outermost = got.frames[0].file if got.frames else ""
    if got.error.startswith("KeyboardInterrupt") or outermost.endswith(_LOGGING):
        return None
    in_main = not block.head.headed and any(frame.function == "<module>" for frame in got.frames)
    # multiprocessing prints what its process did not catch, and ends it
    ends_it = in_main or (not block.head.headed and outermost.endswith(_MULTIPROCESSING))
    weight = Weight.STRONG if ends_it and block.weight is Weight.ASIDE else block.weight
    if weight > Weight.WEAK and echoes.is_weak_error(got.error):
        weight = Weight.WEAK
    hit = HIT.match(block.head.text)
    found = Candidate(
        weight=weight,
        error=got.error,
        root=block.head,
        frames=got.frames,
        callers=got.callers,
        chain=got.chain,
        ranks=list(block.head.ranks),
        complete=got.complete,
        in_main=in_main,
        scheduler=block.head.headed and (hit["who"] == "Scheduler" if hit else bool(block.head.ranks)),
    )
    found.keep(block.lines)
    return found


def weight_of(head: str) -> Weight:
    """How much a traceback says, by the line that it begins on."""
    if HIT.match(head) or head == traceback.START:
        return Weight.STRONG
    return Weight.WEAK if head.startswith("Initialization failed") else Weight.ASIDE
