"""Alerts of others: kept before they are accepted, sent on where nothing can be kept, refused where nobody is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from alertpost import START, Post, new_store, seen

from specwatch.alerts.gateway import AlertsNotTakenError, receive, routes
from specwatch.settings import Alert, Enrich, Server, Settings
from specwatch.storage.outbox import Outbox
from specwatch.storage.owing import GATHER, Receiver

Run = Callable[..., "CompletedProcess[str]"]
BODY = b'{"alerts":[{"labels":{"job":"llama"}}]}'


def to(*forward: str, alerts: tuple[Alert, ...] = ()) -> Settings:
    return Settings(servers=(Server(name="llama", logs=("/x",)),), alerts=alerts, enrich=Enrich(forward=forward))


class Log:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, level: str, event: str, **fields: Any) -> None:
        self.said.append((level, event, fields))

    def events(self) -> list[str]:
        return [event for _, event, _ in self.said]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def posts() -> Iterator[list[Post]]:
    made = [Post(), Post()]
    yield made
    for one in made:
        one.close()


def test_kept_for_every_receiver_before_it_is_accepted(tmp_path: Path, posts: list[Post], log: Log) -> None:
    store = new_store(tmp_path)
    store.commit([seen("1", at=time.time())], START)
    settings = to(posts[0].url, "hook", alerts=(Alert(kind="webhook", name="hook", url=posts[1].url),))
    answer = receive(BODY, store.path, settings, log)
    assert json.loads(answer)["alerts"][0]["annotations"]["specwatch_applicability"] == "safe"
    assert [post.got for post in posts] == [[], []], "sending is the sender's"
    with contextlib.closing(Outbox(store.path)) as box:
        for route in routes(settings):
            kept = box.next_forward(route.name, time.time() + 1)
            assert kept is not None
            assert kept.body == answer
    assert log.said == []


def test_without_receivers_it_is_enriched_only(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    assert receive(BODY, store.path, to()) == BODY
    with contextlib.closing(Outbox(store.path)) as box:
        assert box.rows() == []


@pytest.mark.parametrize("broken", ["gone", "full"])
def test_sent_on_at_once_where_nothing_can_be_kept(tmp_path: Path, posts: list[Post], log: Log, broken: str) -> None:
    path = new_store(tmp_path).path
    if broken == "full":
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("CREATE TRIGGER f BEFORE INSERT ON forward BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    else:
        path = tmp_path / "none" / "specwatch.db"
    receive(BODY, path, to(posts[0].url, posts[1].url), log)
    assert [[body for _, _, body in post.got] for post in posts] == [[BODY], [BODY]]
    assert ("alerts_unstored" in log.events()) == (broken == "full")
    assert not (tmp_path / "none").exists(), "no empty store is made"


def test_refused_where_it_can_neither_be_kept_nor_sent(tmp_path: Path, log: Log) -> None:
    post = Post((500, {}))
    with pytest.raises(AlertsNotTakenError, match="answered 500"):
        receive(BODY, tmp_path / "none.db", to(post.url), log)
    post.close()
    assert log.events()[-1] == "alerts_refused"


def test_a_secret_that_cannot_be_read_is_no_acceptance(tmp_path: Path) -> None:
    settings = to("h", alerts=(Alert(kind="webhook", name="h", url="http://127.0.0.1:9/", token_file="/nonexistent"),))
    with pytest.raises(AlertsNotTakenError, match="cannot be read"):
        receive(BODY, tmp_path / "none.db", settings)


def test_what_is_no_alert_is_sent_on_all_the_same(tmp_path: Path, posts: list[Post], log: Log) -> None:
    store = new_store(tmp_path)
    assert receive(b"no json", store.path, to(posts[0].url), log) == b"no json"
    assert log.said == [
        ("warning", "alerts_unchanged", {"because": "not JSON: Expecting value: line 1 column 1 (char 0)"})
    ]
    with contextlib.closing(Outbox(store.path)) as box:
        assert [row.state for row in box.rows()] == ["forward"]


def test_names_of_receivers_hold_no_secret() -> None:
    one, two = routes(to("https://u:s3cr3t@h.example:8443/a?k=s3cr3t", "https://h.example/b"))
    assert one.name.startswith("h.example:8443#")
    assert one.name != two.name
    assert "s3cr3t" not in one.name
    assert one.alert.url.endswith("k=s3cr3t")


# the commands


def test_what_waits_and_what_was_given_up_is_shown_and_sent_again(specwatch: Run, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.serve([Receiver(name="hook", least=1)], START)
    assert specwatch("alerts", "list", "--state", tmp_path).stdout == "nothing waits, nothing was given up\n"
    store.commit([seen("1")], START)
    box = Outbox(store.path)
    waits = specwatch("alerts", "list", "--state", tmp_path)
    assert waits.returncode == 0
    assert "hook  llama/f1  firing proved: next try 2027-01-15T08:00:01Z (since 2027-" in waits.stdout
    box.bury(box.owed("hook", START + GATHER, 9), "127.0.0.1:1 answered 401: \x1b[1mno")
    dead = specwatch("alerts", "list", "--state", tmp_path)
    assert dead.returncode == 1
    assert "hook  llama/f1  firing proved: given up (since" in dead.stdout
    assert "    127.0.0.1:1 answered 401: \\x1b[1mno\n" in dead.stdout
    assert "specwatch alerts retry" in dead.stdout
    answer = json.loads(specwatch("alerts", "list", "--state", tmp_path, "--format", "json").stdout)
    assert (answer["schema"], answer["alerts"][0]["dead"], answer["alerts"][0]["attempts"]) == (1, True, 1)
    assert specwatch("alerts", "retry", "nobody", "--state", tmp_path).stdout == "nothing to be sent again\n"
    assert specwatch("alerts", "retry", "--state", tmp_path).stdout == "1 to be sent\n"
    assert [row.dead for row in box.rows()] == [False]
    box.close()


def test_a_receiver_that_is_gone_is_named(specwatch: Run, tmp_path: Path) -> None:
    config = tmp_path / "specwatch.toml"
    config.write_text(
        f'[state]\ndir = "{tmp_path}"\n[[server]]\nname = "llama"\nlogs = ["/x"]\n'
        '[[alert]]\nkind = "webhook"\nname = "hook"\nurl = "http://127.0.0.1:1/x"\n'
    )
    store = new_store(tmp_path)
    store.serve([Receiver(name="hook", least=1)], START)
    store.commit([seen("1")], START)
    with contextlib.closing(Outbox(store.path)) as box:
        assert box.accept(["gone", "hook"], BODY, START)
    gone = specwatch("alerts", "retry", "gone", "--config", config)
    assert (gone.returncode, gone.stdout) == (2, "")
    assert f"{config}: names no receiver gone, so nothing is sent to it; there are hook" in gone.stderr
    every = specwatch("alerts", "retry", "--config", config)
    assert every.returncode == 0
    assert every.stdout.split("\n") == [
        "1 to be sent",
        f"1 for gone not sent: {config} does not name it among those who get them",
        f"1 for hook not sent: {config} does not name it among those who get them",
        "",
    ]


def test_without_a_store(specwatch: Run, tmp_path: Path) -> None:
    done = specwatch("alerts", "list", "--state", tmp_path)
    assert done.returncode == 2
    assert "holds no store" in done.stderr
    (tmp_path / "specwatch.db").write_bytes(b"")
    assert "cannot be read" in specwatch("alerts", "list", "--state", tmp_path).stderr


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('[enrich]\nforward = ["hok"]\n', ":5: [enrich] forward: 'hok': expected a URL or the name of an [[alert]]"),
        (
            '[enrich]\nforward = ["http://127.0.0.1:9117/alertmanager"]\n[web]\n',
            ":5: [enrich] forward: 'http://127.0.0.1:9117/alertmanager': is our own address",
        ),
        ('[otel]\nendpoint = "collector:4318"\n', ":5: [otel] endpoint: expected a URL"),
    ],
)
def test_what_could_never_be_sent_is_refused(specwatch: Run, tmp_path: Path, lines: str, says: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[server]]\nname = "a"\nlogs = ["/x"]\n' + lines)
    done = specwatch("watch", "--check-config", "--config", config, "--allow-insecure-permissions")
    assert done.returncode == 2
    assert says in done.stderr


def test_everything_owed_is_sent_before_a_run_that_ends_by_itself(
    specwatch: Run, tmp_path: Path, examples: Path, posts: list[Post]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f'[[server]]\nname = "atlas"\nlogs = ["{examples}/server.log"]\n[state]\ndir = "{tmp_path}/state"\n'
        f'[[alert]]\nkind = "slack"\nurl = "{posts[0].url}"\n[otel]\nendpoint = "{posts[1].url}"\n'
    )
    done = specwatch("watch", "--once", "--config", config, "--allow-insecure-permissions")
    assert done.returncode == 1, done.stderr
    assert posts[0].bodies()[0]["text"].startswith("firing: atlas: STANDALONE draft model")
    assert posts[1].got[0][0] == "/v1/logs"
    again = specwatch("watch", "--once", "--config", config, "--allow-insecure-permissions")
    assert again.returncode == 1
    assert len(posts[0].got) == 1


def test_the_configuration_of_the_documentation_is_valid(specwatch: Run, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/alerts.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    config = tmp_path / "c.toml"
    for block in blocks:
        if "[[server]]" in block:
            block = block.replace("labels = { cl", 'logs = ["/x"]\nlabels = { cl')
        else:
            block += '\n[[server]]\nname = "a"\nlogs = ["/x"]\n'
        config.write_text(block)
        done = specwatch("watch", "--check-config", "--config", config, "--allow-insecure-permissions")
        assert done.returncode == 0, done.stderr


def test_the_configuration_is_printed_without_its_secrets(specwatch: Run, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[[alert]]\nkind = "slack"\nurl = "https://hooks.slack.com/services/T/B/s3cr3t"\n'
        '[[alert]]\nkind = "webhook"\nurl = "https://u:s3cr3t@h.example/x"\n'
        '[enrich]\nforward = ["https://u:s3cr3t@h.example/y"]\n'
        '[otel]\nendpoint = "http://c"\nheaders = { "x-key" = "s3cr3t" }\n'
    )
    done = specwatch("watch", "--print-config", "--config", config, "--allow-insecure-permissions")
    assert done.returncode == 0, done.stderr
    assert "s3cr3t" not in done.stdout
    assert 'url = "https://hooks.slack.com/<redacted>"' in done.stdout
    assert '"x-key" = "<redacted>"' in done.stdout


@pytest.mark.parametrize(
    ("package", "lines", "extra"),
    [
        ("opentelemetry", '[otel]\nendpoint = "http://c"\n', "otel"),
        ("httpx", '[[alert]]\nkind = "webhook"\nurl = "http://h/"\n', "daemon"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, package: str, lines: str, extra: str) -> None:
    missing = tmp_path / "path" / package
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ModuleNotFoundError('not installed')\n")
    config = tmp_path / "c.toml"
    config.write_text(f'[[server]]\nname = "a"\nlogs = ["/x"]\n[state]\ndir = "{tmp_path}/state"\n{lines}')
    done = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", "watch", "--once", "--config", str(config),
         "--allow-insecure-permissions"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "path")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"pip install 'specwatch[{extra}]'" in done.stderr
