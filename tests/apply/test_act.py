"""Actions on real files: what helps stays, what does not is taken back, and nobody else's work is overwritten."""

from __future__ import annotations

import contextlib
import gc
import http.server
import json
import stat
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from stage import EXAMPLES, START, Opened, Stage, book

from specwatch import act
from specwatch.acting.base import Edges, Hooks, Outcome
from specwatch.domain import Change
from specwatch.errors import ApplyError, LaunchError
from specwatch.launch import targets
from specwatch.launch.targets.base import Edit, Rewrite
from specwatch.settings import Silence


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path).build()


def store(stage: Stage) -> Opened:
    return Opened(stage.folder / "apply", read_only=True)


def events(stage: Stage) -> list[str]:
    return [json.loads(line)["event"] for line in (stage.folder / "apply" / "audit.jsonl").read_text().split("\n")[:-1]]


def test_a_fix_that_helps_stays(stage: Stage) -> None:
    steps: list[str] = []
    outcome = stage.apply(hooks=Hooks(step=steps.append))
    assert outcome.result == "applied", outcome.because
    assert outcome.helped
    assert "ready" in outcome.because
    assert steps == ["planned", "bundled", "kept", "written", "restarted", "waiting", "applied"]
    assert b"STANDALONE" not in stage.launch.read_bytes()
    assert stat.S_IMODE(stage.launch.stat().st_mode) == 0o750
    assert stage.life["runs"] == "fixed"
    assert store(stage).verify().problems == ()
    (action,) = store(stage).actions()
    assert (action.state, action.fix, action.server) == ("applied", "drop-speculation", "atlas")
    assert list(stage.folder.glob(".*.specwatch-*")) == []


def test_the_old_bytes_are_kept_before_anything_is_written(stage: Stage) -> None:
    seen: list[bytes] = []

    def look(step: str) -> None:
        if step == "kept":
            (folder,) = (one for one in (stage.folder / "apply").iterdir() if (one / "kept").is_dir())
            assert stat.S_IMODE((folder / "kept").stat().st_mode) == 0o700
            seen.extend([(folder / "kept" / "0.before").read_bytes(), stage.launch.read_bytes()])

    stage.apply(hooks=Hooks(step=look))
    assert seen == [stage.before, stage.before]


def test_a_fix_that_does_not_help_is_taken_back(stage: Stage) -> None:
    stage.build(fixed="crash")
    outcome = stage.apply()
    assert outcome.result == "rolled_back"
    assert "crashed again (standalone-vocab-mismatch)" in outcome.because
    assert "the very same words" in outcome.because
    assert stage.launch.read_bytes() == stage.before
    assert stage.life["runs"] == "old"
    assert stage.life["restarts"] == 2
    assert stat.S_IMODE(stage.launch.stat().st_mode) == 0o750


@pytest.mark.parametrize(
    ("fixed", "says"),
    [("hang", "not healthy in time"), ("die", "died again"), ("loop", "died again"), ("refuse", "the runtime refuses")],
)
def test_whatever_goes_wrong_after_the_write_ends_in_the_old_launch(stage: Stage, fixed: str, says: str) -> None:
    stage.build(fixed=fixed)
    outcome = stage.apply()
    assert outcome.result == "rolled_back"
    assert says in outcome.because
    assert stage.launch.read_bytes() == stage.before


class Stranger(http.server.BaseHTTPRequestHandler):
    """Another server that took the port, and is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("fixed", "helped"), [("end", False), ("die", False), ("ready", True)])
def test_an_answer_of_somebody_else_is_no_health(stage: Stage, fixed: str, helped: bool) -> None:
    stage.build(fixed=fixed)
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger, bind_and_activate=False) as stranger:
        stranger.server_bind()  # nobody listens at the port until the server was restarted
        url = f"http://127.0.0.1:{stranger.server_address[1]}/health"

        def listen(step: str) -> None:
            if step == "waiting":
                stranger.server_activate()
                threading.Thread(target=stranger.serve_forever, daemon=True).start()

        outcome = stage.apply(server=replace(stage.server, health=url), hooks=Hooks(step=listen))
        stranger.shutdown()
    assert outcome.result == ("applied" if helped else "rolled_back"), outcome.because
    if fixed == "end":
        assert "it does not run, whoever answers: the server is unknown" in outcome.because


def test_a_restart_of_the_crash_loop_that_is_merged_with_ours_is_no_death(stage: Stage) -> None:
    stage.build(fixed="ready").live(due=True)
    outcome = stage.apply()
    assert outcome.result == "applied", outcome.because
    assert stage.life["starts"] == 1


def test_an_old_launch_that_cannot_be_started_is_said_and_opens_the_breaker(stage: Stage) -> None:
    stage.build(fixed="crash", old="refuse")
    outcome = stage.apply()
    assert outcome.result == "failed"
    assert "cannot be started" in outcome.because
    assert stage.launch.read_bytes() == stage.before
    assert "cannot be started" in store(stage).breaker("atlas")


def test_what_somebody_writes_before_us_is_kept(stage: Stage) -> None:
    def edit(step: str) -> None:
        if step == "kept":
            stage.launch.write_bytes(stage.before + b"# mine\n")

    outcome = stage.apply(hooks=Hooks(step=edit))
    assert outcome.result == "rolled_back"
    assert "changed by somebody else" in outcome.because
    assert stage.launch.read_bytes() == stage.before + b"# mine\n"
    assert stage.life["restarts"] == 0
    assert not store(stage).breaker("atlas")


def test_what_somebody_writes_after_us_is_kept_and_a_person_called(stage: Stage) -> None:
    stage.build(fixed="crash")

    def edit(step: str) -> None:
        if step == "waiting":
            stage.launch.write_bytes(b"#!/bin/sh\n# all new\n")

    outcome = stage.apply(hooks=Hooks(step=edit))
    assert outcome.result == "failed"
    assert "somebody else" in outcome.because
    assert str(stage.folder / "apply" / outcome.action / "kept") in outcome.because
    assert stage.launch.read_bytes() == b"#!/bin/sh\n# all new\n"
    assert store(stage).breaker("atlas")
    assert stage.apply().result == "refused"


def test_a_link_stays_a_link(stage: Stage) -> None:
    real = stage.folder / "real.sh"
    stage.launch.rename(real)
    stage.launch.symlink_to(real)
    assert stage.apply().result == "applied"
    assert stage.launch.is_symlink()
    assert b"STANDALONE" not in real.read_bytes()


def test_what_reads_back_otherwise_is_taken_back_without_a_restart(stage: Stage) -> None:
    def plan(target: str, changes: object, release: str) -> tuple[Edit, ...]:
        after = stage.before.replace(b"--tp 2", b"--tp 4")
        return (Rewrite(path=stage.launch, before=stage.before, after=after),)

    outcome = stage.apply(edges=stage.edges(plan=plan))
    assert outcome.result == "rolled_back"
    assert "does not read back" in outcome.because
    assert stage.launch.read_bytes() == stage.before
    assert stage.life["restarts"] == 0


def test_several_files_are_one_change(stage: Stage) -> None:
    other = stage.folder / "sglang.service.d" / "specwatch.conf"

    def plan(target: str, changes: list[Change], release: str) -> tuple[Edit, ...]:
        return (*targets.plan(target, changes, release), Rewrite(path=other, before=None, after=b"[Service]\n"))

    stage.build(fixed="crash")
    assert stage.apply(edges=stage.edges(plan=plan)).result == "rolled_back"
    assert not other.exists()
    assert stage.launch.read_bytes() == stage.before
    other.parent.rmdir()
    other.parent.write_text("a file stands where the folder should be")
    outcome = stage.apply(edges=stage.edges(plan=plan), settings=stage.settings(cooldown=1.0), asked_by="person")
    assert outcome.result == "refused", "the same fix twice"
    act.reset("atlas", stage.settings())
    outcome = stage.apply(edges=stage.edges(plan=plan))
    assert outcome.result == "rolled_back"
    assert "cannot be written" in outcome.because
    assert stage.launch.read_bytes() == stage.before, "the first file was written, and is put back"


def test_a_dry_run_changes_nothing_at_all(stage: Stage) -> None:
    before = sorted(stage.folder.rglob("*"))
    outcome = stage.apply(dry_run=True)
    assert outcome.result == "planned"
    assert outcome.decision is not None
    assert len(outcome.decision.walked) == 10
    assert any(line.startswith("-") and "STANDALONE" in line for line in outcome.diff)
    assert outcome.commands == (f"restart-it {stage.folder}",)
    assert sorted(stage.folder.rglob("*")) == before
    assert stage.launch.read_bytes() == stage.before


def test_a_diff_shows_no_secret(stage: Stage) -> None:
    stage.launch.write_bytes(stage.before.replace(b"--tp 2", b"--tp 2 --api-key sk-verysecret12345"))
    outcome = stage.apply(dry_run=True)
    assert outcome.result == "planned", outcome.because
    assert "verysecret" not in "\n".join(outcome.diff)
    outcome = stage.apply()
    for file in (stage.folder / "apply").rglob("*"):
        if file.is_file() and file.parent.name != "kept":
            assert b"verysecret" not in file.read_bytes(), file


REFUSALS = [
    ({"fix": "no-such-fix"}, "no-such-fix is not one of its fixes (drop-speculation)"),
    ({"fingerprint": "0123456789ab"}, "does not fire now; what fires is"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSALS)
def test_a_refusal_says_why_and_is_recorded(stage: Stage, changes: dict[str, object], says: str) -> None:
    outcome = stage.apply(**changes)  # type: ignore[arg-type]
    assert outcome.result == "refused"
    assert says in outcome.because
    assert events(stage) == ["request_refused"]
    assert stage.launch.read_bytes() == stage.before


def test_a_server_that_became_ready_is_left_alone(stage: Stage) -> None:
    with stage.log.open("a") as log:
        log.write(START + "[2026-11-30 15:00:08] The server is fired up and ready to roll!\n")
    outcome = stage.apply(asked_by="person", even_if_up=True)
    assert outcome.result == "refused"
    assert "shows no crash" in outcome.because


def test_a_server_that_is_up_is_left_alone(stage: Stage) -> None:
    stage.live(life="up")
    outcome = stage.apply()
    assert "Is the server really down? No:" in outcome.because
    assert stage.apply(asked_by="person").result == "refused"
    assert stage.apply(asked_by="person", even_if_up=True).result == "applied"


def test_models_that_cannot_be_read_prove_nothing(stage: Stage) -> None:
    blind = replace(stage.server, path_map=())
    outcome = stage.apply(server=blind)
    assert outcome.result == "refused"
    assert "the fix is review" in outcome.because, "what is not proved is never safe"
    outcome = stage.apply(server=blind, asked_by="person", dry_run=True)
    assert outcome.decision is not None
    assert "NOT PROVED" in next(one.because for one in outcome.decision.walked if "proved" in one.question)


def test_a_target_that_cannot_be_changed_is_said(stage: Stage) -> None:
    def plan(target: str, changes: object, release: str) -> tuple[Edit, ...]:
        raise LaunchError("the command is built by a loop")

    outcome = stage.apply(edges=stage.edges(plan=plan))
    assert outcome.result == "refused"
    assert "cannot be written: the command is built by a loop" in outcome.because
    assert stage.apply(edges=stage.edges(plan=lambda *_: ())).because.endswith("restart the server")


def test_a_silence_and_a_person(stage: Stage) -> None:
    silenced = replace(stage.settings(), silences=(Silence(server="at*", until=4e9, because="migration"),))
    assert "migration" in stage.apply(settings=silenced).because
    assert stage.apply(settings=silenced, asked_by="person").result == "applied"


def test_a_person_is_asked_and_no_means_no(stage: Stage) -> None:
    shown: list[Outcome] = []

    def ask(outcome: Outcome) -> bool:
        shown.append(outcome)
        return False

    outcome = stage.apply(asked_by="person", confirmed=False, hooks=Hooks(confirm=ask))
    assert outcome.result == "refused"
    assert shown[0].diff
    assert stage.launch.read_bytes() == stage.before


def test_who_takes_long_to_say_yes_finds_the_server_looked_at_again(stage: Stage) -> None:
    def ask(_outcome: Outcome) -> bool:
        stage.clock.sleep(600)
        stage.live(life="up")
        return True

    outcome = stage.apply(asked_by="person", confirmed=False, hooks=Hooks(confirm=ask))
    assert outcome.result == "refused"
    assert "really down" in outcome.because


def test_a_person_may_roll_back(stage: Stage) -> None:
    action = stage.apply().action
    settings, edges = stage.settings(), stage.edges()
    dry = act.rollback(action[:5], settings, book(), edges, dry_run=True)
    assert any(line.startswith("+") and "STANDALONE" in line for line in dry.diff)
    assert act.rollback(action, settings, book(), edges, Hooks(confirm=lambda _: False)).result == "refused"
    outcome = act.rollback(action, settings, book(), edges)
    assert outcome.result == "applied", outcome.because
    assert stage.launch.read_bytes() == stage.before
    assert stage.life["runs"] == "old"
    assert [one.kind for one in store(stage).actions()] == ["apply", "rollback"]
    with pytest.raises(ApplyError, match="as it was before already"):
        act.rollback(action, settings, book(), edges)
    with pytest.raises(ApplyError, match="nothing to put back"):
        act.rollback(outcome.action, settings, book(), edges)
    assert store(stage).verify().problems == ()


def test_a_rollback_never_overwrites_later_work(stage: Stage) -> None:
    action = stage.apply().action
    stage.launch.write_bytes(stage.launch.read_bytes() + b"# later\n")
    with pytest.raises(ApplyError, match="changed by somebody else since"):
        act.rollback(action, stage.settings(), book(), stage.edges())
    assert stage.launch.read_bytes().endswith(b"# later\n")


def test_a_storm_of_proposals_ends_at_the_limits(stage: Stage) -> None:
    """A fix that never helps, and findings that never end: the server is restarted a few times, then left alone."""
    stage.build(fixed="crash")
    settings = stage.settings(cooldown=60.0, attempts=3, breaker=99, window=1e9)
    outcomes = []
    for number in range(40):
        # each time another finding, as far as anybody can tell: an endless supply of first attempts
        stage.launch.write_bytes(stage.before.replace(b"4096", str(4096 + number).encode()))
        stage.clock.sleep(61.0)
        outcomes.append(stage.apply(settings=settings).result)
    assert outcomes.count("rolled_back") == 3
    assert set(outcomes) == {"rolled_back", "refused"}
    assert stage.life["restarts"] == 6, "each attempt and its way back"


def test_the_breaker_opens_after_attempts_that_did_not_help(stage: Stage) -> None:
    stage.build(fixed="crash")
    settings = stage.settings(cooldown=1.0, attempts=99, breaker=2)
    for number in range(4):
        stage.launch.write_bytes(stage.before.replace(b"4096", str(4096 + number).encode()))
        stage.clock.sleep(5.0)
        stage.apply(settings=settings)
    assert "2 attempts in a row" in store(stage).breaker("atlas")
    assert len(store(stage).actions()) == 2
    act.reset("atlas", settings)
    stage.clock.sleep(5.0)
    assert stage.apply(settings=settings).result == "rolled_back", "a person closed it"


def test_the_evidence_is_whole_and_says_what_is_missing(stage: Stage) -> None:
    action = stage.apply().action
    folder = stage.folder / "apply" / action / "evidence"
    manifest = json.loads((folder / "manifest.json").read_text())
    names = {entry["name"] for entry in manifest["files"]}
    assert {"finding.json", "log.txt", "launch.txt", "configs.txt", "versions.txt", "shm.txt", "ports.txt"} <= names
    assert "not installed" in manifest["missing"]["gpu.txt"]
    assert "vocab_size" in (folder / "configs.txt").read_text()
    assert (EXAMPLES / "server.log").read_text().split("\n")[-2] in (folder / "log.txt").read_text()
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o644 for one in folder.iterdir())


def test_a_disk_without_room_changes_nothing(stage: Stage) -> None:
    """The evidence cannot be kept: nothing is written, nothing restarted."""

    def fill(step: str) -> None:
        if step == "planned":
            (folder,) = (one for one in (stage.folder / "apply").iterdir() if one.is_dir() and one.name != "locks")
            (folder / "evidence").write_text("in the way")

    outcome = stage.apply(hooks=Hooks(step=fill))
    assert outcome.result == "rolled_back"
    assert "nothing was changed" in outcome.because
    assert stage.launch.read_bytes() == stage.before
    assert stage.life["restarts"] == 0
    assert stage.apply(settings=stage.settings(cooldown=0.001)).result == "applied", "a fix never begun is not tried"


def test_the_models_are_read_by_a_child(stage: Stage) -> None:
    outcome = stage.apply(edges=stage.edges(inspect=Edges().inspect), dry_run=True)
    assert outcome.result == "planned", outcome.because


def test_a_record_that_cannot_be_written_leaves_the_old_launch(stage: Stage) -> None:
    """The disk of the record fills up right before the new launch is written: what is not recorded does not stay."""
    folder = stage.folder / "apply"
    folder.mkdir(mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "specwatch-test", folder], check=True)
    try:

        def fill(step: str) -> None:
            if step == "kept":
                with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
                    while file.write(b"x" * 4096):
                        pass

        outcome = stage.apply(hooks=Hooks(step=fill))
        assert outcome.result == "rolled_back"
        assert "could not be recorded" in outcome.because
        assert stage.launch.read_bytes() == stage.before
        assert stage.life["restarts"] == 0
        (folder / "filler").unlink()
        assert [one.result for one in stage.resume()] == ["rolled_back"]
        looked = store(stage)
        assert looked.verify().problems == ()
        looked.close()
    finally:
        gc.collect()
        subprocess.run(["umount", folder], check=True)


def test_edges_are_the_real_ones_by_default() -> None:
    assert Edges().plan is targets.plan
    assert Edges().read is targets.read
