"""The scalars of YAML 1.1 character by character: what each style's text means, and how a value is written in it."""

from __future__ import annotations

import re
from typing import Any

from specwatch.launch.layers import Layer, Part

_BREAK = re.compile(r"[ \t]*\r?\n(?:[ \t]*\r?\n)*[ \t]*")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_HEADER = re.compile(r"[|>]([+-]?)([1-9]?)([+-]?)[^\n]*\n")
_SAFE = re.compile(r"(?:--?)?[A-Za-z_/][\w./@%=+-]*(?::[\w./@%=+-]+)*", re.ASCII)
# what some reader of YAML takes for a truth value, for nothing or for a number
_TAKEN = re.compile(r"(?:y|n|yes|no|on|off|true|false|null|nan|inf|_[\d_]*)", re.IGNORECASE)
_PRINTABLE = re.compile(r"[ !#-\[\]-~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SINGLE_LINE = re.compile(r"[\t -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")


def writable_plain(value: str) -> bool:
    """Whether every reader of YAML takes a value for the same string without quotes."""
    return _SAFE.fullmatch(value) is not None and not _TAKEN.fullmatch(value)


def render(value: str, style: str | None) -> str:
    """A value as one scalar: without quotes (None), in single or in double ones; in double ones where it has to be."""
    if style is None and writable_plain(value):
        return value
    if style == "'" and _SINGLE_LINE.fullmatch(value):
        return "'" + value.replace("'", "''") + "'"
    return f'"{_double(value)}"'


def _double(value: str) -> str:
    out = []
    for letter in value:
        if letter in ('"', "\\"):
            out.append(f"\\{letter}")
        elif _PRINTABLE.match(letter):
            out.append(letter)
        elif letter in "\n\t\r":
            out.append({"\n": "\\n", "\t": "\\t", "\r": "\\r"}[letter])
        else:
            code = ord(letter)
            out.append(f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return "".join(out)


def layer(text: str, node: Any) -> Layer | None:
    """What the text of a scalar node means, part by part; None where it cannot be told that finely."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in ("|", ">"):
        found = _block(text, start, end, node.style)
    elif node.style == '"':
        found = Layer(_quoted(text, start + 1, end - 1, _ESCAPE), lambda new, _: _double(new))
    elif node.style == "'":
        parts = _quoted(text, start + 1, end - 1, re.compile("''"))
        found = Layer(parts, lambda new, _: new.replace("'", "''"))
    else:
        found = Layer(_quoted(text, start, end, None))
    return found if found is not None and found.value == node.value else None


def _quoted(text: str, start: int, end: int, escape: re.Pattern[str] | None) -> tuple[Part, ...]:
    parts: list[Part] = []
    at = begin = start
    while at < end:
        special = escape.match(text, at, end) if escape else None
        broken = _BREAK.match(text, at, end)
        if special is None and broken is None:
            at += 1
            continue
        if begin < at:
            parts.append(Part(begin, at, text[begin:at]))
        if special is not None:
            stop = special.end()
            if special[0] in ("\\\n", "\\\r"):  # a line that goes on without a blank
                following = re.compile(r"\n?[ \t]*").match(text, stop, end)
                stop = following.end() if following else stop
            parts.append(Part(at, stop, _meant(special[0]), whole=True))
        elif broken is not None:
            stop, breaks = broken.end(), broken[0].count("\n")
            parts.append(Part(at, stop, "\n" * (breaks - 1) or " ", whole=True))
        at = begin = stop
    if begin < end:
        parts.append(Part(begin, end, text[begin:end]))
    return tuple(parts)


def _meant(escape: str) -> str:
    if escape == "''":
        return "'"
    if escape in ("\\\n", "\\\r"):
        return ""
    import yaml

    kind = escape[1]
    if kind in "xuU":
        return chr(int(escape[2:], 16))
    return str(yaml.SafeLoader.ESCAPE_REPLACEMENTS.get(kind, kind))


def _block(text: str, start: int, end: int, style: str) -> Layer | None:
    header = _HEADER.match(text, start, end)
    if not header:
        return None
    lines = []
    at = header.end()
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        lines.append((at, stop - (stop > at and text[stop - 1] == "\r"), min(stop + 1, end)))
        at = stop + 1
    indent = _indent(text, lines, header[2])
    if indent is None:
        return None
    parts = _lines(text, lines, indent, folded=style == ">")
    keep = header[1] or header[3]
    if keep != "+":
        while len(parts) > 1 and parts[-1].value == "\n" and parts[-2].value in ("\n", ""):
            parts.pop()
        if keep == "-" and parts and parts[-1].value == "\n":
            parts.pop()
    newline = "\r\n" if "\r\n" in text[start:end] else "\n"
    return Layer(tuple(parts), lambda new, _: new.replace("\n", newline + " " * indent))


def _indent(text: str, lines: list[tuple[int, int, int]], explicit: str) -> int | None:
    for begin, stop, _ in lines:
        content = text[begin:stop]
        if content.strip(" "):
            return len(content) - len(content.lstrip(" ")) if not explicit else None
    return None


def _lines(text: str, lines: list[tuple[int, int, int]], indent: int, *, folded: bool) -> list[Part]:
    """The lines of a block; a line's end goes with the indent of the next one, so that a line can be taken out."""
    parts: list[Part] = []
    begins = [min(begin + indent, stop) for begin, stop, _ in lines]
    contents = [text[begin:stop] for begin, (_, stop, _) in zip(begins, lines, strict=True)]
    last = max((i for i, content in enumerate(contents) if content), default=-1)
    for number, (_, stop, following) in enumerate(lines):
        if contents[number]:
            parts.append(Part(begins[number], stop, contents[number]))
        if following == stop:
            continue
        value = "\n"
        if folded and contents[number] and number < last:
            later = next(i for i in range(number + 1, last + 1) if contents[i])
            even = contents[number][0] not in " \t" and contents[later][0] not in " \t"
            if even:
                value = " " if later == number + 1 else ""
        end = begins[number + 1] if number + 1 < len(lines) else following
        parts.append(Part(stop, end, value, whole=True))
    return parts
