"""Places that others can write in: pipes, devices, links and folders that are swapped lead the one who acts nowhere."""

from __future__ import annotations

import http.server
import json
import os
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stage import EXAMPLES, READY, START, Clock, Stage, book

from specwatch.acting import writing
from specwatch.acting.following import Tail
from specwatch.acting.proposals import Inbox
from specwatch.config import load
from specwatch.errors import ApplyError, ConfigError
from specwatch.settings import Server
from specwatch.watching.live import Ready, Told

CRASH = (EXAMPLES / "server.log").read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path).build()


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """What waits for a pipe or reads without an end fails."""

    def late(*_: object) -> None:
        raise AssertionError("it did not come back")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("glob", [True, False])
def test_a_pipe_among_the_logs_is_not_waited_for(stage: Stage, glob: bool) -> None:
    os.mkfifo(stage.folder / "z.log")
    logs = (str(stage.folder / "*.log"),) if glob else (str(stage.folder / "z.log"), str(stage.log))
    assert stage.apply(server=replace(stage.server, logs=logs)).result == "applied"


def test_a_pipe_that_comes_while_waiting_is_not_waited_for(stage: Stage) -> None:
    tail = Tail(Server(name="a", logs=(str(stage.log),)), book().role_of)
    stage.log.unlink()
    os.mkfifo(stage.log)
    assert tail.changes(Clock().now()) == []


@pytest.mark.parametrize("place", ["pipe", "device"])
def test_a_launch_that_is_no_file_is_refused(stage: Stage, place: str) -> None:
    stage.launch.unlink()
    if place == "pipe":
        os.mkfifo(stage.launch)
    else:
        stage.launch.symlink_to("/dev/zero")
    outcome = stage.apply()
    assert outcome.result == "refused"
    assert "is no plain file" in outcome.because


def test_a_launch_that_becomes_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "launch.sh")
    with pytest.raises(ApplyError, match="is no plain file"):
        writing.put(tmp_path / "launch.sh", b"old", b"new")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_server_may_be_named_as_a_folder(stage: Stage, name: str) -> None:
    assert stage.apply(server=replace(stage.server, name=name)).result == "applied"


def test_a_folder_that_is_swapped_meanwhile_leads_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the folder of a script sends a process of root to another folder, right before it writes there."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    (mine / "sudoers").write_bytes(b"old")
    (theirs / "sudoers").write_bytes(b"precious")
    token_hex = secrets.token_hex

    def swap(size: int) -> str:  # called as late as a name for the new file is made
        if mine.is_dir() and not mine.is_symlink():
            mine.rename(tmp_path / "aside")
            mine.symlink_to(theirs)
            (tmp_path / "link").unlink()
            (tmp_path / "link").symlink_to(tmp_path / "aside" / "sudoers")
        return token_hex(size)

    (tmp_path / "link").symlink_to(mine / "sudoers")
    monkeypatch.setattr(secrets, "token_hex", swap)
    writing.put(tmp_path / "link", b"old", b"new")
    assert (theirs / "sudoers").read_bytes() == b"precious"
    assert [one.name for one in theirs.iterdir()] == ["sudoers"]


def test_a_log_that_is_rotated_within_its_glob_is_not_read_again(tmp_path: Path) -> None:
    (log := tmp_path / "server.log").write_text(CRASH)
    tail = Tail(Server(name="a", logs=(str(tmp_path / "server.log*"),)), book().role_of)
    log.rename(tmp_path / "server.log.1")
    log.write_text(START + READY)
    assert _said(tail) == {"ready"}


def test_a_log_that_is_copied_and_truncated_within_its_glob_is_not_read_again(tmp_path: Path) -> None:
    (log := tmp_path / "server.log").write_text(CRASH)
    tail = Tail(Server(name="a", logs=(str(tmp_path / "server.log*"),)), book().role_of)
    shutil.copy(log, tmp_path / "server.log.1")
    log.write_text(START + READY)
    assert _said(tail) == {"ready"}


def test_what_was_written_right_before_a_rotation_is_read(tmp_path: Path) -> None:
    (log := tmp_path / "server.log").write_text(START)
    tail = Tail(Server(name="a", logs=(str(tmp_path / "server.log*"),)), book().role_of)
    with log.open("a") as file:
        file.write(CRASH)
    log.rename(tmp_path / "server.log.1")
    log.write_text("")
    assert _said(tail) == {"ValueError"}


def _said(tail: Tail) -> set[str]:
    found = set()
    for later in (0, 5):
        for change in tail.changes(Clock().now() + later):
            found |= {"ready"} if isinstance(change, Ready) else set()
            found |= {change.incident.error.split(":")[0]} if isinstance(change, Told) else set()
    return found


def test_a_folder_without_an_end_is_removed_from_the_proposals(tmp_path: Path) -> None:
    deep = tmp_path / "proposals"
    deep.mkdir()
    fd = os.open(deep, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    with Inbox(tmp_path) as inbox:
        entries, _ = inbox.entries()
        for one in entries:
            inbox.drop(one.name)
    assert not list(deep.iterdir())


def test_the_evidence_follows_no_link_of_a_model_folder(stage: Stage) -> None:
    """A model repository is a download: its configuration may be a link to whatever root may read."""
    secret = stage.folder / "secret.json"
    secret.write_text(json.dumps({"precious": "dGhpcyBpcyBub3QgeW91cnM"}))
    models = stage.folder / "models"
    shutil.copytree(EXAMPLES / "models", models)
    for name in ("generation_config.json", "tokenizer_config.json"):
        (models / "atlas-8b" / name).unlink(missing_ok=True)
        (models / "atlas-8b" / name).symlink_to(secret)
    outcome = stage.apply(server=replace(stage.server, path_map=(("/models", str(models)),)))
    assert outcome.result == "applied"
    held = (stage.folder / "apply" / outcome.action / "evidence" / "configs.txt").read_text()
    assert "precious" not in held
    assert "vocab_size" in held


def test_a_drop_in_is_no_more_readable_than_the_unit(tmp_path: Path) -> None:
    from specwatch.domain import Change
    from specwatch.launch.targets import plan

    unit = tmp_path / "llm.service"
    unit.write_text("[Service]\nExecStart=/usr/bin/python3 -m sglang.launch_server --model-path /m --api-key sk-1\n")
    unit.chmod(0o640)
    (edit,) = plan(f"systemd:{unit}", [Change(op="set", name="--port", old=None, new="30001")], "0.5.23")
    assert edit.mode == 0o640  # type: ignore[union-attr]


def test_a_command_that_leaves_something_running_has_come_back(tmp_path: Path) -> None:
    from specwatch.runtime.running import run

    done = run(["/bin/sh", "-c", f"yes & echo $! >{tmp_path}/pid; echo started >&2"], timeout=20)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (done.code, done.err) == (0, "started\n")


def test_the_evidence_reads_no_folder_that_only_the_log_names(stage: Stage) -> None:
    precious = stage.folder / "precious"
    precious.mkdir()
    (precious / "config.json").write_text('{"vocab_size": 1, "whose": "roots"}')
    stage.log.write_text(CRASH.replace("/models/atlas-8b", str(precious)))
    maps = stage.server.path_map
    outcome = stage.apply(asked_by="person", server=replace(stage.server, path_map=(*maps, (str(precious),) * 2)))
    assert outcome.action, outcome.because
    held = (stage.folder / "apply" / outcome.action / "evidence" / "configs.txt").read_text()
    assert "roots" not in held
    assert "vocab_size" in held


class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_login_in_the_health_url_is_not_told(stage: Stage) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Well) as endpoint:
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        url = f"http://me:precious1@127.0.0.1:{endpoint.server_port}/health"
        outcome = stage.apply(server=replace(stage.server, health=url))
        endpoint.shutdown()
    assert "answers" in outcome.because
    assert "precious1" not in str(outcome)
    assert "precious1" not in (stage.folder / "apply" / "audit.jsonl").read_text()


@pytest.mark.parametrize("linked", [True, False])
def test_a_configuration_below_a_folder_of_others_is_refused(tmp_path: Path, linked: bool) -> None:
    """Who may rename a folder anywhere above it may put another configuration in its place."""
    (folder := tmp_path / "a" / "b").mkdir(parents=True)
    (path := folder / "specwatch.toml").write_text("")
    if linked:
        (safe := tmp_path / "safe.toml").write_text("")
        path.unlink()
        path.symlink_to(safe)
    load(path)
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(ConfigError, match=r"/a: may be changed by others"):
        load(path)
    (tmp_path / "a").chmod(0o1777)
    load(path)


def test_a_folder_that_is_mounted_read_only_is_nobodys_to_write(tmp_path: Path) -> None:
    (tmp_path / "map").mkdir(mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "specwatch-test", tmp_path / "map"], check=True)
    try:
        (inner := tmp_path / "map" / "data").mkdir(mode=0o755)
        (inner / "specwatch.toml").write_text("")
        with pytest.raises(ConfigError, match="may be changed by others"):
            load(inner / "specwatch.toml")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "map"], check=True)
        load(inner / "specwatch.toml")
    finally:
        subprocess.run(["umount", tmp_path / "map"], check=True)
