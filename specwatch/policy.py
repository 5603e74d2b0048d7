"""May this fix be applied, to this server, now? Pure: plain values in, a decision with its reason out.

The questions stand in `QUESTIONS`, in the order in which they are asked; the first no wins. All are answered all the
same: `specwatch apply --dry-run` shows the whole walk, and a refusal names every no. No answer gets better when trust
gets less (`tests/apply/test_policy.py` holds that).

**A person** (`specwatch apply`) passes the server's own `apply`, silences and quiet hours, the cooldown and the
attempts within the window, and may go on where the model files prove nothing: that is said in the answer. Nobody
passes a server that is not down (a person may with `--even-if-up`), a fix that cannot be written without a person, an
experimental rule, a fix that was tried already, the breaker, or the number of servers under change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from specwatch.domain import Applicability, Fix, Severity, Status
from specwatch.settings import Policy, Silence

MODES = ("observe", "propose", "approve", "safe", "review")
"""From the least that may happen to the most."""
_OF_APPLY = {"none": "approve", "safe": "safe", "review": "review"}


class Down(StrEnum):
    """Whether a server is really down."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One earlier change of a server: which fix, for which finding, when it began (seconds since 1970), what came.

    `result`: `applied`, `rolled_back`, `failed`, or `interrupted` for one that is neither finished nor taken back.
    """

    at: float
    fingerprint: str
    fix: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a decision depends on.

    `mode` is `capped(policy.mode, server.apply)`. `rule_status` is that of the rule, empty for a crash that no rule
    knows. `down` is asked of the unit, container or endpoint, never of the log. `silences` are those of the
    configuration; `minute` counts from local midnight. `history` are the attempts since the last `specwatch reset`,
    oldest first. `breaker` says why the breaker is open, empty while it is closed. `under_change` are the other servers
    that are being changed. `by_person`: somebody ran `specwatch apply` and said yes to it.
    """

    server: str
    mode: str
    policy: Policy
    fingerprint: str
    severity: Severity
    rule_status: str
    verdict: Status
    verdict_because: str = ""
    down: Down = Down.UNKNOWN
    down_because: str = ""
    silences: tuple[Silence, ...] = ()
    minute: int = 0
    history: tuple[Attempt, ...] = ()
    breaker: str = ""
    under_change: tuple[str, ...] = ()
    by_person: bool = False
    even_if_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question of the walk with its answer; `because` is never empty."""

    question: str
    yes: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The fix that may be applied, or None; the reason either way; and every question with its answer."""

    fix: Fix | None
    because: str
    walked: tuple[Answer, ...] = field(default=())


Say = tuple[bool, str]


def capped(mode: str, apply: str) -> str:
    """The mode of one server: what its own `apply` allows, and never more than `[policy] mode`."""
    return min(mode, _OF_APPLY[apply], key=MODES.index)


def decide(situation: Situation, fix: Fix | None, now: float) -> Decision:
    """Whether `fix` may be applied now (seconds since 1970)."""
    walked = []
    for question, ask in QUESTIONS:
        yes, because = ask(situation, fix, now)
        walked.append(Answer(question=question, yes=yes, because=because))
    noes = [one for one in walked if not one.yes]
    if noes:
        because = "; also: ".join((f"{noes[0].question} No: {noes[0].because}", *(one.because for one in noes[1:])))
        return Decision(fix=None, because=because, walked=tuple(walked))
    who = "a person asked for it" if situation.by_person else f"mode {situation.mode} allows it"
    return Decision(fix=fix, because=f"{who}, and no question was answered with no", walked=tuple(walked))


def _mode(situation: Situation, fix: Fix | None, _now: float) -> Say:
    mode = situation.mode
    if situation.by_person:
        if mode in ("observe", "propose"):
            return False, f"the mode is {mode}, in which nothing is changed, not even by a person ([policy] mode)"
        return True, "a person asked for it"
    if mode in ("observe", "propose", "approve"):
        return False, f"the mode is {mode}: run `specwatch apply` to apply it yourself"
    least = Applicability.SAFE if mode == "safe" else Applicability.REVIEW
    if fix is not None and fix.applicability < least:
        return False, f"the mode is {mode}, and the fix is {fix.applicability.name.lower()}"
    return True, f"the mode is {mode}"


def _fix(situation: Situation, fix: Fix | None, _now: float) -> Say:
    if fix is None:
        return False, "there is no such fix for what fails now"
    if fix.applicability is Applicability.MANUAL or not fix.changes:
        return False, f"{fix.id} has to be done by a person: {fix.because or fix.why}"
    if situation.rule_status not in ("stable", ""):
        return False, f"the rule is {situation.rule_status}: such rules may report, never act"
    trust = fix.applicability.name.lower()
    if situation.by_person:
        unknown = "no rule knows this crash; " if not situation.rule_status else ""
        checked = "" if fix.rechecked else "; NOT all checks could be made of the new launch"
        return True, f"{unknown}{fix.id} is {trust}{checked}"
    if not situation.rule_status:
        return False, "no rule knows this crash"
    if situation.severity < Severity.FATAL:
        return False, f"the finding is {situation.severity.name.lower()}, not fatal"
    if not fix.rechecked:
        return False, f"not all checks could be made of the new launch: {fix.because or 'no reason was given'}"
    return True, f"{fix.id} is {trust}, of a stable rule, and passed every check"


def _down(situation: Situation, _fix: Fix | None, _now: float) -> Say:
    because = situation.down_because or "nothing tells"
    if situation.down is Down.YES:
        return True, because
    if situation.by_person and situation.even_if_up:
        return True, f"--even-if-up was given; {because}"
    return False, because if situation.down is Down.NO else f"could not tell: {because}"


def _proved(situation: Situation, _fix: Fix | None, _now: float) -> Say:
    if situation.verdict is Status.BROKEN:
        return True, "the model files and the launch prove it"
    said = f"the verdict is {situation.verdict.value}: {situation.verdict_because or 'no check was made'}"
    if situation.by_person and situation.verdict is Status.UNKNOWN:
        return True, f"NOT PROVED, a person goes on; {said}"
    return False, said


def _silenced(situation: Situation, _fix: Fix | None, now: float) -> Say:
    for one in situation.silences:
        if fnmatchcase(situation.server, one.server) and one.start <= now < one.until:
            said = f"silence on {one.server}" + (f": {one.because}" if one.because else "")
            return situation.by_person, f"a person goes on; {said}" if situation.by_person else said
    for hours in situation.policy.quiet_hours:
        if _within(hours, situation.minute):
            said = f"quiet hours {hours}"
            return situation.by_person, f"a person goes on; {said}" if situation.by_person else said
    return True, "no silence and no quiet hours"


def _within(hours: str, minute: int) -> bool:
    """Whether a minute of the day lies in `22:00-06:00`; the same time twice means the whole day."""
    start, end = (int(part[:2]) * 60 + int(part[3:]) for part in hours.split("-"))
    return start <= minute < end if start < end else minute >= start or minute < end


def _untried(situation: Situation, fix: Fix | None, _now: float) -> Say:
    for one in reversed(situation.history):
        if fix is not None and (one.fingerprint, one.fix) == (situation.fingerprint, fix.id):
            return False, f"{fix.id} was tried for this finding ({one.result}); `specwatch reset` begins anew"
    return True, "it was not tried for this finding yet"


def _cooled(situation: Situation, _fix: Fix | None, now: float) -> Say:
    last = max((one.at for one in situation.history), default=None)
    if last is None or now - last >= situation.policy.cooldown:
        return True, "no attempt lately"
    said = f"the last attempt began {max(0.0, now - last):.0f} s ago, cooldown is {situation.policy.cooldown:.0f} s"
    return situation.by_person, f"a person goes on; {said}" if situation.by_person else said


def _few(situation: Situation, _fix: Fix | None, now: float) -> Say:
    policy = situation.policy
    lately = sum(now - one.at < policy.window for one in situation.history)
    said = f"{lately} of {policy.attempts} attempts within {policy.window:.0f} s"
    if lately < policy.attempts:
        return True, said
    return situation.by_person, f"a person goes on; {said}" if situation.by_person else said


def _closed(situation: Situation, _fix: Fix | None, now: float) -> Say:
    reset = f"run `specwatch reset {situation.server}` once you know why"
    if situation.breaker:
        return False, f"the breaker is open: {situation.breaker}; {reset}"
    row = failures_in_a_row(_results(situation, now))
    if row >= situation.policy.breaker:
        return False, f"{row} attempts in a row did not help; {reset}"
    return True, "the breaker is closed"


def _results(situation: Situation, now: float) -> list[str]:
    """What the attempts came to in the end: a server that became healthy and died of the same again was not helped."""
    fired = [(one.fingerprint, one.at) for one in situation.history] + [(situation.fingerprint, now)]
    return [
        "came back"
        if any(about == one.fingerprint and 0 <= at - one.at < situation.policy.window for about, at in fired[place:])
        and one.result == "applied"
        else one.result
        for place, one in enumerate(situation.history, 1)
    ]


def failures_in_a_row(results: Sequence[str]) -> int:
    """How many of the last attempts did not help."""
    row = 0
    for result in reversed(results):
        if result == "applied":
            break
        row += 1
    return row


def _room(situation: Situation, _fix: Fix | None, _now: float) -> Say:
    others, most = situation.under_change, situation.policy.fleet
    if len(others) < most:
        return True, f"{len(others)} other servers are under change, {most} may be at once"
    return False, f"{', '.join(others)} is under change, and {most} may be at once ([policy] fleet)"


QUESTIONS: tuple[tuple[str, Callable[[Situation, Fix | None, float], Say]], ...] = (
    ("Does the mode allow it?", _mode),
    ("Is it a fix that may be applied?", _fix),
    ("Is the server really down?", _down),
    ("Is the cause proved?", _proved),
    ("Is now outside silences and quiet hours?", _silenced),
    ("Is the fix untried for this finding?", _untried),
    ("Is the last attempt long enough ago?", _cooled),
    ("Are there attempts left?", _few),
    ("Is the breaker closed?", _closed),
    ("Is there room in the fleet?", _room),
)
"""In the order in which they are asked."""
