"""Splits POSIX shell text into words that know their place, so that a command can be edited without loss.

Understands quotes, `$'…'`, continuations, comments, operators, redirections, here-documents, and variables that the
same text sets to plain values. Nothing is ever executed: what only a shell could tell (`$(…)`, unset variables) stays
in the word as it is and is listed in `open`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from specwatch.errors import LaunchError
from specwatch.lazy import compiled

_PLAIN = compiled(r"[^\s'\"\\$`|&;<>()]+")
_IN_DOUBLE = compiled(r'[^"\\$`]+')
_BLANK = compiled(r"(?:[ \t\r\f\v]|\\\r?\n)+")
_OPERATOR = compiled(r"\d*(?:>>|>&|>\||<<<|<<-|<<|<&|<>|>|<)|&>>|&>|&&|\|\||\|&|;;|[|&;()]")
_NAME = compiled(r"[A-Za-z_][A-Za-z0-9_]*")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}


class Piece(NamedTuple):
    """A run of one word: where it stands in the text, what it means, and the quotes around it ("", ' or ")."""

    start: int
    end: int
    value: str
    quote: str = ""
    expanded: bool = False
    """The value comes from a variable, so it cannot be edited here."""


class Word(NamedTuple):
    """One word: text[start:end] means `value`."""

    start: int
    end: int
    pieces: tuple[Piece, ...]
    open: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """The word as the program gets it, unknown expansions left as they are written."""
        return "".join(piece.value for piece in self.pieces)

    @property
    def quoted(self) -> bool:
        """Whether any part of the word is in quotes."""
        return any(piece.quote for piece in self.pieces)


class Operator(NamedTuple):
    """`|`, `&&`, `>`, a newline and the like."""

    start: int
    end: int
    text: str

    @property
    def redirects(self) -> bool:
        """Whether the next word is a file, not an argument."""
        return "<" in self.text or ">" in self.text


Token = Word | Operator


class Lexer:
    """Reads tokens one after the other; `variables` may grow between two tokens."""

    def __init__(self, text: str, variables: Mapping[str, str], at: int = 0) -> None:
        self.text = text
        self.variables = variables
        self.at = at
        self.heredocs: list[tuple[str, bool]] = []

    def fail(self, place: int, reason: str) -> LaunchError:
        """An error with the line and column of a place in the text."""
        line = self.text.count("\n", 0, place) + 1
        column = place - (self.text.rfind("\n", 0, place) + 1) + 1
        return LaunchError(f"launch command, line {line} column {column}: {reason}")

    def next(self) -> Token | None:
        """The next token, None at the end. Raises LaunchError where a quote or bracket is never closed."""
        text = self.text
        while self.at < len(text):
            blank = _BLANK.match(text, self.at)
            if blank:
                self.at = blank.end()
                continue
            char = text[self.at]
            if char == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
                continue
            if char == "\n":
                self.at += 1
                start = self.at - 1
                self._skip_heredocs()
                return Operator(start, start + 1, "\n")
            found = _OPERATOR.match(text, self.at)
            if found:
                self.at = found.end()
                operator = Operator(found.start(), found.end(), found.group())
                if operator.text.lstrip("0123456789") in ("<<", "<<-"):
                    self._note_heredoc(operator)
                return operator
            return self._word()
        return None

    def _note_heredoc(self, operator: Operator) -> None:
        found = re.compile(r"[ \t]*(['\"]?)([^\s'\"]+)\1").match(self.text, self.at)
        if not found:
            raise self.fail(operator.start, "`<<` without a word that ends the text")
        self.heredocs.append((found[2], operator.text.endswith("-")))

    def _skip_heredocs(self) -> None:
        for end, tabs in self.heredocs:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
        self.heredocs = []
        self.at = min(self.at, len(self.text))

    def _word(self) -> Word:
        text, start = self.text, self.at
        pieces: list[Piece] = []
        unknown: list[str] = []
        while self.at < len(text):
            char = text[self.at]
            plain = _PLAIN.match(text, self.at)
            if plain:
                pieces.append(Piece(self.at, plain.end(), plain.group()))
                self.at = plain.end()
            elif char == "\\":
                if text.startswith(("\\\n", "\\\r\n"), self.at):  # a continuation in the middle of a word
                    self.at = text.index("\n", self.at) + 1
                    continue
                if self.at + 1 >= len(text):
                    raise self.fail(self.at, "a backslash at the very end")
                pieces.append(Piece(self.at, self.at + 2, text[self.at + 1]))
                self.at += 2
            elif char == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise self.fail(self.at, "a single quote that is never closed")
                pieces.append(Piece(self.at + 1, end, text[self.at + 1 : end], "'"))
                self.at = end + 1
            elif char == '"':
                self._double(pieces, unknown)
            elif char in "$`":
                self._dollar(pieces, unknown, "")
            else:
                break
        return Word(start, self.at, tuple(pieces), tuple(unknown))

    def _double(self, pieces: list[Piece], unknown: list[str]) -> None:
        text, opened = self.text, self.at
        self.at += 1
        pieces.append(Piece(self.at, self.at, "", '"'))
        while True:
            if self.at >= len(text):
                raise self.fail(opened, "a double quote that is never closed")
            plain = _IN_DOUBLE.match(text, self.at)
            if plain:
                pieces.append(Piece(self.at, plain.end(), plain.group(), '"'))
                self.at = plain.end()
                continue
            char = text[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\":
                follows = text[self.at + 1 : self.at + 2]
                if follows == "\n":
                    self.at += 2
                    continue
                value = follows if follows in '$`"\\' and follows else "\\" + follows
                pieces.append(Piece(self.at, self.at + 2, value, '"'))
                self.at += 2
            else:
                self._dollar(pieces, unknown, '"')

    def _dollar(self, pieces: list[Piece], unknown: list[str], quote: str) -> None:
        text, start = self.text, self.at
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise self.fail(start, "a back quote that is never closed")
            self._open(pieces, unknown, start, end + 1, quote)
            return
        follows = text[start + 1 : start + 2]
        if follows == "'" and not quote:
            self._ansi(pieces)
            return
        if follows == '"' and not quote:
            self.at += 1
            self._double(pieces, unknown)
            return
        name = _NAME.match(text, start + 1)
        if name:
            self._variable(pieces, unknown, start, name.end(), name.group(), quote)
        elif follows in ("{", "("):
            end = self._bracket(start + 1)
            inner = text[start + 2 : end - 1]
            if follows == "{" and _NAME.fullmatch(inner):
                self._variable(pieces, unknown, start, end, inner, quote)
            else:
                self._open(pieces, unknown, start, end, quote)
        elif follows and follows in "@*#?$!-0123456789":
            self._open(pieces, unknown, start, start + 2, quote)
        else:
            pieces.append(Piece(start, start + 1, "$", quote))
            self.at = start + 1

    def _bracket(self, place: int) -> int:
        """Behind the bracket that closes the one at `place`."""
        pairs = {"{": "}", "(": ")"}
        stack = [pairs[self.text[place]]]
        at = place + 1
        while stack:
            if at >= len(self.text):
                raise self.fail(place, f"`${self.text[place]}` that is never closed")
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "'" and stack[-1] == ")":
                at = self.text.find("'", at + 1)
                if at < 0:
                    raise self.fail(place, "a single quote that is never closed")
            elif char in pairs:
                stack.append(pairs[char])
            elif char == stack[-1]:
                stack.pop()
            at += 1
        return at

    def _variable(self, pieces: list[Piece], unknown: list[str], start: int, end: int, name: str, quote: str) -> None:
        if name in self.variables:
            pieces.append(Piece(start, end, self.variables[name], quote, expanded=True))
            self.at = end
        else:
            self._open(pieces, unknown, start, end, quote)

    def _open(self, pieces: list[Piece], unknown: list[str], start: int, end: int, quote: str) -> None:
        unknown.append(self.text[start:end])
        pieces.append(Piece(start, end, self.text[start:end], quote, expanded=True))
        self.at = end

    def _ansi(self, pieces: list[Piece]) -> None:
        start = self.at
        at = start + 2
        out: list[str] = []
        while True:
            if at >= len(self.text):
                raise self.fail(start, "`$'` that is never closed")
            char = self.text[at]
            if char == "'":
                break
            if char == "\\":
                code = re.compile(r"x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})").match(self.text, at + 1)
                if code:
                    out.append(chr(int(code[1] or code[2], 16)))
                    at = code.end()
                    continue
                follows = self.text[at + 1 : at + 2]
                out.append(_ANSI.get(follows, "\\" + follows))
                at += 2
                continue
            out.append(char)
            at += 1
        # Not editable letter by letter: the whole is replaced when it has to change.
        pieces.append(Piece(start, at + 1, "".join(out), "$"))
        self.at = at + 1


def quote(value: str) -> str:
    """A value as one shell word. Raises LaunchError for NUL, which no argument can hold."""
    import shlex

    if "\0" in value:
        raise LaunchError("a value holds a NUL character, which no command can pass on")
    return shlex.quote(value)


def escape(text: str, context: str) -> str | None:
    """Shell text as it must be written inside quotes of a kind, so that the inner shell sees `text`.

    None where that cannot be done in place.
    """
    if context == "'":
        return text.replace("'", "'\\''")
    if context == '"':
        return re.sub(r'([\\"$`])', r"\\\1", text)
    return None
