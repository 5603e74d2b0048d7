"""The time line: which state a server was in, and over which window it is drawn."""

from __future__ import annotations

import pytest

from specwatch.storage.history import Moment
from specwatch.web.runs import HOUR, runs

NOW = 1_000_000.0


def moments(*parts: tuple[float, str]) -> list[Moment]:
    return [Moment(at=NOW - ago, kind=kind.partition(" ")[0], severity=kind.partition(" ")[2]) for ago, kind in parts]


@pytest.mark.parametrize(
    ("parts", "states"),
    [
        ((), ["unknown"]),
        (((1800, "started"),), ["unknown", "loading"]),
        (((1800, "started"), (1700, "ready")), ["unknown", "loading", "serving"]),
        (((1800, "started"), (1700, "ready"), (60, "crashed fatal")), ["unknown", "loading", "serving", "down"]),
        (((60, "started"), (50, "crashed fatal"), (40, "started")), ["unknown", "loading", "down", "loading"]),
        (((60, "ready"), (50, "crashed degraded")), ["unknown", "serving", "degraded"]),
        (((60, "crashed fatal"), (50, "crashed degraded")), ["unknown", "down"]),
        (((60, "ready"), (50, "crashed notice")), ["unknown", "serving"]),
        (((-60, "ready"),), ["unknown"]),
    ],
)
def test_states(parts: tuple[tuple[float, str], ...], states: list[str]) -> None:
    found = runs(moments(*parts), NOW)
    assert [one.state for one in found.spans] == states
    assert found.spans[0].start == found.start
    assert found.spans[-1].end == found.end == NOW
    assert all(one.end == after.start for one, after in zip(found.spans, found.spans[1:], strict=False))


@pytest.mark.parametrize(
    ("ago", "hours"), [(60, 1), (2 * HOUR, 6), (7 * HOUR, 24), (25 * HOUR, 168), (200 * HOUR, 720), (9e6, 2160)]
)
def test_the_window_is_the_shortest_that_holds_what_happened(ago: float, hours: int) -> None:
    assert runs(moments((ago, "ready")), NOW).start == NOW - hours * HOUR


def test_what_was_before_the_window_still_says_the_state_at_its_beginning() -> None:
    parts = [(9 * HOUR, "ready"), *((n * 60.0, "crashed degraded") for n in range(12, 0, -1))]
    found = runs(moments(*parts), NOW)
    assert found.spans[0].state == "serving"
    assert (len(found.crashes), found.starts) == (12, 0)
