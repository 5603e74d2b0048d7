"""The runs of a server on a time line: from starts, readinesses and crashes to spans of one state each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specwatch.storage.history import Moment

HOUR = 3600.0
SPANS = (HOUR, 6 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR, 90 * 24 * HOUR)
WORDS = {
    "loading": "starting",
    "serving": "ready, no crash told",
    "degraded": "serves, but something fires",
    "down": "crashed",
    "unknown": "nothing known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time in one state: loading, serving, degraded, down or unknown. Seconds since 1970."""

    start: float
    end: float
    state: str

    @property
    def words(self) -> str:
        """The state in words."""
        return WORDS[self.state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What is drawn: the spans from `start` to `end`, and how many crashes and starts there were in it."""

    start: float
    end: float
    spans: tuple[Span, ...]
    crashes: tuple[Moment, ...]
    starts: int


def runs(moments: Sequence[Moment], now: float) -> Runs:
    """The shortest window of `SPANS` that holds the latest dozen of moments, and the state at each time of it.

    `moments` are in the order of time. Where a log names no end of a run, its state goes on: "ready, no crash told".
    """
    known = [one for one in moments if one.at <= now]
    oldest = known[-12:][0].at if known else now
    window = next((one for one in SPANS if now - one <= oldest), SPANS[-1])
    start = now - window
    spans: list[Span] = []
    state, since = "unknown", start
    for one in known:
        after = _after(state, one)
        if after != state and one.at > start:
            spans.append(Span(start=since, end=one.at, state=state))
            since = one.at
        state = after
    spans.append(Span(start=since, end=now, state=state))
    inside = [one for one in known if one.at >= start]
    return Runs(
        start=start,
        end=now,
        spans=tuple(one for one in spans if one.end > one.start),
        crashes=tuple(one for one in inside if one.kind == "crashed" and one.severity != "notice"),
        starts=sum(one.kind == "started" for one in inside),
    )


def _after(state: str, moment: Moment) -> str:
    if moment.kind == "started":
        return "loading"
    if moment.kind == "ready":
        return "serving"
    if moment.severity == "fatal":
        return "down"
    return "degraded" if moment.severity == "degraded" and state != "down" else state
