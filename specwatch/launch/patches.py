"""Replaces spans of a command's text, also inside quoted command strings, and leaves every other byte as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specwatch.errors import LaunchError
from specwatch.launch.locate import Located
from specwatch.launch.shell import Lexer, Word, escape, quote


class Patch(NamedTuple):
    """Replace text[start:end] of the command at one level by `new`."""

    level: int
    start: int
    end: int
    new: str


def cut(located: Located, words: Sequence[Word], level: int | None = None) -> Patch:
    """Take neighbouring words out together with the blanks, and the continuation, that they would leave behind."""
    level = len(located.levels) - 1 if level is None else level
    command = located.levels[level].command
    first, last = words[0], words[-1]
    before = command.edges[first.start][0]
    after = command.edges[last.start][1]
    text = command.text
    starts_line = "\n" in text[before : first.start]
    shares_line = after is not None and "\n" not in text[last.end : after]
    if after is not None and (before == first.start or (starts_line and shares_line)):
        return Patch(level, first.start, after, "")
    return Patch(level, before, last.end, "")


def outermost(located: Located) -> str:
    """The whole text that a launch was found in."""
    return located.levels[0].command.text


def patched(located: Located, patches: Sequence[Patch]) -> str:
    """The outermost text after patches at one level, written back through the quotes around it."""
    level = patches[0].level
    spans = [(patch.start, patch.end, patch.new) for patch in patches]
    value = _applied(located.levels[level].command.text, spans)
    for number in range(level - 1, -1, -1):
        outer = located.levels[number]
        word = outer.command.args[outer.inner or 0].word
        spans = _through(outer.command.text, word, spans, value)
        value = _applied(outer.command.text, spans)
    return value


def _applied(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(spans, key=lambda span: (span[0], span[1]), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _through(text: str, word: Word, spans: Sequence[tuple[int, int, str]], value: str) -> list[tuple[int, int, str]]:
    """Spans of a word's value as spans of the text that the word stands in.

    The quotes of the word are kept where the result then means `value`; else the word is quoted anew.
    """
    out: list[tuple[int, int, str]] = []
    for start, end, new in spans:
        first = _char(word, start if start < end or not start else start - 1)
        last = _char(word, max(end - 1, 0))
        written = escape(new, first[2]) if first else None
        if first is None or last is None or written is None:
            return [(word.start, word.end, quote(value))]
        if start < end:
            out.append((first[0], last[1], written))
        else:
            place = first[1] if start else first[0]
            out.append((place, place, written))
    try:
        again = Lexer(_applied(text, out), _variables(text, word), at=word.start).next()
    except LaunchError:
        again = None
    kept = isinstance(again, Word) and again.value == value
    return out if kept else [(word.start, word.end, quote(value))]


def _variables(text: str, word: Word) -> dict[str, str]:
    """The variables that are filled in inside a word."""
    filled = (piece for piece in word.pieces if piece.expanded and piece.value not in word.open)
    return {text[piece.start : piece.end].strip("${}"): piece.value for piece in filled}


def _char(word: Word, offset: int) -> tuple[int, int, str] | None:
    """Where one character of a word's value stands in the text, and in which quotes."""
    for piece in word.pieces:
        if offset < len(piece.value):
            if piece.end - piece.start == len(piece.value):
                return piece.start + offset, piece.start + offset + 1, piece.quote
            return piece.start, piece.end, piece.quote
        offset -= len(piece.value)
    return None
