"""The audit chain: what is written, what tampering shows, what a power loss leaves and how it is mended."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stage import Opened
from test_policy import FIX, GOOD

from specwatch.acting.considering import attempts
from specwatch.errors import ApplyError
from specwatch.policy import decide
from specwatch.settings import Policy
from specwatch.storage import audit
from specwatch.storage.actions import Action, Actions, new


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path / "apply").mkdir(mode=0o755)
    return made


def filled(folder: Path, entries: int = 6) -> Actions:
    store = Opened(folder)
    for number in range(entries):
        store.note("request_refused", "llama", 1000.0 + number, because=f"reason {number}")
    return store


def lines(folder: Path) -> list[str]:
    return (folder / "audit.jsonl").read_text().split("\n")[:-1]


def write(folder: Path, content: list[str]) -> None:
    (folder / "audit.jsonl").write_text("".join(f"{line}\n" for line in content))


def test_a_chain_that_nobody_touched_is_whole(folder: Path) -> None:
    found = filled(folder).verify()
    assert (found.entries, found.problems, found.notes) == (6, (), ())
    first = json.loads(lines(folder)[0])
    assert first["prev"] == audit.FIRST
    assert first["actor"]["uid"] == os.geteuid()
    assert first["actor"]["pid"] == os.getpid()


def rehashed(content: list[str], start: int) -> list[str]:
    """The chain written anew from an entry on, as somebody would who knows how."""
    out = content[:start]
    previous = json.loads(out[-1])["hash"] if out else audit.FIRST
    for line in content[start:]:
        entry = {**json.loads(line), "prev": previous}
        previous = entry["hash"] = audit.hash_of(entry)
        out.append(json.dumps(entry, sort_keys=True, separators=(",", ":")))
    return out


def changed(content: list[str]) -> list[str]:
    return [line.replace("reason 2", "reason 9") for line in content]


TAMPERING: list[tuple[str, Callable[[list[str]], list[str]], str]] = [
    ("changed", changed, "entry 3 (line 3): was changed"),
    ("changed with its hashes", lambda c: rehashed(changed(c), 2), "entry 3 (line 3): is not the one that actions.db"),
    ("removed", lambda c: [*c[:2], *c[3:]], "entry 3 (line 3): has the number 4"),
    ("removed and renumbered", lambda c: rehashed([*c[:2], *c[3:]], 2), "entry 3 (line 3)"),
    ("first removed", lambda c: c[1:], "entry 1 (line 1)"),
    ("moved", lambda c: [c[0], c[2], c[1], *c[3:]], "entry 2 (line 2): has the number 3"),
    ("doubled", lambda c: [*c[:3], c[2], *c[3:]], "entry 4 (line 4): has the number 3"),
    ("last removed", lambda c: c[:-1], "entry 6 is gone from the end"),
    ("tail removed", lambda c: c[:3], "entries 4 to 6 are gone from the end"),
    ("all removed", lambda c: [], "entries 1 to 6 are gone from the end"),
    ("appended", lambda c: rehashed([*c, c[-1].replace('"seq":6', '"seq":7')], 6), "the last ones are forged"),
    ("not JSON", lambda c: [*c[:4], "so what", *c[5:]], "entry 5 (line 5): is no entry"),
]


@pytest.mark.parametrize(("tamper", "says"), [one[1:] for one in TAMPERING], ids=[one[0] for one in TAMPERING])
def test_tampering_is_found_and_the_entry_named(
    folder: Path, tamper: Callable[[list[str]], list[str]], says: str
) -> None:
    store = filled(folder)
    write(folder, tamper(lines(folder)))
    assert any(says in problem for problem in store.verify().problems), store.verify()
    # nothing that is done later mends it
    store.note("later", "llama", 2000.0)
    Opened(folder).close()
    assert store.verify().problems


def test_a_log_that_is_gone_is_said(folder: Path) -> None:
    store = filled(folder)
    (folder / "audit.jsonl").unlink()
    assert "is gone" in store.verify().problems[0]


def test_without_the_store_the_end_cannot_be_told(folder: Path) -> None:
    filled(folder)
    found = audit.verify(folder / "audit.jsonl", None)
    assert "cannot be told" in found.problems[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE action SET state = 'applied'", "is applied in actions.db, and failed in the log"),
        ("DELETE FROM action", "is gone in actions.db, and failed in the log"),
        ("DELETE FROM breaker", "the breaker of llama was closed by hand"),
        ("INSERT INTO breaker VALUES ('other', 0, 'x')", "the breaker of other was opened by hand"),
    ],
)
def test_a_store_that_was_changed_by_hand_is_found(folder: Path, change: str, says: str) -> None:
    store = Opened(folder)
    action = store.begin(new(server="llama", fix="f", target="script:/x", asked_by="person"), 1, 1000.0)
    store.advance(action, "failed", 1001.0)
    store.trip("llama", "it failed", 1002.0)
    assert not store.verify().problems
    with contextlib.closing(sqlite3.connect(folder / "actions.db", isolation_level=None)) as db:
        db.execute(change)
    assert any(says in problem for problem in store.verify().problems), store.verify()


@pytest.mark.parametrize(
    "line", [b"[" * 200_000, b"\xff\xfe", b"1", b"{}", b'{"seq":1,"hash":[],"prev":{}}', b"\0" * 99]
)
def test_a_line_of_anything_is_told_and_ends_nothing(folder: Path, line: bytes) -> None:
    store = filled(folder)
    whole = (folder / "audit.jsonl").read_bytes().split(b"\n")
    (folder / "audit.jsonl").write_bytes(b"\n".join([*whole[:2], line, *whole[3:]]))
    assert store.verify().problems
    assert len([*audit.read(folder / "audit.jsonl")]) >= 5


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_line_that_a_power_loss_cut_is_mended_and_not_called_tampering(folder: Path, kept: int) -> None:
    store = filled(folder, 3)
    store.close()
    # committed, and then the machine stopped while the line was written
    whole = lines(folder)
    torn = whole[2] if kept < 0 else whole[2][:kept]
    (folder / "audit.jsonl").write_text("".join(f"{line}\n" for line in whole[:2]) + torn)
    with sqlite3.connect(folder / "actions.db") as db:
        db.execute("UPDATE head SET written = 0")
    db.close()
    looking = Opened(folder, read_only=True)
    found = looking.verify()
    assert not found.problems
    assert "not written out whole" in found.notes[0]
    looking.close()

    said: list[str] = []
    mended = Opened(folder, said.append)
    assert "written now" in said[0]
    assert lines(folder) == whole
    mended.note("later", "llama", 9.0)
    assert mended.verify() == audit.Verified(entries=4)


def test_a_mark_that_a_power_loss_kept_away_is_set(folder: Path) -> None:
    store = filled(folder, 2)
    store.close()
    with sqlite3.connect(folder / "actions.db") as db:  # the line is there, the mark is not
        db.execute("UPDATE head SET written = 0")
    db.close()
    said: list[str] = []
    mended = Opened(folder, said.append)
    assert not said
    assert mended.head().written
    assert mended.verify() == audit.Verified(entries=2)


def test_what_is_read_only_never_writes(folder: Path) -> None:
    filled(folder).close()
    looking = Opened(folder, read_only=True)
    with pytest.raises(ApplyError, match="cannot be recorded"):
        looking.note("x", "llama", 1.0)
    assert len(lines(folder)) == 6


def test_a_directory_that_others_may_change_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(ApplyError, match="chmod 755"):
        Opened(folder)


def test_a_store_of_a_later_specwatch_is_left_alone(folder: Path) -> None:
    filled(folder).close()
    with sqlite3.connect(folder / "actions.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ApplyError, match="later specwatch"):
        Opened(folder)


def begun(store: Actions, server: str = "llama", fleet: int = 1) -> Action:
    return store.begin(new(server=server, fix="drop-speculation", target="script:/x", asked_by="person"), fleet, 1.0)


def test_the_fleet_and_the_server_are_limited_where_an_action_begins(folder: Path) -> None:
    store = Opened(folder)
    action = begun(store)
    with pytest.raises(ApplyError, match="llama is under change"):
        begun(store, "other")
    with pytest.raises(ApplyError, match="is not finished"):
        begun(store, fleet=2)
    other = begun(store, "other", fleet=2)
    assert [one.id for one in store.actions()] == [action.id, other.id]
    store.advance(action, "applied", 2.0)
    assert [one.open for one in store.actions()] == [False, True]


def test_one_at_a_time(folder: Path) -> None:
    store, second = Opened(folder), Opened(folder)
    with store.alone("llama"):
        with pytest.raises(ApplyError, match="another specwatch"), second.alone("llama"):
            pass
        with second.alone("other"):
            pass
    with second.alone("llama"):
        pass


def test_a_reset_closes_the_breaker_and_counts_anew(folder: Path) -> None:
    store = Opened(folder)
    store.advance(begun(store), "failed", 2.0, because="no")
    store.trip("llama", "it failed", 3.0)
    store.trip("llama", "again", 4.0)
    assert store.breaker("llama") == "it failed"
    assert len(store.since_reset("llama")) == 1
    assert store.reset("llama", 5.0) == "it failed"
    assert store.breaker("llama") == ""
    assert store.since_reset("llama") == []
    assert store.reset("llama", 6.0) == ""
    store.advance(begun(store), "applied", 7.0)
    assert len(store.since_reset("llama")) == 1
    events = [entry["event"] for entry in audit.read(store.log)]
    assert events.count("breaker_tripped") == 1
    assert events.count("breaker_reset") == 2


def test_a_proposal_is_taken_once(folder: Path) -> None:
    store = Opened(folder)
    assert store.take_proposal("a", "llama", 1.0)
    assert not store.take_proposal("a", "llama", 2.0)
    assert Opened(folder).was_proposed("a")


def test_an_action_is_found_by_the_beginning_of_its_id(folder: Path) -> None:
    store = Opened(folder)
    action = begun(store)
    assert store.action(action.id[:4]) == action
    for name in ("", "zz"):
        with pytest.raises(ApplyError, match="no action has the id"):
            store.action(name)


def test_a_thousand_proposals_end_at_the_attempts_of_a_window(folder: Path) -> None:
    """Another finding each time, and a fix that seems to help each time: the worst that a watcher can propose."""
    store, policy, done = Opened(folder), Policy(attempts=3, window=1e9, cooldown=1.0), 0
    for number in range(1000):
        situation = replace(
            GOOD, policy=policy, fingerprint=f"{number:012x}", history=attempts(store.since_reset("llama"))
        )
        if decide(situation, FIX, 1e6 + 10 * number).fix is not None:
            made = new(
                server="llama", fix=FIX.id, target="script:/x", asked_by="proposal", fingerprint=f"{number:012x}"
            )
            store.advance(store.begin(made, 1, 1e6 + 10 * number), "applied", 1e6 + 10 * number)
            done += 1
    assert done == 3
    assert store.verify().entries == 6


WRITER = """
import sys
from pathlib import Path
from specwatch.storage.actions import Actions
store = Actions(Path(sys.argv[1]))
for number in range(25):
    store.note("request_refused", sys.argv[2], float(number), because="x" * 200)
"""


def test_several_processes_write_one_chain_and_whoever_verifies_meanwhile_sees_no_tampering(folder: Path) -> None:
    filled(folder, 1).close()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder), f"server{n}"]) for n in range(3)]
    looking = Opened(folder, read_only=True)
    looks = 0
    while any(writer.poll() is None for writer in writers) or not looks:
        found = looking.verify()
        assert found.problems == ()
        looks += 1
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert looking.verify() == audit.Verified(entries=76)
