"""A shell script that ends in the launch, and the variables and arrays of it that hold words of the launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specwatch.errors import LaunchError
from specwatch.launch.layers import Layer, Part, Splice, differences, plain, spliced
from specwatch.launch.locate import locate
from specwatch.launch.rewriting import Wanted
from specwatch.launch.shell import Lexer, Operator, Word
from specwatch.launch.targets.base import DISK, Files, Rewrite, Targeted, is_server

_OPENS = frozenset({"case", "for", "if", "select", "until", "while", "{"})
_CLOSES = frozenset({"done", "esac", "fi", "}"})
_BEFORE_ASSIGNMENTS = frozenset({"export", "readonly", "declare", "local", "typeset", "then", "do", "else"})
_HIDDEN_ASSIGNMENTS = frozenset({"unset", "read", "mapfile", "readarray", "eval", "source", ".", "shift"})
_SPLIT = re.compile(r"[\w./:=@%,+\s-]*")
"""Values that splitting at blanks takes apart as a shell would read them: no quotes, no patterns."""


def read(spec: str, files: Files = DISK) -> Iterator[Targeted]:
    """The launch of a script, nothing where it starts no SGLang server."""
    text = files.text(Path(spec))
    if is_server(text):
        yield Targeted(name=f"script:{spec}", command=virtual(text).value)


def plan(spec: str, ask: Callable[[Targeted], Wanted], files: Files) -> tuple[Rewrite, ...]:
    """The edits of a script. Raises LaunchError."""
    target = next(read(spec, files))
    want = ask(target)
    return files.rewrite(Path(spec), edited(files.text(Path(spec)), want, spec))


def edited(text: str, want: Wanted, where: str) -> str:
    """A script with the words of its launch changed where each stands. Raises LaunchError."""
    if want.options:
        raise LaunchError(f"{where}: {', '.join(want.options)} is an option of a container, and the script starts none")
    if not isinstance(want.command, str):
        return text
    layer = virtual(text)
    changes = differences(layer.value, want.command)
    for outside in (False, True):  # new words first go to where the ones before them stand
        new = spliced(text, [_down(text, layer, splice, where, outside=outside) for splice in changes])
        if _starts(virtual(new).value) == _starts(want.command):
            return new
    raise LaunchError(f"{where}: what is to change cannot be written where it stands; change it by hand")


def _starts(text: str) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The words and the variables that a script gives to the server; None where it starts none."""
    try:
        found = locate(text)
    except LaunchError:
        return None
    words = tuple(arg.value for level in found.levels for arg in level.command.args)
    return words, {name: spot.value for name, (_, spot) in found.environment().items()}


def _down(text: str, layer: Layer, splice: Splice, where: str, *, outside: bool) -> Splice:
    """A splice of the virtual script in the real one: inside one assignment, or outside of all. Raises LaunchError."""
    value = layer.value
    start, end, new = splice.start, splice.end, splice.new
    ways = [splice]
    if not new or start == end:
        while end < len(value) and value[end].isspace() and value[start : start + 1] == value[end] and not new:
            start, end = start + 1, end + 1
            ways.append(Splice(start, end, new))
        lead = len(value[start:end]) - len(value[start:end].lstrip())
        trail = len(value[start:end]) - len(value[start:end].rstrip())
        ways += [Splice(start + lead, end - trail, new)] if not new and lead + trail < end - start else []
    if outside and splice.start == splice.end and (place := _behind(layer, splice.start)) is not None:
        return Splice(place, place, splice.new)
    for way in ways:
        if _together(text, layer, way):
            return layer.down(way)
    raise LaunchError(f"{where}: what is to change stands partly in a variable and partly not; change it by hand")


def _behind(layer: Layer, place: int) -> int | None:
    """Where the text goes on behind a variable that ends at a place of the virtual script."""
    at = 0
    for part in layer.parts:
        if at == place and part.value:
            return part.start
        at += len(part.value)
    return None


def _together(text: str, layer: Layer, splice: Splice) -> bool:
    """Whether what a splice replaces stands in one place of the script."""
    at = 0
    before: Part | None = None
    for part in layer.parts:
        stop = at + len(part.value)
        if at < splice.end and splice.start < stop:
            gap = text[before.end : part.start] if before and before.end <= part.start else "" if not before else "x"
            if gap.strip("\\\r\n \t"):
                return False
            before = part
        at = stop
    return True


# Variables and arrays


@dataclass(slots=True)
class _Held:
    """What a script assigns to one name: the parts of it, in order, and whether anything about it is doubtful."""

    parts: list[Part]
    array: bool
    certain: bool = True


def virtual(text: str) -> Layer:
    """The script as it would be without the variables and arrays that hold words of its launch.

    `"${ARGS[@]}"` and `$ARGS` become the words that they give, each tied to its place in the assignment, where that
    is the only one (or the first of several `+=`), outside of conditions, and the use is the only one.
    """
    try:
        held, words = _assignments(text)
    except LaunchError:
        return plain(text)
    found = sorted(use for name, one in held.items() if one.certain and (use := _use(text, words, name, one)))
    parts: list[Part] = []
    at = 0
    for start, end, name in found:
        parts.append(Part(at, start, text[at:start]))
        parts += held[name].parts
        at = end
    return Layer((*parts, Part(at, len(text), text[at:])))


def _use(text: str, words: Sequence[Word], name: str, one: _Held) -> tuple[int, int, str] | None:
    """The only place where a name is used, a whole word and behind its assignment; None where it is not so."""
    ways = {f'"${{{name}[@]}}"', f"${{{name}[@]}}"} if one.array else {f"${name}", f"${{{name}}}"}
    found = [word for word in words if text[word.start : word.end] in ways]
    every = re.findall(rf"\$(?:\{{[#!]?{name}\b|{name}\b)", text)
    if len(every) != 1 or len(found) != 1 or not one.parts or one.parts[-1].end > found[0].start:
        return None
    return found[0].start, found[0].end, name


def _assignments(text: str) -> tuple[dict[str, _Held], list[Word]]:
    """What a script assigns to names, and its other words."""
    held: dict[str, _Held] = {}
    words: list[Word] = []
    lexer = Lexer(text, {})
    depth = 0
    doubtful = False
    begins = True
    while (token := lexer.next()) is not None:
        if isinstance(token, Operator):
            depth += (token.text == "(") - (token.text == ")")
            doubtful = token.text in ("&&", "||", "|") if not token.redirects else doubtful
            begins = not token.redirects
            continue
        value = token.value
        if begins and value in _OPENS | _CLOSES and not token.quoted:
            depth += (value in _OPENS) - (value in _CLOSES)
            continue
        found = re.match(r"([A-Za-z_]\w*)(\+?)=", text[token.start : token.end], re.ASCII) if begins else None
        if found:
            _note(held, lexer, token, found, certain=depth == 0 and not doubtful)
            continue
        words.append(token)
        begins = value in _BEFORE_ASSIGNMENTS or (begins and value.startswith("-"))
        if value in _HIDDEN_ASSIGNMENTS and not token.quoted:
            for one in held.values():
                one.certain = False  # what it does to the names only a shell could tell
    return held, words


def _note(held: dict[str, _Held], lexer: Lexer, word: Word, found: re.Match[str], *, certain: bool) -> None:
    name, more = found[1], bool(found[2])
    array = lexer.text.startswith("(", word.end) and word.end - word.start == found.end()
    parts = _array(lexer) if array else _value(word, found.end())
    known = held.get(name)
    ok = certain and parts is not None
    if known is None and not more:
        held[name] = _Held(parts or [], array, ok)
    elif known is not None and more and array and known.array and known.certain and ok and parts:
        joint = [Part(parts[0].start, parts[0].start, " ", whole=True)] if known.parts else []
        known.parts += [*joint, *parts]
    else:
        held[name] = _Held([], array, certain=False)


def _array(lexer: Lexer) -> list[Part] | None:
    """The words between brackets; the lexer stands on the opening one."""
    text = lexer.text
    lexer.next()
    words: list[Word] = []
    while (token := lexer.next()) is not None:
        if isinstance(token, Word):
            words.append(token)
        elif token.text == ")":
            return _row(text, words)
        elif token.text != "\n":
            return None
    return None


def _row(text: str, words: list[Word]) -> list[Part]:
    parts: list[Part] = []
    for number, word in enumerate(words):
        if number:
            before = words[number - 1].end
            gap = text[before : word.start]
            # a comment belongs to the word before it, and stays when the next one goes
            cut = before + gap.rfind("\n") if "#" in gap and "\n" in gap else before
            if cut > before:
                parts.append(Part(before, cut, "", whole=True))
            parts.append(Part(cut, word.start, " ", whole=True))
        parts.append(Part(word.start, word.end, text[word.start : word.end]))
    return parts


def _value(word: Word, head: int) -> list[Part] | None:
    """The value of `NAME=words` letter by letter; None where splitting it at blanks does not give several words."""
    at = word.start + head
    pieces = [piece for piece in word.pieces if piece.end > at]
    value = word.value.partition("=")[2]
    if word.open or any(p.expanded for p in pieces) or not _SPLIT.fullmatch(value) or not re.search(r"\S\s+\S", value):
        return None
    parts: list[Part] = []
    for piece in pieces:
        begin = max(piece.start, at)
        body = piece.value if piece.start >= at else piece.value[len(piece.value) - (piece.end - at) :]
        if piece.end - begin != len(body):
            return None
        for run in re.finditer(r"\n|[^\n]+", body):
            newline = run[0] == "\n"
            parts.append(Part(begin + run.start(), begin + run.end(), " " if newline else run[0], whole=newline))
    return parts
