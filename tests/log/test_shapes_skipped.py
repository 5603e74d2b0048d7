"""Running past lines that are not plain loses nothing: records, names in front, colours, parts of lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from logtext import FRAMES
from test_prefilter import (
    ENGINES,
    SEARCHES,
    SERVING,
    assert_both_ways_agree,
    known,
    parts_of_logs,
    quickly,
    slowly,
)

from specwatch.domain import Incident
from specwatch.log.anchors import words
from specwatch.log.colours import View
from specwatch.log.prefilter import Search, Skimmer, skim
from specwatch.log.records import record
from specwatch.sources.chunks import cut
from specwatch.sources.once import Stats

Ship = Callable[[str, int], str]
LITERALS = SEARCHES[list(ENGINES).index("hyperscan, literals")]


def clock(at: int) -> str:
    """The transport's clock of a line."""
    return f"2026-05-01T10:{at // 60 % 60:02d}:{at % 60:02d}"


def docker(line: str, at: int, stream: str = "stderr") -> str:
    """As Docker writes it: no spaces, and <, >, & escaped."""
    made = json.dumps({"log": f"{line}\n", "stream": stream, "time": f"{clock(at)}.123456789Z"}, separators=(",", ":"))
    return made.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def journal(line: str, at: int) -> str:
    """As `journalctl -o json` does."""
    return json.dumps(
        {
            "_PID": str(4211 + at % 3),
            "_HOSTNAME": "gpu-7",
            "_SYSTEMD_UNIT": "sglang.service",
            "MESSAGE": line,
            "__REALTIME_TIMESTAMP": str(1796047200000000 + at * 1000000),
            "PRIORITY": "6",
        }
    )


def formatter(line: str, at: int) -> str:
    """As a JSON formatter inside the server does, which leaves the header out."""
    told = line.partition("] ")[2] if line.startswith("[2") else line
    return json.dumps({"asctime": clock(at).replace("T", " "), "levelname": "INFO", "lineno": at, "message": told})


def coloured(line: str, at: int) -> str:
    """A header in colours."""
    head, bracket, message = line.partition("]") if line.startswith("[2") else ("", "", line)
    return f"\x1b[3{at % 3}m{head}{bracket}\x1b[0m{message}"


SHAPES: dict[str, Ship] = {
    "CRI": lambda line, at: f"{clock(at)}.5Z stderr F {line}",
    "Docker": docker,
    "Docker, spaced": lambda line, at: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": clock(at)}),
    "compose": lambda line, at: f"web-1  | {line}",
    "compose, timed": lambda line, at: f"web-1  | {clock(at)}.123456789Z {line}",
    "kubectl": lambda line, at: f"[pod/web-7f9-abc/sglang] {line}",
    "stern": lambda line, at: f"web-7f9-abc sglang {line}",
    "srun": lambda line, at: f" 0: {line}",
    "ray": lambda line, at: f"(SGLangEngine pid=952, ip=10.0.0.9) {line}",
    "two names": lambda line, at: f"web-1  | (Engine pid={952 + at // 500}) {line}",
    "syslog": lambda line, at: f"Nov 30 {clock(at)[11:]} gpu-7 sglang[4211]: {line}",
    "journald": journal,
    "a formatter": formatter,
    "CRI, a formatter": lambda line, at: f"{clock(at)}.5Z stderr F {formatter(line, at)}",
    "compose, Docker": lambda line, at: f"web-1  | {docker(line, at)}",
    "fluent-bit": lambda line, at: json.dumps({"log": line, "kubernetes": {"pod_name": "w-0"}, "stream": "stderr"}),
    "vector": lambda line, at: json.dumps({"message": line, "timestamp": f"{clock(at)}Z", "host": "gpu-7"}),
    "coloured": coloured,
    "coloured, CRI": lambda line, at: f"{clock(at)}.5Z stderr F {coloured(line, at)}",
    "coloured, Docker": lambda line, at: docker(coloured(line, at), at),
    "coloured, compose": lambda line, at: f"\x1b[36mweb-1  |\x1b[0m {line}",
    "plain": lambda line, at: line,
}


def split(shape: str, line: str, at: int) -> str:
    """A line that a runtime cut in two."""
    half = len(line) // 2
    if "CRI" in shape:
        return f"{clock(at)}.5Z stderr P {line[:half]}\n{clock(at)}.5Z stderr F {line[half:]}"
    return "\n".join(
        docker(part, at).replace('\\n","stream"', '","stream"', 1 - turn)
        for turn, part in enumerate((line[:half], line[half:]))
    )


def escaped(line: str, at: int) -> str:
    """A record in which each letter is an escape."""
    text = "".join(f"\\u{ord(char):04X}" if ord(char) < 65536 else char for char in line)
    return f'{{"log":"{text}\\n","stream":"stderr","time":"{clock(at)}Z"}}'


def inside(line: str, at: int) -> str:
    """Colours in the middle of words."""
    return line.replace("a", "\x1b[1ma\x1b[0m").replace("e", "\x1b]8;;x\x07e")


ODD_LINES = (
    '{"log":"[2026-05-01 10:00:00] Decode batch","stream":"stderr","time":"2026-05-01T10:00:00Z"}',
    '{"log":"[2026-05-01 10:00:00] a","attrs":"b\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a\x01\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a\\q\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a\\\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a\\\\\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a\\n","stream":"stderr",\r"time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a',
    'b\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"INFO:     x\\nTraceback (most recent call last):\\n","stream":"stderr","time":"2026-05-01T10:00:00Z"}',
    '{"log":"[2026-05-01 10:00:00] Sched\\u0075ler watchdog timeout (self.watchdog_timeout=300)\\n",'
    '"stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] a\\n","stream":"stderr","time":"2026-05-01T10:00:00Z","exc_info":"KeyError: 7"}',
    '{"message":"Decode batch","level":"INFO","time":1e999}',
    '{"asctime": "2026-05-01 10:00:00", "levelname": "INFO", "message": "Decode batch "quoted" here',
    '{"asctime": "2026-05-01 10:00:00", "levelname": "INFO", "lineno": 7, "message": "INFO:     \x02"}',
    'and on to the next"}',
    "web-1  | [2026-05-01 10:00:00] INFO:     x\ty\t2026-05-01T10:00:00Z [2026-05-01 10:00:00] Decode batch",
    "web-1  | [2026-05-01 10:00:00] x\ty\t2026-05-01T10:00:00Z web-9 | Decode batch",
    "web-1  | /opt/sglang/x.py",
    "web-1  | 2026-05-01 13:55:38  INFO smg::server: x",
    "web-2  | [2026-05-01 10:00:00] Decode batch, #running-req: 1",
    "web-2  | (Other pid=7) x",
    "/opt/sglang/x.py:1: x",
    "[2026-05-01 10:00:05] plain",
    "web-7f9-abc sglang [2026-05-01 10:00:05] Decode batch, #running-req: 1",
    "web-7f9-abc: [2026-05-01 10:00:05] Decode batch, #running-req: 1",
    "\x1b[0mweb-7f9-abc sglang /opt/sglang/y.py",
    '\x1b[0m{"log":"[2026-05-01 10:00:00] Decode batch\\n","stream":"stderr","time":"2026-05-01T10:00:00Z"}',
    '{"log":"[2026-05-01 10:00:00]\x1b[0m a\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    "[2026-05-01 10:00:05] \x1b[\x1b[0mFile x",
    "[2026-05-01 10:00:05\x1b] Decode batch "
    + "y" * 300
    + "\x07] Scheduler watchdog timeout (self.watchdog_timeout=3)",
    "[2026-05-01 10:00:05] Sched\x1b]0;" + "y" * 300 + "\x07uler watchdog timeout (self.watchdog_timeout=300)",
    "2026-05-01T10:00:09.5Z stderr P [2026-05-01 10:00:09] Decode ",
    "2026-05-01T10:00:09.5Z stderr F batch, #running-req: 2",
    "2026-05-01T10:00:09.5Z stderr F \\u001b[File x",
    '{"log":"[2026-05-01 10:00:00] \\\\u001b[File \\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"' + "z" * 70000 + '\\n","stream":"stderr","time":"2026-05-01T10:00:00Z"}',
    '{"log":"[2026-05-01 10:00:00] ' + "z" * 70000 + '\\n","stream":"stderr","time":"2026-05-01T10:00:00.123456789Z"}',
    "web-1  | [2026-05-01 10:00:00] " + "z" * 70000,
    "\0\0web-1  | [2026-05-01 10:00:00] x",
    "[pod/web-7f9-abc/sglang] [2026-05-01 10:00:00] x\ty\t2026-05-01T10:00:00Z [2026-05-01 10:00:00] SIGQUIT received",
    "(SGLangEngine pid=952, ip=10.0.0.9) [2026-05-01 10:00:00] Killed [repeated 3x across cluster]",
)
REFUSED = "[2026-05-01 10:00:00] Decode batch, #running-req: 2, accept len: {}, token usage: 0.03"
NO_BATCHES = (
    '{"log":"[2026-05-01 10:00:00] Decode batch, accept len: 2.50\x01\\n","stream":"stderr",'
    '"time":"2026-05-01T10:00:00.123456789Z"}',
    '{"log":"[2026-05-01 10:00:00] Decode batch, accept len: 2.50","stream":"stderr","time":"2026-05-01T10:00:00Z"}',
    "web-1  | [2026-05-01 10:00:00] Decode batch, accept len: 2.50\ty\t2026-05-01T10:00:00Z x",
    "2026-05-01T10:00:09.5Z stderr P [2026-05-01 10:00:00] Decode batch, accept len: 2.50",
    "x [2026-05-01 10:00:00] Decode batch, accept len: 2.50",
    REFUSED.format("2.50"),
)
"""What looks like a batch whose drafts were accepted."""


@st.composite
def shipped(draw: st.DrawFn) -> str:
    """A log that went through one transport, but for some lines."""
    shape = draw(st.sampled_from([*SHAPES, "CRI", "Docker", "compose", "coloured"]))
    ship = SHAPES[shape]
    text = (SERVING if draw(st.booleans()) else "") + draw(parts_of_logs())
    lines = text.removesuffix("\n").split("\n")
    odd = draw(st.dictionaries(st.integers(0, len(lines) - 1), st.integers(0, 5), max_size=6))
    made = []
    for at, line in enumerate(lines):
        kind = odd.get(at)
        if kind is None:
            made.append(ship(line, at))
        elif kind == 0:
            made.append(line)
        elif kind == 1:
            made.append(split(shape, line, at))
        elif kind == 2:
            made += [escaped(line, at), ship(line, at)]
        elif kind == 3:
            made.append(ship(inside(line, at), at))
        else:
            made += [draw(st.sampled_from(ODD_LINES)), ship(line, at)]
    return "".join(f"{line}\n" for line in made)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    text=shipped(),
    crlf=st.booleans(),
    ended=st.booleans(),
    sizes=st.lists(st.sampled_from([100, 4096, 65536, 300000]), min_size=1, max_size=3),
)
def test_the_same_as_line_by_line_in_every_shape(
    tmp_path: Path, text: str, crlf: bool, ended: bool, sizes: list[int]
) -> None:
    assert_both_ways_agree(tmp_path / "log", text, crlf, ended, sizes)


CRASH = f"[2026-05-01 11:00:00] Scheduler hit an exception: Traceback (most recent call last):\n{FRAMES}ValueError: x"


def serving(count: int) -> list[str]:
    """Lines of a healthy server."""
    return (SERVING * count).removesuffix("\n").split("\n")


@pytest.mark.parametrize("odd", ODD_LINES, ids=range(len(ODD_LINES)))
@pytest.mark.parametrize("shape", ["CRI", "Docker", "compose", "two names", "stern", "journald", "coloured"])
def test_an_odd_line_changes_what_it_changes_line_by_line(tmp_path: Path, shape: str, odd: str) -> None:
    ship = SHAPES[shape]
    lines = [ship(line, at) for at, line in enumerate(serving(2))]
    lines += [odd, *lines[-3:], *(ship(line, 500 + at) for at, line in enumerate(CRASH.split("\n"))), *lines[-3:]]
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert quickly(path, [path.read_bytes()], LITERALS) == slowly(path)


@pytest.mark.parametrize("search", SEARCHES, ids=ENGINES)
@pytest.mark.parametrize("spell", [lambda line, at: line, inside, escaped, lambda line, at: split("Docker", line, at)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_crash_behind_healthy_lines_is_seen_however_it_is_spelt(
    tmp_path: Path, shape: str, spell: Ship, search: Search
) -> None:
    ship = SHAPES[shape]
    lines = [ship(line, at) for at, line in enumerate(serving(2))]
    crash = [CRASH] if "formatter" in shape else CRASH.split("\n")
    lines += [ship(spell(line, at), at) for at, line in enumerate(crash, 500)]
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    expected = slowly(path)
    assert quickly(path, [path.read_bytes()], search) == expected
    if spell("x", 0) == "x":
        (got,) = expected[0]
        assert got.error == "ValueError: x"
        assert path.read_bytes()[: got.root.offset].count(b"\n") == got.root.number - 1 == len(lines) - 1


@pytest.mark.parametrize("between", NO_BATCHES, ids=range(len(NO_BATCHES)))
@pytest.mark.parametrize("shape", SHAPES)
def test_refused_drafts_are_counted_in_every_shape(tmp_path: Path, shape: str, between: str) -> None:
    ship = SHAPES[shape]
    refused = [ship(REFUSED.format("1.00"), 400 + at) for at in range(2)]
    accepted = ship(REFUSED.format("1.75"), 399)
    lines = [*(ship(line, at) for at, line in enumerate(serving(2))), accepted, refused[0], between, *refused, accepted]
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    for search in SEARCHES:
        assert quickly(path, [path.read_bytes()], search) == slowly(path)
    path.write_text("".join(f"{line}\n" for line in (*lines[:-4], *refused, *refused)))
    assert [found.error for found in quickly(path, [path.read_bytes()], LITERALS)[0]] != []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_healthy_lines_of_a_shape_are_not_framed(shape: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    framed = []
    line = Skimmer.line

    def counted(self: Skimmer, text: str, offset: int, view: View | None = None) -> Iterator[Incident]:
        framed.append(text)
        return line(self, text, offset, view)

    monkeypatch.setattr(Skimmer, "line", counted)
    data = "".join(f"{SHAPES[shape](text, at)}\n" for at, text in enumerate(serving(20))).encode()
    stats = Stats()
    assert list(skim(cut([data], stats), "log", stats, known, lambda: ENGINES[engine], fewest=0)) == []
    assert stats.lines == 20 * 120
    assert len(framed) < 130


def test_a_text_with_characters_that_json_escapes_is_searched_for_in_each_way() -> None:
    got = words(['Cannot use "x" <y>'])
    assert {b'Cannot use "x" <y>', b'Cannot use \\"x\\" <y>', b'Cannot use \\"x\\" \\u003cy\\u003e'} <= set(got)
    assert len(got) == len(words(["Cannot use"])) + 2


@pytest.mark.parametrize("time", ["1e999", "-1e999", '"inf"', "NaN", "Infinity", '"nan"', "1" * 400])
def test_a_clock_that_is_no_time_is_none(time: str) -> None:
    got = record(f'{{"message": "x", "level": "INFO", "time": {time}}}')
    assert got is not None
    assert got.at is None


@pytest.mark.parametrize("of", ["chunk", "view"])
@given(lines=st.lists(st.text(st.sampled_from("ab\x1b[31m;\x07]é"), max_size=30), min_size=1, max_size=40))
@example(lines=["a"])
def test_a_line_is_in_the_same_place_of_chunk_and_view(of: str, lines: list[str]) -> None:
    (chunk,) = cut(["".join(f"{line}\n" for line in lines).encode()], Stats())
    view = View(chunk)  # type: ignore[arg-type]
    ends = [[1], [1]]
    for found, data in zip(ends, (chunk.data, view.data), strict=True):  # type: ignore[union-attr]
        for line in data[1:].split(b"\n")[:-1]:
            found.append(found[-1] + len(line) + 1)
    there, here = ends
    assert len(there) == len(here) == len(lines) + 1
    assert [view.origin(at) for at in here] == there
    assert [view.place(at) for at in there] == here
