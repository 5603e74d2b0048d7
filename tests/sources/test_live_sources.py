"""Journals (with the real journalctl on a real journal), containers' files, and pipes."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path

import pytest

from specwatch.sources import container
from specwatch.sources.base import PLACE_BITS
from specwatch.sources.files import UNHEARD, Files, Pattern
from specwatch.sources.journal import Journal
from specwatch.sources.once import Raw
from specwatch.sources.stream import Pipes

REMOTE = "/lib/systemd/systemd-journal-remote"


def journal(folder: Path, entries: list[tuple[str, str, str]]) -> None:
    """A journal file with entries (invocation, identifier, message)."""
    text = ""
    for number, (invocation, identifier, message) in enumerate(entries):
        text += (
            f"__REALTIME_TIMESTAMP={1_700_000_000_000_000 + number}\n__MONOTONIC_TIMESTAMP={1000 + number}\n"
            "_BOOT_ID=1234567890abcdef1234567890abcdef\n_SYSTEMD_UNIT=sglang.service\n_UID=0\n"
            f"_SYSTEMD_INVOCATION_ID={invocation}\nSYSLOG_IDENTIFIER={identifier}\nMESSAGE={message}\n\n"
        )
    subprocess.run([REMOTE, "-o", folder / "system.journal", "-"], input=text, text=True, check=True)


def read(source: Journal, wanted: int) -> list[tuple[bool, list[Raw]]]:
    """Batches of lines, each with whether it begins another run, until so many lines have come."""
    batches: list[tuple[bool, list[Raw]]] = []
    while sum(len(raws) for _, raws in batches) < wanted:
        raws = source.read(0.0)
        if raws:
            batches.append((source.broke(), raws))
        elif not source.more:
            assert select.select(source.filenos(), [], [], 20)[0], source.notes()
    return batches


def message(raw: Raw) -> str:
    return str(json.loads(raw.text)["MESSAGE"])


def test_a_journal_is_followed_by_runs_and_from_its_cursor_on(tmp_path: Path) -> None:
    entries = [
        ("a", "python", "one"),
        ("a", "specwatch", "our own"),
        ("a", "systemd", "about the unit"),
        ("a", "python", "two"),
        ("b", "python", "three"),
    ]
    journal(tmp_path, entries)
    source = Journal("sglang.service", "s", None, [f"--directory={tmp_path}"])
    batches = read(source, 3)
    assert [(broke, [message(raw) for raw in raws]) for broke, raws in _joined(batches)] == [
        (False, ["one", "two"]),
        (True, ["three"]),
    ]
    assert batches[-1][1][0].offset >> PLACE_BITS == 1
    source.close()

    source = Journal("sglang.service", "s", None, [f"--directory={tmp_path}"])
    (first, *_) = read(source, 1)
    assert message(first[1][0]) == "one"
    source.close()


def _joined(batches: list[tuple[bool, list[Raw]]]) -> list[tuple[bool, list[Raw]]]:
    joined: list[tuple[bool, list[Raw]]] = []
    for broke, raws in batches:
        if joined and not broke:
            joined[-1][1].extend(raws)
        else:
            joined.append((broke, list(raws)))
    return joined


def test_a_journal_goes_on_where_it_was_marked(tmp_path: Path) -> None:
    journal(tmp_path, [("a", "python", "one"), ("a", "python", "two")])
    options = [f"--directory={tmp_path}"]
    source = Journal("sglang.service", "s", None, options)
    read(source, 2)
    source.mark()
    position = json.loads(json.dumps(source.position()))
    source.close()
    (tmp_path / "system.journal").unlink()
    journal(tmp_path, [("a", "python", "one"), ("a", "python", "two"), ("b", "python", "three")])
    # another file has other cursors; by time journalctl finds the place all the same
    source = Journal("sglang.service", "s", position, options)
    ((broke, raws),) = read(source, 1)
    assert (broke, message(raws[0]), raws[0].number) == (True, "three", 3)
    source.close()


def test_a_container_is_found_by_its_name(tmp_path: Path) -> None:
    for identity, name in (("aaaaaa111", "sglang-1"), ("bbbbbb222", "other")):
        (tmp_path / identity).mkdir()
        (tmp_path / identity / "config.v2.json").write_text(json.dumps({"Name": f"/{name}"}))
        (tmp_path / identity / f"{identity}-json.log").write_text("{}\n")
    for spec, wanted in (("sglang-*", ["aaaaaa111"]), ("bbbbbb", ["bbbbbb222"]), ("nobody", [])):
        files = Files(lambda stream: None, listen=False)
        files.follow([container.docker("a", spec, tmp_path)])
        files.wake(0.0)
        assert [followed.path.parent.name for _, followed in files.followed.values()] == wanted
        files.close()


def test_a_pod_is_found_with_its_restarts_and_without_its_rotated_parts(tmp_path: Path) -> None:
    folder = tmp_path / "ns_sglang-0_1234" / "sglang"
    folder.mkdir(parents=True)
    for name in ("0.log", "1.log", "0.log.20261130-120000", "0.log.20261130-110000.gz"):
        (folder / name).write_text("x\n")
    files = Files(lambda stream: None, listen=False)
    files.follow([container.pods("a", "ns/sglang-*/sglang", tmp_path)])
    files.wake(0.0)
    assert sorted(followed.path.name for _, followed in files.followed.values()) == ["0.log", "1.log"]
    files.close()


def test_rotated_parts_that_a_glob_gives_are_no_logs_of_their_own(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.2.gz", "a-20261130.log", "b.log"):
        (tmp_path / name).write_text(f"{name}\n")
    files = Files(lambda stream: None, listen=False)
    files.follow([Pattern("s", f"{tmp_path}/*")])
    files.wake(0.0)
    assert sorted(followed.path.name for _, followed in files.followed.values()) == ["a.log", "b.log"]
    files.close()


@pytest.mark.parametrize("listen", [True, False])
def test_a_directory_that_appears_later(tmp_path: Path, listen: bool) -> None:
    files = Files(lambda stream: None, listen=listen)
    files.follow([Pattern("s", f"{tmp_path}/*/server.log")])
    files.wake(0.0)
    assert not files.followed
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "server.log").write_text("x\n")
    files.wake(100.0)
    assert len(files.followed) == 1
    files.close()


@pytest.mark.parametrize("there", [True, False])
def test_a_first_file_where_none_is_announced_is_found_soon(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "logs"
    if there:
        folder.mkdir()
    files = Files(lambda stream: None, listen=not there)
    files.follow([Pattern("s", f"{folder}/*.log")])
    files.wake(100.0)
    assert files.due(100.0) <= UNHEARD
    folder.mkdir(exist_ok=True)
    (folder / "a.log").write_text("x\n")
    assert len(files.wake(100.0 + UNHEARD)) == 1
    files.close()


def test_pipes_give_lines_in_the_order_in_which_they_come() -> None:
    read_end, write_end = os.pipe()
    passed: list[bytes] = []
    pipes = Pipes("s", "<pipe>", [read_end], lambda fd, data: passed.append(data))
    os.write(write_end, b"one\ntw")
    assert [(raw.number, raw.offset, raw.text) for raw in pipes.read(0.0)] == [(1, 0, "one")]
    rest = pipes.rest()
    assert rest is not None
    assert rest.text == "tw"
    os.write(write_end, b"o\nlast")
    os.close(write_end)
    assert [raw.text for raw in pipes.read(0.0)] == ["two", "last"]
    assert pipes.ended
    assert passed == [b"one\ntw", b"o\nlast"]
    os.close(read_end)
