"""What the store holds for people: excerpts and turns come and go with their findings; looking changes nothing."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from webbox import EXAMPLES, FINDING, NOW, House, daemon, get, lived_in, seen, until

from specwatch.errors import ConfigError
from specwatch.storage.history import History, opened
from specwatch.storage.store import DAY, Turned

SHORT, LONG, OTHER = '{"lines": []}', '{"lines": ["before"]}', '{"l": 2}'


def kept(house: House) -> object:
    with opened(house.folder) as history:
        return history.excerpt("llama", FINDING)


def test_the_fuller_excerpt_of_one_crash_stays_and_a_new_crash_brings_its_own(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.commit(seen(excerpt=SHORT))
    house.commit(seen(excerpt=LONG))
    assert kept(house) == json.loads(LONG), "more of it was there at the next look"
    house.commit(seen(excerpt=SHORT), seen(excerpt=""))
    assert kept(house) == json.loads(LONG), "after a restart less of it is read again"
    house.commit(seen(at=NOW - 5, excerpt=OTHER))
    assert kept(house) == json.loads(OTHER), "another crash"


def test_what_is_refuted_leaves_no_excerpt(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.commit(replace(seen(excerpt=LONG), state="refuted"))
    assert kept(house) is None


def test_excerpts_and_turns_are_forgotten_with_what_they_belong_to(tmp_path: Path) -> None:
    house = lived_in(tmp_path)
    house.commit(replace(seen("qwen", "ffffffffffff", NOW - 9000), excerpt=LONG))
    house.commit(Turned(server="qwen", stream="qwen|x", place=1, kind="started", at=NOW))
    house.store.prune(NOW + 91 * DAY, 90)
    with opened(tmp_path) as history:
        assert history.excerpt("qwen", "ffffffffffff") is None
        assert {one.kind for one in history.moments("llama")} == {"crashed"}, "what fires keeps its crashes"
        assert history.moments("qwen") == []


def test_a_turn_that_is_told_twice_is_one(tmp_path: Path) -> None:
    house = House(tmp_path)
    turned = Turned(server="llama", stream="s", place=7, kind="ready", at=NOW)
    house.commit(turned, turned)
    house.commit(turned)
    with opened(tmp_path) as history:
        assert [one.kind for one in history.moments("llama")] == ["ready"]


def test_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no store"):
        History(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_is_killed_keeps_the_log_of_its_findings(tmp_path: Path) -> None:
    """kill -9 right after a crash was told: the same excerpt afterwards, and the runs once each."""
    log = tmp_path / "server.log"
    log.write_bytes(b"")

    def answer(url: str) -> dict[str, object]:
        found = json.loads(get(f"{url}/api/v1/findings")[1])["findings"]
        if not found or found[0]["verdict"]["status"] != "broken":
            return {}
        whole: dict[str, object] = json.loads(get(f"{url}/api/v1/findings/llama/{found[0]['id']}")[1])
        return whole

    with daemon(tmp_path, {"llama": log}, ends_by=signal.SIGKILL) as url:
        log.write_bytes((EXAMPLES / "server.log").read_bytes())
        before = until(lambda: answer(url))
    with daemon(tmp_path, {"llama": log}) as url:
        until(lambda: json.loads(get(f"{url}/api/v1/servers")[1])["servers"][0]["last_line"] or True)
        after = until(lambda: answer(url))
    assert before["finding"]["excerpt"] == after["finding"]["excerpt"]  # type: ignore[index]
    assert before["moments"] == after["moments"]
    assert [one["kind"] for one in after["moments"]] == ["started", "crashed"]  # type: ignore[attr-defined]
