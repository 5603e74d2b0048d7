"""The live path says in the end what the one-shot path says, in time, and the same after any restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specwatch.log.framing import Framer
from specwatch.log.incidents import incidents
from specwatch.rulebook.book import Rulebook, load_directories
from specwatch.sources.once import Raw, read
from specwatch.watching.live import QUIET, SETTLE_AFTER, Change, Dropped, Live, Ready, Told

LOGS = sorted((Path(__file__).resolve().parents[1] / "data" / "logs").glob("*.log"))
SMALL = [path for path in LOGS if path.stat().st_size < 80_000]


@pytest.fixture(scope="module")
def book() -> Rulebook:
    return load_directories().book


class Listener:
    """Keeps what is held for true, as the store does."""

    def __init__(self) -> None:
        self.held: dict[str, Told] = {}
        self.said: list[str] = []

    def take(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Told):
                if change.key not in self.held:
                    self.said.append(change.key)
                self.held[change.key] = change
            elif isinstance(change, Dropped):
                self.held.pop(change.key, None)

    def roots(self) -> list[tuple[int, str, bool]]:
        return sorted((t.incident.root.offset, t.incident.error, bool(t.incident.outlived)) for t in self.held.values())


def one_shot(path: Path, book: Rulebook) -> list[tuple[int, str, bool]]:
    found = incidents(Framer("log").frames(raws(path)), book.role_of)
    return sorted((one.root.offset, one.error, bool(one.outlived)) for one in found)


def raws(path: Path) -> list[Raw]:
    return [raw._replace(source="log") for raw in read(str(path))]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_live_path_ends_where_the_one_shot_path_does(path: Path, book: Rulebook) -> None:
    live, listener, now = Live("log", book.role_of), Listener(), 100.0
    for number, raw in enumerate(raws(path)):
        live.feed(raw, now)
        if number % 37 == 36:  # no quiet: the log never stops
            now += 0.5
            listener.take(live.look(now))
    listener.take(live.finish(now))
    assert listener.roots() == one_shot(path, book)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
@pytest.mark.parametrize("every", [7, 53])
def test_a_restart_at_any_safe_point_changes_nothing(path: Path, every: int, book: Rulebook) -> None:
    """Killed again and again: from the last safe point on, the same keys come, and none besides."""
    lines = raws(path)
    listener, now = Listener(), 100.0
    live, at, safe, context, place = Live("log", book.role_of), 0, 0, [], -1
    kills = 0
    while at < len(lines):
        for raw in lines[at : at + every]:
            live.feed(raw, now)
        at += every
        now += 0.5
        listener.take(live.look(now))
        if live.safe:
            safe, place = min(at, len(lines)), live.last_place
            context = json.loads(json.dumps(live.context))
        if kills < 40 and at < len(lines) and (at // every) % 3 == 0 and at - safe < 400:
            kills += 1
            known = [(key, told.incident.root.offset) for key, told in listener.held.items()]
            live = Live(
                "log",
                book.role_of,
                context=[Raw(*one) for one in context],
                known=[(key, spot) for key, spot in known if spot > place],
            )
            for raw in lines[safe:at]:
                live.feed(raw, now)
    listener.take(live.finish(now))
    assert kills > 0 or len(lines) < 4 * every
    got = {(offset, error) for offset, error, outlived in listener.roots() if not outlived}
    wanted = {(offset, error) for offset, error, outlived in one_shot(path, book) if not outlived}
    assert got == wanted


def crash(number: int = 0, error: str = "ValueError: bad") -> list[str]:
    return [
        f"[2026-01-01 00:00:{number:02} TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/sglang/srt/managers/scheduler.py", line 1, in run',
        "    go()",
        error,
        "",
    ]


def feed(live: Live, texts: list[str], now: float, start: int = 0) -> int:
    for number, text in enumerate(texts):
        live.feed(Raw("log", start + number + 1, (start + number) * 100, text), now)
    return start + len(texts)


def test_a_finding_comes_after_a_short_quiet_time_and_not_in_the_middle(book: Rulebook) -> None:
    live = Live("log", book.role_of)
    feed(live, crash()[:2], 10.0)
    assert live.due(10.0) == pytest.approx(0.0, abs=QUIET)
    assert live.look(10.1) == []
    feed(live, crash()[2:], 10.1, start=2)
    assert live.due(10.1) == pytest.approx(QUIET)
    (told,) = live.look(10.1 + QUIET)
    assert isinstance(told, Told)
    assert told.incident.error == "ValueError: bad"
    assert live.look(10.1 + 2 * QUIET) == []
    assert not live.safe


def test_in_a_log_that_never_stops_it_comes_within_two_seconds(book: Rulebook) -> None:
    live = Live("log", book.role_of)
    at = feed(live, crash(), 10.0)
    now, told = 10.0, None
    while told is None and now < 13:
        now += 0.1
        at = feed(live, ["[2026-01-01 00:00:01] something else"], now, start=at)
        if live.due(now) == 0.0:
            told = next(iter(live.look(now)), None)
    assert isinstance(told, Told)
    assert now - 10.0 <= 2.0


def test_a_half_line_counts_while_the_log_is_quiet(book: Rulebook) -> None:
    live = Live("log", book.role_of)
    feed(live, crash()[:3], 10.0)
    rest = Raw("log", 4, 300, "ValueError: bad")
    (told,) = live.look(11.0, rest)
    assert isinstance(told, Told)
    assert told.incident.error == "ValueError: bad"


def test_a_server_that_is_ready_again_is_said(book: Rulebook) -> None:
    live = Live("log", book.role_of)
    feed(live, [*crash(), "[2026-01-01 00:00:30] The server is fired up and ready to roll!"], 10.0)
    changes = live.look(20.0)
    assert [type(change) for change in changes] == [Ready, Told]
    assert isinstance(changes[1], Told)
    assert changes[1].before_ready


def test_a_server_that_lives_refutes_what_was_told(book: Rulebook) -> None:
    live = Live("log", book.role_of)
    at = feed(live, ["[2026-01-01 00:00:00 TP0] Decode batch. #running-req: 1", *crash(2)], 10.0)
    (told,) = live.look(12.0)
    assert isinstance(told, Told)
    assert not told.incident.outlived
    feed(live, ["[2026-01-01 00:00:03 TP0] Decode batch. #running-req: 1"], 13.0, start=at)
    (again,) = live.look(15.0)
    assert isinstance(again, Told)
    assert again.key == told.key
    assert again.incident.outlived


def test_what_is_quiet_for_long_is_settled_and_not_told_again(book: Rulebook) -> None:
    live = Live("log", book.role_of)
    at = feed(live, crash(), 10.0)
    assert len(live.look(11.0)) == 1
    assert live.due(11.0) == pytest.approx(SETTLE_AFTER - 1.0)
    assert live.look(10.0 + SETTLE_AFTER) == []
    assert live.safe
    assert live.due(500.0) is None
    feed(live, ["[2026-01-01 00:10:00] another line"], 600.0, start=at)
    assert live.look(601.0) == []
    assert live.safe


def test_our_own_lines_are_never_matched(book: Rulebook) -> None:
    quoted = {"event": "finding_raised", "level": "warning", "root": {"text": "\n".join(crash())}, "says": crash()[0]}
    live = Live("log", book.role_of)
    feed(live, [json.dumps(quoted), f"2026-01-01T00:00:00Z [warning  ] finding_raised says={crash()[0]!r}"], 10.0)
    assert live.look(20.0) == []
