"""Real logs and reduced real failures, each with a label that says what is in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from specwatch.domain import Incident, Role
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.sources.once import read

DATA = Path(__file__).resolve().parents[1] / "data"
LABELS = sorted([*(DATA / "logs").glob("*.toml"), *(DATA / "cases").glob("*.toml")])

ONE_LINERS = re.compile(
    r"Input length \(\d+ tokens\) exceeds the maximum allowed length|CUDA error \(.*no kernel image is available"
    r"|max_running_requests is capped|Health check failed|DetokenizerManager watchdog timeout \(.*soft=True"
)
"""The causes among the labels that are plain messages: no traceback, no death. Only a rule can know them."""


def known(text: str) -> Role | None:
    """Stands in for the rule book."""
    return Role.CAUSE if ONE_LINERS.match(text) else None


def flat(text: str) -> str:
    return " ".join(text.split())


def log_of(label: Path) -> Path:
    return next(path for end in (".log", ".log.gz", ".log.zst") if (path := label.with_suffix(end)).exists())


def read_all(label: Path) -> tuple[list[Incident], int]:
    assembler = Assembler(known)
    path = str(log_of(label))
    got = [incident for line in Framer(path).frames(read(path)) for incident in assembler.feed(line)]
    return got + assembler.flush(), assembler.runs


@pytest.mark.parametrize("label", LABELS, ids=lambda path: path.stem)
def test_a_log_is_what_its_label_says(label: Path) -> None:
    truth: dict[str, Any] = tomllib.loads(label.read_text(encoding="utf-8"))
    got, runs = read_all(label)
    standing = [flat(one.error) for one in got if one.role is Role.CAUSE and not one.outlived]
    if truth["verdict"] == "healthy":
        assert not standing
        assert not [one for one in got if one.role is Role.ECHO and not one.outlived]
    elif truth["verdict"] == "fatal" and truth["root"]:
        assert flat(truth["root"]) in standing[0]
    for error in standing:
        for wrong in truth.get("not_root", []):
            assert flat(wrong) not in error
    assert runs == truth.get("runs", runs)


def test_the_degraded_ones_are_seen_once_a_rule_knows_them() -> None:
    for label in LABELS:
        truth = tomllib.loads(label.read_text(encoding="utf-8"))
        if truth["verdict"] == "degraded":
            assert flat(truth["root"]) in flat(read_all(label)[0][0].error), label.stem


def test_the_launch_comes_from_the_log() -> None:
    (got,), _ = read_all(DATA / "logs" / "standalone-vocab-tp2.toml")
    assert got.launch is not None
    assert got.launch.value("speculative_draft_model_path") == "/models/qwen3-draft-1024"
    assert got.ranks == ("TP0", "TP1") or got.ranks in (("TP0",), ("TP1",))


def test_both_crashes_of_two_servers_in_one_log() -> None:
    got, _ = read_all(DATA / "logs" / "two-crashes-interleaved.toml")
    assert [one.error.split(" ")[1] for one in got] == ["STANDALONE", "DSpark"]
    algorithms = [one.launch.value("speculative_algorithm") for one in got if one.launch]
    assert algorithms == ["STANDALONE", "DSPARK"]


def test_each_start_of_a_crash_loop_is_a_run() -> None:
    got, _ = read_all(DATA / "logs" / "crash-loop.toml")
    assert [one.run for one in got] == [1, 2, 3]


def test_forged_blocks_are_told_and_denied() -> None:
    got, _ = read_all(DATA / "logs" / "healthy-raw-newlines.toml")
    assert got
    assert all(one.outlived for one in got)


@pytest.mark.parametrize(
    "hostile", ["healthy-raw-newlines", "healthy-hostile-text-l2", "healthy-jsonlines", "healthy-tp2"]
)
@pytest.mark.parametrize("crash", ["killed-serving", "request-kills-scheduler"])
def test_a_real_crash_after_hostile_traffic(hostile: str, crash: str, tmp_path: Path) -> None:
    """The same process: hostile requests first, then the end of a crash, its clock moved to follow them."""
    before = [raw.text for raw in read(str(log_of(DATA / "logs" / f"{hostile}.toml")))]
    stop = next(n for n, text in enumerate(before) if "SIGTERM received. signum=None frame=None" in text)
    after = [raw.text for raw in read(str(log_of(DATA / "logs" / f"{crash}.toml")))]
    died = next(n for n, text in enumerate(after) if "hit an exception" in text or "crashed with exit" in text)
    rank = " TP0" if hostile == "healthy-tp2" else ""
    tail = [
        re.sub(r"2026-11-30 \d\d:\d\d:(\d\d)\] (Scheduler hit)?", rf"2026-11-30 14:59:\1{rank}] \2", text)
        for text in after[died:]
    ]
    tail = [text.replace(f"{rank}]", "]") if "Scheduler hit" not in text else text for text in tail]
    path = tmp_path / "server.log"
    path.write_text("\n".join(before[:stop] + tail), encoding="utf-8")
    assembler = Assembler()
    got = [one for line in Framer("x").frames(read(str(path))) for one in assembler.feed(line)] + assembler.flush()
    standing = [one.error for one in got if one.role is Role.CAUSE and not one.outlived]
    wanted = (
        "Subprocess scheduler_0 (pid=10126) crashed" if crash == "killed-serving" else "IndexError: index out of range"
    )
    assert len(standing) == 1
    assert standing[0].startswith(wanted)
