"""Splits a command that no shell reads (Compose's strings) into words, each a layer over the text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from specwatch.errors import LaunchError
from specwatch.launch.layers import Layer, Part, Splice, WordEdit, spliced
from specwatch.launch.shell import escape


@dataclass(frozen=True, slots=True)
class Placed:
    """A word and where it stands, its quotes included."""

    start: int
    end: int
    layer: Layer


def split(text: str) -> list[Placed]:
    """The words of a text as `shlex.split` gives them. Raises LaunchError for a quote that is never closed."""
    out: list[Placed] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        if at >= len(text):
            return out
        word = _word(text, at)
        out.append(word)
        at = word.end


def _word(text: str, start: int) -> Placed:
    parts: list[Part] = []
    quoted: list[tuple[int, int, str]] = []
    at = start
    while at < len(text) and text[at] not in " \t\r\n":
        mark = text[at]
        if mark in "'\"":
            opened = at
            at += 1
            while at < len(text) and text[at] != mark:
                step = 2 if mark == '"' and text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\") else 1
                parts.append(Part(at, at + step, text[at + step - 1], whole=step == 2))
                at += step
            if at >= len(text):
                raise LaunchError("a quote in the command is never closed")
            quoted.append((opened + 1, at, mark))
            at += 1
        elif mark == "\\":
            if at + 1 >= len(text):
                raise LaunchError("a backslash at the very end of the command")
            parts.append(Part(at, at + 2, text[at + 1], whole=True))
            at += 2
        else:
            parts.append(Part(at, at + 1, mark))
            at += 1

    def written(new: str, place: int) -> str:
        context = next((mark for begin, end, mark in quoted if begin <= place <= end), "")
        return shlex.quote(new) if new and not context else escape(new, context) or new

    return Placed(start, at, Layer(tuple(_joined(parts)), written))


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Neighbouring letters as one part."""
    out: list[Part] = []
    for part in parts:
        if out and not part.whole and not out[-1].whole and out[-1].end == part.start:
            out[-1] = Part(out[-1].start, part.end, out[-1].value + part.value)
        else:
            out.append(part)
    return out


def splices(text: str, words: Sequence[Placed], edits: Sequence[WordEdit]) -> list[Splice]:
    """The splices of a text that make edits of its words, each word kept in its quotes where they can hold it."""
    out = []
    for edit in edits:
        if edit.start == edit.end:
            place = words[edit.start - 1].end if edit.start else words[0].start if words else 0
            new = shlex.join(edit.new)
            out.append(Splice(place, place, f"{_gap(text, words, edit.start)}{new}" if edit.start else f"{new} "))
        elif not edit.new:
            begin = words[edit.start - 1].end if edit.start else words[0].start
            after = words[edit.end].start if edit.end < len(words) else len(text)
            out.append(Splice(begin, words[edit.end - 1].end if edit.start else after, ""))
        else:
            out += _replaced(text, words[edit.start], edit.new[0])
    return out


def _replaced(text: str, word: Placed, new: str) -> list[Splice]:
    inside = word.layer.changed(new)
    moved = [Splice(s.start - word.start, s.end - word.start, s.new) for s in inside]
    try:
        again = split(spliced(text[word.start : word.end], moved))
    except LaunchError:
        again = []
    if [one.layer.value for one in again] == [new]:
        return inside
    return [Splice(word.start, word.end, shlex.quote(new))]


def _gap(text: str, words: Sequence[Placed], index: int) -> str:
    """What stands before the last flag in front of a place: a line of its own, or a blank."""
    for number in range(index - 1, 0, -1):
        if words[number].layer.value.startswith("-"):
            gap = text[words[number - 1].end : words[number].start]
            return gap if "\n" in gap else " "
    return " "
