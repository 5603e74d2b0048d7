"""How much memory a repair gives: the numbers of the log decide, and what cannot help is not offered."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from specwatch.domain import Status, Verdict
from specwatch.fixes import FIXES, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

LAUNCH = "python -m sglang.launch_server --model-path m"
DRAFT = "--speculative-algorithm EAGLE --speculative-draft-model-path d"


def offered(use: str, flags: str = "", release: str = "0.5.23", **captures: str) -> list[tuple[str, str | None]]:
    """What a repair changes in a launch with these flags, given these values of the log."""
    launch = parse(f"{LAUNCH} {flags}", release)
    verdict = Verdict(check="", status=Status.UNKNOWN)
    ask = Request(launch=launch, verdict=verdict, models=MemoryModels({}), captures=captures)
    return [(change.name, change.new) for proposal in FIXES[use](ask) for change in proposal.changes]


@pytest.mark.parametrize(
    ("flags", "captures", "wanted"),
    [
        ("--mem-fraction-static 0.8", {}, "0.85"),
        ("--mem-fraction-static 0.9", {}, "0.95"),
        ("--mem-fraction-static 0.95", {}, None),
        ("--mem-fraction-static 0.6", {"before": "80.0", "after": "20.0"}, "0.8"),
        ("--mem-fraction-static 0.8", {"before": "23.30", "after": "5.30"}, "0.85"),
        ("--mem-fraction-static 0.88", {"minimum": "0.912"}, "0.95"),
        ("--mem-fraction-static 0.9", {"minimum": "0.9335"}, "0.95"),
        ("--mem-fraction-static 0.88", {"minimum": "0.94"}, None),
        ("--mem-fraction-static 0.7", {"before": "80.0", "after": "2.0"}, None),
        ("", {"fraction": "0.7"}, "0.75"),
        ("", {}, None),
    ],
)
def test_raised_fraction(flags: str, captures: Mapping[str, str], wanted: str | None) -> None:
    found = offered("raise-memory-fraction", flags, **captures)
    assert found == ([("--mem-fraction-static", wanted)] if wanted else [])


def test_raised_fraction_without_a_launch() -> None:
    verdict = Verdict(check="", status=Status.UNKNOWN)
    ask = Request(launch=None, verdict=verdict, models=MemoryModels({}), captures={"fraction": "0.7"})
    (proposal,) = FIXES["raise-memory-fraction"](ask)
    assert [(change.name, change.new) for change in proposal.changes] == [("--mem-fraction-static", "0.75")]
    assert proposal.launch is None


@pytest.mark.parametrize(
    ("flags", "captures", "wanted"),
    [
        ("--mem-fraction-static 0.85", {}, "0.8"),
        ("--mem-fraction-static 0.85", {"before": "80.0", "after": "40.0"}, "0.8"),
        ("--mem-fraction-static 0.85", {"before": "80.0", "after": "14.0"}, None),
        ("--mem-fraction-static 0.3", {}, None),
        ("", {}, None),
    ],
)
def test_lowered_fraction(flags: str, captures: Mapping[str, str], wanted: str | None) -> None:
    found = offered("lower-memory-fraction", flags, **captures)
    assert found == ([("--mem-fraction-static", wanted)] if wanted else [])


@pytest.mark.parametrize(
    ("flags", "release", "wanted"),
    [
        ("--cuda-graph-max-bs 160", "0.5.4", ("--cuda-graph-max-bs", "80")),
        ("", "0.5.4", ("--cuda-graph-max-bs", "16")),
        ("", "0.5.23", ("--cuda-graph-max-bs-decode", "16")),
        (DRAFT, "0.5.4", ("--cuda-graph-max-bs", "8")),
        ("--cuda-graph-max-bs 1", "0.5.4", None),
        ("--cuda-graph-bs 1 2 4", "0.5.4", None),
    ],
)
def test_smaller_graphs(flags: str, release: str, wanted: tuple[str, str] | None) -> None:
    assert offered("smaller-cuda-graphs", flags, release) == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("flags", "release", "wanted"),
    [
        ("", "0.5.4", ("--disable-cuda-graph", "")),
        ("", "0.5.23", ("--cuda-graph-backend-decode", "disabled")),
        ("--disable-cuda-graph", "0.5.4", None),
        ("--cuda-graph-backend-decode disabled", "0.5.23", None),
        (f"{DRAFT} --enable-multi-layer-eagle", "0.5.8", None),
    ],
)
def test_no_graphs(flags: str, release: str, wanted: tuple[str, str] | None) -> None:
    assert offered("without-cuda-graphs", flags, release) == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("use", "flags", "captures", "wanted"),
    [
        ("fewer-running-requests", "--max-running-requests 64", {}, [("--max-running-requests", "32")]),
        ("fewer-running-requests", DRAFT, {}, [("--max-running-requests", "24")]),
        ("fewer-running-requests", "", {}, []),
        ("fewer-running-requests", "--max-running-requests 1", {}, []),
        ("smaller-prefill-chunks", "--chunked-prefill-size 8192", {}, [("--chunked-prefill-size", "4096")]),
        ("smaller-prefill-chunks", "", {"chunk": "16384"}, [("--chunked-prefill-size", "8192")]),
        ("smaller-prefill-chunks", "--chunked-prefill-size 8192 --page-size 3", {}, []),
        ("smaller-prefill-chunks", "--chunked-prefill-size 512", {}, []),
        ("smaller-prefill-chunks", "", {}, []),
        ("smaller-kv-cache", DRAFT, {"tokens": "400000"}, [("--max-total-tokens", "200000")]),
        ("smaller-kv-cache", "", {"tokens": "400000"}, []),
        ("smaller-kv-cache", DRAFT, {"tokens": "1000"}, []),
        ("single-token-pages", "--page-size 64", {}, [("--page-size", "1")]),
        ("single-token-pages", "--page-size 1", {}, []),
        ("single-token-pages", "", {}, []),
        ("enough-state-slots", "--max-running-requests 8", {"slots": "5"}, [("--max-mamba-cache-size", "40")]),
        ("enough-state-slots", "", {"slots": "5"}, []),
        ("without-host-cache", "--hicache-size 15", {}, []),
        (
            "without-host-cache",
            "--enable-hierarchical-cache --hicache-size 15",
            {},
            [("--enable-hierarchical-cache", None), ("--hicache-size", None)],
        ),
    ],
)
def test_other_repairs(use: str, flags: str, captures: Mapping[str, str], wanted: list[tuple[str, str | None]]) -> None:
    assert offered(use, flags, **captures) == wanted
