"""The file that the watcher leaves, and the directory that nobody is led astray by."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwatch.acting.proposals import (
    FOLDER,
    LARGEST,
    MOST,
    Inbox,
    Proposal,
    dumps,
    leave,
    loads,
    occurrence_of,
    untimely,
)
from specwatch.errors import ApplyError, ConfigError

PROPOSAL = Proposal(
    server="llama-70b",
    finding="9f2c41d07a55",
    fix="drop-speculation",
    occurrence=occurrence_of("journal:x 1 2 3"),
    created=1_800_000_000.5,
    specwatch="0.1.0",
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_proposal_is_read_as_it_was_left(tmp_path: Path) -> None:
    path = leave(tmp_path, PROPOSAL)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert names(tmp_path) == [FOLDER], "nothing half written lies about"
    with Inbox(tmp_path) as inbox:
        (taken,), more = inbox.entries()
        assert (taken.proposal, taken.because, more) == (PROPOSAL, "", 0)
        inbox.drop(taken.name)
    assert names(path.parent) == []


def test_a_later_crash_of_the_same_finding_takes_the_place(tmp_path: Path) -> None:
    leave(tmp_path, PROPOSAL)
    later = replace(PROPOSAL, occurrence=occurrence_of("another"))
    leave(tmp_path, later)
    leave(tmp_path, replace(PROPOSAL, server="llama-8b"))
    with Inbox(tmp_path) as inbox:
        assert {taken.proposal and taken.proposal.server for taken in inbox.entries()[0]} == {"llama-70b", "llama-8b"}
        assert later in [taken.proposal for taken in inbox.entries()[0]]


def test_a_crash_does_not_take_the_place_of_what_a_person_approved(tmp_path: Path) -> None:
    approved = replace(PROPOSAL, approval="a" * 64, occurrence=occurrence_of("a person"))
    leave(tmp_path, approved)
    leave(tmp_path, PROPOSAL)
    with Inbox(tmp_path) as inbox:
        assert [taken.because for taken in inbox.entries()[0]] == ["", ""]
        assert {taken.proposal for taken in inbox.entries()[0]} == {approved, PROPOSAL}


def test_nothing_was_ever_proposed(tmp_path: Path) -> None:
    for state in (tmp_path, tmp_path / "not-there"):
        with Inbox(state) as inbox:
            assert inbox.entries() == ([], 0)
            assert inbox.drop_rest(set()) == 0


def valid() -> dict[str, object]:
    return dict(json.loads(dumps(PROPOSAL)))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"schema": 2}, "another schema"),
        ({"schema": True}, "another schema"),
        ({"server": "../../etc"}, "server is none"),
        ({"server": "a\n"}, "server is none"),
        ({"server": ["llama"]}, "server is none"),
        ({"server": "llamа"}, "server is none"),  # a Cyrillic letter
        ({"finding": "9f2c41d07a5"}, "finding is none"),
        ({"finding": "9F2C41D07A55"}, "finding is none"),
        ({"fix": "--model-path"}, "fix is none"),
        ({"fix": "x; reboot"}, "fix is none"),
        ({"occurrence": "0"}, "occurrence is none"),
        ({"created": "now"}, "created is no time"),
        ({"created": True}, "created is no time"),
        ({"created": -1}, "created is no time"),
        ({"created": 1e300}, "created is no time"),
        ({"specwatch": ""}, "specwatch is none"),
        ({"command": "reboot"}, "exactly"),
        ({"target": "systemd:sshd.service"}, "exactly"),
    ],
)
def test_a_forged_proposal_is_refused(changed: dict[str, object], says: str) -> None:
    with pytest.raises(ApplyError, match=says):
        loads(json.dumps({**valid(), **changed}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 4000,
        b'{"created": NaN}',
        dumps(PROPOSAL).replace(b'"fix"', b'"server": "other", "fix"'),
        dumps(PROPOSAL).replace(b"1800000000.5", b"NaN"),
        dumps(PROPOSAL).replace(b"1800000000.5", b"1" * 4000),
        dumps(PROPOSAL) * 2,
    ],
)
def test_what_is_no_proposal_is_refused(data: bytes) -> None:
    with pytest.raises(ApplyError):
        loads(data)


@given(st.binary(max_size=300) | st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
def test_any_other_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(ApplyError):
        loads(data)


@given(st.sampled_from(sorted(valid())), st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists))
def test_an_edited_proposal_is_refused_or_of_the_same_shape(name: str, value: object) -> None:
    data = json.dumps({**valid(), name: value}).encode()
    try:
        read = loads(data)
    except ApplyError:
        return
    assert loads(dumps(read)) == read


@pytest.mark.parametrize(("age", "says"), [(0, ""), (900, ""), (-5, ""), (901, "stale"), (-6, "future")])
def test_time(age: float, says: str) -> None:
    because = untimely(PROPOSAL, PROPOSAL.created + age, 900)
    assert says in because
    assert bool(says) == bool(because)


# a directory that belongs to somebody who was taken over


def only(state: Path) -> str:
    with Inbox(state) as inbox:
        (taken,), _ = inbox.entries()
        assert taken.proposal is None
        inbox.drop(taken.name)
    assert names(state / FOLDER) == []
    return taken.because


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    return tmp_path / FOLDER


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere.json").write_bytes(dumps(PROPOSAL))
    (folder / PROPOSAL.file_name).symlink_to(elsewhere)
    assert "cannot be opened" in only(tmp_path)
    assert elsewhere.exists()


def test_a_second_name_of_another_file_is_refused(folder: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere.json").write_bytes(dumps(PROPOSAL))
    (folder / PROPOSAL.file_name).hardlink_to(elsewhere)
    assert "no plain file" in only(tmp_path)
    assert elsewhere.exists()


def test_a_pipe_does_not_hold_us(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / PROPOSAL.file_name)
    assert "no plain file" in only(tmp_path)


def test_a_folder_is_removed_with_what_is_in_it_and_no_more(folder: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "keep").touch()
    (folder / "x" / "y").mkdir(parents=True)
    (folder / "x" / "link").symlink_to(elsewhere)
    assert "no plain file" in only(tmp_path)
    assert (elsewhere / "keep").exists()


def test_a_large_file_is_not_read(folder: Path, tmp_path: Path) -> None:
    with (folder / PROPOSAL.file_name).open("wb") as out:
        out.truncate(1 << 40)
    assert f"larger than {LARGEST}" in only(tmp_path)


def test_a_name_that_is_not_its_own_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "x.json").write_bytes(dumps(PROPOSAL))
    assert "not the name" in only(tmp_path)


def test_a_name_that_is_no_text_is_refused_and_removed(folder: Path, tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff\x1b[31m"))).touch()
    assert "is no JSON" in only(tmp_path)


def test_another_directory_in_its_place_is_not_emptied(tmp_path: Path) -> None:
    (etc := tmp_path / "etc").mkdir()
    (etc / "passwd").touch()
    (state := tmp_path / "state").mkdir()
    (state / FOLDER).symlink_to(etc)
    with pytest.raises(ConfigError, match="somebody put something else there"):
        Inbox(state)
    assert (etc / "passwd").exists()


def test_the_oldest_are_taken_first_and_no_more_than_a_few(folder: Path, tmp_path: Path) -> None:
    for number in range(MOST + 4):
        path = leave(tmp_path, replace(PROPOSAL, server=f"s{number}"))
        os.utime(path, (1000 - number, 1000 - number))
    with Inbox(tmp_path) as inbox:
        entries, more = inbox.entries()
        assert more == 4
        assert [one.proposal and one.proposal.server for one in entries] == [f"s{n}" for n in range(MOST + 3, 3, -1)]
        assert inbox.drop_rest({entries[0].name}) == MOST + 3
    assert names(folder) == [entries[0].name]
