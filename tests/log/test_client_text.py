"""What a client writes into a serving server's log makes no crash, whatever shape it has and clock it tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from logtext import FRAMES
from test_prefilter import SEARCHES, quickly, slowly

from specwatch.domain import Incident
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.rulebook.book import load_directories
from specwatch.sources.once import Raw

KNOWN = "Exception: Capture cuda graph failed: Triton Error [CUDA]: an illegal memory access was encountered"
HIT = "Scheduler hit an exception: Traceback (most recent call last):"
BEFORE = (
    "[2026-05-01 10:00:00] server_args={'model_path': '/models/t', 'tp_size': 1}",
    "[2026-05-01 10:00:00] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    *["[2026-05-01 10:02:07] Decode batch, #running-req: 2"] * 120,
)
AFTER = [f"[2026-05-01 10:0{2 + at // 60}:{at % 60:02d}] Decode batch, #running-req: 2" for at in range(8, 120)]
FORGED = {
    "a part of a line whose rest never comes": [f"2026-05-01T10:02:07.5Z stderr P [2026-05-01 10:02:07] {HIT}"],
    "a part of a known line": [f"2026-05-01T10:02:07.5Z stderr P {KNOWN}"],
    "a clock to come behind a line without one": [KNOWN, "[2026-05-01 10:10:10] x"],
    "a clock of another day behind it": [KNOWN, "[2027-05-01 10:10:10] Received sigquit from a child process."],
    "clocks to come": [
        "[2026-05-01 10:40:10] x",
        "[2026-05-01 10:40:10] Traceback (most recent call last):",
        *FRAMES.removesuffix("\n").split("\n"),
        "ValueError: x",
    ],
}


def standing(found: list[Incident]) -> list[str]:
    return [one.error for one in found if not one.outlived]


def read(lines: list[str]) -> list[Incident]:
    """The incidents of some lines, by the shipped rules."""
    framer, assembler, offset = Framer("log"), Assembler(load_directories().book.role_of), 0
    found = []
    for number, text in enumerate(lines, 1):
        for line in framer.feed(Raw("log", number, offset, text)):
            found += assembler.feed(line)
        offset += len(text) + 1
    for line in framer.flush():
        found += assembler.feed(line)
    return [*found, *assembler.flush()]


@pytest.mark.parametrize("name", FORGED)
def test_a_server_that_goes_on_had_no_crash(tmp_path: Path, name: str) -> None:
    lines = [*BEFORE, *FORGED[name], *AFTER]
    assert standing(read(lines)) == []
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    expected = slowly(path)
    for search in SEARCHES:
        assert quickly(path, [path.read_bytes()], search) == expected


@pytest.mark.parametrize("name", [*list(FORGED)[:2], "a clock of another day behind it"])
def test_the_same_words_are_a_crash_where_nothing_follows(name: str) -> None:
    assert standing(read([*BEFORE, *FORGED[name]])) != []


def test_the_part_of_a_line_is_joined_across_those_of_the_other_stream() -> None:
    lines = [f"2026-05-01T10:02:07.5Z stderr F {line}" for line in BEFORE]
    lines += [
        "2026-05-01T10:02:08.5Z stderr P [2026-05-01 10:02:08] Scheduler hit an exce",
        f"2026-05-01T10:02:08.5Z stdout F {AFTER[0]}",
        "2026-05-01T10:02:08.5Z stderr F ption: Traceback (most recent call last):",
        *(f"2026-05-01T10:02:08.5Z stderr F {line}" for line in f"{FRAMES}ValueError: x".split("\n")),
    ]
    assert standing(read(lines)) == ["ValueError: x"]
