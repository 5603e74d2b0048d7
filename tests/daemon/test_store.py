"""The store: positions and findings together, histories, migrations, damage, full disks."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from specwatch.storage.store import Fact, Reached, Recovered, Seen, Store, Withdrawn

DAY = 86400.0


def silent(text: str) -> None:
    raise AssertionError(text)


def seen(key: str, at: float = 100.0, fingerprint: str = "f1", place: int = 1, state: str = "firing") -> Seen:
    document = json.dumps({"id": fingerprint, "rule": "r", "severity": "fatal", "says": "it broke", "key": key})
    return Seen(
        key=key,
        server="a",
        stream="a|x",
        place=place,
        at=at,
        fingerprint=fingerprint,
        severity="fatal",
        document=document,
        state=state,
    )


def events(store: Store, facts: list[Fact], now: float = 100.0) -> list[str]:
    said = store.commit(facts, now)
    store.said(one.id for one in said)
    return [one.event for one in said]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, silent)


def test_a_repetition_is_an_occurrence_and_said_once(store: Store) -> None:
    assert events(store, [seen("1", at=10.0), seen("2", at=5000.0, place=2)]) == ["finding_raised"]
    (kept,) = store.findings()
    assert (kept.occurrences, kept.first_seen, kept.last_seen, kept.state) == (2, 10.0, 5000.0, "firing")


def test_the_same_incident_again_changes_nothing(store: Store) -> None:
    events(store, [seen("1")])
    assert events(store, [seen("1")]) == []
    assert store.findings()[0].occurrences == 1


def test_a_crash_loop_is_recognised_once(store: Store) -> None:
    assert events(store, [seen(str(n), at=100.0 + n) for n in range(5)]) == ["finding_raised", "crash_loop_recognised"]
    assert store.findings()[0].looping


def test_crashes_on_different_days_are_no_loop(store: Store) -> None:
    assert events(store, [seen(str(n), at=DAY * n) for n in range(5)]) == ["finding_raised"]


def test_resolved_by_what_comes_after_it_in_its_log_only(store: Store) -> None:
    events(store, [seen("1", place=10)])
    ready = Recovered(server="a", stream="a|x", place=9, at=1e9, because="ready")
    assert events(store, [ready]) == []
    assert events(store, [Recovered(server="a", stream="a|x", place=11, at=1e9, because="ready")]) == [
        "finding_resolved"
    ]
    assert store.findings()[0].because == "ready"
    assert events(store, [seen("2", place=12)]) == ["finding_returned"]


def test_resolved_by_another_log_of_the_server_by_time(store: Store) -> None:
    events(store, [seen("1", at=100.0)])
    assert events(store, [Recovered(server="a", stream="a|y", place=1, at=50.0, because="ready")]) == []
    assert events(store, [Recovered(server="a", stream="a|y", place=1, at=150.0, because="ready")]) == [
        "finding_resolved"
    ]


def test_another_server_is_not_touched(store: Store) -> None:
    events(store, [seen("1")])
    assert events(store, [Recovered(server="b", at=1e9, because="ready")]) == []


def test_what_is_withdrawn_is_no_finding_any_more(store: Store) -> None:
    events(store, [seen("1")])
    assert events(store, [Withdrawn(key="1", state="superseded", because="another cause")]) == ["finding_withdrawn"]
    (kept,) = store.findings()
    assert (kept.state, kept.occurrences) == ("superseded", 0)
    assert store.unsettled("a|x") == {}


def test_refuted_later_takes_it_back_for_good(store: Store) -> None:
    events(store, [seen("1")])
    assert events(store, [seen("1", state="refuted", fingerprint="f1")]) == ["finding_withdrawn"]
    assert events(store, [seen("1")]) == []
    assert store.findings()[0].state == "refuted"


def test_refuted_from_the_start_is_never_a_finding(store: Store) -> None:
    assert events(store, [seen("1", state="refuted")]) == ["claim_refuted"]
    assert store.findings() == []


def test_a_later_diagnosis_replaces_the_first(store: Store) -> None:
    events(store, [seen("1", fingerprint="blind")])
    assert events(store, [seen("1", fingerprint="proved")]) == ["finding_revised"]
    assert {(one.fingerprint, one.state, one.occurrences) for one in store.findings()} == {
        ("blind", "superseded", 0),
        ("proved", "firing", 1),
    }


def test_positions_and_findings_are_committed_together_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path, silent)
    bad = Reached(stream=None, position="{}")  # type: ignore[arg-type]
    with pytest.raises(sqlite3.IntegrityError):
        store.commit([seen("1"), Reached(stream="a|x", position="{}"), bad], 1.0)
    assert store.findings() == []
    assert store.position("a|x") is None
    assert store.unsaid() == []


def test_what_was_not_said_is_said_after_a_restart(tmp_path: Path) -> None:
    Store(tmp_path, silent).commit([seen("1")], 1.0)
    store = Store(tmp_path, silent)
    (said,) = store.unsaid()
    assert said.event == "finding_raised"
    store.said([said.id])
    assert Store(tmp_path, silent).unsaid() == []


def test_old_state_is_pruned_and_what_fires_stays(store: Store) -> None:
    events(store, [seen("1"), seen("2", fingerprint="f2"), Reached(stream="old", position="{}")], now=0.0)
    events(store, [Recovered(server="a", at=1e9, because="ready", only="f2")], now=0.0)
    events(store, [Reached(stream="new", position="{}")], now=80 * DAY)
    assert store.prune(100 * DAY, 90) == 3
    assert [one.fingerprint for one in store.findings()] == ["f1"]
    assert [name for name, _ in store.streams()] == ["new"]
    assert list(store.unsettled("a|x")) == ["1"]


def test_an_older_schema_is_migrated(tmp_path: Path) -> None:
    Store(tmp_path, silent).commit([seen("1")], 1.0)
    db = sqlite3.connect(tmp_path / "specwatch.db")
    db.executescript(
        "DROP INDEX finding_time; DROP TABLE notice; DROP TABLE forward; ALTER TABLE finding DROP COLUMN began;"
        "ALTER TABLE finding DROP COLUMN looping; DROP TABLE excerpt; DROP TABLE turn; PRAGMA user_version = 1"
    )
    db.close()
    assert [(one.looping, one.began) for one in Store(tmp_path, silent).findings()] == [(False, 100.0)]


def test_a_later_schema_is_set_aside(tmp_path: Path) -> None:
    Store(tmp_path, silent).close()
    db = sqlite3.connect(tmp_path / "specwatch.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    said: list[str] = []
    assert Store(tmp_path, said.append).findings() == []
    assert "later specwatch" in said[0]
    assert (tmp_path / "specwatch.db.damaged-1").exists()


@pytest.mark.parametrize("damage", ["header", "middle", "empty-garbage"])
def test_a_damaged_file_is_set_aside_and_work_goes_on(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path, silent)
    store.commit([seen(str(n), fingerprint=f"f{n}", place=n) for n in range(300)], 1.0)
    store.close()
    path = tmp_path / "specwatch.db"
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:100] = b"x" * 100
    elif damage == "middle":
        content[8192:40960] = b"\xff" * (40960 - 8192)
    else:
        content = bytearray(b"this is no database at all\n" * 100)
    path.write_bytes(content)
    said: list[str] = []
    store = Store(tmp_path, said.append)
    assert len(said) == 1
    assert "set aside as specwatch.db.damaged-1" in said[0]
    assert events(store, [seen("1")]) == ["finding_raised"]


def test_a_full_disk_raises_and_leaves_everything_as_it_was(store: Store) -> None:
    events(store, [seen("1")])
    store.path.with_name("reserve").unlink()  # the room that is kept for this is used up
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    facts: list[Fact] = [seen(str(n), fingerprint="x" * 5000 + str(n)) for n in range(2, 60)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.commit(facts, 1.0)
    assert len(store.findings()) == 1
    store._db.execute("PRAGMA max_page_count = 100000")
    store.commit(facts, 1.0)
    assert len(store.findings()) == 59
