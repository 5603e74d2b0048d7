"""The policy: each no, in order, with its reason; and that less trust never gives more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwatch.domain import Applicability, Change, Fix, Severity, Status
from specwatch.policy import MODES, QUESTIONS, Attempt, Down, Situation, capped, decide
from specwatch.settings import Policy, Silence

NOW = 1_000_000.0
FIX = Fix(
    id="drop-speculation", applicability=Applicability.SAFE, why="slower", rechecked=True,
    changes=(Change(op="remove", name="--speculative-algorithm", old="STANDALONE"),),
)  # fmt: skip
GOOD = Situation(
    server="llama", mode="safe", policy=Policy(), fingerprint="9f2c41d07a55", severity=Severity.FATAL,
    rule_status="stable", verdict=Status.BROKEN, down=Down.YES, down_because="unit failed", minute=600,
)  # fmt: skip
BY_PERSON = replace(GOOD, by_person=True, mode="approve")


def tried(ago: float, result: str = "rolled_back", fix: str = "other", fingerprint: str = "0" * 12) -> Attempt:
    return Attempt(at=NOW - ago, fingerprint=fingerprint, fix=fix, result=result)


def test_nothing_speaks_against_it() -> None:
    decision = decide(GOOD, FIX, NOW)
    assert decision.fix == FIX
    assert decision.because
    assert len(decision.walked) == len(QUESTIONS)
    assert all(one.yes and one.because for one in decision.walked)


NOES = [
    ("mode", replace(GOOD, mode="observe"), FIX, "the mode is observe"),
    ("mode", replace(GOOD, mode="propose"), FIX, "the mode is propose"),
    ("mode", replace(GOOD, mode="approve"), FIX, "run `specwatch apply`"),
    ("mode", GOOD, FIX._replace(applicability=Applicability.REVIEW), "the fix is review"),
    ("mode", replace(BY_PERSON, mode="propose"), FIX, "not even by a person"),
    ("fix that", GOOD, FIX._replace(changes=()), "done by a person"),
    ("fix that", GOOD, None, "no such fix"),
    ("fix that", replace(GOOD, rule_status="experimental"), FIX, "experimental"),
    ("fix that", replace(BY_PERSON, rule_status="experimental"), FIX, "never act"),
    ("fix that", BY_PERSON, FIX._replace(applicability=Applicability.MANUAL), "done by a person"),
    ("fix that", replace(GOOD, rule_status=""), FIX, "no rule knows"),
    ("fix that", replace(GOOD, severity=Severity.DEGRADED), FIX, "degraded, not fatal"),
    ("fix that", GOOD, FIX._replace(rechecked=False, because="no files"), "no files"),
    ("really down", replace(GOOD, down=Down.NO, down_because="it answers"), FIX, "it answers"),
    ("really down", replace(GOOD, down=Down.UNKNOWN, down_because="no bus"), FIX, "could not tell: no bus"),
    ("really down", replace(BY_PERSON, down=Down.NO), FIX, "nothing tells|unit failed"),
    ("cause proved", replace(GOOD, verdict=Status.UNKNOWN, verdict_because="no files"), FIX, "no files"),
    ("cause proved", replace(GOOD, verdict=Status.SOUND), FIX, "sound"),
    ("cause proved", replace(BY_PERSON, verdict=Status.REFUTED), FIX, "refuted"),
    ("silences", replace(GOOD, silences=(Silence(server="ll*", until=NOW + 1, because="move"),)), FIX, "move"),
    ("silences", replace(GOOD, policy=Policy(quiet_hours=("09:00-11:00",))), FIX, "quiet hours 09:00-11:00"),
    ("untried", replace(GOOD, history=(tried(90000, fix=FIX.id, fingerprint=GOOD.fingerprint),)), FIX, "was tried"),
    ("untried", replace(BY_PERSON, history=(tried(1, "applied", FIX.id, GOOD.fingerprint),)), FIX, "reset"),
    ("long enough", replace(GOOD, history=(tried(899, "applied"),)), FIX, "cooldown is 900 s"),
    ("attempts left", replace(GOOD, history=tuple(tried(ago, "applied") for ago in (3000, 2000, 1000))), FIX, "3 of 3"),
    ("breaker", replace(GOOD, history=(tried(3000), tried(2000))), FIX, "2 attempts in a row"),
    ("breaker", replace(GOOD, history=(tried(3000, "applied"), tried(2000))), FIX, "2 attempts in a row"),
    ("breaker", replace(GOOD, history=(tried(3000), tried(2000, "applied", "x", GOOD.fingerprint))), FIX, "2 attempts"),
    ("breaker", replace(BY_PERSON, breaker="it failed"), FIX, "specwatch reset llama"),
    ("fleet", replace(GOOD, under_change=("other",)), FIX, "other is under change"),
    ("fleet", replace(BY_PERSON, under_change=("other",)), FIX, "other is under change"),
]  # fmt: skip


@pytest.mark.parametrize(
    "history",
    [
        (tried(3000), tried(2000, "applied")),  # another finding: it was helped
        (tried(3000, "applied", "more", GOOD.fingerprint),),  # once is not twice
        (tried(200_000), tried(100_000, "applied", "more", GOOD.fingerprint)),  # it held for longer than the window
    ],
)
def test_what_helped_and_held_closes_the_row(history: tuple[Attempt, ...]) -> None:
    assert decide(replace(GOOD, history=history), FIX, NOW).fix == FIX


@pytest.mark.parametrize(("question", "situation", "fix", "because"), NOES, ids=lambda value: str(value)[:30])
def test_each_no_says_why(question: str, situation: Situation, fix: Fix | None, because: str) -> None:
    decision = decide(situation, fix, NOW)
    assert decision.fix is None
    noes = [one for one in decision.walked if not one.yes]
    assert question in noes[0].question
    assert any(part in decision.because for part in because.split("|"))
    assert "No: " in decision.because


def test_the_first_no_wins() -> None:
    everything = replace(GOOD, mode="observe", rule_status="experimental", down=Down.NO, breaker="open")
    decision = decide(everything, FIX, NOW)
    assert decision.because.startswith("Does the mode allow it? No: the mode is observe")
    assert decision.because.endswith("; also: the breaker is open: open; run `specwatch reset llama` once you know why")
    assert sum(not one.yes for one in decision.walked) == 4, "the walk goes on, for people to read"


def test_the_questions_stand_in_the_documented_order() -> None:
    words = ("mode", "fix", "down", "proved", "silences", "untried", "long enough", "left", "breaker", "fleet")
    assert all(word in question for word, (question, _) in zip(words, QUESTIONS, strict=True))


@pytest.mark.parametrize(
    "situation",
    [
        replace(BY_PERSON, silences=(Silence(server="*", until=NOW + 1),)),
        replace(BY_PERSON, policy=Policy(quiet_hours=("00:00-23:59",))),
        replace(BY_PERSON, history=(tried(10, "applied"),)),
        replace(BY_PERSON, verdict=Status.UNKNOWN),
        replace(BY_PERSON, rule_status=""),
        replace(BY_PERSON, down=Down.NO, even_if_up=True),
        replace(BY_PERSON, severity=Severity.DEGRADED),
    ],
)
def test_what_a_person_passes_is_said(situation: Situation) -> None:
    assert decide(situation, FIX, NOW).fix == FIX
    assert decide(replace(situation, by_person=False, mode="review"), FIX, NOW).fix is None


@pytest.mark.parametrize(
    ("hours", "minute", "quiet"),
    [
        ("22:00-06:00", 23 * 60, True),
        ("22:00-06:00", 5 * 60 + 59, True),
        ("22:00-06:00", 6 * 60, False),
        ("22:00-06:00", 22 * 60 - 1, False),
        ("09:00-11:00", 9 * 60, True),
        ("09:00-11:00", 11 * 60, False),
        ("08:00-08:00", 0, True),
    ],
)
def test_quiet_hours(hours: str, minute: int, quiet: bool) -> None:
    decision = decide(replace(GOOD, policy=Policy(quiet_hours=(hours,)), minute=minute), FIX, NOW)
    assert (decision.fix is None) is quiet


def test_a_silence_ends_and_begins() -> None:
    for start, until, free in ((NOW + 1, NOW + 9, True), (NOW - 9, NOW, True), (NOW, NOW + 1, False)):
        silenced = replace(GOOD, silences=(Silence(server="llama", start=start, until=until),))
        assert (decide(silenced, FIX, NOW).fix is not None) is free


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("apply", "most"), [("none", "approve"), ("safe", "safe"), ("review", "review")])
def test_the_mode_of_a_server_never_exceeds_that_of_the_policy(mode: str, apply: str, most: str) -> None:
    assert capped(mode, apply) == min(mode, most, key=MODES.index)


ATTEMPTS = st.builds(
    Attempt,
    at=st.floats(NOW - 100_000, NOW),
    fingerprint=st.sampled_from([GOOD.fingerprint, "0" * 12]),
    fix=st.sampled_from([FIX.id, "other"]),
    result=st.sampled_from(["applied", "rolled_back", "failed", "interrupted"]),
)
SITUATIONS = st.builds(
    Situation,
    server=st.just("llama"),
    mode=st.sampled_from(MODES),
    policy=st.builds(Policy, quiet_hours=st.sampled_from([(), ("22:00-06:00",)])),
    fingerprint=st.just(GOOD.fingerprint),
    severity=st.sampled_from(list(Severity)),
    rule_status=st.sampled_from(["stable", "experimental", ""]),
    verdict=st.sampled_from(list(Status)),
    down=st.sampled_from(list(Down)),
    silences=st.sampled_from([(), (Silence(server="*", until=NOW + 1),)]),
    minute=st.integers(0, 1439),
    history=st.lists(ATTEMPTS, max_size=4).map(lambda found: tuple(sorted(found, key=lambda one: one.at))),
    breaker=st.sampled_from(["", "open"]),
    under_change=st.sampled_from([(), ("other",)]),
    by_person=st.booleans(),
    even_if_up=st.booleans(),
)
FIXES = st.builds(
    FIX._replace, applicability=st.sampled_from(list(Applicability)), rechecked=st.booleans(),
    changes=st.sampled_from([FIX.changes, ()]),
)  # fmt: skip


def lesser(situation: Situation, fix: Fix) -> list[tuple[Situation, Fix]]:
    """The same with less trust in one thing."""
    mode = MODES[max(0, MODES.index(situation.mode) - 1)]
    one_more = (*situation.history, tried(0, "failed"))
    return [
        (replace(situation, mode=mode), fix),
        (replace(situation, rule_status="experimental"), fix),
        # what the model files deny, or find sound, is trusted less than what they cannot tell
        (replace(situation, verdict=Status.UNKNOWN if situation.verdict is Status.BROKEN else situation.verdict), fix),
        (replace(situation, verdict=Status.REFUTED), fix),
        (replace(situation, down=Down.UNKNOWN), fix),
        (replace(situation, down=Down.NO), fix),
        (replace(situation, even_if_up=False), fix),
        (replace(situation, severity=Severity.NOTICE), fix),
        (replace(situation, silences=(Silence(server="*", until=NOW + 1),)), fix),
        (replace(situation, breaker="open"), fix),
        (replace(situation, under_change=("other",)), fix),
        (replace(situation, history=one_more), fix),
        (situation, fix._replace(applicability=Applicability(max(1, fix.applicability - 1)))),
        (situation, fix._replace(rechecked=False)),
        (situation, fix._replace(changes=())),
    ]


@given(situation=SITUATIONS, fix=FIXES)
@settings(max_examples=300, deadline=None)
def test_a_no_never_becomes_a_yes_by_lowering_trust(situation: Situation, fix: Fix) -> None:
    if decide(situation, fix, NOW).fix is None:
        for worse, same in lesser(situation, fix):
            assert decide(worse, same, NOW).fix is None


@given(situation=SITUATIONS, fix=FIXES)
@settings(max_examples=300, deadline=None)
def test_nothing_passes_an_open_breaker_or_a_server_that_may_be_up(situation: Situation, fix: Fix) -> None:
    if decide(situation, fix, NOW).fix is not None:
        assert not situation.breaker
        assert situation.down is Down.YES or (situation.by_person and situation.even_if_up)
        assert situation.verdict is Status.BROKEN or situation.by_person
        assert situation.rule_status == "stable" or situation.by_person
        assert fix.applicability > Applicability.MANUAL
