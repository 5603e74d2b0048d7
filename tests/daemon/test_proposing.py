"""When the watcher leaves a proposal, and when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specwatch.acting.proposals import FOLDER, Inbox, Proposal
from specwatch.domain import Applicability
from specwatch.settings import Policy, Server, Settings
from specwatch.storage.store import Recovered, Seen, Withdrawn
from specwatch.watching.proposing import AGAIN, FIRST_PAUSE, LONGEST_PAUSE, TIMES_AGAIN, Proposer, proposed_fix, trusted


def quiet(level: str, event: str, **fields: object) -> None:
    return


def fix(
    name: str = "drop-speculation", trust: str = "safe", rechecked: bool = True, changes: int = 1
) -> dict[str, Any]:
    return {"id": name, "applicability": trust, "rechecked": rechecked, "changes": [{}] * changes}


def document(*fixes: dict[str, Any], severity: str = "fatal", status: str = "broken", rule: str | None = "r") -> str:
    return json.dumps({"severity": severity, "rule": rule, "verdict": {"status": status}, "fixes": list(fixes)})


def settings(apply: str = "safe", mode: str = "review", target: str = "systemd:a.service") -> Settings:
    server = Server(name="a", logs=("/a",), apply=apply, target=target)
    return Settings(servers=(server,), policy=Policy(mode=mode))


def seen(key: str = "k1", text: str | None = None, state: str = "firing", finding: str = "0123456789ab") -> Seen:
    return Seen(
        key=key, server="a", stream="s", place=1, at=1.0, fingerprint=finding, severity="fatal",
        document=text or document(fix()), state=state,
    )  # fmt: skip


def left(state: Path) -> list[Proposal]:
    with Inbox(state) as inbox:
        entries, _ = inbox.entries()
        assert all(one.proposal for one in entries)
        for one in entries:
            inbox.drop(one.name)
    return [one.proposal for one in entries if one.proposal]


@pytest.mark.parametrize(
    ("mode", "apply", "least"),
    [
        ("observe", "review", None),
        ("propose", "review", None),
        ("approve", "review", None),
        ("review", "none", None),
        ("safe", "safe", Applicability.SAFE),
        ("safe", "review", Applicability.SAFE),
        ("review", "safe", Applicability.SAFE),
        ("review", "review", Applicability.REVIEW),
    ],
)
def test_the_mode_caps_what_a_server_allows(mode: str, apply: str, least: Applicability | None) -> None:
    given = settings(apply, mode)
    assert trusted(given.servers[0], given.policy) == least


def test_a_server_without_a_target_has_nothing_to_change() -> None:
    given = settings(target="")
    assert trusted(given.servers[0], given.policy) is None


@pytest.mark.parametrize(
    ("text", "least", "found"),
    [
        (document(fix()), Applicability.SAFE, "drop-speculation"),
        (document(fix(trust="review")), Applicability.SAFE, ""),
        (document(fix("a", "review"), fix("b")), Applicability.SAFE, "b"),
        (document(fix("a", "review"), fix("b")), Applicability.REVIEW, "a"),
        (document(fix(trust="manual")), Applicability.REVIEW, ""),
        (document(fix(rechecked=False)), Applicability.SAFE, ""),
        (document(fix(changes=0)), Applicability.SAFE, ""),
        (document(), Applicability.SAFE, ""),
        (document(fix(), severity="degraded"), Applicability.SAFE, ""),
        (document(fix(), status="unknown"), Applicability.SAFE, ""),
        (document(fix(), status="refuted"), Applicability.SAFE, ""),
        (document(fix(), rule=None), Applicability.SAFE, ""),
    ],
)
def test_only_what_is_proved_is_proposed(text: str, least: Applicability, found: str) -> None:
    assert proposed_fix(json.loads(text), least) == found


def test_a_crash_is_proposed_once(tmp_path: Path) -> None:
    proposer = Proposer(tmp_path, quiet)
    proposer.consider([seen()], settings(), 0.0, 1_800_000_000.0)
    (proposal,) = left(tmp_path)
    assert (proposal.server, proposal.finding, proposal.fix) == ("a", "0123456789ab", "drop-speculation")
    assert proposal.created == 1_800_000_000.0
    proposer.consider([seen()], settings(), 500.0, 1_800_000_500.0)
    Proposer(tmp_path, quiet).consider([seen()], settings(), 0.0, 1_800_001_000.0)  # after a restart
    assert left(tmp_path) == []


def test_nothing_is_proposed_where_nothing_may_be_applied(tmp_path: Path) -> None:
    proposer = Proposer(tmp_path, quiet)
    for given in (settings("none"), settings(mode="approve"), settings(target="")):
        proposer.consider([seen()], given, 0.0, 0.0)
    proposer.consider([seen(state="resolved"), seen(state="refuted")], settings(), 0.0, 0.0)
    assert not (tmp_path / FOLDER).exists()
    proposer.consider([seen()], settings(), 1.0, 1.0)  # allowed now, and the same crash goes on
    assert len(left(tmp_path)) == 1


def test_a_diagnosis_that_is_proved_later_is_proposed_then(tmp_path: Path) -> None:
    proposer = Proposer(tmp_path, quiet)
    proposer.consider([seen(text=document(fix(trust="review"), status="unknown"))], settings(), 0.0, 0.0)
    assert left(tmp_path) == []
    proposer.consider([seen()], settings(), 1.0, 1.0)
    assert len(left(tmp_path)) == 1


def test_a_crash_loop_is_proposed_less_and_less_often(tmp_path: Path) -> None:
    proposer, now, times = Proposer(tmp_path, quiet), 0.0, []
    for number in range(1000):
        now = number * 10.0
        proposer.consider([seen(f"k{number}")], settings(), now, now)
        times += [now] * len(left(tmp_path))
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] == FIRST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    assert len(times) < 20


def test_the_last_crash_of_a_loop_is_proposed_once_the_pause_is_over(tmp_path: Path) -> None:
    proposer = Proposer(tmp_path, quiet)
    proposer.consider([seen("k1")], settings(), 0.0, 0.0)
    left(tmp_path)
    proposer.consider([seen("k2")], settings(), 10.0, 10.0)
    assert left(tmp_path) == []
    assert proposer.due(10.0) == FIRST_PAUSE - 10.0
    proposer.work(FIRST_PAUSE, 60.0)
    assert len(left(tmp_path)) == 1


def test_a_server_that_stays_down_is_proposed_again_a_few_times(tmp_path: Path) -> None:
    proposer, occurrences, times = Proposer(tmp_path, quiet), [], []
    proposer.consider([seen()], settings(), 0.0, 0.0)
    for minute in range(60 * 48):
        proposer.work(minute * 60.0, minute * 60.0)
        for proposal in left(tmp_path):
            occurrences.append(proposal.occurrence)
            times.append(minute * 60.0)
    assert len(set(occurrences)) == len(occurrences) == 1 + TIMES_AGAIN
    assert times[:3] == [0.0, AGAIN, AGAIN + 2 * AGAIN]
    assert proposer.due(0.0) is None


def test_one_that_recovers_is_not_proposed_again(tmp_path: Path) -> None:
    proposer = Proposer(tmp_path, quiet)
    proposer.consider([seen()], settings(), 0.0, 0.0)
    left(tmp_path)
    proposer.consider([Recovered(server="a", at=5.0, because="ready")], settings(), 5.0, 5.0)
    assert proposer.due(5.0) is None


@pytest.mark.parametrize(
    "fact",
    [
        Recovered(server="a", at=20.0, because="the server is ready again"),
        Withdrawn(key="k2", state="refuted", because="it lives"),
    ],
)
def test_what_no_longer_stands_is_not_proposed(tmp_path: Path, fact: Recovered | Withdrawn) -> None:
    proposer = Proposer(tmp_path, quiet)
    proposer.consider([seen("k1")], settings(), 0.0, 0.0)
    left(tmp_path)
    proposer.consider([seen("k2"), fact], settings(), 10.0, 10.0)
    proposer.work(1000.0, 1000.0)
    assert left(tmp_path) == []


def test_a_server_that_recovered_is_proposed_at_once_the_next_time(tmp_path: Path) -> None:
    proposer = Proposer(tmp_path, quiet)
    proposer.consider([seen("k1")], settings(), 0.0, 0.0)
    proposer.consider([Recovered(server="a", at=5.0, because="ready")], settings(), 5.0, 5.0)
    left(tmp_path)
    proposer.consider([seen("k2")], settings(), 10.0, 10.0)
    assert len(left(tmp_path)) == 1


def test_a_full_disk_is_said_and_tried_again(tmp_path: Path) -> None:
    said: list[str] = []

    def say(level: str, event: str, **fields: object) -> None:
        said.append(event)

    proposer = Proposer(tmp_path, say)
    (tmp_path / FOLDER).touch()  # no directory can be made here
    proposer.consider([seen()], settings(), 0.0, 0.0)
    assert said == ["proposal_unwritable"]
    (tmp_path / FOLDER).unlink()
    proposer.work(FIRST_PAUSE, 60.0)
    assert said == ["proposal_unwritable", "fix_proposed"]
    assert len(left(tmp_path)) == 1


def test_a_damaged_memory_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "proposed.json").write_text('{"not": "a list"')
    Proposer(tmp_path, quiet).consider([seen()], settings(), 0.0, 0.0)
    assert len(left(tmp_path)) == 1
    assert len(json.loads((tmp_path / "proposed.json").read_text())) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [FOLDER, "proposed.json"]


@pytest.mark.parametrize(("apply", "proposed"), [("safe", ["drop-speculation"]), ("none", [])])
def test_the_watcher_proposes_what_the_target_proves(
    tmp_path: Path, examples: Path, apply: str, proposed: list[str]
) -> None:
    state = tmp_path / "state"
    (config := tmp_path / "specwatch.toml").write_text(
        f"[[server]]\nname = 'atlas'\nlogs = ['{examples}/server.log']\ntarget = 'script:{examples}/launch.sh'\n"
        f"apply = '{apply}'\npath_map = {{ '/models' = '{examples}/models' }}\n"
    )
    program = Path(sys.executable).with_name("specwatch")
    words = (program, "watch", "--once", "--config", config, "--state", state)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert [one.fix for one in left(state)] == proposed
    told = subprocess.run(
        (program, "findings", "list", "--format", "json", "--state", state), capture_output=True, text=True, check=False
    )
    (finding,) = json.loads(told.stdout)["findings"]
    # the launch is the one that stands in the target, word for word, not one made up from the log's record
    assert finding["launch"]["from"] == "typed"
    assert "--speculative-algo" in finding["launch"]["argv"]
