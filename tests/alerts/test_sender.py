"""The sender against receivers that refuse, hang, drip, answer 500 or 429, or never come back: nothing is lost."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alertpost import START, Hand, Post, new_store, seen, until

from specwatch.alerts import command
from specwatch.alerts.kinds import receivers
from specwatch.sending.delivery import back_off, silence
from specwatch.sending.sender import Sender, check
from specwatch.settings import Alert, Enrich, Settings, Silence
from specwatch.storage.outbox import Depth, Outbox
from specwatch.storage.owing import GATHER
from specwatch.storage.store import Fact, Recovered

READY = Recovered(server="llama", at=START + 50, because="ready again")


class Works:
    """A store, a sender, and what the sender said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Hand()
        self.store = new_store(folder)
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.sender: Sender | None = None
        self.posts: list[Post] = []
        self.box = Outbox(self.store.path)

    def post(self, *answers: Any, port: int = 0) -> Post:
        self.posts.append(Post(*answers, port=port))
        return self.posts[-1]

    def start(self, *alerts: Alert, **more: Any) -> None:
        self.settings = Settings(alerts=alerts, **more)
        self.store.serve(receivers(self.settings), self.clock.at)
        self.sender = Sender(self.store.path, self.settings, self.say, wall=self.clock, luck=lambda: 1.0)
        self.sender.start()

    def say(self, level: str, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def commit(self, *facts: Fact) -> None:
        self.store.commit(facts, self.clock.at)
        self.clock.at += GATHER

    def events(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.said if event == name]

    def stop(self) -> None:
        if self.sender:
            self.sender.stop()
        self.sender = None

    def close(self) -> None:
        for post in self.posts:
            post.released.set()
        self.stop()
        for post in self.posts:
            post.close()


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
    box = Works(tmp_path)
    yield box
    box.close()


def hook(post: Post, **more: Any) -> Alert:
    return replace(Alert(kind="webhook", name="hook", url=post.url + "/in", deadline=5.0), **more)


def states(post: Post) -> list[list[tuple[str, str]]]:
    return [[(one["id"], one["state"]) for one in body["findings"]] for body in post.bodies()]


def test_firing_and_resolved_once_each(works: Works) -> None:
    post = works.post()
    works.start(hook(post))
    works.commit(seen("1"))
    until(lambda: len(post.got) == 1)
    works.commit(seen("2", at=START + 9000))
    works.commit(READY, seen("1", server="qwen"))
    until(lambda: len(post.got) == 2)
    assert states(post) == [[("f1", "firing")], [("f1", "firing")]], "llama's came again after `at`; qwen's is new"
    works.commit(replace(READY, at=START + 10_000))
    until(lambda: len(post.got) == 3)
    until(lambda: works.box.depth() == {})
    assert states(post)[2] == [("f1", "resolved")]


def test_what_comes_together_is_told_together_by_server(works: Works) -> None:
    post = works.post()
    works.start(hook(post))
    works.commit(*(seen("1", f"f{n}", server=f"s{n % 3}") for n in range(9)))
    until(lambda: works.box.depth() == {})
    assert len(post.got) == 1
    names = [one["server"] for one in post.bodies()[0]["findings"]]
    assert names == sorted(names)


@pytest.mark.parametrize("answer", [(500, {}), (503, {}), (408, {}), (429, {})])
def test_what_may_work_later_is_tried_again_with_growing_pauses(works: Works, answer: Any) -> None:
    post = works.post(answer, answer, answer)
    works.start(hook(post))
    works.commit(seen("1"))
    for attempt, pause in enumerate((1.0, 2.0, 4.0), 1):
        until(lambda n=attempt: len(works.events("notification_failed")) == n)  # type: ignore[misc]
        assert works.events("notification_failed")[-1]["again_in"] == pause
        assert works.box.depth() == {"hook": Depth(pending=1, dead=0, oldest=START)}
        works.clock.at += pause
    until(lambda: works.box.depth() == {})
    assert states(post) == [[("f1", "firing")]] * 4
    assert f"answered {answer[0]}: said by the receiver" in works.events("notification_failed")[0]["because"]
    assert works.events("receiver_recovered") == [{"receiver": "hook", "failures": 3}]


def test_retry_after_is_kept(works: Works) -> None:
    post, other = works.post((429, {"Retry-After": "120"})), works.post()
    works.start(hook(post), hook(other, name="other"))
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed"))
    works.clock.at += 117.0
    works.commit(seen("1", "f2"))  # nothing new hurries it
    until(lambda: len(other.got) == 2)
    works.clock.at += 1.0
    until(lambda: works.box.depth().keys() == {"hook"})
    assert len(post.got) == 1
    works.clock.at += 1.1
    until(lambda: works.box.depth() == {})
    assert states(post)[1:] == [[("f1", "firing"), ("f2", "firing")]]


def test_a_receiver_that_refuses_connections_gets_the_last_state_when_it_is_back(works: Works) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    works.start(Alert(kind="webhook", name="hook", url=f"http://127.0.0.1:{port}/in"))
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed"))
    assert works.events("notification_failed")[0]["because"] == f"127.0.0.1:{port}: Connection refused"
    for n in range(200):
        works.commit(replace(READY, at=START + 9000 * n + 1))
        works.commit(seen(str(n + 2), at=START + 9000 * (n + 1)))
    post = works.post(port=port)
    works.clock.at += 900
    until(lambda: works.box.depth() == {})
    assert states(post) == [[("f1", "firing")]], "no storm after an outage"


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_one_that_hangs_delays_no_other_and_is_tried_again(works: Works, how: str) -> None:
    bad, good = works.post(how), works.post()
    works.start(hook(bad, name="bad", deadline=1.0), hook(good))
    works.commit(seen("1"))
    until(lambda: good.got)
    until(lambda: works.events("notification_failed"))
    (failed,) = works.events("notification_failed")
    assert failed["receiver"] == "bad"
    assert "no answer within 1 s" in failed["because"]
    works.clock.at += 10
    until(lambda: works.box.depth() == {})
    assert states(bad) == [[("f1", "firing")]] * 2


def test_what_is_refused_for_good_is_dead_said_and_can_be_sent_again(works: Works) -> None:
    post = works.post((401, {}))
    works.start(hook(post))
    works.commit(seen("1"), seen("1", "f2"))
    until(lambda: works.events("notification_buried"))
    assert works.box.depth() == {"hook": Depth(pending=0, dead=2, oldest=None)}
    assert len(post.got) == 1
    assert {row.error for row in works.box.rows()} == {f"127.0.0.1:{post.port} answered 401: said by the receiver"}
    works.box.retry("hook", works.clock.at)
    until(lambda: works.box.depth() == {})
    assert len(post.got) == 2


def test_one_that_cannot_be_taken_does_not_take_the_others_along(works: Works) -> None:
    def strict(body: bytes) -> Any:
        return (400, {}) if b'"poison"' in body else (200, {})

    post = works.post(*[strict] * 20)
    works.start(hook(post))
    works.commit(seen("1", "a"), seen("1", "poison"), seen("1", "z"))
    until(lambda: works.box.depth() == {"hook": Depth(pending=0, dead=1, oldest=None)})
    assert [row.what for row in works.box.rows()] == ["llama/poison"]


def test_after_a_day_it_is_given_up(works: Works) -> None:
    post = works.post(*[(500, {})] * 50)
    works.start(hook(post))
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed"))
    works.clock.at += 86401
    until(lambda: len(works.events("notification_failed")) == 2)
    assert works.events("notification_buried") == [], "the machine slept: it was hardly tried"
    for n in range(3, 10):
        works.clock.at += 600
        until(lambda n=n: len(works.events("notification_failed")) >= n)  # type: ignore[misc]
    works.clock.at += 600
    until(lambda: works.events("notification_buried"))
    assert "not delivered for a day" in works.box.rows()[0].error


def test_a_clock_that_is_set_back_holds_nothing_up(works: Works) -> None:
    post = works.post((503, {"Retry-After": "3000"}))
    alerts = works.post()
    works.start(hook(post), Alert(kind="alertmanager", name="am", url=alerts.url))
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed") and alerts.got)
    works.clock.at -= 7200
    until(lambda: len(post.got) == 2, "the hook is told, though its rest would last for hours")
    until(lambda: len(alerts.got) >= 2, "Alertmanager is told again, or it takes the alert for resolved")
    works.commit(seen("2", "f2"))
    until(lambda: works.box.depth() == {})
    assert works.events("notification_buried") == []


def test_a_redirect_is_not_followed(works: Works) -> None:
    elsewhere = works.post()
    post = works.post((302, {"Location": elsewhere.url}))
    works.start(hook(post))
    works.commit(seen("1"))
    until(lambda: works.events("notification_buried"))
    assert elsewhere.got == []


def test_a_sender_that_was_stopped_goes_on_where_it_was(works: Works) -> None:
    post = works.post("hang")
    works.start(hook(post, deadline=30.0))
    works.commit(seen("1"))
    until(lambda: post.got)
    works.stop()
    works.start(hook(post))
    until(lambda: works.box.depth() == {})
    assert states(post) == [[("f1", "firing")]] * 2, "the first was never acknowledged"
    assert post.bodies()[0]["findings"][0]["delivery"] == post.bodies()[1]["findings"][0]["delivery"]


def test_what_was_sent_and_cannot_be_written_down_is_not_sent_again(works: Works) -> None:
    post = works.post()
    works.start(hook(post))
    with contextlib.closing(sqlite3.connect(works.store.path, isolation_level=None)) as db:
        db.execute("CREATE TRIGGER full BEFORE UPDATE OF heard ON notice BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        works.commit(seen("1"))
        until(lambda: works.events("store_unwritable"))
        for n in range(1, 4):
            works.clock.at += 5
            until(lambda n=n: len(works.events("store_unwritable")) > n)  # type: ignore[misc]
        db.execute("DROP TRIGGER full")
    works.clock.at += 5
    until(lambda: works.box.depth() == {})
    assert len(post.got) == 1


def test_silenced_servers_raise_no_alert_until_the_silence_ends(works: Works) -> None:
    post = works.post()
    window = Silence(server="lla*", until=START + 600, because="rebuild")
    works.start(hook(post), silences=(window,))
    works.commit(seen("1"), seen("1", "gone"))
    until(lambda: len(works.events("notification_silenced")) == 2)
    until(lambda: any(row.error.endswith("rebuild") for row in works.box.rows()))
    assert works.box.depth() == {}, "nobody keeps it waiting"
    assert works.box.rows()[0].error == "silenced until 2027-01-15T08:10:00Z: rebuild"
    works.commit(replace(READY, only="gone"))
    works.clock.at += 60
    until(lambda: [row.what for row in works.box.rows()] == ["llama/f1"])
    assert post.got == []
    works.clock.at += 600
    until(lambda: works.box.rows() == [])
    assert states(post) == [[("f1", "firing")]]


def test_what_a_receiver_knows_is_resolved_in_a_silence_too(works: Works) -> None:
    post = works.post()
    works.start(hook(post))
    works.commit(seen("1"))
    until(lambda: works.box.depth() == {})
    assert works.sender
    works.sender.configure(replace(works.settings, silences=(Silence(server="*", until=START + 600),)))
    works.commit(READY)
    until(lambda: len(post.got) == 2)


def test_receivers_come_and_go_with_the_configuration(works: Works) -> None:
    one, two = works.post(), works.post()
    works.start(hook(one))
    works.commit(seen("1"))
    until(lambda: one.got)
    settings = replace(works.settings, alerts=(hook(two, name="two"),))
    works.store.serve(receivers(settings), works.clock.at)
    assert works.sender
    works.sender.configure(settings)
    works.clock.at += GATHER
    until(lambda: two.got)
    works.commit(READY)
    until(lambda: len(two.got) == 2)
    assert len(one.got) == 1


def test_a_sender_that_fails_begins_anew(tmp_path: Path) -> None:
    said: list[str] = []
    post, clock = Post(), Hand()
    settings = Settings(alerts=(hook(post),))
    folder = tmp_path / "late"
    sender = Sender(folder / "specwatch.db", settings, lambda level, event, **fields: said.append(event), wall=clock)
    sender.start()
    until(lambda: said == ["sender_failed"])
    store = new_store(folder)
    store.serve(receivers(settings), clock.at)
    store.commit([seen("1")], clock.at - GATHER)
    sender.configure(settings)  # wakes it
    until(lambda: post.got)
    assert said[0] == "sender_failed"
    sender.stop()
    post.close()


def test_a_command_gets_the_findings_and_nothing_of_ours(works: Works, tmp_path: Path) -> None:
    script = (
        "import json, os, sys\n"
        f"json.dump([json.load(sys.stdin), dict(os.environ)], open({str(tmp_path / 'out')!r}, 'w'))\n"
    )
    works.start(Alert(kind="command", name="page", command=(sys.executable, "-c", script)))
    works.commit(seen("1"))
    until(lambda: works.box.depth() == {})
    said, environment = json.loads((tmp_path / "out").read_text())
    assert said["findings"][0]["fix"]["applicability"] == "safe"
    assert set(environment) <= {"PATH", "LANG", "LC_CTYPE"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("/bin/sh", "-c", "echo no pager >&2; exit 7"), "/bin/sh: exit code 7: no pager"),
        (("/bin/sh", "-c", "sleep 600 & sleep 600"), "did not end within 0.5 s and was killed"),
        (("/nonexistent",), "/nonexistent: cannot be started: No such file"),
    ],
)
def test_a_command_that_fails_is_run_again(works: Works, words: tuple[str, ...], says: str) -> None:
    works.start(Alert(kind="command", name="page", command=words, deadline=0.5 if "600" in words[-1] else 10.0))
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed"))
    assert says in works.events("notification_failed")[0]["because"]
    assert works.box.depth()["page"].pending == 1


def test_a_command_may_leave_something_behind_that_goes_on(works: Works, tmp_path: Path) -> None:
    script = f"cat > {tmp_path / 'out'}; sleep 30 &"
    works.start(Alert(kind="command", name="page", command=("/bin/sh", "-c", script), deadline=20.0))
    works.commit(seen("1"))
    until(lambda: works.events("notification_sent"), "exit code 0 means: taken", seconds=15.0)
    assert json.loads((tmp_path / "out").read_text())["findings"][0]["id"] == "f1"


def test_a_command_that_reads_nothing_and_says_too_much() -> None:
    script = "import sys\nfor _ in range(3000): sys.stderr.write('x' * 65536)\nsys.exit('\\nthe end')"
    tracemalloc.start()
    try:
        outcome = command.run((sys.executable, "-c", script), b"x" * 1_000_000, 60.0)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000, "200 MB were said"
    finally:
        tracemalloc.stop()
    assert outcome.error.endswith("exit code 1: the end")


def test_a_secret_that_cannot_be_read_is_said_and_waited_for(works: Works, tmp_path: Path) -> None:
    post, key = works.post(), tmp_path / "key"
    works.start(hook(post, token_file=str(key)))
    assert "cannot be read" in check(works.settings)[0]
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed"))
    key.write_text("k")
    key.chmod(0o600)
    works.clock.at += 1
    until(lambda: works.box.depth() == {})
    assert "x-specwatch-signature" in post.got[0][1]


def test_forwards_go_in_order_and_are_signed(works: Works, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    key.chmod(0o600)
    post = works.post((500, {}))
    works.start(hook(post, token_file=str(key)), enrich=Enrich(forward=("hook",)))
    for body in (b'{"n":1}', b'{"n":2}', b'{"n":3}'):
        works.box.accept(["hook"], body, works.clock.at)
    until(lambda: works.events("alerts_delayed"))
    works.clock.at += 1
    until(lambda: works.box.depth() == {})
    assert [body for _, _, body in post.got] == [b'{"n":1}', b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert all(headers["x-specwatch-signature"].startswith("sha256=") for _, headers, _ in post.got)


def test_pauses_grow_to_a_quarter_of_an_hour_and_differ() -> None:
    assert [back_off(n, 1.0) for n in (1, 2, 3, 10, 11, 5000)] == [1.0, 2.0, 4.0, 512.0, 900.0, 900.0]
    assert back_off(11, 0.0) == 450.0


def test_the_longest_silence_counts() -> None:
    windows = (Silence(server="a*", until=9.0), Silence(server="ab", start=5.0, until=20.0))
    settings = Settings(silences=windows)
    assert silence(settings, "ab", 6.0) == windows[1]
    assert silence(settings, "ab", 1.0) == windows[0]
    assert silence(settings, "b", 6.0) is None
    assert silence(settings, "ab", 20.0) is None


def test_what_was_taken_without_an_answer_is_resolved_all_the_same(works: Works, tmp_path: Path) -> None:
    """The pager took the first attempt and did not answer in time: its incident must not stay open."""
    key = tmp_path / "key"
    key.write_text("k")
    key.chmod(0o600)
    post = works.post("hang")
    works.start(Alert(kind="pagerduty", name="pd", url=post.url, token_file=str(key), deadline=0.5))
    works.commit(seen("1"))
    until(lambda: works.events("notification_failed"))
    works.commit(READY)
    works.clock.at += 5
    until(lambda: works.box.depth() == {})
    assert [body["event_action"] for body in post.bodies()] == ["trigger", "resolve"]
