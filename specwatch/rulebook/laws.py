"""The laws of a rule that need no log to be read: its names exist, its expressions can be used, its parts fit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from specwatch.checks import CHECKS
from specwatch.fixes import FIXES
from specwatch.rulebook.pattern import SHORTEST, literal_prefix
from specwatch.rulebook.rule import ID, Rule

Complaint = tuple[str, str]
"""Where in the file, and what is wrong there."""


def broken(rule: Rule) -> Iterator[Complaint]:
    """What is against the laws in a rule."""
    if not ID.fullmatch(rule.id):
        yield ("name", "a rule's file name is its id: lower-case words joined by '-'")
    try:
        SpecifierSet(rule.sglang)
    except InvalidSpecifier as error:
        yield ("sglang", f"is no version range: {error}")
    if rule.check is not None and rule.check not in CHECKS:
        yield ("check", f"no check is called '{rule.check}'; known are {', '.join(sorted(CHECKS))}")
    for use, where in ((fix.use, f"cause.{cause.name}") for cause in rule.causes.values() for fix in cause.fixes):
        if use not in FIXES:
            yield (where, f"no fix is called '{use}'; known are {', '.join(sorted(FIXES))}")
    for number, expression in enumerate(rule.context, 1):
        yield from _unusable(expression.pattern, f"context {number}")
    examples = [piece for example in rule.examples for piece in messages(example.log)]
    for number, pattern in enumerate(rule.patterns, 1):
        wrong = () if pattern.is_region else tuple(_unusable(pattern.line, f"pattern {number}"))
        yield from wrong
        if not wrong and not any(pattern.regex.match(piece) for piece in examples):
            yield (f"pattern '{pattern.name}'", "matches no message of any example")
    yield from _parts(rule)


def _unusable(line: str, where: str) -> Iterator[Complaint]:
    """Why an expression is none, or could not be found by its beginning, or would look at the rest of a long line."""
    try:
        re.compile(line)
    except re.error as error:
        yield (where, f"'line' is no regular expression: {error}")
        return
    if re.search(r"(?<!\\)\.[*+](?!\?)", line):
        yield (where, "'line' holds a bare '.*' or '.+': say what may stand there, such as [^,]{1,80}")
    if len(literal_prefix(line)) < SHORTEST:
        yield (where, f"'line' must begin with {SHORTEST} literal characters, so that it can be indexed")


def _parts(rule: Rule) -> Iterator[Complaint]:
    """The laws between the parts of one rule."""
    named = {example.cause for example in rule.examples} | {pattern.cause for pattern in rule.patterns}
    for name in named - rule.causes.keys() - {""}:
        yield ("example or pattern", f"names the cause '{name}', which the rule does not have")
    for name in rule.causes.keys() - {example.cause for example in rule.examples}:
        yield (f"cause.{name}", "has no example")
    if not rule.causes:
        yield ("cause", "a rule needs at least one [cause.NAME]")
    if not rule.counterexamples:
        yield ("counterexample", "a rule needs a log that looks like it and is not")
    if len({pattern.name for pattern in rule.patterns}) != len(rule.patterns):
        yield ("pattern", "two patterns have one name")


def messages(log: str) -> list[str]:
    """Where a message can start in an example's log: at each line, and behind a header."""
    lines = log.strip("\n").split("\n")
    starts = ["\n".join(lines[at:]) for at in range(len(lines))]
    return starts + [re.sub(r"^\[[^\]]*\] ", "", start) for start in starts]
