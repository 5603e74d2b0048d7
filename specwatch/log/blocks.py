"""Blocks of lines that belong together: tracebacks, argparse usage, faulthandler dumps, C++ terminations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from specwatch.domain import Frame, LogLine
from specwatch.lazy import compiled
from specwatch.log import traceback
from specwatch.log.candidates import Weight

_MOST = 600
_LAST = 150
_MOST_TEXT = 512 * 1024

BAR = compiled(r".{0,400}\d{1,3}%.{0,500}\[\d\d:\d\d(?::\d\d)?<")
USAGE_ERROR = compiled(r"(?:[\w./-]+|[\w./-]*sglang serve): error: ")
BREAK = compiled(
    r"usage: |Fatal Python error: |terminate called |what\(\): |\[rank\d+\]:\[|nanobind: "
    r"|(?:Killed|Aborted|Terminated)\b|\S+\.py:\d+: \w*Warning: |Process \S+:$|Exception (?:in thread|ignored)"
    r"|\S+ hit an exception: |Initialization failed\. |[\w.-]{1,120} exited with code \d+$"
    r"|(?:Memory cgroup out|Out) of memory: Killed process|Thread \d+ \((?:active|idle)"
)
_FAULT = compiled(r"(?:Current thread|Thread) 0x|Extension modules: |\s*File \"|\s*<no Python frame>|\s*$|\s+\.\.\.")
_TERMINATE = compiled(
    r"\s+what\(\): |CUDA kernel errors|For debugging|Compile with|Device-side|Exception raised from|frame #|\s*$"
    r"|Search for"
)
_CURRENT = compiled(r"Current thread 0x")


class Kind(Enum):
    """What a block is."""

    EXCEPTION = "exception"
    USAGE = "usage"
    FAULT = "fault"
    TERMINATE = "terminate"


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """Lines that are still being collected. `complete`: what it is about has been read, more may belong to it.

    `before` is the trusted clock in seconds before its first line.
    """

    kind: Kind
    head: LogLine
    weight: Weight
    before: float | None
    lines: list[LogLine] = field(default_factory=list)
    complete: bool = False
    interrupted: int = 0
    passed: int = 0
    _text: int = 0

    def __post_init__(self) -> None:
        self.lines.append(self.head)

    def takes(self, text: str) -> bool:
        """Whether a line without header goes on with this block."""
        if self.kind is Kind.FAULT:
            return _FAULT.match(text) is not None
        if self.kind is Kind.TERMINATE:
            return _TERMINATE.match(text) is not None
        if BREAK.match(text):
            return False
        if self.kind is Kind.USAGE:
            return not self.complete
        if self.complete:
            return text != traceback.START
        if self.interrupted:
            return text[:1] in (" ", "") or traceback.FRAME.match(text) is not None or traceback.is_exception(text)
        return True

    def wants(self, text: str) -> int:
        """How well a line fits as the very next one; more is better. For lines of several ranks mixed together."""
        last = self.lines[-1].text
        if traceback.FRAME.match(text):
            return 0 if traceback.FRAME.match(last) else 2
        if text[:1] == " ":
            return 2 if traceback.FRAME.match(last) else 0
        if traceback.is_exception(text):
            return 0 if self.complete else 2
        return 1

    def add(self, line: LogLine) -> None:
        """Takes a line in. Of very long blocks the beginning and the end are kept."""
        text = line.text
        self._text += len(text)
        if len(self.lines) >= _MOST or self._text > _MOST_TEXT:
            if len(self.lines) > _LAST:
                del self.lines[-_LAST]
            else:
                return
            self._text = sum(len(kept.text) for kept in self.lines)
        self.lines.append(line)
        if self.kind is Kind.USAGE:
            self.complete = USAGE_ERROR.match(text) is not None
        elif self.kind is Kind.EXCEPTION:
            stripped = text.strip()
            if stripped in traceback.CHAINS or stripped == traceback.START:
                self.complete = False
            elif not self.complete and text[:1] not in (" ", "\t", ""):
                self.complete = traceback.ends(text, indented=self._indented(), has_frames=self._has_frames())

    def parsed(self) -> traceback.Traceback:
        """The block as one error: of a broken-off traceback, its first line and its last frame."""
        texts = [line.text for line in self.lines]
        if self.kind is Kind.EXCEPTION:
            whole = traceback.is_exception(texts[0]) or traceback.FRAME.match(texts[0])
            got = traceback.parse(texts if whole else [traceback.START, *texts[1:]])
            return (
                got
                if got.complete
                else traceback.Traceback(
                    error=_broken_off(self.head.text, got.frames), frames=got.frames, chain=(), complete=False
                )
            )
        if self.kind is Kind.USAGE:
            return _plain(next((text for text in reversed(texts) if USAGE_ERROR.match(text)), texts[0]), self.complete)
        if self.kind is Kind.TERMINATE:
            return _plain(traceback.trim(texts))
        return traceback.Traceback(error=texts[0], frames=_fault_frames(texts), chain=(), complete=True)

    def _has_frames(self) -> bool:
        return any(traceback.FRAME.match(line.text) for line in self.lines[:4])

    def _indented(self) -> bool:
        return any(line.text.startswith("  File ") for line in self.lines[:4])


def _plain(error: str, complete: bool = True) -> traceback.Traceback:
    return traceback.Traceback(error=error, frames=(), chain=(), complete=complete)


def _broken_off(head: str, frames: tuple[Frame, ...]) -> str:
    if not frames:
        return head
    last = frames[-1]
    place = f'{head}\n  File "{last.file}", line {last.line}, in {last.function}'
    return f"{place}\n    {last.source}" if last.source else place


def _fault_frames(texts: list[str]) -> tuple[Frame, ...]:
    """The frames of the thread that died, outermost first; faulthandler prints the innermost first."""
    frames: list[Frame] = []
    current = False
    for text in texts:
        if "thread 0x" in text or text.startswith("Thread 0x"):
            current = _CURRENT.match(text) is not None
        elif current and (match := traceback.FRAME.match(text)):
            frames.append(Frame(file=match["file"], line=int(match["line"]), function=match["function"] or "?"))
    return tuple(reversed(frames))
