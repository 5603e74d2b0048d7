"""Reads a Python traceback as a log shows it: the exception that started it, its frames, and what followed from it.

Which exception of a chain started it ("During handling of …", "… was the direct cause of …"):

1. the first one printed, because Python prints the earliest first;
2. but not one that only says that something ended or was absent and was turned into a sentence by its handler:
   EOFError, KeyError, StopIteration, a JSON decoding error, queue.Empty, CancelledError, and torch's monitoredBarrier
   time-out (another rank did not come): then the next one;
3. nor a bare HTTP status error that huggingface_hub re-raises under the name of its reason;
4. of an exception group, the first exception inside it.

`error` is the message as logged, several lines joined, without the advice that SGLang and CUDA print below it: that
advice is about any failure of the kind and often wrong. Tracebacks whose indentation got lost are read too, and one
that breaks off gives its last frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from specwatch.domain import Frame
from specwatch.lazy import compiled

START = "Traceback (most recent call last):"
CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)

FRAME = compiled(r'\s*File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})(?:,? in (?P<function>.{1,200}))?')
"""A frame as Python prints it, and as faulthandler does (without the comma)."""

EXCEPTION = compiled(r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Iteration)(?::|$)")
_NAMED = compiled(r"(?!Killed|Aborted|Terminated|Segmentation)(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::(?: |$)|$)")
_CARETS = compiled(r"\s*[~^]+\s*$")
_ADVICE = compiled(
    r"Possible solutions:|Open an issue on GitHub|CUDA kernel errors might be asynchronously|For debugging consider"
    r"|Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion tracking|Search for `cuda\w+' in https://docs\.nvidia"
    r"|Exception raised from .* \(most recent call first\)|frame #0: |Please report this issue at"
    r"|To work around this error"
)
_ATTEMPTS = "Error details from previous import attempts:"
_ENDED = compiled(
    r"(?:[\w.]*\.)?(?:EOFError|KeyError|StopIteration|StopAsyncIteration|JSONDecodeError|Empty|CancelledError)(?::|$)"
    r"|RuntimeError: Rank \d+ failed to pass monitoredBarrier"
)
_STATUS = compiled(r"(?:requests\.exceptions|httpx)\.\w*Error:|httpx\.HTTPStatusError")
_MOST_LINES = 40
_MOST_SOURCE = 400


class Link(NamedTuple):
    """One exception of a chain; `error` is empty when the log breaks off before it."""

    error: str = ""
    frames: tuple[Frame, ...] = ()


class Traceback(NamedTuple):
    """What started it, and the errors that followed. `complete`: its exception line is there.

    `callers` are the frames of the errors that followed, those of the last one first: the first error's own frames
    begin only where somebody was ready to catch it.
    """

    error: str
    frames: tuple[Frame, ...]
    chain: tuple[str, ...]
    complete: bool
    callers: tuple[Frame, ...] = ()


def is_exception(text: str) -> bool:
    """Whether a line by itself looks like the last line of a traceback."""
    return EXCEPTION.match(text) is not None


def parse(lines: Sequence[str]) -> Traceback:
    """Reads the lines below `Traceback (most recent call last):` (or with it) up to the next record."""
    links = _links(_ungrouped(lines))
    told = [link for link in links if link.error]
    if not told:
        frames = links[0].frames if links else ()
        return Traceback(error="", frames=frames, chain=(), complete=False)
    start = 0
    while start + 1 < len(told) and _hands_on(told[start].error, told[start + 1].error):
        start += 1
    rest = told[start + 1 :]
    return Traceback(
        error=told[start].error,
        frames=told[start].frames,
        chain=tuple(link.error for link in rest),
        complete=True,
        callers=tuple(frame for link in reversed(rest) for frame in link.frames),
    )


def trim(lines: Sequence[str]) -> str:
    """A message of several lines without the advice below it; of failed import attempts, the first reason."""
    kept: list[str] = []
    for number, line in enumerate(lines):
        if line.startswith(_ATTEMPTS):
            reasons = [text[2:] for text in lines[number + 1 :] if text.startswith("- ")]
            if reasons:
                return reasons[0]
        if _ADVICE.match(line) or number >= _MOST_LINES:
            break
        kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return "\n".join(kept)


def _hands_on(error: str, following: str) -> bool:
    if _ENDED.match(error):
        return True
    return _STATUS.match(error) is not None and following.startswith("huggingface_hub.")


def _ungrouped(lines: Sequence[str]) -> list[str]:
    """An exception group's drawing taken off, its first exception first."""
    if not any("Exception Group Traceback" in line for line in lines[:3]):
        return list(lines)
    outer: list[str] = []
    inner: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip(" "))
        text = re.sub(r"^\s*\| ?", "", line)
        if re.match(r"\s*\+-\+?-+ \d+ -+$|\s*\+-+(?: \d+ -+)?$", line) or "Exception Group Traceback" in line:
            continue
        (inner if depth >= 4 else outer).append(text)
    return [*inner, "", CHAINS[0], "", START, *outer] if inner else outer


def _links(lines: Sequence[str]) -> list[Link]:
    links: list[Link] = []
    frames: list[Frame] = []
    message: list[str] | None = None
    indented = any(line.startswith("  File ") for line in lines)

    def close() -> None:
        nonlocal message, frames
        if frames or message:
            links.append(Link(error=trim(message or ()), frames=tuple(frames)))
        message, frames = None, []

    for line in lines:
        stripped = line.strip()
        if stripped in CHAINS:
            close()
        elif stripped == START:
            if message is not None or frames:
                close()
        elif message is not None:
            message.append(line)
        elif match := FRAME.match(line):
            frames.append(Frame(file=match["file"], line=int(match["line"]), function=match["function"] or "?"))
        elif ends(line, indented=indented, has_frames=bool(frames)):
            message = [line]
        elif _CARETS.match(line):
            continue
        elif frames and stripped and (line[0] in " \t" or not indented) and _goes_on(frames[-1].source):
            frames[-1] = frames[-1]._replace(source=f"{frames[-1].source} {stripped}".strip())
    close()
    return links


def _goes_on(source: str) -> bool:
    """Whether more source belongs to a frame: it has none yet, or a bracket is open, as in a long assert."""
    return not source or (source.count("(") > source.count(")") and len(source) < _MOST_SOURCE)


def ends(line: str, *, indented: bool, has_frames: bool) -> bool:
    """Whether a line is the exception itself: at the margin, named like one."""
    if not line or line[0] in " \t":
        return False
    if EXCEPTION.match(line):
        return True
    return (indented or not has_frames) and _NAMED.match(line) is not None
