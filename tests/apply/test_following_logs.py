"""What a log says from a place on: rotated, truncated, new files; and which crash of it fires now."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from stage import EXAMPLES, READY, START, Clock, book

from specwatch.acting.following import Tail, lines, newest
from specwatch.acting.revalidating import firing
from specwatch.errors import ApplyError
from specwatch.settings import Server
from specwatch.watching.live import Ready, Told

CRASH = (EXAMPLES / "server.log").read_text()
OTHER = """[2026-11-30 16:00:00] server_args={'model_path': '/models/atlas-8b', 'port': 31993}
[2026-11-30 16:00:10 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 3000, in run_scheduler_process
    scheduler = Scheduler(
RuntimeError: something else entirely

[2026-11-30 16:00:11] Received sigquit from a child process. It usually means the child failed.
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (made := tmp_path / "server.log").write_text(CRASH)
    return made


def server(*logs: object) -> Server:
    return Server(name="a", logs=tuple(str(log) for log in logs))


def said(tail: Tail) -> list[str]:
    found = []
    for later in (0, 5):
        for change in tail.changes(Clock().now() + later):
            found += ["ready"] if isinstance(change, Ready) else []
            found += [change.incident.error.split(":")[0]] if isinstance(change, Told) else []
    return list(dict.fromkeys(found))


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_only_what_comes_after_it_began(log: Path) -> None:
    tail = Tail(server(log), book().role_of)
    assert said(tail) == []
    append(log, START + READY)
    assert said(tail) == ["ready"]
    append(log, CRASH)
    assert said(tail) == ["ValueError"]


def test_another_tail_goes_on_from_where_the_first_began(log: Path) -> None:
    first = Tail(server(log), book().role_of)
    append(log, START + READY)
    assert said(first) == ["ready"]
    assert said(Tail(server(log), book().role_of, first.begin)) == ["ready"]
    assert said(Tail(server(log), book().role_of)) == []


@pytest.mark.parametrize("how", ["renamed", "truncated", "replaced", "new in a glob"])
def test_whatever_happens_to_the_file(log: Path, how: str) -> None:
    tail = Tail(server(log if how != "new in a glob" else log.with_name("*.log")), book().role_of)
    if how == "renamed":
        log.rename(log.with_name("server.log.1"))
        log.write_text(START + READY)
    elif how == "truncated":
        with log.open("r+") as file:
            file.truncate(0)
        append(log, START + READY)
    elif how == "replaced":
        (new := log.with_name("new")).write_text(START + READY)
        new.rename(log)
    else:
        log.with_name("b.log").write_text(START + READY)
    assert said(tail) == ["ready"]


def test_a_log_that_comes_later(tmp_path: Path) -> None:
    tail = Tail(server(tmp_path / "later.log"), book().role_of)
    assert said(tail) == []
    (tmp_path / "later.log").write_text(CRASH)
    assert said(tail) == ["ValueError"]


def test_the_end_of_a_large_log_is_enough(log: Path) -> None:
    raws = list(lines(log, 1000))
    assert sum(len(raw.text) + 1 for raw in raws) <= 1000
    assert raws[-1].text == CRASH.split("\n")[-2]
    assert CRASH[raws[0].offset :].startswith(raws[0].text + "\n")


def test_of_a_glob_the_newest_file_counts(log: Path) -> None:
    old = log.with_name("old.log")
    old.write_text("x")
    os.utime(old, (1, 1))
    log.with_name("server.log.2.gz").write_bytes(gzip.compress(b"x"))
    assert newest(server(log.with_name("*"))) == [log]
    assert newest(server(log.with_name("*"), old)) == [log, old]


def test_the_crash_of_the_last_run_fires(log: Path) -> None:
    ((incident, tail),) = firing(server(log), book())
    assert incident.error.startswith("ValueError: STANDALONE")
    assert tail[-1] == CRASH.split("\n")[-2]


def test_a_crash_before_the_last_start_that_crashed_is_history(log: Path) -> None:
    append(log, OTHER)
    ((incident, _),) = firing(server(log), book())
    assert incident.error == "RuntimeError: something else entirely"


def test_a_start_that_still_loads_leaves_the_crash_firing(log: Path) -> None:
    append(log, START)
    assert len(firing(server(log), book())) == 1


def test_a_server_that_became_ready_fires_nothing(log: Path) -> None:
    append(log, START + READY)
    assert firing(server(log), book()) == []


def test_of_several_logs_the_latest_crash_comes_first(log: Path) -> None:
    (other := log.with_name("other")).write_text(OTHER)
    found = [incident.error.split(":")[0] for incident, _ in firing(server(log, other), book())]
    assert found == ["RuntimeError", "ValueError"]


def test_a_log_with_nothing_in_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.log").touch()
    with pytest.raises(ApplyError, match=r"a: nothing is written in .*a\.log"):
        firing(server(tmp_path / "a.log"), book())


def test_without_a_log_nothing_can_be_told(tmp_path: Path) -> None:
    with pytest.raises(ApplyError, match=r"none of its logs is there: .*nowhere"):
        firing(server(tmp_path / "nowhere"), book())
