"""The file to read first: from log lines to findings, and from a launch command to findings without a log.

A log line is a rumour. A finding is what the model files and the launch command prove. A fix is a command that passes
the check which condemned the old one.

    bytes -> sources -> log.framing -> log.incidents -> rulebook -> diagnose -> report

A new failure is a new file under `rules/`; it names a check from `checks/` and repairs from `fixes/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from specwatch.domain import Finding, Incident, Launch, LogLine, Severity, Status, Verdict
from specwatch.log.incidents import incidents
from specwatch.tried import of_fatal, without_tried

if TYPE_CHECKING:
    from specwatch.models.base import Models
    from specwatch.rulebook.book import Rulebook
    from specwatch.rulebook.rule import Rule


def find(
    lines: Iterable[LogLine], rulebook: Rulebook, models: Models, launch: Launch | None = None, release: str = ""
) -> Iterator[Finding]:
    """From the lines of one log to findings. No clock, no network, no file but what `models` reads.

    `launch` is the command that somebody gave beside the log, `release` the SGLang that they named; both go before
    what the log says.
    """
    return conclusions(incidents(lines, rulebook.role_of), rulebook, lambda: models, launch, release)


MOST_OF_A_KIND = 200
MOST_DIFFERENT = 1000


class Passed:
    """How many incidents were left out of the findings, because more like them than anybody reads had come before."""

    def __init__(self) -> None:
        self.count = 0


def conclusions(
    found: Iterable[Incident],
    rulebook: Rulebook,
    models: Callable[[], Models],
    launch: Launch | None = None,
    release: str = "",
    passed: Passed | None = None,
    gpu: str = "",
) -> Iterator[Finding]:
    """From the incidents of one log to findings; `models` is asked for when a rule knows one.

    One crash loop is diagnosed once: what repeats is answered from memory. Of different ones MOST_DIFFERENT are kept,
    MOST_OF_A_KIND of one rule or class of error, apart for those that the server outlived, which a client may have
    made up; `passed` counts the others.
    """
    answers: dict[object, Finding] = {}
    kinds: Counter[tuple[bool, str]] = Counter()

    for incident in found:
        milestones = tuple(line.text for line in incident.lines if line.headed and line.number < incident.root.number)
        launches = tuple(one.argv for one in incident.launches)
        key = (incident.error, incident.chain, incident.outlived, milestones, launches)
        if key not in answers:
            match = rulebook.match(incident)
            denied = bool(incident.outlived)
            known = match is not None and "message" not in match.captures  # more than where it came from
            kind = denied, match.rule if match and known else incident.error.partition(":")[0]
            if kinds[kind] >= MOST_OF_A_KIND or kinds[denied, ""] >= MOST_DIFFERENT:
                if passed is not None:
                    passed.count += 1
                continue
            kinds.update([kind, (denied, "")])
            answers[key] = _concluded(incident, rulebook, models, launch, release, gpu)
        at = incident.root.at
        yield answers[key]._replace(incident=incident, first_seen=at, last_seen=at, echoes=incident.echoes)


def conclude(
    incident: Incident,
    rulebook: Rulebook,
    models: Models,
    launch: Launch | None = None,
    release: str = "",
    gpu: str = "",
) -> Finding:
    """From one incident to its finding; `launch` and `release` as in `find`, `gpu` where the log does not name it."""
    return _concluded(incident, rulebook, lambda: models, launch, release, gpu)


def _concluded(
    incident: Incident,
    rulebook: Rulebook,
    models: Callable[[], Models],
    launch: Launch | None,
    release: str,
    gpu: str,
) -> Finding:
    from specwatch.diagnose import diagnose  # with all checks and fixes: not needed for a healthy log
    from specwatch.launch.gpus import told

    if release:
        incident = incident._replace(
            launches=tuple(replace(one, sglang=release, guessed=False) for one in incident.launches)
        )
    if gpu := gpu or told(line.text for line in incident.lines):
        incident = incident._replace(launches=tuple(replace(one, gpu=gpu) for one in incident.launches))
        launch = replace(launch, gpu=gpu) if launch else None
    match = rulebook.match(incident)
    return diagnose(incident, match, rulebook.rules[match.rule] if match else None, models, launch)


class Preflight(NamedTuple):
    """What the checks say of a launch before it happens: its problems, what could not be told, how many passed."""

    findings: tuple[Finding, ...]
    unknown: tuple[Verdict, ...]
    passed: int


def preflight(launch: Launch, rulebook: Rulebook, models: Models) -> Preflight:
    """Every problem that the checks find in a launch, in the order in which a start would meet them.

    A fault that several checks meet, such as a configuration that cannot be read, is told once.
    """
    from specwatch.checks import examine
    from specwatch.diagnose import of_verdict

    verdicts = examine(launch, models)
    told: dict[tuple[str | None, str | None, str], Finding] = {}
    for verdict in verdicts:
        if verdict.status is Status.BROKEN:
            rule = rulebook.by_cause(verdict.check, verdict.cause) or _by_message(rulebook, verdict)
            key = (verdict.exception, verdict.message, "" if verdict.message else verdict.cause)
            told.setdefault(key, of_verdict(rule, verdict, launch, models))
    unknown = {verdict.because: verdict for verdict in reversed(verdicts) if verdict.status is Status.UNKNOWN}
    sound = sum(verdict.status is Status.SOUND and not verdict.because for verdict in verdicts)
    return Preflight(findings=tuple(told.values()), unknown=tuple(reversed(unknown.values())), passed=sound)


def _by_message(rulebook: Rulebook, verdict: Verdict) -> Rule | None:
    """The rule that would know what SGLang prints for a verdict: several checks may come to one failure."""
    if verdict.message is None:
        return None
    found = rulebook.look_up(f"{verdict.exception}: {verdict.message}")
    return found[1] if found else None


def fold(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding for each identity: how often, in how many starts, first and last seen; the worst come first.

    Fixes that an earlier start of the same log already had, and died with, are left out.
    """
    folded: dict[tuple[str, Severity], Finding] = {}
    starts: dict[tuple[str, Severity], set[tuple[str, int]]] = {}
    failed: dict[tuple[str, ...], Launch] = {}
    for finding in findings:
        for launch in of_fatal([finding]):
            failed.setdefault(launch.argv, launch)
        key = (finding.identity, finding.severity)
        if finding.incident is not None:
            starts.setdefault(key, set()).add((finding.incident.root.source, finding.incident.run))
        if key not in folded:
            folded[key] = finding
            continue
        first = folded[key]
        folded[key] = first._replace(
            occurrences=first.occurrences + 1,
            starts=len(starts.get(key, ())),
            last_seen=finding.last_seen or first.last_seen,
            echoes=first.echoes + finding.echoes,
        )
    return without_tried(sorted(folded.values(), key=lambda finding: -finding.severity), failed.values())


def merge(logs: Iterable[tuple[Finding, ...]]) -> tuple[Finding, ...]:
    """The folded findings of several logs as those of all of them."""
    merged: dict[tuple[str, Severity], Finding] = {}
    for finding in chain.from_iterable(logs):
        key = (finding.identity, finding.severity)
        first = merged.get(key)
        merged[key] = finding if first is None else _together(first, finding)
    return tuple(sorted(merged.values(), key=lambda finding: -finding.severity))


def _together(first: Finding, second: Finding) -> Finding:
    return first._replace(
        occurrences=first.occurrences + second.occurrences,
        starts=first.starts + second.starts,
        last_seen=second.last_seen or first.last_seen,
        echoes=first.echoes + second.echoes,
    )
