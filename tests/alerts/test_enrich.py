"""Which finding explains an alert, and that no alert is lost or delayed by looking it up."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from alertpost import START, new_store, seen

from specwatch.alerts.enrich import began, enrich
from specwatch.settings import Enrich, Server, Settings, Web
from specwatch.storage.store import Fact, Recovered, Store, Withdrawn

Run = Callable[..., "CompletedProcess[str]"]
SERVER = Server(name="llama", logs=("/x",))
SETTINGS = Settings(servers=(SERVER,), web=Web(url="https://sw.example/"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path)


def alert(at: float = START, **labels: str) -> bytes:
    starts = datetime.fromtimestamp(at, UTC).isoformat()
    return json.dumps({"labels": labels or {"job": "llama"}, "startsAt": starts, "annotations": {"a": "b"}}).encode()


def ask(store: Store, body: bytes, settings: Settings = SETTINGS) -> Mapping[str, Any]:
    done = enrich(body, store.path, settings, now=START)
    assert done.because == ""
    found: Mapping[str, Any] = json.loads(done.body)["annotations"]
    return found


def put(store: Store, *facts: Fact, now: float = START) -> None:
    store.commit(facts, now)


def test_an_alert_gets_cause_proof_and_command(store: Store) -> None:
    put(store, seen("1"))
    assert ask(store, alert()) == {
        "a": "b",
        "specwatch_cause": "/models/draft has 384 tokens, /models/target has 320",
        "specwatch_evidence": "target vocab_size = 320 (/models/target/config.json); "
        "draft vocab_size = 384 (/models/draft/config.json)",
        "specwatch_fix": "python -m sglang.launch_server --model-path '/models/target x'",
        "specwatch_applicability": "safe",
        "specwatch_status": "firing, proved",
        "specwatch_url": "https://sw.example/findings/llama/f1",
    }


def test_what_is_not_proved_says_why_and_shows_the_line(store: Store) -> None:
    verdict = {"status": "unknown", "because": "the model is not on this machine", "evidence": []}
    put(store, seen("1", verdict=verdict, fixes=[]))
    found = ask(store, alert())
    assert found["specwatch_status"] == "firing, not proved: the model is not on this machine"
    assert found["specwatch_evidence"].startswith("server.log:83: ValueError: STANDALONE")
    assert "specwatch_fix" not in found, "nothing is made up"
    assert "specwatch_applicability" not in found


def test_a_fix_by_hand_is_no_command(store: Store) -> None:
    fix = {"id": "x", "applicability": "manual", "why": "free /dev/shm", "because": "", "command": None}
    put(store, seen("1", fixes=[fix]))
    found = ask(store, alert())
    assert found["specwatch_fix"] == "by hand: free /dev/shm (specwatch findings show f1)"
    assert found["specwatch_applicability"] == "manual"


def test_another_server_explains_nothing(store: Store) -> None:
    put(store, seen("1"), seen("1", server="qwen"))
    body = alert(job="something")
    assert enrich(body, store.path, SETTINGS, now=START).body == body


def test_a_server_that_only_the_store_knows(store: Store) -> None:
    put(store, seen("1", server="server"))
    assert ask(store, alert(job="server"), Settings())["specwatch_status"] == "firing, proved"


def test_two_servers_are_none_and_it_is_said(store: Store) -> None:
    put(store, seen("1"), seen("1", server="qwen"))
    settings = Settings(servers=(SERVER, Server(name="qwen", logs=("/y",))))
    body = alert(job="llama", instance="qwen", alertname="Down")
    done = enrich(body, store.path, settings, now=START)
    assert done.body == body
    assert done.notes == ("Down may be about llama, qwen: nothing is said of it",)


@pytest.mark.parametrize(("at", "so"), [(-1801.0, False), (-1799.0, True), (0.0, True), (86400.0, True)])
def test_what_fires_explains_what_began_since_shortly_before(store: Store, at: float, so: bool) -> None:
    put(store, seen("1"))
    assert ("specwatch_cause" in ask(store, alert(START + at))) == so


@pytest.mark.parametrize(("at", "so"), [(-1801.0, False), (0.0, True), (1799.0, True), (1801.0, False)])
def test_what_is_resolved_explains_its_own_time_only(store: Store, at: float, so: bool) -> None:
    put(store, seen("1"), Recovered(server="llama", at=START + 60, because="ready again"))
    found = ask(store, alert(START + at))
    assert ("specwatch_cause" in found) == so
    assert not so or found["specwatch_status"] == "resolved: ready again"


def test_what_returned_does_not_explain_the_time_in_between(store: Store) -> None:
    put(store, seen("1"), Recovered(server="llama", at=START + 60, because="ready"))
    put(store, seen("2", at=START + 90_000))
    assert "specwatch_cause" not in ask(store, alert(START + 40_000))
    assert "specwatch_cause" in ask(store, alert(START + 90_000))


@pytest.mark.parametrize("state", ["refuted", "superseded"])
def test_what_was_withdrawn_explains_nothing(store: Store, state: str) -> None:
    put(store, seen("1"))
    put(store, Withdrawn(key="llama f1 1", state=state, because="it lives"))
    assert "specwatch_cause" not in ask(store, alert())


def test_firing_before_resolved_then_the_worst_then_the_latest(store: Store) -> None:
    put(store, seen("1", "old"), Recovered(server="llama", at=START + 1, because="ready"))
    put(store, seen("1", "slow", severity="degraded", at=START + 9))
    assert ask(store, alert())["specwatch_url"].endswith("/slow")
    put(store, seen("1", "first", at=START + 2), seen("1", "last", at=START + 3))
    assert ask(store, alert())["specwatch_url"].endswith("/last")


def test_what_stands_there_is_kept(store: Store) -> None:
    put(store, seen("1"))
    body = b'{"labels":{"job":"llama"},"annotations":{"specwatch_cause":"mine"}}'
    found = ask(store, body)
    assert found["specwatch_cause"] == "mine"
    assert found["specwatch_fix"]


def test_an_address_of_this_machine_names_the_server_behind_its_port(store: Store) -> None:
    put(store, seen("1"))
    settings = Settings(servers=(Server(name="llama", logs=("/x",), health="http://127.0.0.1:30000/health"),))
    assert "specwatch_cause" in ask(store, alert(instance=f"{socket.gethostname()}:30000"), settings)
    assert "specwatch_cause" not in ask(store, alert(instance="192.0.2.1:30000"), settings)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", START),
        ("0001-01-01T00:00:00Z", START),
        ("2026-11-30T12:00:00.123456789Z", 1796040000.123456),
        ("2026-11-30T14:00:00+02:00", 1796040000.0),
        ("yesterday", None),
    ],
)
def test_times(text: str, at: float | None) -> None:
    assert began(text, START) == at


def test_a_missing_or_broken_store_loses_no_alert(tmp_path: Path) -> None:
    done = enrich(alert(), tmp_path / "none.db", SETTINGS)
    assert (done.body, done.readable) == (alert(), True)
    assert "cannot be asked" in done.because
    (tmp_path / "x.db").write_bytes(b"garbage" * 1000)
    assert enrich(alert(), tmp_path / "x.db", SETTINGS).body == alert()


def test_a_broken_document_loses_no_alert(store: Store) -> None:
    put(store, seen("1"))
    with contextlib.closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE finding SET document = '{'")
        db.commit()
    done = enrich(alert(), store.path, SETTINGS)
    assert done.body == alert()
    assert "cannot be asked" in done.because


def test_a_locked_store_passes_the_alert_after_the_deadline(store: Store) -> None:
    put(store, seen("1"))
    settings = Settings(servers=(SERVER,), enrich=Enrich(deadline=0.3))
    store.close()
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # with its usual journal, reading waits for nobody
        db.execute("BEGIN EXCLUSIVE")
        done = enrich(alert(), store.path, settings)
    assert done.body == alert()
    assert done.because


def test_a_store_that_hangs_passes_the_alert_after_the_deadline(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hangs.db")  # opening it waits for a writer, as a dead network file system would
    settings = Settings(servers=(SERVER,), enrich=Enrich(deadline=0.3))
    started = time.monotonic()
    done = enrich(alert(), tmp_path / "hangs.db", settings)
    assert time.monotonic() - started < 5.0, "the deadline was kept"
    assert done.body == alert()
    assert done.because
    with contextlib.suppress(OSError):
        os.close(os.open(tmp_path / "hangs.db", os.O_WRONLY | os.O_NONBLOCK))


# the command


def test_the_command_is_a_filter(specwatch: Run, tmp_path: Path) -> None:
    put(new_store(tmp_path), seen("1", at=time.time()))
    done = specwatch("enrich", "--state", tmp_path, stdin='{"labels": {"job": "llama"}, "n": 1.0}\n')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith('"labels": {"job": "llama"}, "n": 1.0}\n')
    assert json.loads(done.stdout)["annotations"]["specwatch_applicability"] == "safe"


@pytest.mark.parametrize(
    ("stdin", "code", "says"),
    [
        (b'{"labels": {"job": "other"}}\n', 0, ""),
        (b"not json \xff", 3, "not JSON"),
        (b"", 3, "not JSON"),
        (b"[" * 100_000, 3, "nested too deeply"),
        (b'{"x": 1}', 3, "no alerts"),
    ],
)
def test_the_command_gives_back_what_it_got(tmp_path: Path, stdin: bytes, code: int, says: str) -> None:
    new_store(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", "enrich", "--state", str(tmp_path)],
        input=stdin, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, stdin)
    assert says in done.stderr.decode()
    assert bool(says) == bool(done.stderr)


def test_the_command_without_a_store_loses_no_alert(specwatch: Run, tmp_path: Path) -> None:
    done = specwatch("enrich", "--state", tmp_path, stdin='{"labels": {}}')
    assert (done.returncode, done.stdout) == (2, '{"labels": {}}')
    assert "holds no store" in done.stderr
    assert specwatch("enrich", "--config", tmp_path / "none.toml", stdin="[]").stdout == "[]"


def test_of_too_many_alerts_the_first_get_their_annotations(store: Store) -> None:
    put(store, seen("1"))
    body = ('{"alerts": [' + ", ".join([alert().decode()] * 30) + "]}").encode()
    ticks = itertools.count(0.0, 0.1)
    done = enrich(body, store.path, replace(SETTINGS, enrich=Enrich(deadline=2.0)), now=START, ticks=ticks.__next__)
    assert done.because == ""
    found = ["specwatch_cause" in one["annotations"] for one in json.loads(done.body)["alerts"]]
    assert found == [True] * 12 + [False] * 18
    assert done.notes == ("the last 18 alerts of many pass unchanged: the time was up",)


def test_an_alert_with_more_labels_than_can_be_asked_for(store: Store) -> None:
    put(store, seen("1"))
    labels = {"job": "llama", **{f"n{n}": f"v{n}" for n in range(300_000)}}
    assert "specwatch_cause" in ask(store, json.dumps({"labels": labels}).encode())
