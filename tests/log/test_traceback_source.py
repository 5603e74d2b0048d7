"""The source that a traceback shows below a frame: one line, or all of a statement whose bracket is open."""

from __future__ import annotations

import pytest

from specwatch.log.traceback import parse

FRAME = '  File "/x/sglang/srt/server_args.py", line 404, in __post_init__'


@pytest.mark.parametrize(
    ("shown", "source"),
    [
        (["    raise ValueError("], "raise ValueError("),
        (["    if a > 1:", "       ^^^^^"], "if a > 1:"),
        (
            ["    assert (", "    self.topk is None", "    and self.tokens is None"],
            "assert ( self.topk is None and self.tokens is None",
        ),
        (["    call(a)", "    another line of the program"], "call(a)"),
    ],
)
def test_source_of_a_frame(shown: list[str], source: str) -> None:
    found = parse(["Traceback (most recent call last):", FRAME, *shown, "AssertionError"])
    assert found.error == "AssertionError"
    assert found.frames[-1].source == source


def test_source_is_capped() -> None:
    shown = ["    f("] + [f"    argument_{number}," for number in range(1000)]
    found = parse(["Traceback (most recent call last):", FRAME, *shown, "AssertionError"])
    assert len(found.frames[-1].source) < 500
