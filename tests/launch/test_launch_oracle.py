"""What the real parser of 0.5.23 answered, spelling by spelling and file by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specwatch.errors import LaunchError
from specwatch.launch.command import parse

DATA = Path(__file__).parent.parent / "data" / "launch"
CASES = [json.loads(line) for line in (DATA / "spelling-yaml.jsonl").read_text().splitlines()]


def read_file(path: str) -> str:
    return (DATA / path).read_text()


def answer(argv: list[str]) -> str | None:
    try:
        parse(argv, "0.5.23", read_file=read_file)
    except LaunchError as error:
        return error.refusal or f"could not tell: {error}"
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_agrees_with_the_real_parser(case: dict[str, Any]) -> None:
    refused = case["refused"]
    assert answer(["python", "-m", "sglang.launch_server", *case["argv"]]) == refused
    if "serve_argv" in case:
        assert answer(["sglang", *case["serve_argv"]]) == refused


def test_the_oracle_holds_both_answers() -> None:
    refused = sum(case["refused"] is not None for case in CASES)
    assert 40 < refused < len(CASES) - 30
