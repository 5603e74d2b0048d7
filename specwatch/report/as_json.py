"""Findings as the JSON of the contract: `diagnose.schema.json` beside this file describes it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from specwatch import __version__
from specwatch.domain import Change, Finding, Fix, Incident, Launch, Verdict
from specwatch.errors import SpecwatchError
from specwatch.report import redact

if TYPE_CHECKING:
    from specwatch.rulebook.coverage import Site

SCHEMA = 1
LONGEST_TEXT = 4096  # characters of a root line; the log itself has the rest

Json = Mapping[str, object]


class SourceRead(NamedTuple):
    """One input and how much of it was read."""

    path: str
    bytes: int
    lines: int
    runs: int
    passed: int = 0
    """Crashes that were not examined, because many like them had come before."""


def document(sources: Iterable[SourceRead], findings: Iterable[Finding]) -> Json:
    """The whole answer of `diagnose` or `check`."""
    return {
        "schema": SCHEMA,
        "specwatch": __version__,
        "sources": [_source(source) for source in sources],
        "findings": [finding_object(finding) for finding in findings],
    }


def _source(source: SourceRead) -> Json:
    read = {"path": redact.text(source.path), "bytes": source.bytes, "lines": source.lines, "runs": source.runs}
    return {**read, "not_examined": source.passed} if source.passed else {**read}


def check_document(checked: Iterable[tuple[str, Iterable[Finding], Iterable[Verdict]]]) -> Json:
    """The whole answer of `check`: one finding a problem, and beside them what could not be told."""
    findings: list[Json] = []
    unknown: list[Json] = []
    for name, found, untold in checked:
        findings += [{**finding_object(finding), "target": redact.text(name)} for finding in found]
        unknown += [{"target": redact.text(name), "check": v.check, "because": redact.text(v.because)} for v in untold]
    return {"schema": SCHEMA, "specwatch": __version__, "sources": [], "findings": findings, "unknown": unknown}


def dumps(answer: Json) -> str:
    """The text of an answer, one object, ASCII only so that no control character of a log reaches a terminal."""
    return json.dumps(answer, indent=1)


def finding_object(finding: Finding) -> Json:
    """One finding."""
    verdict = finding.verdict
    return {
        "id": finding.fingerprint,
        "rule": finding.rule,
        "title": redact.text(finding.title),
        "severity": finding.severity.name.lower(),
        "cause": redact.text(finding.cause) if finding.cause else finding.cause,
        "says": redact.text(finding.says),
        "root": _root(finding.incident),
        "occurrences": finding.occurrences,
        "starts": finding.starts,
        "first_seen": finding.first_seen,
        "last_seen": finding.last_seen,
        "echoes": finding.echoes,
        "captures": {name: redact.text(value) for name, value in finding.captures.items()},
        "verdict": _verdict(verdict),
        "message": verdict.message if verdict.message is None else redact.text(verdict.message),
        "phase": verdict.phase.value,
        "launch": _launch(finding.launch),
        "fixes": [_fix(fix) for fix in finding.fixes],
    }


def _root(incident: Incident | None) -> Json | None:
    if incident is None:
        return None
    root = incident.root
    return {
        "source": redact.text(root.source),
        "line": root.number,
        "offset": root.offset,
        "time": root.at,
        "ranks": list(incident.ranks),
        "run": incident.run,
        "text": redact.text(incident.error)[:LONGEST_TEXT],
    }


def _verdict(verdict: Verdict) -> Json:
    return {
        "status": verdict.status.value,
        "because": redact.text(verdict.because),
        "evidence": [
            {
                "check": e.check,
                "fact": redact.text(e.fact),
                "value": redact.secret(e.fact, e.value),
                "source": redact.text(e.source),
            }
            for e in verdict.evidence
        ],
    }


def _launch(launch: Launch | None) -> Json | None:
    if launch is None:
        return None
    origin = "server_args" if launch.origin == "reconstructed" else launch.origin
    return {
        "from": origin,
        "sglang": launch.sglang or None,
        "argv": list(redact.argv(launch.argv)),
        "env": redact.env(launch.env),
    }


def change_object(change: Change) -> Json:
    """One edit; a flag stands under `flag`, a variable under `name`."""
    key = "name" if change.op.endswith("_env") else "flag"
    hide = redact.secret_name(change.name)

    def shown(value: str | None) -> str | None:
        return redact.HIDDEN if hide and value else value if value is None else redact.text(value)

    return {"op": change.op, key: change.name, "old": shown(change.old), "new": shown(change.new)}


def _fix(fix: Fix) -> Json:
    launch = fix.launch
    return {
        "id": fix.id,
        "applicability": fix.applicability.name.lower(),
        "why": redact.text(fix.why),
        "because": redact.text(fix.because),
        "rechecked": fix.rechecked,
        "changes": [change_object(change) for change in fix.changes],
        "argv": list(redact.argv(launch.argv)) if launch else None,
        "env": redact.env(launch.env) if launch else None,
        "command": command(launch) if launch and not fix.around else None,
    }


def command(launch: Launch, width: int | None = None) -> str:
    """A launch as a shell command without its secrets, broken into lines of at most `width` columns if given."""
    from specwatch.launch.command import render

    try:
        return render(launch, width, redact.argv)
    except (SpecwatchError, ValueError):  # a report without the nicer form of its command is still a report
        shown = redact.launch(launch)
        return " ".join(
            (*(f"{name}={shlex.quote(value)}" for name, value in shown.env.items()), shlex.join(shown.argv))
        )


def rules_document(rules: Sequence[Json]) -> Json:
    """The answer of `rules list`."""
    return {"schema": SCHEMA, "rules": list(rules)}


def coverage_document(source: str, release: str, held: Sequence[tuple[Site, str | None]]) -> Json:
    """The answer of `rules coverage`: the messages without a rule, and how many each rule knows."""
    missing = [
        {"file": site.file, "line": site.line, "function": site.function, "message": site.shown}
        for site, rule in held
        if rule is None
    ]
    rules = Counter(rule for _, rule in held if rule is not None)
    return {
        "schema": SCHEMA,
        "sglang": release or None,
        "source": source,
        "messages": len(held),
        "covered": len(held) - len(missing),
        "missing": missing,
        "rules": dict(sorted(rules.items())),
    }
