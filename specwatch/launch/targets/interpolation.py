"""Compose's interpolation (compose-spec 12): ${NAME}, ${NAME:-word}, $NAME; `$$` is a dollar. And its `.env` files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from specwatch.launch.layers import Layer, Part
from specwatch.launch.targets.base import Files

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.]*)[ \t]*[=:][ \t]*(.*?)[ \t\r]*$", re.ASCII)


def filled(text: str, variables: Mapping[str, str], depth: int = 0) -> Layer:
    """A text with its variables filled in; one that is not set is empty, as Compose takes it."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        sign = text.find("$", at)
        if sign < 0 or sign + 1 == len(text):
            break
        if sign > at:
            parts.append(Part(at, sign, text[at:sign]))
        part = _one(text, sign, variables, depth)
        parts.append(part)
        at = part.end
    if at < len(text):
        parts.append(Part(at, len(text), text[at:]))
    return Layer(tuple(parts), lambda new, _: new.replace("$", "$$"))


def _one(text: str, sign: int, variables: Mapping[str, str], depth: int) -> Part:
    follows = text[sign + 1]
    if follows == "$":
        return Part(sign, sign + 2, "$", whole=True)
    if follows == "{":
        end = _closing(text, sign + 1)
        name = _NAME.match(text, sign + 2)
        if end and name:
            value = _braced(text[name.end() : end - 1], variables.get(name[0]), variables, depth)
            own = name[0] if variables.get(name[0]) == value and value else ""
            return Part(sign, end, value, whole=True, name=own)
    name = _NAME.match(text, sign + 1)
    if name:
        return Part(sign, name.end(), variables.get(name[0], ""), whole=True, name=name[0])
    return Part(sign, sign + 1, "$")


def _braced(rest: str, value: str | None, variables: Mapping[str, str], depth: int) -> str:
    found = re.match(r":?[-?+]", rest)
    if not found:
        return value or ""
    missing = value is None or (found[0].startswith(":") and not value)
    word = rest[found.end() :]
    word = filled(word, variables, depth + 1).value if depth < 8 else word
    if found[0].endswith("+"):
        return "" if missing else word
    return word if missing and found[0].endswith("-") else value or ""


def _closing(text: str, opened: int) -> int:
    depth = 0
    for at in range(opened, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return at + 1
    return 0


# .env files


def read(path: Path, files: Files, known: Mapping[str, str]) -> dict[str, str]:
    """What an `.env` file sets, nothing where it is not there; `known` goes before its own names in `${NAME}`."""
    return meant(files.text(path), known, {}) if files.is_file(path) else {}


def meant(text: str, known: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file of assignments, those in its values filled in, but for values in single quotes.

    Mirrors compose-go: dotenv/parser.go. A name is looked up in `known`, then above in the file, then in `earlier`.
    """
    held: dict[str, str] = {}
    for name, start, end, value in assignments(text):
        mark = text[start : start + 1]
        if mark != "'" and "$" in value:
            if mark == '"':
                value = _unquoted(text[start:end].replace("\\$", "$$"))
            value = filled(value, {**earlier, **held, **known}).value
        held[name] = value
    return held


def assignments(text: str) -> Iterator[tuple[str, int, int, str]]:
    """The variables of an `.env` file: name, the span of the value as written, and what it means."""
    at = 0
    for line in text.split("\n"):
        found = _LINE.match(line)
        if found:
            start = found.start(2)
            raw = _without_comment(found[2])
            yield found[1], at + start, at + start + len(raw), _unquoted(raw)
        at += len(line) + 1


def _without_comment(raw: str) -> str:
    mark = raw[:1]
    if mark in ("'", '"'):
        closing = re.compile(r"(?:\\.|[^\\])*?" + mark).match(raw, 1)
        return raw[: closing.end()] if closing else raw
    return re.split(r"[ \t]+#", raw, maxsplit=1)[0]


def _unquoted(raw: str) -> str:
    if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\"":
        inner = raw[1:-1]
        letters = {"n": "\n", "r": "\r", "t": "\t"}
        return re.sub(r"\\(.)", lambda m: letters.get(m[1], m[1]), inner) if raw[0] == '"' else inner
    return raw


def quoted(value: str) -> str | None:
    """A value as an `.env` file holds it so that nothing in it is interpolated; None where it cannot."""
    if re.fullmatch(r"[\w./:@%+=,-]+", value, re.ASCII):
        return value
    return f"'{value}'" if "'" not in value and "\n" not in value and "\r" not in value and "\\" not in value else None
