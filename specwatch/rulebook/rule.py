"""One failure, one TOML file: load it and hold it to the laws that need no log to be read.

The laws that need the whole path (examples match, causes and fixed commands come out as written) are in
`specwatch.proof`; both are run by `specwatch rules test` and for every rule that is not shipped with specwatch.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from specwatch.checks import CHECKS
from specwatch.domain import Applicability, Role, Severity
from specwatch.errors import RuleError
from specwatch.fixes import FIXES, Edit
from specwatch.lazy import compiled
from specwatch.rulebook.pattern import SHORTEST, Pattern, literal_prefix

ID = compiled(r"[a-z0-9]+(-[a-z0-9]+)*")
STATUSES = ("stable", "experimental")
_KEYS = {
    "rule": {"title", "severity", "role", "status", "sglang", "docs", "pattern", "context", "check", "cause", "example"}
    | {"counterexample"},
    "docs": {"what", "why", "limits", "references"},
    "pattern": {"name", "line", "cause", "frame", "source"},
    "context": {"line"},
    "check": {"use"},
    "cause": {"says", "fixes", "todo"},
    "fix": {"use", "applicability", "why", "set", "remove", "set_env", "unset_env"},
    "example": {"name", "log", "launch", "sglang", "captures", "cause", "fixed", "models", "env", "status"},
    "counterexample": {"name", "log", "launch"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRef:
    """A repair by its registered name, and how far the rule trusts it for this cause.

    The fix `change` takes its edit, and the reason that is shown, from here.
    """

    use: str
    applicability: Applicability
    edit: Edit = field(default_factory=Edit)
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One of the reasons behind a message: what to say, and the fixes in the order in which they are offered.

    `says` may name facts of the verdict and captures of the pattern in braces. `todo` is what a person has to do
    where no fix can be composed.
    """

    name: str
    says: str
    fixes: tuple[FixRef, ...] = ()
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A log of the failure and what specwatch must make of it; `models` stands for the files of the model folders.

    An example without a log shows what `specwatch check` finds in a launch for which SGLang prints nothing.
    """

    name: str
    log: str
    launch: str = ""
    sglang: str = ""
    captures: Mapping[str, str] = field(default_factory=dict)
    cause: str = ""
    status: str = "broken"
    fixed: str = ""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterExample:
    """A log that looks like the failure and is not."""

    name: str
    log: str
    launch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One failure: how to recognise it, which check proves it, and what helps for each of its causes.

    `context` are expressions over the milestones of the same start-up (memory before and after the weights, the size
    of the KV cache …): what the last line that each matches holds joins the captures.
    """

    id: str
    path: Path
    title: str
    severity: Severity
    role: Role
    status: str
    sglang: SpecifierSet
    docs: Mapping[str, Any]
    patterns: tuple[Pattern, ...]
    context: tuple[re.Pattern[str], ...]
    check: str | None
    causes: Mapping[str, Cause]
    examples: tuple[Example, ...]
    counterexamples: tuple[CounterExample, ...]

    def covers(self, release: str) -> bool:
        """Whether a release can print this message; an unknown release can."""
        try:
            return not release or self.sglang.contains(Version(release), prereleases=True)
        except InvalidVersion:
            return True


Choice = TypeVar("Choice", Severity, Role, Applicability)


class _Reader:
    """Reads one rule file and collects everything that is wrong with it, rather than the first thing only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wrong: list[str] = []

    def complain(self, where: str, what: str) -> None:
        self.wrong.append(f"{self.path}: {where}: {what}")

    def text(self, table: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
        value = table.get(key, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            self.complain(where, f"'{key}' must be a text, got {value!r}")
            return default or ""
        return value

    def tables(self, table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.complain(key, f"must be written as [[{key}]]")
            return []
        return value

    def texts(self, table: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
        value = table.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            self.complain(where, f"'{key}' must be a table of texts, got {value!r}")
            return {}
        return value

    def words(self, table: Mapping[str, Any], key: str, where: str) -> list[str]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            self.complain(where, f"'{key}' must be a list of texts, got {value!r}")
            return []
        return value

    def known(self, table: Mapping[str, Any], kind: str, where: str) -> None:
        for key in table.keys() - _KEYS[kind]:
            self.complain(where, f"unknown key '{key}'; known are {', '.join(sorted(_KEYS[kind]))}")

    def choice(self, kind: type[Choice], word: object, where: str) -> Choice:
        for member in kind:
            if str(word).upper() == member.name:
                return member
        names = ", ".join(member.name.lower() for member in kind)
        self.complain(where, f"{word!r} is none of {names}")
        return next(iter(kind))


def _pattern(reader: _Reader, table: Mapping[str, Any], where: str) -> Pattern:
    reader.known(table, "pattern", where)
    region = "line" not in table and "source" not in table and bool(table.get("frame"))
    line = "" if region else _expression(reader, table, where)
    name, cause = reader.text(table, "name", where), reader.text(table, "cause", where, "")
    frame, source = reader.text(table, "frame", where, ""), reader.text(table, "source", where, "")
    return Pattern(name=name, line=line, cause=cause, frame=frame, source=source)


def _expression(reader: _Reader, table: Mapping[str, Any], where: str) -> str:
    line = reader.text(table, "line", where)
    try:
        re.compile(line)
    except re.error as error:
        reader.complain(where, f"'line' is no regular expression: {error}")
        return "(?!)"
    if re.search(r"(?<!\\)\.[*+](?!\?)", line):
        reader.complain(where, "'line' holds a bare '.*' or '.+': say what may stand there, such as [^,]{1,80}")
    if len(literal_prefix(line)) < SHORTEST:
        reader.complain(where, f"'line' must begin with {SHORTEST} literal characters, so that it can be indexed")
    return line


def _context(reader: _Reader, table: Mapping[str, Any], where: str) -> re.Pattern[str]:
    reader.known(table, "context", where)
    return re.compile(_expression(reader, table, where))


def _cause(reader: _Reader, name: str, table: Mapping[str, Any]) -> Cause:
    where = f"cause.{name}"
    reader.known(table, "cause", where)
    fixes: list[FixRef] = []
    for entry in table.get("fixes", []):
        reader.known(entry, "fix", where)
        use = reader.text(entry, "use", where)
        if use not in FIXES:
            reader.complain(where, f"no fix is called '{use}'; known are {', '.join(sorted(FIXES))}")
        fixes.append(_fix(reader, use, entry, where))
    todo = reader.text(table, "todo", where, "")
    if not fixes and not todo:
        reader.complain(where, "a cause without fixes must say in 'todo' what a person has to do")
    return Cause(name=name, says=reader.text(table, "says", where), fixes=tuple(fixes), todo=todo.strip())


def _fix(reader: _Reader, use: str, entry: Mapping[str, Any], where: str) -> FixRef:
    edit = Edit(
        set=reader.texts(entry, "set", where),
        remove=tuple(reader.words(entry, "remove", where)),
        set_env=reader.texts(entry, "set_env", where),
        unset_env=tuple(reader.words(entry, "unset_env", where)),
    )
    spelled = edit != Edit()
    if spelled != (use == "change"):
        reader.complain(where, "the fix 'change', and no other, says what to set or remove")
    for flag in (*edit.set, *edit.remove):
        if not all(name.startswith("--") for name in flag.split("|")):
            reader.complain(where, f"'{flag}' is no flag")
    why = reader.text(entry, "why", where, None if spelled else "")
    return FixRef(
        use=use, applicability=reader.choice(Applicability, entry.get("applicability"), where), edit=edit, why=why
    )


def _example(reader: _Reader, table: Mapping[str, Any]) -> Example:
    where = f"example '{table.get('name', '?')}'"
    reader.known(table, "example", where)
    return Example(
        name=reader.text(table, "name", where),
        log=reader.text(table, "log", where, ""),
        launch=reader.text(table, "launch", where, ""),
        sglang=reader.text(table, "sglang", where, ""),
        captures={str(k): str(v) for k, v in table.get("captures", {}).items()},
        cause=reader.text(table, "cause", where, ""),
        status=reader.text(table, "status", where, "broken"),
        fixed=reader.text(table, "fixed", where, ""),
        models=table.get("models", {}),
    )


def _whole(reader: _Reader, rule: Rule) -> None:
    """The laws between the parts of one rule."""
    named = {e.cause for e in rule.examples} | {p.cause for p in rule.patterns}
    for name in named - rule.causes.keys() - {""}:
        reader.complain("example or pattern", f"names the cause '{name}', which the rule does not have")
    for name in rule.causes.keys() - {e.cause for e in rule.examples}:
        reader.complain(f"cause.{name}", "has no example")
    for pattern in rule.patterns:
        if not any(pattern.regex.match(piece) for e in rule.examples for piece in messages(e.log)):
            reader.complain(f"pattern '{pattern.name}'", "matches no message of any example")
    if not rule.causes:
        reader.complain("cause", "a rule needs at least one [cause.NAME]")
    if not rule.counterexamples:
        reader.complain("counterexample", "a rule needs a log that looks like it and is not")
    if len({p.name for p in rule.patterns}) != len(rule.patterns):
        reader.complain("pattern", "two patterns have one name")


def messages(log: str) -> list[str]:
    """Where a message can start in an example's log: at each line, and behind a header."""
    lines = log.strip("\n").split("\n")
    starts = ["\n".join(lines[at:]) for at in range(len(lines))]
    return starts + [re.sub(r"^\[[^\]]*\] ", "", start) for start in starts]


def load(path: Path) -> Rule:
    """Read one rule file.

    Raises RuleError with everything that is wrong with it, one line each: file, place, what was expected.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RuleError(f"{path}: not a rule file: {error}") from error
    reader = _Reader(path)
    if not ID.fullmatch(path.stem):
        reader.complain("name", "a rule's file name is its id: lower-case words joined by '-'")
    reader.known(table, "rule", "top")
    docs = table.get("docs", {})
    reader.known(docs, "docs", "docs")
    for key in ("what", "why", "limits"):
        reader.text(docs, key, "docs")
    check = table.get("check")
    if check is not None:
        reader.known(check, "check", "check")
        check = reader.text(check, "use", "check")
        if check not in CHECKS:
            reader.complain("check", f"no check is called '{check}'; known are {', '.join(sorted(CHECKS))}")
    status = reader.text(table, "status", "top")
    if status not in STATUSES:
        reader.complain("status", f"{status!r} is none of {', '.join(STATUSES)}")
    try:
        releases = SpecifierSet(reader.text(table, "sglang", "top", ""))
    except InvalidSpecifier as error:
        reader.complain("sglang", f"is no version range: {error}")
        releases = SpecifierSet()
    rule = Rule(
        id=path.stem,
        path=path,
        title=reader.text(table, "title", "top"),
        severity=reader.choice(Severity, table.get("severity"), "severity"),
        role=reader.choice(Role, table.get("role", "cause"), "role"),
        status=status,
        sglang=releases,
        docs=docs,
        patterns=tuple(_pattern(reader, p, f"pattern {n}") for n, p in enumerate(reader.tables(table, "pattern"), 1)),
        context=tuple(_context(reader, c, f"context {n}") for n, c in enumerate(reader.tables(table, "context"), 1)),
        check=check,
        causes={name: _cause(reader, name, entry) for name, entry in table.get("cause", {}).items()},
        examples=tuple(_example(reader, entry) for entry in reader.tables(table, "example")),
        counterexamples=tuple(
            CounterExample(
                name=reader.text(entry, "name", "counterexample"),
                log=reader.text(entry, "log", "counterexample"),
                launch=reader.text(entry, "launch", "counterexample", ""),
            )
            for entry in reader.tables(table, "counterexample")
        ),
    )
    _whole(reader, rule)
    if reader.wrong:
        raise RuleError("\n".join(reader.wrong))
    return rule
