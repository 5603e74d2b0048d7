"""A knob that was turned before is not offered again."""

from __future__ import annotations

import pytest

from specwatch.domain import Applicability, Change, Finding, Fix, Incident, Launch, LogLine, Severity, Status, Verdict
from specwatch.launch.command import edit, parse, setting
from specwatch.tried import of_fatal, without_tried

BASE = parse("sglang serve m --mem-fraction-static 0.8", "0.5.23")


def recorded(**values: object) -> Launch:
    return Launch(sglang="0.5.23", recorded={"model_path": "m", "tp_size": 1, **values})  # type: ignore[dict-item]


def fix(flag: str, value: str, *more: Change) -> Fix:
    changes = (setting(BASE, flag, value), *more)
    return Fix(id=flag, applicability=Applicability.REVIEW, why="", changes=changes, launch=edit(BASE, changes))


def finding(*fixes: Fix, launch: Launch | None = None) -> Finding:
    root = LogLine(source="a", number=1, offset=0, text="x")
    return Finding(
        rule="r",
        title="t",
        severity=Severity.FATAL,
        cause="",
        says="",
        verdict=Verdict(check="", status=Status.UNKNOWN),
        incident=Incident(error="x", root=root, launches=(launch,) if launch else ()),
        fixes=fixes,
    )


def left(failed: list[Launch], *fixes: Fix) -> list[str | None]:
    (one,) = without_tried([finding(*fixes)], failed)
    return [fix.changes[0].new for fix in one.fixes]


@pytest.fixture
def other() -> Fix:
    return fix("--max-running-requests", "16")


@pytest.mark.parametrize(
    ("before", "proposed", "kept"),
    [
        ([0.8, 0.85], "0.85", False),  # ran, and died
        ([0.8, 0.9], "0.85", False),  # went further the same way, and died
        ([0.8, 0.82], "0.85", True),  # did not go as far
        ([0.8, 0.7], "0.85", True),  # went the other way
        ([0.8, 0.7], "0.75", False),
        ([0.8, 0.8], "0.8", True),  # one launch only: nothing was tried
    ],
)
def test_numbers(before: list[float], proposed: str, kept: bool, other: Fix) -> None:
    failed = [recorded(mem_fraction_static=value) for value in before]
    expected = ["16"] if not kept else [proposed, "16"]
    assert left(failed, fix("--mem-fraction-static", proposed), other) == expected


def test_other_values(other: Fix) -> None:
    failed = [recorded(attention_backend=name) for name in ("flashinfer", "triton")]
    assert left(failed, fix("--attention-backend", "triton"), other) == ["16"]
    assert left(failed, fix("--attention-backend", "fa3"), other) == ["fa3", "16"]


def test_every_change_must_have_been_in_force(other: Fix) -> None:
    failed = [recorded(mem_fraction_static=0.8), recorded(mem_fraction_static=0.85, page_size=1)]
    both = fix("--mem-fraction-static", "0.85", setting(BASE, "--page-size", "16"))
    assert left(failed, both, other) == ["0.85", "16"]


def test_something_is_always_left() -> None:
    failed = [recorded(mem_fraction_static=value) for value in (0.8, 0.85)]
    assert left(failed, fix("--mem-fraction-static", "0.85")) == ["0.85"]


def test_only_fatal_incidents_count() -> None:
    launch = recorded(mem_fraction_static=0.8)
    assert of_fatal([finding(launch=launch)]) == (launch,)
    assert of_fatal([finding()]) == ()
