"""Values that pass through several kinds of writing, and the few spans that differ when one changes.

A value of a launch may stand in YAML, in which Compose fills in ${NAME}, in which quotes make words. Each is a `Layer`:
the runs of a value, and the span of the text below that each run comes from. A new value goes down through the layers
as splices, so that everything around them stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

MOST_COMPARED = 1_000_000
"""Pairs of runs. Beyond that a text counts as changed from its first difference to the last: matching is quadratic."""

_RUN = re.compile(r"\s+|\S+")


# Texts, and what they mean


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace text[start:end] by `new`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a value: text[start:end] means `value`.

    `whole`: it can only be replaced as a whole (an escape, a filled variable, whose name is then `name`); else its
    characters are those of the text one by one.
    """

    start: int
    end: int
    value: str
    whole: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """A value as a row of parts, and how new text is written at a place of the text below."""

    parts: tuple[Part, ...]
    written: Callable[[str, int], str] = field(default=lambda new, _: new, compare=False)

    @property
    def value(self) -> str:
        """What the text means."""
        return "".join(part.value for part in self.parts)

    def changed(self, new: str) -> list[Splice]:
        """The splices of the text below that make its value `new`; runs that do not differ stay as they are."""
        return [self.down(splice) for splice in differences(self.value, new)]

    def down(self, splice: Splice) -> Splice:
        """A splice of the value as one of the text below; a part that is cut is replaced as a whole."""
        start, end, new = splice.start, splice.end, splice.new
        at = 0
        low: int | None = None
        high = self.parts[-1].end if self.parts else 0
        for part in self.parts:
            stop = at + len(part.value)
            if start == end and low is None and at <= start <= stop and not (part.whole and at < start < stop):
                place = part.start if start == at else part.end if part.whole else part.start + start - at
                return Splice(place, place, self.written(new, place))
            if low is None and start < stop:
                low = part.start if part.whole else part.start + max(start - at, 0)
                if part.whole:
                    new = part.value[: max(start - at, 0)] + new
            if low is not None and end <= stop:
                high = part.end if part.whole else part.start + end - at
                if part.whole:
                    new += part.value[end - at :]
                break
            at = stop
        low = high if low is None else low
        return Splice(low, high, self.written(new, low))

    def variable(self, splice: Splice) -> tuple[str, str] | None:
        """The variable that a splice lies in, and its value once it is made; None where it is not one alone."""
        at = 0
        for part in self.parts:
            stop = at + len(part.value)
            if part.name and at <= splice.start and splice.end <= stop and splice.start < splice.end:
                return part.name, part.value[: splice.start - at] + splice.new + part.value[splice.end - at :]
            at = stop
        return None


def plain(text: str) -> Layer:
    """A text that means itself."""
    return Layer((Part(0, len(text), text),))


def spliced(text: str, splices: Sequence[Splice]) -> str:
    """The text with splices made; they must not overlap."""
    for splice in sorted(splices, key=lambda one: (one.start, one.end), reverse=True):
        text = text[: splice.start] + splice.new + text[splice.end :]
    return text


def differences(old: str, new: str) -> list[Splice]:
    """The splices that make `new` of `old`, by runs of characters and blanks, each as short as it can be."""
    if old == new:
        return []
    head = _shared(old, new)
    # back to the beginning of the run, so that no run is compared without its beginning
    while head and not old[head - 1].isspace():
        head -= 1
    before, after = _RUN.findall(old[head:]), _RUN.findall(new[head:])
    out: list[Splice] = []
    offsets = [head]
    for run in before:
        offsets.append(offsets[-1] + len(run))
    for i1, i2, j1, j2 in _unequal(before, after):
        trimmed = _trimmed(offsets[i1], "".join(before[i1:i2]), "".join(after[j1:j2]))
        out.append(_leaning(old, trimmed, out[-1].end + 1 if out else 0))
    return out


def _unequal(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The stretches old[i1:i2] and new[j1:j2] in which two rows differ."""
    head, shortest = 0, min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(a) * len(b) > MOST_COMPARED:
        return [(head, head + len(a), head, head + len(b))]
    found = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [(head + i1, head + i2, head + j1, head + j2) for kind, i1, i2, j1, j2 in found if kind != "equal"]


def _trimmed(start: int, old: str, new: str) -> Splice:
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    return Splice(start + head, start + len(old) - tail, new[head : len(new) - tail])


def _leaning(text: str, splice: Splice, lowest: int) -> Splice:
    """A splice that only takes out or puts in, moved so that it begins with the blanks rather than ends with them.

    What stands behind a word on its line, such as a comment, is then not between the word and its own blanks.
    """
    start, end, new = splice.start, splice.end, splice.new
    while start > lowest and text[start - 1].isspace() and not (new and end > start):
        if new and new[-1] == text[start - 1]:
            new = new[-1] + new[:-1]
        elif new or end == start or text[end - 1] != text[start - 1]:
            break
        start, end = start - 1, end - 1
    return Splice(start, end, new)


def _shared(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# Lists of words


@dataclass(frozen=True, slots=True)
class WordEdit:
    """Replace words[start:end] by `new`. Those that only changed are replaced one by one."""

    start: int
    end: int
    new: tuple[str, ...]


def word_edits(old: Sequence[str], new: Sequence[str]) -> list[WordEdit]:
    """The edits that make one list of words of another, from left to right."""
    out = []
    for i1, i2, j1, j2 in _unequal(old, new):
        both = min(i2 - i1, j2 - j1)
        out += [WordEdit(i1 + i, i1 + i + 1, (new[j1 + i],)) for i in range(both)]
        if i2 - i1 > both or j2 - j1 > both:
            out.append(WordEdit(i1 + both, i2, tuple(new[j1 + both : j2])))
    return out
