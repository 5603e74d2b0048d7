"""What earlier starts in the same logs already tried: a fix that ran and died there is not offered again.

A person who flips one knob between "too much" and "not enough" needs another knob, not the same one once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from specwatch.domain import Change, Finding, Fix, Launch, Severity, Value


def without_tried(findings: Sequence[Finding], failed: Iterable[Launch]) -> tuple[Finding, ...]:
    """The findings without the fixes whose every change a failed start had in force, or had gone beyond.

    `failed` are the launches of all fatal incidents, of which only those count that the server itself recorded. At
    least one fix is left to a finding: when everything was tried, the reader must see it.
    """
    records = [launch.recorded for launch in failed if launch.recorded]
    if len({str(sorted(record.items(), key=lambda item: item[0])) for record in records}) < 2:
        return tuple(findings)
    return tuple(one._replace(fixes=_untried(one, records)) for one in findings)


def of_fatal(findings: Iterable[Finding]) -> tuple[Launch, ...]:
    """The launches whose starts died."""
    return tuple(
        launch
        for finding in findings
        if finding.severity is Severity.FATAL and finding.incident is not None
        for launch in finding.incident.launches[:1]
    )


def _untried(finding: Finding, records: Sequence[Mapping[str, Value]]) -> tuple[Fix, ...]:
    left = tuple(fix for fix in finding.fixes if not _was_tried(fix, records))
    return left or finding.fixes


def _was_tried(fix: Fix, records: Sequence[Mapping[str, Value]]) -> bool:
    """Whether a start had all values of a fix. Removals and variables cannot be seen in a record."""
    sets = [change for change in fix.changes if change.op == "set"]
    launch = fix.launch
    if not sets or len(sets) != len(fix.changes) or launch is None:
        return False
    return any(all(_had(change, launch, record) for change in sets) for record in records)


def _had(change: Change, launch: Launch, record: Mapping[str, Value]) -> bool:
    name = change.name.removeprefix("--").replace("-", "_")
    wanted, was = launch.values.get(name), record.get(name)
    if wanted is None or was is None:
        return False
    if wanted == was:
        return True
    numbers = _number(change.old), _number(wanted), _number(was)
    before, now, then = numbers
    if before is None or now is None or then is None:
        return False
    return before < now <= then or before > now >= then  # the same way, and at least as far as the fix goes


def _number(value: Value) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
