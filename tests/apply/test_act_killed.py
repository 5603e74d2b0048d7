"""kill -9 at every step: whoever comes next ends in the old launch or the new one, never between, and says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import stage as stage_module
from stage import Opened, Stage

from specwatch.storage.actions import FINAL

STEPS = (
    "planned", "bundled", "kept", "written", "restarted", "before-restart", "after-restart", "waiting", "restoring",
    "applied", "rolled_back",
)  # fmt: skip


def kill(folder: Path, step: str, *more: str) -> int:
    """Run an action in a process of its own that dies at a step; gives how it ended."""
    program = [sys.executable, str(Path(stage_module.__file__)), str(folder), step, *more]
    return subprocess.run(program, check=False, capture_output=True, timeout=120).returncode


def whole(stage: Stage) -> str:
    """Which launch stands; fails where it is neither, or another runs, or something is left half done."""
    content = stage.launch.read_bytes()
    which = "old" if content == stage.before else "fixed"
    assert which == "old" or (b"STANDALONE" not in content and content.startswith(b"#!/bin/sh\n"))
    assert stage.life.get("runs", "old") == which
    store = Opened(stage.folder / "apply", read_only=True)
    assert all(one.state in FINAL for one in store.actions())
    assert store.verify().problems == ()
    assert store.verify().notes == ()
    assert not list(stage.folder.glob("*.specwatch-*"))
    return which


@pytest.mark.parametrize("fixed", ["ready", "crash"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(tmp_path: Path, step: str, fixed: str) -> None:
    stage = Stage(tmp_path).build(fixed=fixed)
    happens = step not in (("restoring", "rolled_back") if fixed == "ready" else ("applied",))
    assert kill(tmp_path, step) == (-signal.SIGKILL if happens else 0)
    outcomes = stage.resume()
    which = whole(stage)
    if not happens:
        assert not outcomes
    elif step in ("planned", "bundled", "kept"):
        assert [one.result for one in outcomes] == ["rolled_back"]
        assert "interrupted before" in outcomes[0].because
        assert which == "old"
        assert stage.life["restarts"] == 0
    else:
        assert which == ("fixed" if fixed == "ready" else "old")
    assert stage.resume() == []


def test_killed_again_while_going_on(tmp_path: Path) -> None:
    """An actor that is killed each time does not restart the server for ever."""
    stage = Stage(tmp_path).build(fixed="ready")
    assert kill(tmp_path, "waiting") == -signal.SIGKILL
    stage.live(life="down")  # the machine went down, too
    for _ in range(4):
        kill(tmp_path, "waiting", "--resume")
        stage.live(life="down")
    stage.resume()
    assert whole(stage) == "old"
    assert int(str(stage.life["restarts"])) <= 4


def test_killed_while_taking_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path).build(fixed="crash")
    assert kill(tmp_path, "restoring") == -signal.SIGKILL
    assert kill(tmp_path, "after-restart", "--resume") == -signal.SIGKILL
    (outcome,) = stage.resume()
    assert outcome.result == "rolled_back"
    assert "crashed again" in outcome.because, "the first reason is not lost"
    assert whole(stage) == "old"


def test_what_somebody_changed_meanwhile_is_left_and_a_person_called(tmp_path: Path) -> None:
    stage = Stage(tmp_path).build()
    assert kill(tmp_path, "waiting") == -signal.SIGKILL
    stage.launch.write_text("#!/bin/sh\n# by hand\n")
    (outcome,) = stage.resume()
    assert outcome.result == "failed"
    assert "somebody else" in outcome.because
    assert stage.launch.read_text() == "#!/bin/sh\n# by hand\n"
    assert Opened(tmp_path / "apply", read_only=True).breaker("atlas")


def test_the_next_apply_goes_on_by_itself(tmp_path: Path) -> None:
    stage = Stage(tmp_path).build()
    assert kill(tmp_path, "written") == -signal.SIGKILL
    outcome = stage.apply()
    assert outcome.result == "refused", "what was begun helped, and nothing fires any more"
    assert whole(stage) == "fixed"


def test_one_that_is_being_worked_on_is_left_to_its_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path).build()
    assert kill(tmp_path, "written") == -signal.SIGKILL
    with Opened(tmp_path / "apply").alone("atlas"):
        assert stage.resume() == []
    assert [one.result for one in stage.resume()] == ["applied"]


def test_killed_between_the_new_file_and_its_place(tmp_path: Path) -> None:
    """What is half written lies beside the launch: it may hold a key, and goes."""
    stage = Stage(tmp_path).build(fixed="ready")
    assert kill(tmp_path, "kept") == -signal.SIGKILL
    (tmp_path / ".launch.sh.specwatch-0badf00d").write_bytes(stage.before[:20])
    assert [one.result for one in stage.resume()] == ["rolled_back"]
    assert whole(stage) == "old"
