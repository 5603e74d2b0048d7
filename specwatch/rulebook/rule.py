"""One failure, one TOML file: what it says, and whether it has the form of a rule.

The laws are in `laws` those that need no log to be read, in `specwatch.proof` those that need the whole path (examples
match, causes and fixed commands come out as written); both are run by `specwatch rules test` and for every rule that is
not shipped with specwatch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from specwatch.domain import NOTHING, Applicability, Role, Severity
from specwatch.errors import RuleError
from specwatch.fixes.proposal import Edit
from specwatch.lazy import compiled
from specwatch.releases import covers
from specwatch.rulebook.pattern import Pattern

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


class FixRef(NamedTuple):
    """A repair by its registered name, and how far the rule trusts it for this cause.

    The fix `change` takes its edit, and the reason that is shown, from here.
    """

    use: str
    applicability: Applicability
    edit: Edit = Edit()
    why: str = ""


class Cause(NamedTuple):
    """One of the reasons behind a message: what to say, and the fixes in the order in which they are offered.

    `says` may name facts of the verdict and captures of the pattern in braces. `todo` is what a person has to do
    where no fix can be composed.
    """

    name: str
    says: str
    fixes: tuple[FixRef, ...] = ()
    todo: str = ""


class Example(NamedTuple):
    """A log of the failure and what specwatch must make of it; `models` stands for the files of the model folders.

    An example without a log shows what `specwatch check` finds in a launch for which SGLang prints nothing.
    """

    name: str
    log: str
    launch: str = ""
    sglang: str = ""
    captures: Mapping[str, str] = NOTHING
    cause: str = ""
    status: str = "broken"
    fixed: str = ""
    models: Mapping[str, Mapping[str, Any]] = NOTHING


class CounterExample(NamedTuple):
    """A log that looks like the failure and is not."""

    name: str
    log: str
    launch: str = ""


class Rule(NamedTuple):
    """One failure: how to recognise it, which check proves it, and what helps for each of its causes.

    `context` are expressions over the milestones of the same start-up (memory before and after the weights, the size
    of the KV cache …): what the last line that each matches holds joins the captures. `sglang` is the range of releases
    that can print the message, `table` the whole file as its tables.
    """

    id: str
    path: Path
    title: str
    severity: Severity
    role: Role
    status: str
    sglang: str
    docs: Mapping[str, Any]
    patterns: tuple[Pattern, ...]
    context: tuple[re.Pattern[str], ...]
    check: str | None
    causes: Mapping[str, Cause]
    examples: tuple[Example, ...]
    counterexamples: tuple[CounterExample, ...]
    table: Mapping[str, Any]

    def covers(self, release: str) -> bool:
        """Whether a release can print this message; an unknown release can."""
        return covers(self.sglang, release)


Choice = TypeVar("Choice", Severity, Role, Applicability)


class _Reader:
    """Reads one rule file and collects everything that is wrong with it, rather than the first thing only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wrong: list[str] = []

    def complain(self, where: str, what: str) -> None:
        self.wrong.append(f"{self.path}: {where}: {what}")

    def passed(self, rule: Rule) -> Rule:
        if self.wrong:
            raise RuleError("\n".join(self.wrong))
        return rule

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
    line = "" if region else reader.text(table, "line", where)
    name, cause = reader.text(table, "name", where), reader.text(table, "cause", where, "")
    frame, source = reader.text(table, "frame", where, ""), reader.text(table, "source", where, "")
    return Pattern(name=name, line=line, cause=cause, frame=frame, source=source)


def _context(reader: _Reader, table: Mapping[str, Any], where: str) -> re.Pattern[str]:
    reader.known(table, "context", where)
    return compiled(reader.text(table, "line", where))


def _cause(reader: _Reader, name: str, table: Mapping[str, Any]) -> Cause:
    where = f"cause.{name}"
    reader.known(table, "cause", where)
    fixes: list[FixRef] = []
    for entry in table.get("fixes", []):
        reader.known(entry, "fix", where)
        fixes.append(_fix(reader, reader.text(entry, "use", where), entry, where))
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


def _rule(reader: _Reader, table: Mapping[str, Any]) -> Rule:
    """The rule that a file's tables make; what is wrong with their form is what the reader then complains of."""
    path = reader.path
    reader.known(table, "rule", "top")
    docs = table.get("docs", {})
    reader.known(docs, "docs", "docs")
    for key in ("what", "why", "limits"):
        reader.text(docs, key, "docs")
    check = table.get("check")
    if check is not None:
        reader.known(check, "check", "check")
        check = reader.text(check, "use", "check")
    status = reader.text(table, "status", "top")
    if status not in STATUSES:
        reader.complain("status", f"{status!r} is none of {', '.join(STATUSES)}")
    releases = reader.text(table, "sglang", "top", "").split(",")
    return Rule(
        id=path.stem,
        path=path,
        title=reader.text(table, "title", "top"),
        severity=reader.choice(Severity, table.get("severity"), "severity"),
        role=reader.choice(Role, table.get("role", "cause"), "role"),
        status=status,
        sglang=",".join(sorted(filter(None, ("".join(clause.split()) for clause in releases)))),
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
        table=table,
    )


def load(path: Path) -> Rule:
    """Read one rule file.

    Raises RuleError with everything that is wrong with it, one line each: file, place, what was expected.
    """
    import tomllib  # with what proves a rule: not needed for one that was proved at an earlier start, see `kept`

    from specwatch.rulebook.laws import broken

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RuleError(f"{path}: not a rule file: {error}") from error
    reader = _Reader(path)
    rule = _rule(reader, table)
    for where, what in broken(rule):
        reader.complain(where, what)
    return reader.passed(rule)


def proved(path: Path, table: Mapping[str, Any]) -> Rule:
    """The rule of a file that was loaded before, from its tables. Raises RuleError where they have not its form."""
    reader = _Reader(path)
    return reader.passed(_rule(reader, table))
