"""The rules together: load the directories, and find the rule that knows a message without trying them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specwatch.domain import Frame, Incident, Match, Role
from specwatch.errors import ConfigError, RuleError
from specwatch.rulebook.rule import PREFIX, SHORTEST, Pattern, Rule, load


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of reading rule directories: the book, and what has to be said about it."""

    book: Rulebook
    refused: tuple[str, ...]
    replaced: tuple[str, ...]


class Rulebook:
    """All rules by id, with an index over the first characters of their patterns.

    A message is looked up by its first `PREFIX` characters, so that the cost does not grow with the number of rules.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: Mapping[str, Rule] = {rule.id: rule for rule in rules}
        self._index: dict[str, list[tuple[Pattern, Rule]]] = {}
        for rule in self.rules.values():
            for pattern in rule.patterns:
                length = PREFIX if len(pattern.prefix) >= PREFIX else SHORTEST
                self._index.setdefault(pattern.prefix[:length], []).append((pattern, rule))
        for entries in self._index.values():
            entries.sort(key=lambda entry: not (entry[0].frame or entry[0].source))  # the pickier ones first

    def look_up(
        self, text: str, release: str = "", frames: Sequence[Frame] = ()
    ) -> tuple[Pattern, Rule, Mapping[str, str]] | None:
        """The rule whose pattern matches a message from its first character, the pattern, and what it captured."""
        for pattern, rule in (*self._index.get(text[:PREFIX], ()), *self._index.get(text[:SHORTEST], ())):
            if text.startswith(pattern.prefix) and (found := pattern.regex.match(text)):
                if not (rule.covers(release) and pattern.fits(frames)):
                    continue
                return pattern, rule, {k: v for k, v in found.groupdict().items() if v is not None}
        return None

    def role_of(self, text: str) -> Role | None:
        """The role of the rule that knows a one-line message, None where none does: what framing asks of each line."""
        found = self.look_up(text)
        return found[1].role if found else None

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
        return None

    def by_cause(self, check: str, cause: str) -> Rule | None:
        """The rule that answers for a check's cause: what `specwatch check` names its problems by."""
        for rule in self.rules.values():
            if rule.check == check and cause in rule.causes:
                return rule
        return None


def load_directories(extra: Iterable[Path] = ()) -> Loaded:
    """Read the shipped rules, then each further directory; a later rule of the same id replaces an earlier one.

    A rule that breaks a law is refused and named; the others go on. Raises ConfigError for a directory that is not
    there.
    """
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
