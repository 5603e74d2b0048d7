"""A disk that is really full: a crash is stored in the room that was kept, and told."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alertpost import START, Post, seen, until

from specwatch.storage.outbox import Outbox
from specwatch.storage.owing import Receiver
from specwatch.storage.reserve import PLENTY, SIZE
from specwatch.storage.store import Reached, Store

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB of its own."""
    (folder := tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, left: int = 0) -> None:
    """Write until the disk holds no byte more, or only so many."""
    found = os.statvfs(disk)
    with (disk / "filler").open("ab", buffering=0) as out:
        room = found.f_bavail * found.f_frsize - left
        while room > 0:
            try:
                room -= out.write(b"x" * min(room, 1 << 20))
            except OSError:
                return


def test_what_somebody_has_to_be_told_is_stored_in_the_room_that_was_kept(disk: Path) -> None:
    said: list[str] = []
    store = Store(disk, said.append)
    store.serve([Receiver(name="hook", least=1)], START)
    assert (disk / "reserve").stat().st_size == SIZE
    fill(disk)
    positions = [Reached(stream=f"s{n}", position="x" * 4000) for n in range(100)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.commit(positions, START)
    assert (disk / "reserve").exists(), "a position alone is not worth it"
    big = seen("1", says="x" * 100_000)
    assert [one.event for one in store.commit([big], START)] == ["finding_raised"]
    assert not (disk / "reserve").exists()
    assert said == [f"{disk}/specwatch.db: the disk is full; what was kept free for findings is used now: make room"]
    with closing(Outbox(store.path)) as box:
        (owed,) = box.owed("hook", START + 60, 9)
        box.heard([owed], START + 61)
        assert box.owed("hook", START + 62, 9) == []
    fill(disk)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.commit([seen("2", "f2", says="x" * 6_000_000)], START)
    (disk / "filler").unlink()
    store.prune(START, 90)
    assert (disk / "reserve").stat().st_size == SIZE
    store.close()


def test_of_a_disk_that_is_nearly_full_nothing_is_kept(disk: Path) -> None:
    fill(disk, PLENTY - (1 << 20))
    Store(disk, lambda _text: None).close()
    assert not (disk / "reserve").exists()


def test_the_daemon_tells_of_a_crash_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    post = Post()
    log, said = tmp_path / "server.log", tmp_path / "said"
    log.write_bytes(b"")
    config = tmp_path / "specwatch.toml"
    config.write_text(
        f'[state]\ndir = "{disk}"\n[[server]]\nname = "llama"\nlogs = ["{log}"]\n'
        f'[[alert]]\nkind = "webhook"\nname = "hook"\nurl = "{post.url}"\n'
    )
    with said.open("wb") as out:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "specwatch.cli", "watch", "--config", config], stdout=out, stderr=out
        )
    try:
        until(lambda: "watch_started" in said.read_text(), "a start")
        fill(disk)
        with log.open("ab") as out:
            out.write((EXAMPLES / "server.log").read_bytes())
        until(lambda: post.got, "an alert")
        assert b"standalone-vocab-mismatch" in post.got[0][2]
        assert "the disk is full" in said.read_text()
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(20)
        post.close()
