"""The daemon as a whole, in this process: files, findings over time, health, inspection, and what is said."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from daytime import run_of

from specwatch.config import Server, Settings, Watch
from specwatch.daemon import Daemon
from specwatch.rulebook.book import Rulebook, load_directories
from specwatch.sources.files import RESCAN
from specwatch.storage.store import Kept, Reached, Store
from specwatch.watching.casework import DEADLINE

READY = "[2026-01-01 23:00:00] The server is fired up and ready to roll!"


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return 1_800_000_000 + self.at


@pytest.fixture(scope="module")
def book() -> Rulebook:
    return load_directories().book


class Box:
    """A daemon with a clock and a store of its own, and what it said."""

    def __init__(self, folder: Path, book: Rulebook, server: Server, watch: Watch | None = None) -> None:
        self.folder, self.book = folder, book
        self.settings = Settings(servers=(server,), watch=watch or Watch())
        self.clock = Hand()
        self.said: list[tuple[str, dict[str, object]]] = []
        self.start()

    def start(self) -> None:
        self.store = Store(self.folder / "state", lambda text: None)
        self.daemon = Daemon(self.settings, self.store, self.book, self.say, self.clock)

    def stop(self) -> None:
        self.daemon.close()
        self.store.close()

    def say(self, level: str, event: str, **fields: object) -> None:
        self.said.append((event, fields))

    def events(self) -> list[str]:
        said, self.said = self.said, []
        return [event for event, _ in said if event not in ("stream_followed", "source_troubled")]

    def go(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass, in steps as a loop would take them."""
        until = self.clock.at + seconds
        while True:
            self.daemon.turn(0.0)
            while self.daemon.reading:
                self.daemon.turn(0.0)
            if self.clock.at >= until:
                return
            self.clock.at += step

    def until_said(self, event: str) -> None:
        """Until something is said that a child process has to answer first; time stands still."""
        while event not in [name for name, _ in self.said]:
            self.daemon.turn(0.02)

    def findings(self, state: str | None = None) -> list[Kept]:
        return self.store.findings(state=state)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.touch()
    return path


@pytest.fixture
def box(tmp_path: Path, log: Path, book: Rulebook) -> Iterator[Box]:
    box = Box(tmp_path, book, Server(name="a", logs=(str(log),)))
    box.go(0)
    box.events()
    yield box
    box.stop()


def write(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def crash_of(name: str, number: int) -> list[str]:
    """The same crash at another time."""
    return [f"ValueError: the {name} broke" if line.startswith("ValueError") else line for line in run_of(number)]


def test_a_crash_is_raised_once_and_not_again_after_a_restart(box: Box, log: Path) -> None:
    write(log, run_of(0))
    box.go(1)
    assert box.events() == ["finding_raised"]
    box.stop()
    box.start()
    box.go(5)
    assert box.events() == []
    (kept,) = box.findings()
    assert (kept.state, kept.occurrences) == ("firing", 1)
    root = kept.document["root"]
    assert isinstance(root, dict)
    assert (root["source"], root["line"], root["text"]) == (str(log), 7, "ValueError: the a broke")


def test_no_secret_of_a_launch_is_stored_and_it_is_the_same_finding_after_a_restart(box: Box, log: Path) -> None:
    lines = [line.replace("tp_size=2", "tp_size=2, api_key='s3cr3t-of-ours'") for line in run_of(0)]
    write(log, lines[:3])  # what has to be known of this start is in the position now, its crash comes later
    box.go(3)
    box.stop()
    stored = b"".join(path.read_bytes() for path in (box.folder / "state").iterdir())
    assert b"server_args=" in stored
    assert b"s3cr3t-of-ours" not in stored
    box.start()
    write(log, lines[3:])
    box.go(3)
    write(log, [line.replace("2026-01-01 00:", "2026-01-01 01:") for line in lines])
    box.go(3)
    (kept,) = box.findings()
    assert kept.occurrences == 2


def test_it_is_said_within_two_seconds_of_its_last_line(box: Box, log: Path) -> None:
    write(log, run_of(0))
    began = box.clock.at
    while not box.events():
        box.go(0.1, step=0.1)
    assert box.clock.at - began <= 2.0


def test_ready_again_resolves_it_and_a_return_is_said(box: Box, log: Path) -> None:
    write(log, run_of(0))
    box.go(1)
    write(log, [*run_of(1)[:3], READY])
    box.go(2)
    assert box.events() == ["finding_raised", "finding_resolved"]
    write(log, crash_of("a", 400))
    box.go(2)
    assert box.events() == ["finding_returned"]
    assert box.findings()[0].occurrences == 2


def test_a_crash_loop_is_one_finding(box: Box, log: Path) -> None:
    for number in range(5):
        write(log, crash_of("a", number))
        box.go(2)
    assert box.events() == ["finding_raised", "crash_loop_recognised"]
    (kept,) = box.findings()
    assert (kept.occurrences, kept.looping) == (5, True)


def test_a_claim_that_the_log_refutes_is_taken_back(box: Box, log: Path) -> None:
    batch = "[2026-01-01 00:{:02}:00 TP0] Decode batch. #running-req: 1, #token: 5"
    write(log, [batch.format(1), *run_of(0)[3:8]])
    box.go(3)
    write(log, [batch.format(2)])
    box.go(3)
    assert box.events() == ["finding_raised", "finding_withdrawn"]
    assert box.findings()[0].state == "refuted"
    box.stop()
    box.start()
    box.go(300, step=10)
    assert box.events() == []


def test_a_log_that_appears_later_is_found(tmp_path: Path, book: Rulebook) -> None:
    box = Box(tmp_path, book, Server(name="a", logs=(str(tmp_path / "*.log"),)))
    box.go(0)
    write(tmp_path / "new.log", run_of(0))
    box.go(1)
    assert box.events() == ["finding_raised"]
    (tmp_path / "new.log").rename(tmp_path / "new.log.1")
    write(tmp_path / "new.log", run_of(1))
    write(tmp_path / "other.log", run_of(2))
    box.go(2)
    assert box.events() == ["finding_raised", "finding_raised"]
    assert len(box.findings()) == 3
    box.stop()


def test_without_inotify_the_files_are_polled(tmp_path: Path, log: Path, book: Rulebook) -> None:
    store = Store(tmp_path / "state", lambda text: None)
    clock = Hand()
    said: list[str] = []
    settings = Settings(servers=(Server(name="a", logs=(str(log),)),))
    daemon = Daemon(settings, store, book, lambda level, event, **rest: said.append(event), clock, listen=False)
    daemon.turn(0.0)
    write(log, run_of(0))
    for _ in range(20):
        clock.at += 0.1
        daemon.turn(0.0)
    assert clock.at < 1000 + RESCAN
    assert "finding_raised" in said
    daemon.close()
    store.close()


def test_a_full_disk_stops_writing_and_not_reading(box: Box, log: Path) -> None:
    pages = box.store._db.execute("PRAGMA page_count").fetchone()[0]
    box.store._db.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(20):
        write(log, [*run_of(number), "x" * 3000])
    box.go(10)
    events = box.events()
    assert events.count("store_unwritable") == 1
    assert events.count("finding_unstored") == 20
    assert box.findings() == []
    box.store._db.execute("PRAGMA max_page_count = 1000000")
    box.go(10)
    assert "store_recovered" in box.events()
    assert len(box.findings()) == 20


def test_the_models_are_read_in_a_child(tmp_path: Path, book: Rulebook, examples: Path, log: Path) -> None:
    models = str(examples / "models")
    server = Server(name="a", logs=(str(log),), path_map=(("/models", models),), models=(models,))
    box = Box(tmp_path, book, server)
    box.go(0)
    shutil.copyfile(examples / "server.log", log)
    box.go(1.5)
    box.until_said("finding_raised")
    (kept,) = box.findings()
    verdict = kept.document["verdict"]
    assert isinstance(verdict, dict)
    assert verdict["status"] == "broken"
    assert [fix["id"] for fix in kept.document["fixes"]] == ["matching-draft", "drop-speculation"]  # type: ignore[attr-defined]
    box.stop()


def test_models_that_take_too_long_do_not_delay_the_finding(
    tmp_path: Path, book: Rulebook, examples: Path, log: Path
) -> None:
    server = Server(name="a", logs=(str(log),), path_map=(("/models", str(examples / "models")),))
    box = Box(tmp_path, book, server, Watch(inspect_time=3.0))
    box.go(0)
    shutil.copyfile(examples / "server.log", log)
    began = box.clock.at
    box.go(0.5)
    box.clock.at = began + 0.5 + DEADLINE  # the child has had no time at all
    box.daemon.turn(0.0)
    assert "finding_raised" in box.events()
    (early,) = box.findings()
    assert "not read in time" in str(early.document["verdict"])
    while "not read in time" in str(box.findings("firing")[0].document["verdict"]):
        box.daemon.turn(0.02)
    (late,) = box.findings("firing")
    assert late.document["verdict"]["status"] == "broken"  # type: ignore[index]
    assert late.occurrences == 1
    box.stop()


def test_a_hang_needs_silence_and_the_endpoint(tmp_path: Path, log: Path, book: Rulebook) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    health = f"http://127.0.0.1:{port}/health"
    box = Box(tmp_path, book, Server(name="a", logs=(str(log),), health=health), Watch(silence=60.0))
    write(log, [READY])
    box.go(50, step=1.0)
    assert box.events() == []
    box.go(20, step=1.0)
    assert box.events() == ["finding_raised"]
    (kept,) = box.findings()
    assert (kept.severity, kept.document["cause"]) == ("degraded", "hang")
    assert "no line for 6" in str(kept.document["says"])
    box.stop()
    box.start()
    box.go(50, step=1.0)
    assert box.events() == [], "a restart of ours is no sign of its life"
    write(log, ["[2026-01-01 00:00:00 TP0] Decode batch. #running-req: 1"])
    box.go(5, step=1.0)
    assert box.events() == ["finding_resolved"], "also by another process of ours"
    box.stop()


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_zombie_answers_and_is_dead(tmp_path: Path, log: Path, book: Rulebook) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        health = f"http://127.0.0.1:{web.server_address[1]}/health"
        box = Box(tmp_path, book, Server(name="a", logs=(str(log),), health=health))
        write(log, run_of(0))
        for _ in range(150):
            box.daemon.turn(0.01)
            box.clock.at += 1.0
        assert box.events() == ["finding_raised", "finding_raised"]
        assert {one.document["cause"] for one in box.findings("firing")} == {"", "zombie"}
        box.stop()
        web.shutdown()


def test_a_reload_follows_what_is_new_and_keeps_the_rest(box: Box, tmp_path: Path, log: Path) -> None:
    other = tmp_path / "b.log"
    write(other, run_of(1))
    both = Settings(servers=(*box.settings.servers, Server(name="b", logs=(str(other),))))
    box.daemon.configure(both, box.book)
    write(log, run_of(0))
    box.go(2)
    assert sorted(one.server for one in box.findings()) == ["a", "b"]
    box.daemon.configure(box.settings, box.book)
    box.events()
    write(other, run_of(2))
    box.go(2)
    assert box.events() == []


def test_the_store_can_be_read_while_the_daemon_runs(box: Box, log: Path) -> None:
    write(log, run_of(0))
    box.go(1)
    reader = Store(box.folder / "state", lambda text: None, read_only=True)
    assert len(reader.findings()) == 1
    with pytest.raises(sqlite3.OperationalError):
        reader.commit([Reached(stream="x", position="{}")], 0.0)
    reader.close()


def test_memory_of_a_hostile_log_is_bounded(box: Box, log: Path) -> None:
    """A million lines of beginnings of tracebacks: nothing is held but the last few."""
    import resource

    block = "\n".join([*run_of(0)[3:6], "ValueError: " + "x" * 200]) + "\n"
    box.go(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with log.open("a") as file:
        for _ in range(20_000):
            file.write(block)
    box.go(3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    assert os.path.getsize(log) > 5_000_000  # noqa: PTH202
    assert json.dumps(box.findings()[0].document)
