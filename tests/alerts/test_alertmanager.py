"""With a real Alertmanager: our alerts fire and resolve in it, and its alerts pass through us with what we know."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from alertpost import Post, new_store, seen, until

from specwatch.alerts.kinds import receivers
from specwatch.sending.sender import Sender
from specwatch.settings import Alert, Settings, Web
from specwatch.storage.outbox import Outbox
from specwatch.storage.store import Recovered

PROGRAM = "prometheus-alertmanager"
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as end:
        return int(end.getsockname()[1])


class Alertmanager:
    """One on loopback that tells everything to a webhook."""

    def __init__(self, folder: Path, webhook: str) -> None:
        self.port, self.folder = free_port(), folder
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir()
        (folder / "am.yml").write_text(
            "route: {receiver: hook, group_by: [alertname], group_wait: 10ms, group_interval: 500ms}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: '{webhook}', send_resolved: true}}]}}]\n"
        )
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    PROGRAM,
                    f"--config.file={self.folder / 'am.yml'}",
                    f"--storage.path={self.folder / f'data{self.starts}'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--cluster.listen-address=",
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        until(self.ready, "Alertmanager is ready")

    def ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return bool(self.get("/api/v2/status"))
        except OSError:
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return json.load(answer)

    def raise_alert(self, **labels: str) -> None:
        alert = {"labels": labels, "annotations": {"summary": "no answer"}}
        request = urllib.request.Request(
            self.url + "/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=5).close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def post() -> Iterator[Post]:
    one = Post()
    yield one
    one.close()


def told(post: Post) -> list[tuple[str, str]]:
    """State and fingerprint of our alerts in what the webhook got."""
    return [(a["status"], a["labels"]["fingerprint"]) for body in post.bodies() for a in body["alerts"]]


def verdicts(store: Path) -> list[str]:
    """What is proved of the findings of a store."""
    if not store.exists():
        return []
    with contextlib.closing(sqlite3.connect(store)) as db, contextlib.suppress(sqlite3.Error):
        return [json.loads(document)["verdict"]["status"] for (document,) in db.execute("SELECT document FROM finding")]
    return []


def test_our_alerts_fire_are_refreshed_and_resolve(tmp_path: Path, post: Post) -> None:
    manager = Alertmanager(tmp_path / "am", post.url)
    ahead = [0.0]

    def wall() -> float:
        return time.time() + ahead[0]

    store = new_store(tmp_path / "state")
    settings = Settings(
        alerts=(Alert(kind="alertmanager", name="am", url=manager.url, labels=(("team", "llm"),)),),
        web=Web(url="https://sw.example"),
    )
    store.serve(receivers(settings), wall())
    sender = Sender(store.path, settings, lambda level, event, **fields: None, wall=wall)
    sender.start()
    try:
        store.commit([seen("1", at=wall())], wall())
        until(lambda: ("firing", "f1") in told(post), "it fires")
        (alert,) = manager.get("/api/v2/alerts")
        assert alert["labels"] == {
            "alertname": "SpecwatchFinding",
            "server": "llama",
            "rule": "standalone-vocab-mismatch",
            "cause": "vocabularies-differ",
            "severity": "fatal",
            "fingerprint": "f1",
            "team": "llm",
        }
        assert alert["annotations"]["specwatch_fix"].startswith("python -m sglang.launch_server")
        assert alert["annotations"]["specwatch_status"] == "firing, proved"
        assert alert["generatorURL"] == "https://sw.example/findings/llama/f1"

        ends = alert["endsAt"]
        ahead[0] += 61  # what is not sent again resolves by itself
        until(lambda: manager.get("/api/v2/alerts")[0]["endsAt"] > ends, "it is refreshed")

        manager.stop()  # and forgets everything
        store.commit([seen("1", "f2", at=wall())], wall())
        manager.start()
        ahead[0] += 61
        until(lambda: {a["labels"]["fingerprint"] for a in manager.get("/api/v2/alerts")} == {"f1", "f2"}, "both again")

        ahead[0] = 0.0  # the two clocks agree again: one that is ahead resolves late
        store.commit([Recovered(server="llama", at=wall() + 200, because="the server is ready again")], wall())
        until(lambda: {("resolved", "f1"), ("resolved", "f2")} <= set(told(post)), "they resolve")
    finally:
        sender.stop()
        manager.stop()


def test_an_alert_passes_through_the_daemon_and_gains_the_cause(tmp_path: Path, post: Post, examples: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(
        (examples / "server.log").read_bytes().replace(b"2026-11-30", datetime.now().strftime("%F").encode())
    )
    port = free_port()
    config = tmp_path / "specwatch.toml"
    config.write_text(
        f'[[server]]\nname = "atlas"\nlogs = ["{log}"]\npath_map = {{ "/models" = "{examples}/models" }}\n'
        f'[state]\ndir = "{tmp_path}/state"\n[web]\nlisten = "127.0.0.1:{port}"\n'
        f'[enrich]\nwindow = 90000\nforward = ["{post.url}/next"]\n'
    )
    manager = Alertmanager(tmp_path / "am", f"http://127.0.0.1:{port}/alertmanager")
    with (tmp_path / "said").open("wb") as said:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "specwatch.cli", "watch", "--config", str(config), "--allow-insecure-permissions"],
            stderr=said,
        )
    try:
        until(lambda: "broken" in verdicts(tmp_path / "state" / "specwatch.db"), (tmp_path / "said").read_text())
        manager.raise_alert(alertname="InferenceDown", job="atlas", severity="page")
        until(lambda: post.got, "it comes through")
        manager.raise_alert(alertname="DiskFull", job="storage")
        until(lambda: len(post.got) >= 2, "another one comes through")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(20)
        manager.stop()
    path, headers, _ = post.got[0]
    assert (path, headers["content-type"]) == ("/next", "application/json")
    (alert,) = post.bodies()[0]["alerts"]
    assert alert["labels"] == {"alertname": "InferenceDown", "job": "atlas", "severity": "page"}
    assert alert["annotations"]["summary"] == "no answer"
    assert alert["annotations"]["specwatch_cause"] == "/models/sprout-0.3b has 384 tokens, /models/atlas-8b has 320"
    assert alert["annotations"]["specwatch_fix"].startswith(
        "python -m sglang.launch_server --model-path /models/atlas-8b"
    )
    assert alert["annotations"]["specwatch_status"] == "firing, proved"
    assert alert["annotations"]["specwatch_url"].startswith(f"http://127.0.0.1:{port}/findings/atlas/")
    (other,) = post.bodies()[1]["alerts"]
    assert other["annotations"] == {"summary": "no answer"}
    assert daemon.returncode == 0


def test_killed_again_and_again_while_sending_loses_nothing(tmp_path: Path, post: Post) -> None:
    """Three hundred findings, one message each, and a sender that is killed after every fortieth of them."""
    store = new_store(tmp_path)
    key = tmp_path / "key"
    key.write_text("k")
    key.chmod(0o600)
    settings = Settings(alerts=(Alert(kind="pagerduty", name="pd", url=post.url, token_file=str(key)),))
    store.serve(receivers(settings), time.time())
    store.commit([seen("1", f"f{n}") for n in range(300)], time.time() - 10)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom specwatch.sending.sender import Sender\n"
        "from specwatch.settings import Alert, Settings\n"
        f"alert = Alert(kind='pagerduty', name='pd', url={post.url!r}, token_file={str(key)!r})\n"
        f"sender = Sender(Path({str(store.path)!r}), Settings(alerts=(alert,)), lambda *a, **k: None)\n"
        "sender.start()\nsys.stdin.read()\n"
    )
    box, kills = Outbox(store.path), 0
    while box.depth():
        had = len(post.got)
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        until(lambda had=had: len(post.got) >= had + 40 or not box.depth(), "more is sent")  # type: ignore[misc]
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        kills += 1
    box.close()
    keys = [body["dedup_key"] for body in post.bodies()]
    assert len(set(keys)) == 300, "nothing is lost"
    assert kills >= 5
    assert len(keys) - 300 <= kills, "at most the one that was on its way is sent again"


def test_kill_9_between_commit_and_send_loses_nothing(tmp_path: Path, examples: Path) -> None:
    """Killed while the receiver holds the first attempt unanswered: the next start sends it."""
    post = Post("hang")
    config = tmp_path / "specwatch.toml"
    config.write_text(
        f'[[server]]\nname = "atlas"\nlogs = ["{examples}/server.log"]\n[state]\ndir = "{tmp_path}/state"\n'
        f'[[alert]]\nkind = "webhook"\nname = "hook"\nurl = "{post.url}"\n'
    )
    command = [sys.executable, "-m", "specwatch.cli", "watch", "--config", str(config), "--allow-insecure-permissions"]
    try:
        first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(lambda: post.got, "the first attempt")
        os.kill(first.pid, signal.SIGKILL)
        first.wait(20)
        second = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(lambda: len(post.got) == 2, "the second attempt")
        second.send_signal(signal.SIGTERM)
        second.wait(20)
        once = subprocess.run([*command, "--once"], capture_output=True, check=False)
        assert once.returncode == 1, once.stderr
    finally:
        post.close()
    deliveries = [body["findings"][0]["delivery"] for body in post.bodies()]
    assert len(deliveries) == 2, "what was acknowledged is not sent again"
    assert len(set(deliveries)) == 1
