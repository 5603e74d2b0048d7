"""The edit that a rule spells out, in the words of the release that it is for."""

from __future__ import annotations

import pytest

from specwatch.domain import Applicability, Status, Verdict
from specwatch.fixes.change import change, variable
from specwatch.fixes.proposal import Edit, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels


@pytest.mark.parametrize("given", ["SGL_ENABLE_JIT_DEEPGEMM", "SGLANG_ENABLE_JIT_DEEPGEMM"])
@pytest.mark.parametrize(
    ("release", "read"),
    [
        ("0.4.7", "SGL_ENABLE_JIT_DEEPGEMM"),
        ("0.5.3", "SGL_ENABLE_JIT_DEEPGEMM"),
        ("0.5.4", "SGLANG_ENABLE_JIT_DEEPGEMM"),
        ("0.5.23", "SGLANG_ENABLE_JIT_DEEPGEMM"),
    ],
)
def test_a_variable_has_the_name_that_the_release_reads(given: str, release: str, read: str) -> None:
    assert variable(parse("python -m sglang.launch_server --model-path /m", release), given) == read


def test_without_a_release_a_variable_keeps_the_name_that_the_rule_gives() -> None:
    launch = parse("python -m sglang.launch_server --model-path /m")
    assert variable(launch, "SGL_ENABLE_JIT_DEEPGEMM") == "SGL_ENABLE_JIT_DEEPGEMM"
    assert variable(launch, "NCCL_DEBUG") == "NCCL_DEBUG"


@pytest.mark.parametrize(
    ("release", "offered"),
    [
        ("0.4.3.post4", Applicability.SAFE),
        ("0.4.3", Applicability.REVIEW),  # people say so of its post-releases too
        ("0.4.3.post1", None),
        ("0.4.2", None),
    ],
)
def test_a_flag_is_given_where_the_release_has_it(release: str, offered: Applicability | None) -> None:
    launch = parse("python -m sglang.launch_server --model-path /m", release)
    edit = Edit(set={"--dist-timeout": "3600"})
    verdict = Verdict(check="", status=Status.UNKNOWN, because="")
    found = list(change(Request(launch=launch, verdict=verdict, models=MemoryModels({}), edit=edit, why="longer")))
    assert [one.ceiling for one in found] == [offered][: offered is not None]
    assert [one.why for one in found if "0.4.3.post4" in one.why] == [
        one.why for one in found if one.ceiling is Applicability.REVIEW
    ]
