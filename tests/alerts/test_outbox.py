"""What receivers are owed: committed with the finding, the last state only, nothing forgotten and nothing needless."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alertpost import START, new_store, seen

from specwatch.sending.delivery import message
from specwatch.settings import Settings
from specwatch.storage.outbox import Depth, Outbox, depth
from specwatch.storage.owing import GATHER, LOOKING, Receiver
from specwatch.storage.store import Fact, Recovered, Store, Withdrawn

HOOK = Receiver(name="hook", least=1)
READY = Recovered(server="llama", at=START + 50, because="ready again")


class Desk:
    """A store with one receiver, and its outbox."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = new_store(folder)
        self.store.serve([HOOK], START)
        self.box = Outbox(self.store.path)
        self.now = START

    def commit(self, *facts: Fact) -> None:
        self.now += 10
        self.store.commit(facts, self.now)

    def owed(self, receiver: str = "hook") -> list[tuple[str, str]]:
        return [(one.finding.fingerprint, one.wanted) for one in self.box.owed(receiver, self.now + GATHER, 100)]

    def take(self) -> None:
        self.box.heard(self.box.owed("hook", self.now + GATHER, 100), self.now)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_finding_is_owed_once_after_a_moment(desk: Desk) -> None:
    desk.commit(seen("1"))
    assert desk.box.owed("hook", desk.now + GATHER - 0.1, 100) == []
    assert desk.owed() == [("f1", "firing proved")]
    desk.take()
    desk.commit(seen("2", at=START + 9000))
    assert desk.owed() == [], "the same state again is nothing new"


def unproved() -> dict[str, Any]:
    """What is said while the model files are still being read."""
    return {"verdict": {"status": "unknown", "because": "not read in time", "evidence": []}, "looking": True}


def test_what_the_model_files_may_still_name_waits_for_them(desk: Desk) -> None:
    desk.commit(seen("1", "f0", **unproved()))
    assert desk.owed() == []
    desk.store.commit([seen("1", "f1")], desk.now + 4)  # the same incident, and its cause has another name
    desk.now += 4
    # the first one is another row here only because its key holds the fingerprint: withdraw it as the watcher does
    desk.store.commit([Withdrawn(key="llama f0 1", state="superseded", because="a later diagnosis of it")], desk.now)
    assert desk.owed() == [("f1", "firing proved")], "one crash is one message"


def test_it_does_not_wait_for_ever(desk: Desk) -> None:
    desk.commit(seen("1", "f0", **unproved()))
    desk.now += LOOKING
    assert desk.owed() == [("f0", "firing")]


def test_an_answer_that_changes_nothing_is_told_at_once(desk: Desk) -> None:
    desk.commit(seen("1", "f0", **unproved()))
    desk.store.commit([seen("1", "f0")], desk.now + 3)
    desk.now += 3
    assert desk.owed() == [("f0", "firing proved")]


def test_a_thousand_changes_during_an_outage_are_one(desk: Desk) -> None:
    for n in range(500):
        desk.commit(seen(str(n), at=START + 9000 * n))
        desk.commit(Recovered(server="llama", at=START + 9000 * n + 1, because="ready"))
    assert desk.owed() == [("f1", "resolved")]
    desk.commit(seen("last", at=START + 9e6))
    assert desk.owed() == [("f1", "firing proved")]


def test_what_came_and_went_unheard_is_told_as_resolved(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.commit(READY)
    assert desk.owed() == [("f1", "resolved")]
    told = message(desk.box.owed("hook", desk.now + GATHER, 9)[0], Settings())
    assert (told.began, told.ended) == (START, START + 20)


def test_what_went_and_came_back_unheard_is_nothing_new(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.take()
    desk.commit(READY)
    desk.commit(seen("2", at=START + 9000))
    assert desk.owed() == []


def test_a_crash_loop_is_told(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.take()
    desk.commit(seen("2", at=START + 1), seen("3", at=START + 2))
    assert desk.owed() == [("f1", "looping proved")]


def test_a_proof_that_comes_later_is_told_once(desk: Desk) -> None:
    blind: dict[str, Any] = {"verdict": {"status": "unknown", "because": "not read in time"}}
    desk.commit(seen("1", **blind))
    desk.take()
    desk.commit(seen("1"))
    assert desk.owed() == [("f1", "firing proved")]
    desk.take()
    desk.commit(seen("2", at=START + 5000, **blind))
    desk.commit(seen("2", at=START + 5000))
    assert desk.owed() == [], "the second crash is the same, whatever could be read of it"


def test_what_was_never_right_is_taken_back_where_it_was_told_only(desk: Desk) -> None:
    desk.commit(seen("1", "told"))
    desk.take()
    desk.commit(seen("1", "maybe"))
    desk.commit(seen("1", "untold"))
    withdrawn = [
        Withdrawn(key=f"llama {name} 1", state="superseded", because="another cause")
        for name in ("told", "maybe", "untold")
    ]
    desk.now += GATHER / 2
    desk.store.commit(withdrawn, desk.now)
    assert sorted(desk.owed()) == [("maybe", "resolved"), ("told", "resolved")], "one may be on its way right now"


def test_a_revised_diagnosis_replaces_the_first(desk: Desk) -> None:
    first = seen("1", "blind")
    desk.commit(first)
    desk.take()
    proved = seen("1", "proved")
    desk.commit(type(proved)(**{name: getattr(proved, name) for name in proved.__slots__} | {"key": first.key}))
    assert sorted(desk.owed()) == [("blind", "resolved"), ("proved", "firing proved")]


def test_what_was_over_before_it_was_read_is_not_told(desk: Desk) -> None:
    desk.commit(seen("1", state="resolved"))
    assert desk.owed() == []


def test_a_change_while_a_message_is_on_its_way_is_owed_afterwards(desk: Desk) -> None:
    desk.commit(seen("1"))
    on_its_way = desk.box.owed("hook", desk.now + GATHER, 100)
    desk.commit(READY)
    desk.box.heard(on_its_way, desk.now)
    assert desk.owed() == [("f1", "resolved")]


def test_the_least_severity(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.store.serve([Receiver(name="hook", least=3)], START)
    desk.commit(seen("1", "bad"), seen("1", "slow", severity="degraded"))
    assert desk.owed() == [("bad", "firing proved")]


def test_a_new_receiver_is_owed_what_fires_and_an_old_one_nothing_new(desk: Desk) -> None:
    desk.commit(seen("1", "gone"), READY)
    desk.commit(seen("1", "here", at=START + 100))
    desk.take()
    desk.store.serve([HOOK, Receiver(name="new", least=1)], desk.now)
    assert desk.owed() == []
    assert desk.owed("new") == [("here", "firing proved")]


def test_nothing_is_owed_of_what_was_not_committed(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.take()
    with contextlib.closing(sqlite3.connect(desk.store.path, isolation_level=None)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'full'); END")
    with pytest.raises(sqlite3.Error, match="full"):
        desk.commit(READY)
    assert desk.owed() == []
    assert desk.store.findings()[0].state == "firing"


def test_dead_ones_wait_for_a_person_or_the_next_change(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.box.bury(desk.box.owed("hook", desk.now + GATHER, 9), "401")
    assert desk.owed() == []
    assert desk.box.depth() == {"hook": Depth(pending=0, dead=1, oldest=None)}
    assert desk.box.retry("other", desk.now) == 0
    assert desk.box.retry("hook", desk.now) == 1
    assert desk.owed() == [("f1", "firing proved")]
    desk.box.bury(desk.box.owed("hook", desk.now + GATHER, 9), "401")
    desk.commit(READY)
    assert desk.owed() == [("f1", "resolved")]


def test_who_is_no_receiver_any_more_is_owed_nothing(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.box.accept(["stays", "goes"], b"one", START)
    desk.store.serve([], desk.now, ["stays"])
    assert desk.box.depth() == {
        "stays": Depth(pending=1, dead=0, oldest=START),
        "goes": Depth(pending=0, dead=1, oldest=None),
    }
    assert desk.box.rows()[1].error == "is no longer among [enrich] forward"


def test_a_start_gives_dead_ones_of_the_last_day_one_more_try(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.box.bury(desk.box.owed("hook", desk.now + GATHER, 9), "401")
    desk.store.serve([HOOK], desk.now + 100_000)
    assert desk.owed() == []
    desk.store.serve([HOOK], desk.now)
    assert desk.owed() == [("f1", "firing proved")]


def test_a_failed_one_keeps_its_back_off_through_changes(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.box.failed(desk.box.owed("hook", desk.now + GATHER, 9), desk.now + 900, "refused")
    desk.commit(READY)
    assert desk.owed() == []
    assert desk.box.next_due("hook") == START + 910
    assert [(row.attempts, row.state) for row in desk.box.rows()] == [(1, "resolved")]


def test_forwards_are_kept_in_order_once_each_up_to_a_limit(desk: Desk) -> None:
    box = desk.box
    assert box.accept(["a", "b"], b"one", START)
    assert box.accept(["a"], b"one", START), "a repetition of what waits"
    assert box.accept(["a"], b"two", START)
    first = box.next_forward("a", START)
    assert first is not None
    assert first.body == b"one"
    box.forward_failed(first, START + 60, "refused")
    assert box.next_forward("a", START) is None, "the second does not overtake the first"
    assert depth(desk.store.path)["a"] == Depth(pending=2, dead=0, oldest=START)
    box.forwarded(first)
    second = box.next_forward("a", START)
    assert second is not None
    assert second.body == b"two"
    box.bury_forward(second, "404")
    assert box.next_forward("a", START) is None
    assert not box.accept(["a", "b"], b"three", START, most=1), "b has one waiting: neither takes it"
    assert box.next_forward("a", START) is None


def test_old_post_is_pruned(desk: Desk) -> None:
    desk.commit(seen("1"))
    desk.take()
    desk.commit(READY)
    desk.box.accept(["a"], b"one", START)
    first = desk.box.next_forward("a", START)
    assert first is not None
    desk.box.bury_forward(first, "404")
    desk.store.prune(START + 100 * 86400, 90)
    assert desk.box.rows() == []


def test_looking_at_the_depth_makes_no_store_and_writes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "specwatch.db"
    with pytest.raises(sqlite3.Error):
        depth(store)
    with pytest.raises(sqlite3.Error):
        Outbox(store)
    assert list(tmp_path.iterdir()) == []
    new_store(tmp_path).close()
    assert depth(store) == {}
    with contextlib.closing(Outbox(store, read_only=True)) as outbox, pytest.raises(sqlite3.Error, match="readonly"):
        outbox.accept(["r"], b"x", START)
