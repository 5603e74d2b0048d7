"""Writes a launch command for people: as it was typed, secrets taken out, what has no text quoted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from specwatch.domain import Launch
from specwatch.errors import LaunchError
from specwatch.launch.editing import command_text
from specwatch.launch.locate import Located, continues, is_folded, locate
from specwatch.launch.patches import Patch, outermost, patched
from specwatch.launch.shell import Lexer, Operator, Token, Word, quote
from specwatch.lazy import compiled

Hide = Callable[[tuple[str, ...]], Sequence[str]]
"""Takes the words of one command and gives as many back, those that hold a secret changed."""

HIDDEN = "<redacted>"
_NAMED = compiled(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\([A-Za-z_]\w*\))")
_PROGRAMS = ("sglang.launch_server", "serve", "run")


def render(launch: Launch, width: int | None = None, hide: Hide | None = None) -> str:
    """The launch as shell text that can be pasted, with all that stands around it in its text.

    Every word is written as it was typed, so that variables, substitutions and `~` still mean what they meant;
    continuations are joined and comments left out. Where there is no text, every token is quoted where it has to be.
    With `width` it is broken with ` \\` between flags, so that no line is longer than that where words allow. What
    `hide` changes is written as it gives it back. Never raises for what a launch holds.
    """
    if launch.text:
        try:
            return _assembled(_typed(launch, hide), width)
        except LaunchError:
            pass  # what cannot be taken apart is written from its tokens
    words = _tokens(launch)
    hidden = tuple(hide(words)) if hide else words
    return _assembled(_marked([_Piece(" ", _shell_word(word), word) for word in hidden]), width)


def _tokens(launch: Launch) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command_text(launch)))
    except LaunchError:  # no launch of sglang: nothing tells which variables the tokens set themselves
        return (*(f"{name}={value}" for name, value in launch.env.items()), *launch.argv)


# The pieces of the output


class _Piece:
    """One token: what stands between it and the one before, its own text, its value; `breaks`: a flag of the launch."""

    def __init__(self, gap: str, raw: str, value: str) -> None:
        self.gap, self.raw, self.value = gap, raw, value
        self.breaks = False


def _assembled(pieces: Sequence[_Piece], width: int | None) -> str:
    out: list[str] = []
    column = 0
    for number, piece in enumerate(pieces):
        gap = piece.gap if out else ""
        if width is not None and piece.breaks and column and column + _group(pieces, number) + 3 > width:
            gap = " \\\n  "
        for text in (gap, piece.raw):
            out.append(text)
            column = column + len(text) if "\n" not in text else len(text) - text.rindex("\n") - 1
    return "".join(out)


def _group(pieces: Sequence[_Piece], number: int) -> int:
    """The columns of a flag and what belongs to it."""
    length = len(pieces[number].raw)
    number += 1
    while number < len(pieces) and not pieces[number].breaks and "\n" not in pieces[number].gap:
        length += len(pieces[number].gap) + len(pieces[number].raw)
        number += 1
    return length


def _marked(pieces: list[_Piece]) -> list[_Piece]:
    """One command's pieces, the flags behind its program marked as places to break the line."""
    begun = False
    for piece in pieces:
        piece.breaks = begun and piece.value.startswith("-")
        begun = begun or piece.value in _PROGRAMS or piece.value.endswith("launch_server.py")
    return pieces


def _shell_word(value: str) -> str:
    name, equals, rest = value.partition("=")
    # An assignment is one only while its name stands outside of quotes.
    return f"{name}={quote(rest)}" if equals and name.isidentifier() else quote(value)


# From the text


class _Statement(NamedTuple):
    """The tokens up to an operator that ends a command, the operator, and the here-documents behind it."""

    tokens: tuple[Token, ...]
    end: Operator | None
    body: tuple[int, int]

    def words(self) -> Iterator[tuple[Word, ...]]:
        """The words of the command, and each file of its redirections alone."""
        own: list[Word] = []
        for before, token in zip((None, *self.tokens), self.tokens, strict=False):
            if isinstance(token, Word) and isinstance(before, Operator):
                yield (token,)
            elif isinstance(token, Word):
                own.append(token)
        yield tuple(own)


def _statements(text: str) -> Iterator[_Statement]:
    lexer = Lexer(text, {})
    folded = is_folded(text)
    tokens: list[Token] = []
    while (token := lexer.next()) is not None:
        if isinstance(token, Word) or token.redirects:
            tokens.append(token)
        elif not (folded and token.text == "\n" and tokens and continues(text, token, tokens[-1])):
            yield _Statement(tuple(tokens), token, (token.end, lexer.at))
            tokens = []
    yield _Statement(tuple(tokens), None, (len(text), len(text)))


def _typed(launch: Launch, hide: Hide | None) -> list[_Piece]:
    text = launch.text if hide is None else _masked(launch.text, hide)
    located = locate(text)
    outer = located.levels[0].command
    start = min(word.start for word in (*outer.assignments, *(arg.word for arg in outer.args)))
    out: list[_Piece] = []
    gap, end = "", 0
    for statement in _statements(text):
        pieces: list[_Piece] = []
        for token in statement.tokens:
            gap = gap or ("" if token.start == end else " ")
            if token.start == start:
                pieces += [_Piece(gap if not i else " ", raw, raw) for i, raw in enumerate(_outside(launch, hide))]
                gap = " " if pieces else gap
            value = token.value if isinstance(token, Word) else token.text
            pieces.append(_Piece(gap, text[token.start : token.end], value))
            gap, end = "", token.end
        out += _marked(pieces)
        if statement.end is None:
            break
        if statement.end.text == "\n":
            body = _masked_body(text[slice(*statement.body)], hide)
            if body or "\n" not in gap:
                gap = f"\n{body}"
        else:
            out.append(_Piece(gap or ("" if statement.end.start == end else " "), statement.end.text, ""))
            gap, end = "", statement.end.end
    if gap.strip():
        out.append(_Piece(gap.rstrip("\n"), "", ""))  # a here-document at the very end
    return out


def _outside(launch: Launch, hide: Hide | None) -> list[str]:
    """The variables of the launch that its text does not set, as assignments before the command."""
    inside = locate(launch.text).environment()
    words = tuple(f"{name}={value}" for name, value in launch.env.items() if name not in inside)
    return [_shell_word(word) for word in (hide(words) if hide else words)]


# Without secrets


def _masked(text: str, hide: Hide) -> str:
    """The text with every word changed that `hide` changes, in command strings such as that of `bash -c` too."""
    located = locate(text)
    secrets = _secrets(located, hide)
    depth = len(located.levels)
    for number in reversed(range(depth)):
        level = located.levels[number]
        inner = level.command.args[level.inner].word.start if level.inner is not None else -1
        patches = [
            Patch(number, word.start, word.end, _shell_word(hidden))
            for word, hidden in _changed(level.command.text, hide, secrets)
            if word.start != inner
        ]
        if patches:
            located = locate(patched(located, patches))
            if len(located.levels) != depth:
                raise LaunchError("the launch is another one without its secrets")
    return outermost(located)


def _secrets(located: Located, hide: Hide) -> list[str]:
    """What is hidden in arguments that come from variables of the text: it stands where those are set as well."""
    found: set[str] = set()
    for level in located.levels:
        args = [arg for i, arg in enumerate(level.command.args) if i != level.inner]
        values = tuple(arg.value for arg in args)
        for arg, hidden in zip(args, hide(values), strict=True):
            filled = any(piece.expanded and piece.value not in arg.word.open for piece in arg.word.pieces)
            if filled and arg.value != hidden:
                found.add(_difference(arg.value, hidden))
    return sorted(found - {""}, key=len, reverse=True)


def _difference(value: str, hidden: str) -> str:
    """What of a value is not in its hidden form: both without the beginning and the end that they share."""
    head = _shared(value, hidden)
    return value[head : len(value) - _shared(value[head:][::-1], hidden[head:][::-1])]


def _shared(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _changed(text: str, hide: Hide, secrets: Sequence[str]) -> Iterator[tuple[Word, str]]:
    for statement in _statements(text):
        for words in statement.words():
            values = tuple(word.value for word in words)
            for word, hidden in zip(words, hide(values), strict=True):
                after = word.value if _names_only(word, hidden) else hidden
                name, equals, value = after.partition("=")
                if equals and name.isidentifier():
                    for secret in secrets:
                        value = value.replace(secret, HIDDEN)
                    after = f"{name}={value}"
                if after != word.value:
                    yield word, after


def _names_only(word: Word, hidden: str) -> bool:
    """Whether what would be hidden is only the name of a variable: it tells nothing, and the command needs it."""
    return _NAMED.fullmatch(_difference(word.value, hidden)) is not None and bool(word.open)


def _masked_body(body: str, hide: Hide | None) -> str:
    return "\n".join("".join(hide((line,))) for line in body.split("\n")) if hide else body
