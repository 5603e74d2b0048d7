"""The rules together: load the directories, and find the rule that knows a message without trying them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from specwatch.domain import Frame, Incident, Match, Role
from specwatch.errors import ConfigError, RuleError
from specwatch.lazy import compiled
from specwatch.releases import covers
from specwatch.rulebook.anchors import choose
from specwatch.rulebook.pattern import PREFIX, SHORTEST, Pattern

if TYPE_CHECKING:
    from specwatch.rulebook.rule import Rule


def bundled_directory() -> Path:
    """Where the shipped rules lie: inside the installed package, or beside it in a source checkout."""
    inside = Path(__file__).resolve().parents[1] / "rules"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "rules"


def _told(rule: Rule, incident: Incident) -> Mapping[str, str]:
    """What the milestones of the start-up tell beside the message: the last line that each expression knows counts."""
    told: dict[str, str] = {}
    for expression in rule.context:
        found = next((got for line in reversed(incident.lines) if (got := expression.match(line.text))), None)
        if found:
            told |= {name: value for name, value in found.groupdict().items() if value is not None}
    return told


class Loaded(NamedTuple):
    """What came of reading rule directories: the book, and what has to be said about it."""

    book: Rulebook
    refused: tuple[str, ...]
    replaced: tuple[str, ...]


_FEW = 8
_MESSAGE = 300
_FROM_ELSEWHERE = compiled(
    r"(?:[\w.]*\.)?(?:KeyboardInterrupt|SystemExit|CancelledError|EOFError|MemoryError|OSError|FileNotFoundError"
    r"|PermissionError|TimeoutError|BrokenPipeError|Connection\w*Error|Dist\w+Error)\b"
    r"|RuntimeError: [^\n]{0,200}(?:Connection closed by peer|Broken pipe|Connection reset by peer|[Tt]imed out|NCCL)"
)
"""Exceptions that come up in any code: somebody stopped it, another process died, a file or memory is missing."""
_LOOPS = ("event_loop", "run_scheduler_process", "run_data_parallel_controller_process")
"""What runs all the rest of a process."""
_CALLS_THE_REST = (
    ("srt/server_args.py", "srt/arg_groups/", "srt/models/", "srt/layers/"),
    ("/model_loader/",),
    ("srt/model_executor/",),
    ("managers/schedule", "managers/tp_worker", "managers/overlap_utils"),
    ("srt/entrypoints/",),
    ("sglang/srt/",),
)
"""Parts that are known last, one group after the other, because the code of others runs inside them."""
_LOOKED_AT = 32
_FIELDS = ("name", "line", "cause", "frame", "source")
RuleRow = tuple[str, str, str | None, list[str], str]
"""Of a rule: file, role, check, names of its causes, releases."""
PatternRow = tuple[str, str, str, str, str, str, str]
"""Of a pattern: rule, literal beginning, and the fields of `Pattern`."""


class Table(TypedDict):
    """A rule book without the rules: what each is about, the patterns by their first characters, and their anchors."""

    rules: dict[str, RuleRow]
    index: dict[str, list[PatternRow]]
    anchors: list[str]


class Rulebook:
    """All rules by id, with an index over the first characters of their patterns.

    A message is looked up by its first `PREFIX` characters, so that the cost does not grow with the number of rules. Of
    a book that was restored from its `table` a rule is read when it is needed, and an expression compiled then.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        table: Table | None = None,
        kept: Callable[[str], Mapping[str, Any] | None] = lambda _: None,
    ) -> None:
        known = {rule.id: rule for rule in rules}
        self._table = _tabulated(known.values()) if table is None else table
        self._patterns: dict[tuple[str, int], Pattern] = {}
        self._beginnings: dict[str, dict[int, dict[str, list[int]]]] = {}
        self.rules: Mapping[str, Rule] = _Rules(self._table["rules"], known, kept)

    @classmethod
    def restored(cls, table: Table, kept: Callable[[str], Mapping[str, Any] | None] = lambda _: None) -> Rulebook:
        """The book that a table was made of; `kept` gives the tables of a rule's file by its id, None to read it."""
        return cls((), table, kept)

    @property
    def table(self) -> Table:
        """What is needed of all rules to look one up, as JSON."""
        return self._table

    @property
    def anchors(self) -> Sequence[str]:
        """Texts of which every message that `role_of` knows holds one (`anchors.py`), or nothing."""
        return self._table["anchors"]

    def look_up(
        self, text: str, release: str = "", frames: Sequence[Frame] = ()
    ) -> tuple[Pattern, Rule, Mapping[str, str]] | None:
        """The rule whose pattern matches a message from its first character, the pattern, and what it captured."""
        found = self._find(text, release, frames)
        return (found[0], self.rules[found[1]], found[2]) if found else None

    def role_of(self, text: str) -> Role | None:
        """The role of the rule that knows a one-line message, None where none does: what framing asks of each line."""
        index = self._table["index"]
        if text[:PREFIX] not in index and text[:SHORTEST] not in index:
            return None
        found = self._find(text, "", ())
        return Role(self._table["rules"][found[1]][1]) if found else None

    def _find(self, text: str, release: str, frames: Sequence[Frame]) -> tuple[Pattern, str, Mapping[str, str]] | None:
        index = self._table["index"]
        for start in (text[:PREFIX], text[:SHORTEST]):
            entries = index.get(start, [])
            for at in self._beginning(start, entries, text):
                entry = entries[at]
                if not text.startswith(entry[1]):
                    continue
                pattern = self._patterns.get((start, at))
                if pattern is None:
                    pattern = self._patterns[start, at] = Pattern(**dict(zip(_FIELDS, entry[2:], strict=True)))
                found = pattern.regex.match(text)
                if found is None or not pattern.fits(frames) or not self._covers(entry[0], release):
                    continue
                return pattern, entry[0], {k: v for k, v in found.groupdict().items() if v is not None}
        return None

    def _covers(self, rule: str, release: str) -> bool:
        """Whether a release can print the message of a rule, without reading the rule."""
        return covers(self._table["rules"][rule][4], release)

    def _beginning(self, start: str, entries: Sequence[PatternRow], text: str) -> Sequence[int]:
        """Which of the entries may fit by the first `_LOOKED_AT` characters: hundreds begin as `ValueError`."""
        if len(entries) < _FEW:
            return range(len(entries))
        if start not in self._beginnings:
            beginnings = self._beginnings[start] = {}
            for at, entry in enumerate(entries):
                known = entry[1][:_LOOKED_AT]
                beginnings.setdefault(len(known), {}).setdefault(known, []).append(at)
        found = (known.get(text[:length], ()) for length, known in self._beginnings[start].items())
        return sorted(at for places in found for at in places)

    def match(self, incident: Incident) -> Match | None:
        """The rule that knows an incident by its own error, else by an error that followed from it.

        The release narrows the choice only where it leaves one: a rule range may be narrower than the truth.
        """
        release = incident.launch.sglang if incident.launch else ""
        for text in (incident.error, *incident.chain):
            frames = incident.frames if text is incident.error else ()
            found = self.look_up(text, release, frames) or self.look_up(text, "", frames)
            if found:
                pattern, rule, captures = found
                told = {**_told(rule, incident), **captures}
                return Match(rule=rule.id, pattern=pattern.name, captures=told, incident=incident)
        return self._by_region(incident, release)

    def _by_region(self, incident: Incident, release: str) -> Match | None:
        """The rule of the part of SGLang that an exception came out of: the outermost part, which was asked to run.

        A loop of the scheduler is no part: whatever a server of that kind does runs below it. Where its own frames are
        of no part, those of the errors that followed tell who had called (a compiler, a library). Who calls others is
        asked after them: whatever a model is made of runs below its code, and a model below that of the runner.
        """
        if incident.role is not Role.CAUSE or _FROM_ELSEWHERE.match(incident.error):
            return None
        frames = [one for one in (*incident.frames, *incident.callers) if not one.function.startswith(_LOOPS)]
        rows = [row for row in self._table["index"].get("", ()) if self._covers(row[0], release)]
        late = [[row for row in rows if row[5] in group] for group in _CALLS_THE_REST]
        early = [row for row in rows if not any(row in group for group in late)]
        for frame, row in (found for group in (early, *late) for found in product(frames, group)):
            if row[5] in f"{frame.file}:{frame.function}":
                told = {"message": incident.error.partition("\n")[0][:_MESSAGE]}
                return Match(rule=row[0], pattern=row[2], captures=told, incident=incident)
        return None

    def by_cause(self, check: str, cause: str) -> Rule | None:
        """The rule that answers for a check's cause: what `specwatch check` names its problems by."""
        for name, (_, _, own, causes, _) in self._table["rules"].items():
            if own == check and cause in causes:
                return self.rules[name]
        return None


class _Rules(Mapping[str, "Rule"]):
    """Rules by id, made of what was kept of them, or read from their files, when they are asked for."""

    def __init__(
        self, rows: Mapping[str, RuleRow], known: dict[str, Rule], kept: Callable[[str], Mapping[str, Any] | None]
    ) -> None:
        self._rows = rows
        self._known = known
        self._kept = kept

    def __getitem__(self, name: str) -> Rule:
        if name not in self._known:
            from specwatch.rulebook.rule import load, proved  # with all fixes, which a lookup does not need

            path, table = Path(self._rows[name][0]), self._kept(name)
            self._known[name] = load(path) if table is None else proved(path, table)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _tabulated(rules: Iterable[Rule]) -> Table:
    table: Table = {"rules": {}, "index": {}, "anchors": []}
    for rule in rules:
        table["rules"][rule.id] = (str(rule.path), rule.role.value, rule.check, list(rule.causes), rule.sglang)
        for own in rule.patterns:
            start = own.prefix[: PREFIX if len(own.prefix) >= PREFIX else SHORTEST]
            row = (rule.id, own.prefix, own.name, own.line, own.cause, own.frame, own.source)
            table["index"].setdefault(start, []).append(row)
    for rows in table["index"].values():
        rows.sort(key=lambda row: not (row[5] or row[6]))  # the pickier ones first
    table["index"].get("", []).sort(key=lambda row: (row[5][:1] != ":", -len(row[5])))  # a function before its file
    table["anchors"] = list(choose(row[1] for rows in table["index"].values() for row in rows if row[1]))
    return table


def load_directories(extra: Iterable[Path] = ()) -> Loaded:
    """Read the shipped rules, then each further directory; a later rule of the same id replaces an earlier one.

    A rule that breaks a law is refused and named; the others go on. Raises ConfigError for a directory that is not
    there.
    """
    from specwatch.rulebook.rule import load

    rules: dict[str, Rule] = {}
    refused: list[str] = []
    replaced: list[str] = []
    for directory in (bundled_directory(), *extra):
        if not directory.is_dir():
            raise ConfigError(f"{directory}: no such directory of rules")
        for path in sorted(directory.glob("*.toml")):
            try:
                rule = load(path)
            except RuleError as error:
                refused.append(str(error))
                continue
            if rule.id in rules:
                replaced.append(f"rule {rule.id}: {path} replaces {rules[rule.id].path}")
            rules[rule.id] = rule
    return Loaded(book=Rulebook(rules.values()), refused=tuple(refused), replaced=tuple(replaced))
