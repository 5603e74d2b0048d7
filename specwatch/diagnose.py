"""From an incident and the rule that knows it to a finding: re-run the check, make the fixes, re-check them.

Checks and fixes are imported where a rule asks for them: for a crash that no rule knows none of their sixty modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from specwatch.domain import (
    NOTHING,
    Applicability,
    Finding,
    Fix,
    Incident,
    Launch,
    Match,
    Role,
    Severity,
    Status,
    Verdict,
)
from specwatch.errors import LaunchError, ModelError
from specwatch.log.candidates import UNPROVED, is_denied_by_clock_or_label

if TYPE_CHECKING:
    from specwatch.fixes import Proposal
    from specwatch.models.base import Models
    from specwatch.rulebook.rule import Cause, FixRef, Rule

REBUILT = "the command is reconstructed from the log"
UNKNOWN_CRASH = "a crash that no rule knows"


def diagnose(
    incident: Incident, match: Match | None, rule: Rule | None, known: Callable[[], Models], typed: Launch | None
) -> Finding:
    """What a person is told of one incident. `typed` is the launch command that somebody gave beside the log.

    `known` gives the models; it is not asked for those of a crash that no rule knows or that the log refutes.
    """
    launches = _launches(incident, typed)
    launch = launches[0] if launches else None
    if _is_refuted(incident, rule):
        return _refuted(incident, rule, launch)
    if rule is None or match is None:
        return _unknown(incident, launch)
    models = known()
    verdict, launch = _judge(rule, launches, models)
    verdict = _compare(verdict, match.captures)
    cause = _cause(rule, match, verdict)
    names: dict[str, object] = {
        "target": launch.text_value("model_path") if launch else None,
        "draft": launch.text_value("speculative_draft_model_path") if launch else None,
        "place": _place(incident),
    }
    says, severity = _say(cause, rule.title, {**names, **match.captures, **verdict.facts}), rule.severity
    if severity is Severity.DEGRADED and incident.frames and incident.chain:  # an exception of the scheduler followed
        severity = Severity.FATAL
        says += "; the scheduler died of what followed: " + incident.chain[0].partition("\n")[0]
    return Finding(
        rule=rule.id,
        title=rule.title,
        severity=severity,
        cause=cause.name if cause else "",
        says=says,
        verdict=verdict,
        incident=incident,
        launch=launch,
        captures=match.captures,
        fixes=repair(rule, cause, verdict, launch, models, match.captures),
        first_seen=incident.root.at,
        last_seen=incident.root.at,
        echoes=incident.echoes,
    )


def of_verdict(rule: Rule | None, verdict: Verdict, launch: Launch, models: Models) -> Finding:
    """What a person is told of a launch that a check refuses, without any log.

    What SGLang does not refuse, and yet is wrong, is at worst degraded.
    """
    cause = _cause_of(rule, verdict) if rule else None
    severity = rule.severity if rule else Severity.FATAL
    title = rule.title if rule else (verdict.message or verdict.cause).split("\n")[0][:120]
    names = {
        "target": launch.text_value("model_path"),
        "draft": launch.text_value("speculative_draft_model_path"),
    }
    return Finding(
        rule=rule.id if rule else None,
        title=title,
        severity=severity if verdict.message is not None else min(severity, Severity.DEGRADED),
        cause=verdict.cause,
        says=_say(cause, title, {**names, **verdict.facts}),
        verdict=verdict,
        incident=None,
        launch=launch,
        fixes=repair(rule, cause, verdict, launch, models) if rule else (),
    )


def _cause_of(rule: Rule, verdict: Verdict) -> Cause | None:
    """The cause by the check's own name; else the one that the wording gives away, or the only one."""
    if verdict.cause in rule.causes:
        return rule.causes[verdict.cause]
    said = f"{verdict.exception}: {verdict.message}"
    told = (part.cause for part in rule.patterns if part.cause and part.line and part.regex.match(said))
    name = next(told, "")
    if name:
        return rule.causes[name]
    return next(iter(rule.causes.values())) if len(rule.causes) == 1 else None


def _is_refuted(incident: Incident, rule: Rule | None) -> bool:
    """Whether the log itself denies the block: the server goes on, or its clock or rank cannot be true.

    What claims no death is no lie because the server lives.
    """
    if rule is not None and rule.severity < Severity.FATAL:
        return is_denied_by_clock_or_label(incident.outlived)
    return bool(incident.outlived)


def _launches(incident: Incident, typed: Launch | None) -> tuple[Launch, ...]:
    if typed is None:
        return incident.launches
    from specwatch.launch.server_args import merge

    return tuple(merge(typed, recorded) for recorded in incident.launches) or (typed,)


def _refuted(incident: Incident, rule: Rule | None, launch: Launch | None) -> Finding:
    because = f"claimed by the log, refuted by what follows: {incident.outlived}"
    says = "text of a crash that did not happen; a client may have put it into the log"
    if incident.outlived == UNPROVED:
        because = incident.outlived
        says = "an exception that the server caught, or died of without another word"
    return Finding(
        rule=rule.id if rule else None,
        title=rule.title if rule else UNKNOWN_CRASH,
        severity=Severity.NOTICE,
        cause="",
        says=says,
        verdict=Verdict(check="", status=Status.REFUTED, because=because),
        incident=incident,
        launch=launch,
        first_seen=incident.root.at,
        last_seen=incident.root.at,
        echoes=incident.echoes,
    )


def _unknown(incident: Incident, launch: Launch | None) -> Finding:
    """What is known of a crash without a rule: never a guess."""
    echo = incident.role is not Role.CAUSE
    place = _place(incident)
    says = f"raised in {place}" if place else "no traceback tells where"
    if echo:
        says = "the log holds only the consequences of a failure, not the failure: look into the other ranks' logs"
    verdict = Verdict(check="", status=Status.UNKNOWN, because="no rule knows this message, so no check was re-run")
    return Finding(
        rule=None,
        title="only echoes of a crash" if echo else UNKNOWN_CRASH,
        severity=Severity.NOTICE if echo else Severity.FATAL,
        cause="",
        says=says,
        verdict=verdict,
        incident=incident,
        launch=launch,
        first_seen=incident.root.at,
        last_seen=incident.root.at,
        echoes=incident.echoes,
    )


def _place(incident: Incident) -> str | None:
    """The innermost frame in sglang's own files, the callers' if need be, else the innermost of all, in words."""
    own = (frame for frame in reversed((*incident.callers, *incident.frames)) if "/sglang/" in frame.file)
    frame = next(own, incident.frames[-1] if incident.frames else None)
    if frame is None:
        return None
    file = "sglang/" + frame.file.rpartition("/sglang/")[2] if "/sglang/" in frame.file else frame.file
    return f"{file}, line {frame.line}, in {frame.function}"


def _judge(rule: Rule, launches: tuple[Launch, ...], models: Models) -> tuple[Verdict, Launch | None]:
    """The verdict of the rule's check, on the launch that it condemns where the log leaves a choice."""
    if rule.check is None:
        return Verdict(check="", status=Status.UNKNOWN, because="this failure cannot be re-checked offline"), (
            launches[0] if launches else None
        )
    if not launches:
        because = "the launch is not known: the log holds no server_args line, and no --launch was given"
        return Verdict(check=rule.check, status=Status.UNKNOWN, because=because), None
    from specwatch.checks import CHECKS

    judged = [(CHECKS[rule.check](launch, models), launch) for launch in launches]
    verdict, launch = next((pair for pair in judged if pair[0].status is Status.BROKEN), judged[0])
    if verdict.status is Status.BROKEN and verdict.cause not in rule.causes:
        because = f"SGLang would stop earlier: {verdict.exception}: {verdict.message}"
        return verdict._replace(status=Status.UNKNOWN, because=because), launch
    if verdict.status is Status.SOUND:
        applies = verdict.because != "does not apply"
        because = (
            "the launch and the model files pass this check now: they are not those of the crash, or were changed since"
            if applies
            else "as far as it is known here, this launch does not use what the message speaks of: another launch "
            "printed it, or a variable of the server's environment is at work"
        )
        return verdict._replace(status=Status.SOUND if applies else Status.UNKNOWN, because=because), launch
    return verdict, launch


def _compare(verdict: Verdict, captures: Mapping[str, str]) -> Verdict:
    """Say so when the log names other values than the files do."""
    differing = [
        f"the log says {name}={value}, it is now {verdict.facts[name]}"
        for name, value in captures.items()
        if name in verdict.facts and value.strip("'\"") != str(verdict.facts[name])
    ]
    if not differing:
        return verdict
    return verdict._replace(because="; ".join(filter(None, (verdict.because, *differing))))


def _cause(rule: Rule, match: Match, verdict: Verdict) -> Cause | None:
    """The proved cause; else the one that the wording gives away; else the only one that the rule has."""
    if verdict.status is Status.BROKEN:
        return rule.causes.get(verdict.cause)
    for pattern in rule.patterns:
        if pattern.name == match.pattern and pattern.cause:
            return rule.causes[pattern.cause]
    return next(iter(rule.causes.values())) if len(rule.causes) == 1 else None


def _say(cause: Cause | None, title: str, names: Mapping[str, object]) -> str:
    """The cause in words; the title where a name that it needs is not known."""
    if cause is None:
        return title
    known = {name: value for name, value in names.items() if value is not None}
    try:
        return cause.says.format_map(known)
    except (KeyError, IndexError, ValueError):
        return title


def repair(
    rule: Rule | None,
    cause: Cause | None,
    verdict: Verdict,
    launch: Launch | None,
    models: Models,
    captures: Mapping[str, str] = NOTHING,
) -> tuple[Fix, ...]:
    """The fixes of a cause, each passed by all checks. Without a known cause: those that every cause shares."""
    from specwatch.fixes import FIXES, Request

    fixes: list[Fix] = []
    references = tuple(cause.fixes if cause else _shared(rule) if rule else ())
    old = silent_faults(launch, models) - {verdict.cause} if references else frozenset()
    for reference in references:
        try:
            ask = Request(
                launch=launch,
                verdict=verdict,
                models=models,
                captures=captures,
                edit=reference.edit,
                why=reference.why,
            )
            proposals = tuple(FIXES[reference.use](ask))
        except (ModelError, LaunchError):
            continue  # files that the repair needs cannot be read, or this release has no such flag: nothing to offer
        for proposal in proposals:
            fix = recheck(rule, reference, proposal, verdict, models, old)
            if fix is not None and not any(fix.changes == other.changes for other in fixes):
                fixes.append(fix)
    if cause and cause.todo:
        fixes.append(Fix(id="by-hand", applicability=Applicability.MANUAL, why=cause.todo))
    return tuple(fixes)


def _shared(rule: Rule) -> Iterable[FixRef]:
    first, *others = rule.causes.values()
    for reference in first.fixes:
        same = (
            fix for cause in others for fix in cause.fixes if (fix.use, fix.edit) == (reference.use, reference.edit)
        )
        trusts = [fix.applicability for fix in same]
        if len(trusts) == len(others):
            yield reference._replace(applicability=min([reference.applicability, *trusts]))


def silent_faults(launch: Launch | None, models: Models) -> frozenset[str]:
    """What is wrong with a launch although SGLang starts it."""
    if launch is None:
        return frozenset()
    from specwatch.checks import examine

    verdicts = examine(launch, models)
    return frozenset(v.cause for v in verdicts if v.status is Status.BROKEN and v.message is None)


def recheck(
    rule: Rule | None,
    reference: FixRef,
    proposal: Proposal,
    verdict: Verdict,
    models: Models,
    old: frozenset[str] = frozenset(),
) -> Fix | None:
    """The fix that comes of a proposal, or None where a check condemns the changed launch. Trust can only fall.

    `old` are the silent faults that the launch had before, the one that is to be fixed aside: a fix of something else
    need not mend them, and must not add to them.
    """
    from specwatch.checks import examine

    lowered: list[tuple[Applicability, str]] = [(proposal.ceiling, proposal.because)]
    rebuilt = proposal.launch is not None and proposal.launch.origin == "reconstructed"
    if rule is not None and rule.status != "stable":
        lowered.append((Applicability.REVIEW, f"the rule is {rule.status}"))
    if verdict.status is not Status.BROKEN:
        lowered.append((Applicability.REVIEW, "the cause is not proved"))
    rechecked = False
    if proposal.refused:
        return None
    if proposal.launch is None:
        lowered.append((Applicability.MANUAL, proposal.because or "no launch command is known to edit"))
    else:
        if rebuilt:
            lowered.append((Applicability.REVIEW, REBUILT))
        verdicts = examine(proposal.launch, models)
        if any(_condemns(v, old) for v in verdicts):
            return None
        unknown = next((v for v in verdicts if v.status is Status.UNKNOWN), None)
        if unknown is not None:
            lowered.append((Applicability.REVIEW, f"could not be checked: {unknown.because}"))
        rechecked = unknown is None
    applicability = min([reference.applicability, *(level for level, _ in lowered)])
    reasons = dict.fromkeys(
        why for level, why in lowered if why and (level < reference.applicability or why == REBUILT)
    )
    return Fix(
        id=_name(reference, proposal),
        applicability=applicability,
        why=proposal.why,
        changes=proposal.changes,
        launch=proposal.launch,
        rechecked=rechecked,
        because="; ".join(reasons),
    )


def _condemns(verdict: Verdict, old: frozenset[str]) -> bool:
    from specwatch.checks import CHECKS

    if verdict.status is not Status.BROKEN or CHECKS[verdict.check].advisory:
        return False
    return verdict.message is not None or verdict.cause not in old


def _name(reference: FixRef, proposal: Proposal) -> str:
    """What a fix is called: by its repair; an edit that the rule spells out is called by what it does first."""
    if reference.use != "change" or not proposal.changes:
        return reference.use
    first = max(proposal.changes, key=lambda change: change.op.startswith("set"))
    verb = "set" if first.op.startswith("set") else "drop"
    return f"{verb}-{first.name.strip('-').lower().replace('_', '-')}"
