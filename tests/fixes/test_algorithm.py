"""Which algorithm was meant by a name that SGLang does not know, and of two block sizes the trained one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from specwatch.domain import Applicability, Status, Value, Verdict
from specwatch.fixes import FIXES, Edit, Request
from specwatch.fixes.algorithm import distance
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels


def ask(
    flags: list[str], release: str = "0.5.23", edit: Edit | None = None, facts: Mapping[str, Value] | None = None
) -> Request:
    """A repair's question about a launch with these flags."""
    launch = parse(["python", "-m", "sglang.launch_server", "--model-path", "m", *flags], release)
    verdict = Verdict(check="c", status=Status.BROKEN, facts=facts or {})
    return Request(launch=launch, verdict=verdict, models=MemoryModels({}), edit=edit or Edit(), why="because")


@pytest.mark.parametrize(
    ("typed", "meant", "safe"),
    [
        ("EAGEL3", ["EAGLE3"], True),
        ("eagel", ["EAGLE"], True),
        ("EAGLE-2", ["EAGLE"], False),
        ("EAGL3", ["EAGLE3", "EAGLE"], False),
        (" EAGLE", ["EAGLE"], True),
        ("N-GRAM", ["NGRAM"], True),
        ("DSPARKS", ["DSPARK"], True),
        ("D-FLASH", ["DFLASH"], True),
        ("standalnoe", ["STANDALONE"], True),
        ("draft_model", ["STANDALONE"], False),
        ("MTP", ["NEXTN"], False),
        ("MEDUSA", [], False),
        ("LOOKAHEAD", [], False),
        ("0", [], False),
    ],
    ids=str,
)
def test_nearest_algorithm(typed: str, meant: list[str], safe: bool) -> None:
    proposals = list(FIXES["nearest-algorithm"](ask(["--speculative-algorithm", typed])))
    assert [one.changes[0].new for one in proposals] == meant
    assert all((one.ceiling is Applicability.SAFE) is safe for one in proposals)


def test_only_algorithms_of_the_release_are_meant() -> None:
    assert list(FIXES["nearest-algorithm"](ask(["--speculative-algorithm", "DSPARKS"], "0.5.14"))) == []


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [
        ("", "", 0),
        ("A", "", 1),
        ("EAGEL", "EAGLE", 1),
        ("EAGLE", "EAGLE3", 1),
        ("NGRAM", "DSPARK", 5),
        ("CA", "ABC", 3),
    ],
)
def test_distance(one: str, other: str, steps: int) -> None:
    assert distance(one, other) == steps
    assert distance(other, one) == steps


@pytest.mark.parametrize(
    ("trained", "removed"),
    [
        (16, ["--speculative-num-draft-tokens"]),
        (8, ["--speculative-dflash-block-size"]),
        (4, ["--speculative-num-draft-tokens", "--speculative-dflash-block-size"]),
        (None, ["--speculative-num-draft-tokens"]),
    ],
)
def test_trained_block_size(trained: int | None, removed: list[str]) -> None:
    flags = ["--speculative-num-draft-tokens", "8", "--speculative-dflash-block-size", "16"]
    facts: dict[str, Value] = {"tokens": 8, "block": 16, **({} if trained is None else {"trained": trained})}
    (proposal,) = FIXES["trained-block-size"](ask(flags, facts=facts))
    assert [change.name for change in proposal.changes] == removed


def test_what_stands_already_is_no_change() -> None:
    edit = Edit(set={"--speculative-num-steps": "3", "--speculative-eagle-topk": "1"})
    (proposal,) = FIXES["change"](ask(["--speculative-eagle-topk", "1"], edit=edit))
    assert [(change.name, change.new) for change in proposal.changes] == [("--speculative-num-steps", "3")]
    assert (
        list(FIXES["change"](ask(["--speculative-eagle-topk", "1"], edit=Edit(set={"--speculative-eagle-topk": "1"}))))
        == []
    )
