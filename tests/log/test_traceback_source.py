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


def test_frames_of_the_errors_that_followed_last_one_first() -> None:
    lines = ["Traceback (most recent call last):"]
    for number, name in enumerate(("inner", "middle", "outer")):
        if number:
            lines += ["", "During handling of the above exception, another exception occurred:", "", lines[0]]
        lines += [f'  File "/x/{name}.py", line 1, in {name}', f"ValueError: {name}"]
    found = parse(lines)
    assert found.error == "ValueError: inner"
    assert [frame.function for frame in found.frames] == ["inner"]
    assert found.chain == ("ValueError: middle", "ValueError: outer")
    assert [frame.function for frame in found.callers] == ["outer", "middle"]
