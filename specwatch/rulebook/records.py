"""Documented error records as draft rules.

A record of the error catalogue (`messagePattern`, `filePath`, `solutions`, `validationCode`, `tags`, `analyzedSha`,
`schemaVersion` 2) says how a message looks and what people wrote about it. It proves nothing, so the rule that comes
of it is experimental, and says in its own text what is still to be done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specwatch.errors import ConfigError
from specwatch.lazy import compiled
from specwatch.rulebook.drafting import Draft, comments, one_line, title

SCHEMA_VERSION = 2
LONGEST = 16 << 20
_HOLE = compiled(r"\(\.[+*]\??\)")


def read(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a file: one object, a list, or several written one after the other.

    Raises ConfigError naming the file and the place.
    """
    try:
        if path.stat().st_size > LONGEST:
            raise ConfigError(f"{path}: larger than {LONGEST >> 20} MiB, not a file of records")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    decoder = json.JSONDecoder()
    at = 0
    found = False
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            line = text.count("\n", 0, at) + 1
            raise ConfigError(f"{path}, line {line}: not JSON: {error}") from error
        for entry in value if isinstance(value, list) else [value]:
            found = True
            yield _record(entry, path)
    if not found:
        raise ConfigError(f"{path}: holds no record")


def _record(entry: object, path: Path) -> Mapping[str, Any]:
    record = entry.get("record", entry) if isinstance(entry, dict) else None
    if not isinstance(record, dict) or not isinstance(record.get("messagePattern"), str):
        raise ConfigError(f"{path}: expected an object with record.messagePattern")
    version = record.get("schemaVersion")
    if version != SCHEMA_VERSION:
        raise ConfigError(f"{path}: schemaVersion is {version!r}, expected {SCHEMA_VERSION}")
    return record


def identifier(record: Mapping[str, Any]) -> str:
    """A file name for the rule: the record's slug, cut between words."""
    slug = re.sub(r"[^a-z0-9]+", "-", str(record.get("slug") or record.get("id") or "record").lower()).strip("-")
    return slug[:60].rstrip("-") or "record"


def pattern(record: Mapping[str, Any]) -> str:
    """The message as a pattern of the rule format: every value named and bounded, the exception class in front."""
    count = 0

    def hole(_: re.Match[str]) -> str:
        nonlocal count
        count += 1
        name = names[count - 1] if count <= len(names) else f"value{count}"
        return rf"(?P<{name}>[^\n]{{1,200}}?)"

    template = str(record.get("errorMessage") or "")
    names = _names(re.findall(r"\{([^{}]+)\}", template))
    body = _HOLE.sub(hole, record["messagePattern"])
    cls = record.get("errorClass")
    return f"{re.escape(cls)}: {body}" if isinstance(cls, str) and cls else body


def _names(placeholders: list[str]) -> list[str]:
    names: list[str] = []
    for placeholder in placeholders:
        word = re.sub(r"\W+", "_", placeholder.partition("!")[0].rpartition(".")[2]).strip("_")
        name = word if word.isidentifier() else f"value{len(names) + 1}"
        names.append(name if name not in names else f"{name}{len(names) + 1}")
    return names


def draft_rule(record: Mapping[str, Any]) -> str:
    """The text of a rule file: what the record tells, and what a person still has to do, marked as such."""
    solutions = [str(entry) for entry in record.get("solutions") or []]
    message = str(record.get("errorMessage") or "")
    cls = record.get("errorClass")
    sample = _filled(f"{cls}: {message}" if cls else message)
    return Draft(
        comments=(
            "Drafted from a documented record. To do: an example and a counter-example from real logs, the first",
            "release that prints the message, a check that proves the cause, fixes by their names (specwatch explain).",
            *_comments(record),
        ),
        title=title(message),
        severity="fatal" if record.get("severity") in ("critical", "high") else "degraded",
        what=str(record.get("documentation") or "to do"),
        why=str(record.get("triggerScenarios") or "to do"),
        limits="To do. Common situations: " + str(record.get("commonSituations") or "not recorded"),
        references=(str(record["githubUrl"]),) if record.get("githubUrl") else (),
        line=pattern(record),
        todo=" ".join(f"({n}) {text}" for n, text in enumerate(solutions, 1)) or "to do",
        example="to do: the message as a real server wrote it",
        log=sample,
        message=sample,
    ).text()


def _comments(record: Mapping[str, Any]) -> Iterator[str]:
    """What helps to finish the rule and has no place in the format: where it is from, and how others would check."""
    place = f"{record.get('filePath') or '?'}, line {record.get('lineNumber') or '?'}"
    yield f"From {one_line(place)} at {one_line(record.get('analyzedSha') or '?')}."
    if tags := [str(tag) for tag in record.get("tags") or []]:
        yield f"Tags: {one_line(', '.join(tags))}."
    if code := record.get("validationCode"):
        yield "The record's own idea of a check:"
        yield from comments(str(code))


def _filled(sample: str) -> str:
    """The message with a value in each hole, as an example needs one."""
    numbers = iter(range(7, 1000))
    return re.sub(r"\{[^{}]*\}", lambda _: str(next(numbers)), sample)
