"""Compose's interpolation (compose-spec 12): ${NAME}, ${NAME:-word}, $NAME; `$$` is a dollar. And its `.env` files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from specwatch.errors import ConfigError
from specwatch.launch.layers import Layer, Part
from specwatch.launch.targets.base import Files

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.]*)[ \t]*[=:][ \t]*(.*?)[ \t\r]*$", re.ASCII)


_QUOTES = {mark: re.compile(rf"(?:\\.|[^\\])*?{mark}", re.DOTALL) for mark in ("'", '"')}
_NO_FORM = "not a form of a variable, and Compose refuses it; a dollar is written $$"
_LARGEST = 1 << 20
"""Characters of a text, and of all values of a file, with the variables filled in: more is an attack."""


def filled(text: str, variables: Mapping[str, str], depth: int = 0) -> Layer:
    """A text with its variables filled in; one that is not set is empty, as Compose takes it.

    Raises ConfigError for what Compose refuses: a form that it does not know, and a variable that has to be set
    (`${NAME:?why}`) and is not.
    """
    parts: list[Part] = []
    at = length = 0
    while at < len(text):
        sign = text.find("$", at)
        if sign < 0 or sign + 1 == len(text):
            break
        if sign > at:
            parts.append(Part(at, sign, text[at:sign]))
        part = _one(text, sign, variables, depth)
        length += len(part.value)
        if length > _LARGEST:
            raise ConfigError(f"{text[:40]}…: more than a million characters with its variables filled in")
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
        if not end or not name:
            raise ConfigError(f"{text[sign : sign + 80]}: {_NO_FORM}")
        value = _braced(name[0], text[name.end() : end - 1], variables, depth)
        own = name[0] if variables.get(name[0]) == value and value else ""
        return Part(sign, end, value, whole=True, name=own)
    name = _NAME.match(text, sign + 1)
    if name:
        return Part(sign, name.end(), variables.get(name[0], ""), whole=True, name=name[0])
    return Part(sign, sign + 1, "$")


def _braced(name: str, rest: str, variables: Mapping[str, str], depth: int) -> str:
    value = variables.get(name)
    found = re.match(r":?[-?+]", rest)
    if not found and rest:
        raise ConfigError(f"${{{name}{rest[:80]}}}: {_NO_FORM}")
    if not found:
        return value or ""
    missing = value is None or (found[0].startswith(":") and not value)
    if missing is found[0].endswith("+"):
        return "" if missing else value or ""
    word = rest[found.end() :]
    word = filled(word, variables, depth + 1).value if depth < 8 else word
    if found[0].endswith("?"):
        raise ConfigError(
            f"the variable {name} has to be set and is not, so that Compose starts nothing ({word[:200]}); set it "
            "here, or in .env beside the file"
        )
    return word


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
    if not files.is_file(path):
        return {}
    try:
        return meant(files.text(path), known, {})
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def meant(text: str, known: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file of assignments, those in its values filled in, but for values in single quotes.

    Mirrors compose-go: dotenv/parser.go. A name is looked up in `known`, then above in the file, then in `earlier`.
    """
    held: dict[str, str] = {}
    seen = {**earlier, **known}
    length = 0
    for name, start, end, value in assignments(text):
        mark = text[start : start + 1]
        if mark != "'" and "$" in value:
            if mark == '"':
                value = _unquoted(text[start:end].replace("\\$", "$$"))
            value = filled(value, seen).value
        held[name] = value
        if name not in known:
            seen[name] = value
        if (length := length + len(value)) > _LARGEST:
            raise ConfigError(f"more than a million characters with the variables of {name} filled in")
    return held


def assignments(text: str) -> Iterator[tuple[str, int, int, str]]:
    """The variables of an `.env` file: name, the span of the value as written, and what it means.

    A value in quotes may go on over lines. Raises ConfigError for one whose quote is never closed, as Compose does.
    """
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        found = _LINE.match(text[at:end])
        if found:
            start = at + found.start(2)
            raw = _raw(text, start, found[2])
            yield found[1], start, start + len(raw), _unquoted(raw)
            end = max(end, text.find("\n", start + len(raw)))
        at = end + 1


def _raw(text: str, start: int, line: str) -> str:
    """A value as it is written, without the comment behind it."""
    mark = line[:1]
    if mark not in _QUOTES:
        return re.split(r"[ \t]+#", line, maxsplit=1)[0]
    closing = _QUOTES[mark].match(text, start + 1)
    if closing is None:
        number = text.count("\n", 0, start) + 1
        raise ConfigError(f"line {number}: a quote is opened and never closed, which Compose refuses")
    return text[start : closing.end()]


def _unquoted(raw: str) -> str:
    if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\"":
        inner = raw[1:-1]
        letters = {"n": "\n", "r": "\r", "t": "\t"}
        return re.sub(r"\\(.)", lambda m: letters.get(m[1], m[1]), inner, flags=re.DOTALL) if raw[0] == '"' else inner
    return raw


def quoted(value: str) -> str | None:
    """A value as an `.env` file holds it so that nothing in it is interpolated; None where it cannot."""
    if re.fullmatch(r"[\w./:@%+=,-]+", value, re.ASCII):
        return value
    return f"'{value}'" if "'" not in value and "\n" not in value and "\r" not in value and "\\" not in value else None
