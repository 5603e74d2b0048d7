"""A healthy log may end on any line: a copy taken now, a rotation, a full disk. Nothing fatal may be read into that."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path

import pytest
from logtext import ARGS, FRAMES, SERVING, batch, death, standing

from specwatch.domain import Severity
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.rulebook.book import Rulebook, load_directories
from specwatch.sources.once import read

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
FORGED = {"healthy-raw-newlines", "healthy-jsonlines"}
"""Clients wrote whole crash blocks into these: until the server goes on below one, nothing can tell it from a crash."""
MOST_CUTS = 100


def healthy() -> list[Path]:
    labels = [path for path in sorted(LOGS.glob("*.toml")) if path.stem not in FORGED]
    labels = [path for path in labels if tomllib.loads(path.read_text(encoding="utf-8"))["verdict"] == "healthy"]
    return [next(path.parent.glob(f"{path.stem}.log*")) for path in labels]


@pytest.fixture(scope="module")
def book() -> Rulebook:
    return load_directories().book


@pytest.mark.parametrize("log", healthy(), ids=lambda path: path.name)
def test_a_healthy_log_is_healthy_wherever_it_ends(log: Path, book: Rulebook) -> None:
    lines = list(read(str(log)))
    framer, assembler = Framer("x"), Assembler(book.role_of)
    step = max(1, len(lines) // MOST_CUTS)
    for raw in lines:
        for line in framer.feed(raw):
            assembler.feed(line)
        if raw.number % step == 0:
            end, ended = copy.deepcopy(framer), copy.deepcopy(assembler, {id(book): book})
            got = [one for line in end.flush() for one in ended.feed(line)] + ended.flush()
            assert [one.error for one in got if not one.outlived and is_fatal(one.error, book)] == []


def is_fatal(error: str, book: Rulebook) -> bool:
    found = book.look_up(error)
    return found is None or found[1].severity is Severity.FATAL


CAUGHT = f"[2026-05-01 10:30:00] Error in request handler: Traceback (most recent call last):\n{FRAMES}"
ERROR = "ConnectionResetError: [Errno 104] Connection reset by peer\n"


@pytest.mark.parametrize("lines", range(1, 8))
def test_a_caught_exception_at_the_end_of_a_serving_log_is_no_crash(lines: int) -> None:
    cut = "".join(f"{line}\n" for line in (CAUGHT + ERROR).split("\n")[:lines])
    assert standing(SERVING + batch("10:29:59") + cut) == []


def test_it_is_one_as_soon_as_a_death_is_noticed() -> None:
    assert standing(SERVING + batch("10:29:59") + CAUGHT + "ValueError: x\n" + death("10:30:01")) == ["ValueError: x"]


def test_it_is_one_while_the_server_only_starts() -> None:
    assert standing(ARGS + CAUGHT + "ValueError: x\n") == ["ValueError: x"]


def test_a_serving_server_has_no_arguments_left_to_refuse() -> None:
    refused = "sglang serve: error: unrecognized arguments: --x\n"
    assert standing(SERVING + batch("10:29:59") + refused) == []
    assert standing(refused) == ["sglang serve: error: unrecognized arguments: --x"]


def test_a_relayed_traceback_without_headers_is_read_as_one() -> None:
    crash = f"Traceback (most recent call last):\n{FRAMES}OSError: no such model\n".splitlines()
    relayed = "".join(f"2025-03-07 23:50:27,727 - __main__ - INFO - {line}\n" for line in crash)
    assert standing(relayed) == ["OSError: no such model"]
