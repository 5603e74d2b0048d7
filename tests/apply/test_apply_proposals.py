"""`specwatch apply --proposals`, run as the unit runs it: what it refuses, what it leaves, what stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from specwatch.acting.proposals import FOLDER, MOST, Proposal, leave, occurrence_of
from specwatch.commands.apply_proposals import FLOOD


class Place:
    """A configuration with one server, whose log is healthy, and the state of a watcher."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.state, self.actions, self.config = folder / "state", folder / "actions", folder / "specwatch.toml"
        self.state.mkdir()
        (log := folder / "server.log").write_text("[2026-07-02 09:20:00] The server is fired up and ready to roll!\n")
        (script := folder / "launch.sh").write_text("exec python -m sglang.launch_server --model-path /models/a\n")
        self.script = script
        self.config.write_text(
            f"[state]\nactions = '{self.actions}'\n[[server]]\nname = 'a'\nlogs = ['{log}']\napply = 'review'\n"
            f"target = 'script:{script}'\nrestart = ['/bin/false']\n{more}"
        )

    def leave(self, name: str = "a", **changes: object) -> Path:
        made = Proposal(
            server=name, finding="0123456789ab", fix="drop-speculation", occurrence=occurrence_of(f"{name}{changes}"),
            created=time.time(), specwatch="0.1.0",
        )  # fmt: skip
        return leave(self.state, replace(made, **changes))  # type: ignore[arg-type]

    def run(self) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("specwatch")
        words = (program, "apply", "--proposals", "--config", self.config, "--state", self.state)
        env = {**os.environ, "HOME": str(self.state.parent)}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=env)

    def left(self) -> list[str]:
        return sorted(path.name for path in (self.state / FOLDER).iterdir())

    def refused(self) -> list[str]:
        lines = (self.actions / "audit.jsonl").read_text().split("\n")
        entries = [json.loads(line) for line in lines if line]
        return [one["body"]["because"] for one in entries if one["event"] in ("proposal_refused", "request_refused")]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_nothing_to_do(place: Place) -> None:
    done = place.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_proposal_for_a_server_that_is_well_is_refused(place: Place) -> None:
    before = place.script.read_text()
    place.leave()
    assert place.run().returncode == 0
    assert place.left() == []
    (because,) = place.refused()
    assert "no crash after which it was not ready again" in because
    assert place.script.read_text() == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"server": "b"}, "names no server b"),
        ({"created": 1_000_000_000.0}, "stale"),
        ({"created": 4_000_000_000.0}, "future"),
        ({"approval": "0" * 64}, "[web] names no token_file"),
    ],
)
def test_what_is_refused_unheard(place: Place, changes: dict[str, object], says: str) -> None:
    place.leave(**{"name": "a", **changes} if "server" not in changes else changes)  # type: ignore[arg-type]
    assert place.run().returncode == 0
    assert place.left() == []
    (because,) = place.refused()
    assert says in because


def test_a_replay_is_refused(place: Place) -> None:
    place.leave()
    place.run()
    place.leave()
    place.run()
    assert "a replay" in place.refused()[-1]
    assert len(place.refused()) == 2


def test_an_approval_that_was_not_made_with_the_token_is_refused(tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text("a-token-of-more-than-twenty-characters\n")
    token.chmod(0o600)
    place = Place(tmp_path, f"[web]\ntoken_file = '{token}'\n")
    place.leave(approval="0" * 64)
    place.run()
    (because,) = place.refused()
    assert "forged or changed" in because


def test_a_name_with_escape_sequences_reaches_no_log_raw(place: Place) -> None:
    (place.state / FOLDER).mkdir()
    (place.state / FOLDER / "\x1b[31mred").touch()
    done = place.run()
    assert "\x1b" not in done.stderr
    assert "\x1b" not in (place.actions / "audit.jsonl").read_text()
    assert place.left() == []


def test_a_few_are_taken_in_one_go_and_the_rest_is_left(place: Place) -> None:
    for number in range(MOST + 2):
        place.leave(f"s{number}")
    place.run()
    assert len(place.left()) == 2
    place.run()
    assert place.left() == []
    assert len(place.refused()) == MOST + 2


def test_a_flood_is_removed_unread(place: Place) -> None:
    (place.state / FOLDER).mkdir()
    for number in range(FLOOD + MOST + 10):
        (place.state / FOLDER / f"{number}.json").touch()
    place.run()
    assert place.left() == []
    assert len(place.refused()) == MOST + 1
    assert "removed unread" in place.refused()[-1]


def test_a_broken_configuration_removes_them_so_that_it_is_not_started_again_and_again(place: Place) -> None:
    place.leave()
    place.config.write_text("[[servers]]\n")
    done = place.run()
    assert done.returncode == 2
    assert place.left() == []
    assert "did you mean server?" in done.stderr


def test_a_configuration_that_others_may_write_is_refused(place: Place) -> None:
    place.leave()
    place.config.chmod(0o666)
    done = place.run()
    assert done.returncode == 2
    assert "may be changed by others" in done.stderr
    assert place.left() == []


def test_a_directory_that_is_a_link_is_not_emptied(place: Place, tmp_path: Path) -> None:
    (etc := tmp_path / "etc").mkdir()
    (etc / "passwd").touch()
    (place.state / FOLDER).symlink_to(etc)
    done = place.run()
    assert done.returncode == 2
    assert "somebody put something else there" in done.stderr
    assert (etc / "passwd").exists()
