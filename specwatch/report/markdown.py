"""Findings as Markdown, to be pasted into an incident's ticket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specwatch.domain import Finding, Fix, Status
from specwatch.report import redact
from specwatch.report.as_json import command
from specwatch.report.text import WORDS, clean, inert


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """The report, line by line."""
    for finding in findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    rule = f" `{finding.rule}`" if finding.rule else ""
    yield f"## {WORDS[finding.severity].capitalize()}{rule}: {_plain(finding.title)}"
    yield ""
    incident = finding.incident
    if incident is not None:
        times = f", {finding.occurrences} times in {finding.starts} starts" if finding.occurrences > 1 else ""
        ranks = f", {' '.join(incident.ranks)}" if incident.ranks else ""
        place = _code(f"{incident.root.source}:{incident.root.number}")
        yield f"{place}{ranks}, {finding.first_seen or 'no time'}{times}"
        yield ""
        yield from _fence(clean(incident.error))
    verdict = finding.verdict
    word = {Status.BROKEN: "Proved", Status.REFUTED: "Refuted"}.get(verdict.status, "Not proved")
    reason = finding.says if verdict.status is Status.BROKEN else verdict.because or finding.says
    yield f"**{word}:** {_plain(reason)}"
    yield ""
    for evidence in verdict.evidence:
        value = _code(str(redact.secret(evidence.fact, evidence.value)))
        yield f"- {_plain(evidence.fact)} = {value} ({_code(evidence.source)})"
    if verdict.evidence:
        yield ""
    for fix in finding.fixes:
        yield from _fix(fix)


def _fix(fix: Fix) -> Iterator[str]:
    yield f"### Fix `{fix.id}` ({fix.applicability.name.lower()})"
    yield ""
    yield _plain(fix.why) + (f" ({_plain(fix.because)})" if fix.because else "")
    yield ""
    if fix.around:
        yield from _fence("\n".join(f"{change.name}: {clean(change.new or '')}" for change in fix.changes), "yaml")
    elif fix.launch is not None:
        yield from _fence(inert(command(fix.launch, width=100)), "sh")


def _fence(text: str, language: str = "") -> Iterator[str]:
    """A block whose fence is longer than any run of backticks in it, so that a log cannot end it."""
    fence = "`" * (max((len(run) for run in _runs(text)), default=0) + 1)
    yield f"{fence if len(fence) > 2 else '```'}{language}"
    yield text
    yield fence if len(fence) > 2 else "```"
    yield ""


def _code(text: str) -> str:
    fence = "`" * (max((len(run) for run in _runs(text)), default=0) + 1)
    return f"{fence} {clean(text)} {fence}" if len(fence) > 1 else f"`{clean(text)}`"


def _runs(text: str) -> list[str]:
    runs, run = [], ""
    for char in text + " ":
        if char == "`":
            run += char
        elif run:
            runs.append(run)
            run = ""
    return runs


def _plain(text: str) -> str:
    """A text that Markdown shows as it is."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|!" else char for char in clean(text).replace("\n", " "))
