"""The laws of a rule that need the whole path: its examples come out as written, its counter-examples stay silent.

Run by `specwatch rules test`, by the test suite for the shipped rules, and on load for every other rule.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from specwatch import __version__
from specwatch.checks.parsing import reader
from specwatch.domain import Finding, Launch, LogLine, Severity
from specwatch.errors import LaunchError
from specwatch.launch.command import parse
from specwatch.log.framing import Framer
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import find, fold, preflight
from specwatch.rulebook.book import Rulebook
from specwatch.rulebook.pattern import Pattern
from specwatch.rulebook.rule import Example, Rule
from specwatch.sources.once import Raw

SLOW = 0.25  # seconds that one match of a hostile line may take
LONGEST_HOSTILE = 1 << 20
_FILLERS = ("a", "1", " ", "'", "\\", ",", "=", "a,", "1.", "('", "x=1 ")


def prove(rule: Rule, book: Rulebook) -> tuple[str, ...]:
    """Everything that a rule says of itself and does not hold, one line each; empty for a sound rule."""
    complaints = chain(
        *(_example(rule, book, example) for example in rule.examples),
        _counterexamples(rule, book),
        *(_hostile(pattern, rule) for pattern in rule.patterns),
    )
    return tuple(f"{rule.path}: {complaint}" for complaint in complaints)


def framed(log: str, name: str = "example") -> Iterator[LogLine]:
    """The lines of a log that is at hand as text."""
    text = log.strip("\n")
    raws = (Raw(name, number, 0, line) for number, line in enumerate(text.split("\n"), 1))
    return Framer(name).frames(raws)


def _launch(rule: Rule, example: Example, models: MemoryModels) -> Launch | None:
    """The example's launch. Only the rules of the argument parser may show one that the parser refuses."""
    if not example.launch:
        return None
    lenient = rule.check == "arguments_parse"
    return parse(example.launch, example.sglang, read_file=reader(models), lenient=lenient)


def _example(rule: Rule, book: Rulebook, example: Example) -> Iterator[str]:
    where = f"example '{example.name}'"
    models = MemoryModels(example.models)
    try:
        launch = _launch(rule, example, models)
    except LaunchError as error:
        yield f"{where}: the launch does not parse: {error}"
        return
    if example.log.strip():
        findings = list(fold(find(framed(example.log), book, models, launch)))
        others = {finding.rule for finding in findings if finding.severity > Severity.NOTICE} - {rule.id}
        if others:
            yield f"{where}: belongs to {', '.join(str(other) for other in others)} as well"
    elif launch is not None:
        findings = [finding for finding in preflight(launch, book, models).findings if finding.rule == rule.id]
    else:
        yield f"{where}: needs a log or a launch"
        return
    own = next((finding for finding in findings if finding.rule == rule.id), None)
    if own is None:
        yield f"{where}: the rule does not find it"
    else:
        yield from (f"{where}: {complaint}" for complaint in _compare(example, own))


def _compare(example: Example, finding: Finding) -> Iterator[str]:
    if example.captures and dict(finding.captures) != dict(example.captures):
        yield f"captures are {dict(finding.captures)}, not {dict(example.captures)}"
    if finding.cause != example.cause:
        yield f"the cause is '{finding.cause}', not '{example.cause}'"
    if finding.verdict.status.value != example.status:
        yield f"the verdict is {finding.verdict.status.value} ({finding.verdict.because}), not {example.status}"
    command = next((fix.launch for fix in finding.fixes if fix.launch is not None), None)
    fixed = list(command.argv) if command else []
    if fixed != shlex.split(example.fixed):
        yield f"the first fixed command is '{shlex.join(fixed)}', not '{example.fixed.strip()}'"


def _counterexamples(rule: Rule, book: Rulebook) -> Iterator[str]:
    for counter in rule.counterexamples:
        launch = parse(counter.launch, "") if counter.launch else None
        for finding in find(framed(counter.log), book, MemoryModels({}), launch):
            if finding.severity > Severity.NOTICE:
                yield f"counterexample '{counter.name}': is taken for {finding.rule or finding.title}"
                break


def _hostile(pattern: Pattern, rule: Rule) -> Iterator[str]:
    """A pattern must finish on a long line that nearly matches: lengths grow until one takes too long."""
    heads = [pattern.prefix, *(piece for example in rule.examples for piece in _beginnings(pattern, example))]
    for head in dict.fromkeys(heads):
        for filler in _FILLERS:
            length = 16
            while length <= LONGEST_HOSTILE:
                line = head + filler * (length // len(filler))
                begun = time.perf_counter()
                pattern.regex.match(line)
                if time.perf_counter() - begun > SLOW:
                    yield f"pattern '{pattern.name}': takes over {SLOW} s on {head[-30:]!r} and {length} characters"
                    return
                length = length + 4 if length < 64 else length * 4


def _beginnings(pattern: Pattern, example: Example) -> Iterator[str]:
    """A true message cut off before each of its captured values."""
    for line in example.log.split("\n"):
        found = pattern.regex.match(line)
        if found:
            yield from (line[: found.start(name)] for name in found.groupdict() if found.start(name) >= 0)
            yield line[: found.end()]


def content(rule: Rule) -> str:
    """What the proof of a rule hangs on: its file, byte for byte, and this version of specwatch."""
    return hashlib.sha256(__version__.encode() + b"\0" + rule.path.read_bytes()).hexdigest()


def unproved(rules: Iterable[Rule], book: Rulebook, cache: Path | None) -> dict[str, tuple[str, ...]]:
    """The rules that do not hold, by id with their complaints. What was proved once for the same bytes is not again.

    The cache is a list of hashes; one that is torn, foreign or cannot be written only costs the time to prove again.
    """
    known = _read(cache)
    seen = set(known)
    broken: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        key = content(rule)
        if key in seen:
            continue
        complaints = prove(rule, book)
        if complaints:
            broken[rule.id] = complaints
        else:
            seen.add(key)
    if cache is not None and seen != known:
        _write(cache, seen)
    return broken


def _read(cache: Path | None) -> set[str]:
    try:
        entries = json.loads(cache.read_text()) if cache else []
        return {entry for entry in entries if isinstance(entry, str)} if isinstance(entries, list) else set()
    except (OSError, ValueError, RecursionError):
        return set()


def _write(cache: Path, entries: set[str]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = cache.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(sorted(entries)))
        part.replace(cache)
    except OSError:
        return
