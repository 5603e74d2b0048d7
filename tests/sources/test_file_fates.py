"""Everything that can happen to a followed file, one test each: the table in `specwatch/sources/file.py`."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from specwatch.sources.base import OFFSET_MASK
from specwatch.sources.file import LATE_DELETED, Followed
from specwatch.sources.once import LINE_CAP, RECORD_CAP


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def texts(source: Followed, now: float = 0.0) -> list[str]:
    got = [raw.text for raw in source.read(now)]
    while source.more:
        got += [raw.text for raw in source.read(now)]
    return got


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def restarted(source: Followed) -> Followed:
    """The same stream in a new process, from its stored position."""
    position = json.loads(json.dumps(source.position()))
    source.close()
    return Followed(source.path, source.stream, position)


def turn(path: Path, number: int = 1) -> Path:
    part = path.with_name(f"{path.name}.{number}")
    path.rename(part)
    return part


def pack(part: Path) -> None:
    stat = part.stat()
    with gzip.open(f"{part}.gz", "wb") as out:
        out.write(part.read_bytes())
    os.utime(f"{part}.gz", ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    part.unlink()


def line(number: int) -> str:
    return f"[2026-01-01 00:00:{number:02}] line {number} {'.' * 300}"


def test_appended_lines_come_with_their_numbers_and_offsets(path: Path) -> None:
    path.write_text("one\ntwo\n")
    source = Followed(path, "s")
    first = source.read(0.0)
    append(path, "three\n")
    (third,) = source.read(0.0)
    assert [(raw.number, raw.offset & OFFSET_MASK, raw.text) for raw in [*first, third]] == [
        (1, 0, "one"),
        (2, 4, "two"),
        (3, 8, "three"),
    ]


def test_lines_end_at_newlines_only(path: Path) -> None:
    path.write_text("a\x0cb\u2028c\x85d\re\r\n", newline="")
    assert texts(Followed(path, "s")) == ["a\x0cb\u2028c\x85d\re"]


def test_a_partial_line_waits_and_is_read_again_after_a_restart(path: Path) -> None:
    path.write_text("one\nhal")
    source = Followed(path, "s")
    assert texts(source) == ["one"]
    rest = source.rest()
    assert rest is not None
    assert (rest.text, rest.number, rest.offset & OFFSET_MASK) == ("hal", 2, 4)
    source.mark()
    source = restarted(source)
    append(path, "f\n")
    assert texts(source) == ["half"]


def test_what_was_not_marked_comes_again_with_the_same_places(path: Path) -> None:
    path.write_text("one\n")
    source = Followed(path, "s")
    texts(source)
    source.mark()
    append(path, "two\nthree\n")
    before = source.read(0.0)
    source = restarted(source)
    assert source.read(0.0) == before
    assert source.read(0.0) == []


def test_a_very_long_line_is_cut_and_says_so(path: Path) -> None:
    path.write_text("x" * (LINE_CAP + 5) + "\nnext\n[2026-01-01 00:00:00] server_args=" + "y" * LINE_CAP + "\n")
    cut, after, record = texts(Followed(path, "s"))
    assert cut == "x" * LINE_CAP + f" … [cut by specwatch: the line has {LINE_CAP + 5} bytes]"
    assert after == "next"
    assert LINE_CAP < len(record) < RECORD_CAP
    assert "cut by specwatch" not in record


def test_bytes_that_are_no_text_do_not_stop_it(path: Path) -> None:
    path.write_bytes(b"a\xff\xfeb\nnext\n")
    assert texts(Followed(path, "s")) == ["a\ufffd\ufffdb", "next"]


def test_rename_and_create_with_late_writes_to_the_old_file(path: Path) -> None:
    path.write_text("one\n")
    source = Followed(path, "s")
    texts(source)
    with path.open("a") as old:
        turn(path)
        path.write_text("three\n")
        old.write("two\n")
        old.flush()
        assert texts(source) == ["two", "three"]
        old.write("late\n")
        old.flush()
        assert texts(source) == ["late"]


def test_rename_without_a_new_file_goes_on(path: Path) -> None:
    path.write_text("one\n")
    source = Followed(path, "s")
    texts(source)
    part = turn(path)
    append(part, "two\n")
    assert texts(source) == ["two"]


def test_rotated_twice_between_two_looks(path: Path) -> None:
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    path.rename(path.with_name("server.log.2"))
    path.write_text(line(2) + "\n")
    turn(path)
    path.write_text(line(3) + "\n")
    assert texts(source) == [line(2), line(3)]


@pytest.mark.parametrize("more", [0, 5])
def test_copytruncate_reads_the_rest_from_the_copy(path: Path, more: int) -> None:
    """Also when the file has regrown past the old offset."""
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    append(path, line(2) + "\n")
    shutil.copyfile(path, path.with_name("server.log.1"))
    os.truncate(path, 0)
    new = [line(3 + n) for n in range(1 + more)]
    append(path, "".join(f"{text}\n" for text in new))
    assert texts(source) == [line(2), *new]
    assert texts(source) == []


def test_copytruncate_whose_copy_is_compressed_already(path: Path) -> None:
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    append(path, line(2) + "\n")
    shutil.copyfile(path, path.with_name("server.log.1"))
    os.truncate(path, 0)
    pack(path.with_name("server.log.1"))
    append(path, line(3) + "\n")
    assert texts(source) == [line(2), line(3)]


@pytest.mark.parametrize("regrown", [False, True])
def test_truncated_without_a_copy(path: Path, regrown: bool) -> None:
    path.write_text("one\ntwo\n")
    source = Followed(path, "s")
    texts(source)
    path.write_text("a new beginning, longer than the old content\n" if regrown else "x\n")
    assert texts(source) == [path.read_text().rstrip("\n")]


def test_a_writer_that_goes_on_at_its_old_offset_leaves_a_hole(path: Path) -> None:
    with path.open("w") as writer:
        writer.write("one\n" * 50_000)
        writer.flush()
        source = Followed(path, "s")
        assert len(texts(source)) == 50_000
        os.truncate(path, 0)
        writer.write("after the hole\nand on\n")
        writer.flush()
        assert path.stat().st_size > 200_000
        assert texts(source) == ["after the hole", "and on"]


def test_a_sparse_hole_of_gigabytes_costs_nothing(path: Path) -> None:
    path.write_text("")
    source = Followed(path, "s")
    with path.open("r+b") as file:
        file.seek(20 * 1024**3)
        file.write(b"behind it\n")
    assert texts(source) == ["behind it"]


def test_deleted_and_created_again(path: Path) -> None:
    path.write_text("one\n")
    source = Followed(path, "s")
    texts(source)
    with path.open("a") as old:
        path.unlink()
        old.write("two\n")
    assert texts(source) == ["two"]
    path.write_text("three\n")
    assert texts(source) == ["three"]
    source.read(LATE_DELETED + 1)
    source.read(2 * LATE_DELETED + 2)
    assert len(source.held) == 1, "the deleted file is let go, so that its disk space is"


def test_the_unfinished_line_of_a_deleted_file_is_not_lost(path: Path) -> None:
    path.write_text("Killed")
    source = Followed(path, "s")
    assert texts(source, 1.0) == []
    path.unlink()
    assert texts(source, 2.0) == []
    assert texts(source, 3.0 + LATE_DELETED) == ["Killed"]


def test_a_replaced_symlink(path: Path) -> None:
    first, second = path.with_name("one"), path.with_name("two")
    first.write_text("one\n")
    second.write_text("two\n")
    path.symlink_to(first)
    source = Followed(path, "s")
    assert texts(source) == ["one"]
    path.unlink()
    path.symlink_to(second)
    append(first, "late\n")
    assert texts(source) == ["late", "two"]


def test_an_inode_that_is_used_again_is_another_file(path: Path) -> None:
    """While we were down: the file system gives the number to the next file."""
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    source.mark()
    position = json.loads(json.dumps(source.position()))
    source.close()
    inode = path.stat().st_ino
    path.write_text(line(2) + "\n" + line(3) + "\n")  # the same inode, other content
    assert path.stat().st_ino == inode
    assert texts(Followed(path, "s", position)) == [line(2), line(3)]


@pytest.mark.parametrize("packed", [False, True])
def test_rotated_while_we_were_down(path: Path, packed: bool) -> None:
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    source.mark()
    position = json.loads(json.dumps(source.position()))
    source.close()
    append(path, line(2) + "\n")
    part = turn(path, 2)
    if packed:
        pack(part)
    path.write_text(line(3) + "\n")
    turn(path)
    path.write_text(line(4) + "\n")
    source = Followed(path, "s", position)
    assert texts(source) == [line(2), line(3), line(4)]
    source.mark()
    assert texts(restarted(source)) == []


def test_copytruncated_while_we_were_down(path: Path) -> None:
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    source.mark()
    position = json.loads(json.dumps(source.position()))
    source.close()
    append(path, line(2) + "\n")
    shutil.copyfile(path, path.with_name("server.log.1"))
    os.truncate(path, 0)
    append(path, line(3) + "\n")
    assert texts(Followed(path, "s", position)) == [line(2), line(3)]


def test_a_file_that_is_gone_for_good_is_said(path: Path) -> None:
    path.write_text(line(1) + "\n")
    source = Followed(path, "s")
    texts(source)
    source.mark()
    position = json.loads(json.dumps(source.position()))
    source.close()
    path.unlink()
    path.write_text(line(2) + "\n")
    source = Followed(path, "s", position)
    assert texts(source) == [line(2)]
    assert any("is gone" in note for note in source.notes())


def test_history_before_the_first_start_is_left_alone(path: Path) -> None:
    path.with_name("server.log.1").write_text("old\n")
    path.write_text("new\n")
    assert texts(Followed(path, "s")) == ["new"]


def test_people_are_told_lines_and_offsets_of_the_file_they_see(path: Path) -> None:
    path.write_text("one\ntwo\n")
    source = Followed(path, "s")
    texts(source)
    turn(path)
    path.write_text("three\nfour\n")
    raws = source.read(0.0)
    assert [source.where(raw.offset, raw.number) for raw in raws] == [(1, 0), (2, 6)]
    assert [raw.number for raw in raws] == [3, 4]


def test_what_cannot_be_read_is_said_once(path: Path) -> None:
    path.mkdir()
    source = Followed(path, "s")
    source.read(0.0)
    source.read(1.0)
    assert source.notes() == [f"{path}: is no regular file; expected a log"]


def test_a_damaged_position_is_said_and_reading_begins_anew(path: Path) -> None:
    path.write_text("one\n")
    source = Followed(path, "s", {"kind": "file", "generations": [{"id": 1}]})
    assert texts(source) == ["one"]
    assert "cannot be understood" in source.notes()[0]
