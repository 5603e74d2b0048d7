"""Running past routine lines loses nothing: the same incidents as from every line, whatever the log holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logtext import FRAMES

from specwatch.domain import Incident, Role
from specwatch.log import routine
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.log.prefilter import Search, Skimmer, incidents, skim
from specwatch.log.routine import BARE, Level, next_other
from specwatch.sources.chunks import cut
from specwatch.sources.once import Stats, read

LOGS = sorted((Path(__file__).resolve().parents[1] / "data").rglob("*.log"))
FAST = routine.engine()
SEARCHES: list[Search] = [lambda: None, lambda: FAST] if FAST is not None else [lambda: None]
"""The search that works everywhere, and the fast one where it can be installed."""


def known(text: str) -> Role | None:
    """A rule book of a few messages, some of which a healthy server writes too."""
    if text.startswith(("KV cache pool is full", "Decode batch")):
        return Role.CAUSE
    if text.startswith("Using default HuggingFace"):
        return Role.ADVICE
    return Role.ECHO if text.startswith("Torch allocator") else None


def slowly(path: Path) -> tuple[list[Incident], Stats]:
    stats = Stats()
    assembler = Assembler(known)
    got = [found for line in Framer(str(path)).frames(read(str(path), stats)) for found in assembler.feed(line)]
    got += assembler.flush()
    stats.runs = assembler.runs
    return got, stats


def quickly(path: Path, blocks: list[bytes], search: Search) -> tuple[list[Incident], Stats]:
    stats = Stats()
    return list(skim(cut(blocks, stats), str(path), stats, known, search, 0)), stats


def cut_up(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The bytes in blocks of the given sizes, over and over."""
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


# logs that hold what servers, shippers and clients write, in any order

BEGINNING = datetime(2026, 5, 1, 10)
RANKS = st.sampled_from(["", "", "", " TP0", " TP1", " DP0 TP1", " DisaggregationMode.PREFILL"])
SECONDS = st.one_of(st.integers(0, 2), st.integers(0, 2), st.integers(0, 30), st.sampled_from([-200, 70, 4000, -4000]))
MESSAGES = st.sampled_from(
    [
        "Decode batch, #running-req: 2, #token: 132, accept len: 2.50, token usage: 0.03",
        "Decode batch, #running-req: 2, accept len: 1.00, token usage: 0.03",
        "Prefill batch, #new-seq: 1, #new-token: 6, token usage: 0.00",
        'INFO:     10.0.0.5:60932 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        'INFO:     10.0.0.5:60932 - "GET /health HTTP/1.1" 503 Service Unavailable',
        "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        "INFO:     Finished server process [4211]",
        "Receive: obj=GenerateReqInput(text='Traceback (most recent call last):')",
        "Finish: obj=GenerateReqInput(text='usage: x') Traceback (most recent call last):",
        "Load weight end. elapsed=20.00 s, type=LlamaForCausalLM",
        "The server is fired up and ready to roll!",
        "Gracefully exiting... Remaining number of requests 0.",
        "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "Received sigquit from a child process. It usually means the child failed.",
        "KV cache pool is full. Retract requests. #retracted_reqs: 3",
        "Using default HuggingFace chat template with detected content format: openai",
        "Torch allocator: 12 MiB reserved but unallocated",
        "Request 7 was aborted: client disconnected",
        "server_args={'model_path': '/models/target', 'tp_size': 1}",
        "server_args={'model_path': '/models/other', 'tp_size': 2}",
        "server_args={'model_path': '/models/other', 'tp_size': 2, 'port': 7}",
        f"Scheduler hit an exception: Traceback (most recent call last):\n{FRAMES}ValueError: repeats\n",
        f"Error in request handler: Traceback (most recent call last):\n{FRAMES}KeyError: 'x'",
        f"Error: Traceback (most recent call last):\n{FRAMES}",
        "x.cu:12: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.",
        "\x1b[31mScheduler hit an exception\x1b[0m: Traceback (most recent call last):",
        "Decode\x1b[0m batch, #running-req: 1",
        "Decode batch" + "x" * 70000,
        "long " * 30000,
    ]
)
ROUTINE = st.sampled_from(
    [
        "Decode batch, #running-req: 2, accept len: 2.50, token usage: 0.03",
        "Decode batch, #running-req: 2, accept len: 1.00, token usage: 0.03",
        "Decode batch, #running-req: 2, token usage: 0.03",
        'INFO:     10.0.0.5:60932 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        'INFO:     10.0.0.5:60932 - "GET /health HTTP/1.1" 503 Service Unavailable',
        "Receive: obj=GenerateReqInput(text='x')",
    ]
)
BARE_LINES = st.sampled_from(
    [
        'INFO:     127.0.0.1:39218 - "POST /generate HTTP/1.1" 200 OK',
        "INFO:     5%|#| 1/20 [00:01<00:20, 3.1it/s][2026-05-01 10:00:00] Traceback (most recent call last):",
        "INFO:     UserWarning: 'python -m sglang.launch_server' is deprecated",
        "launch_server.py:1: UserWarning: 'python -m sglang.launch_server' is still supported",
        "Loading checkpoint shards: 100%|#| 2/2 [00:01<00:00, 3.1it/s][2026-05-01 10:00:00] Load weight end. x",
        "usage: launch_server.py [-h] --model-path MODEL_PATH\nlaunch_server.py: error: unrecognized arguments: --x",
        f"Traceback (most recent call last):\n{FRAMES}RuntimeError: bare",
        "Fatal Python error: Segmentation fault",
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error",
        "Killed",
        "",
        "    indented",
        "[2",
        "[2] Decode batch",
        "[2026-05-01T10:00:00Z] Decode batch, #running-req: 2",
        "[2026-05-01T10:00:00Z] web | Decode batch",
        "[2026-05-01 10:00:05\x1b] Decode batch\x07] Scheduler watchdog timeout (self.watchdog_timeout=300)",
        "[20:15:33 TP0] Decode batch, #running-req: 2",
        "[20:15:33] KV cache pool is full. Retract requests.",
        "ERROR 16:58:08 scheduler.py:2626] Decode batch",
        "2026-05-01 10:00:09,100 - __main__ - INFO - [2026-05-01 10:00:09] Decode batch, #running-req: 2",
        "2026-05-01T10:00:09.5Z stderr P [2026-05-01 10:00:09] Decode ",
        "2026-05-01T10:00:09.5Z stderr F batch, #running-req: 2",
        "worker-2  | [2026-05-01 10:00:09] Decode batch, #running-req: 2",
        "(Engine pid=952, ip=10.0.0.9) ValueError: x",
        '{"log":"[2026-05-01 10:00:09] Decode batch\\n","stream":"stderr","time":"2026-05-01T10:00:09Z"}',
        '{"message": "Traceback (most recent call last):\\nValueError: x", "level": "error", "time": "2026-05-01"}',
        "\0\0[2026-05-01 10:00:09] Decode batch",
        "\0usage: x",
        "IndexError: list index out of range",
        "INFO | x",
        "worker-3  | [2026-05-01 10:00:09] Scheduler hit an exception: Traceback (most recent call last):",
        "node1: [2026-05-01 10:00:09] Decode batch, #running-req: 2",
        "0: [2026-05-01 10:00:09] server_args={'model_path': '/models/third', 'port': 3}",
        "node1: OSError: x",
        "[2,0]<stderr>:[2026-05-01 10:00:09] Decode batch, #running-req: 2",
        "[default0]:KeyError: 'x'",
        "The server is fired up and ready to roll!",
        "Traceback (most recent call last):\u2028ValueError: x",
    ]
)


EVENTS = st.sampled_from(
    [
        f"Scheduler hit an exception: Traceback (most recent call last):\n{FRAMES}ValueError: repeats\n",
        f"Error in request handler: Traceback (most recent call last):\n{FRAMES}KeyError: 'x'",
        "KV cache pool is full. Retract requests. #retracted_reqs: 3",
        "Using default HuggingFace chat template with detected content format: openai",
        "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
        "server_args={'model_path': '/models/target', 'tp_size': 1}",
        "Gracefully exiting... Remaining number of requests 0.",
    ]
)


@st.composite
def parts_of_logs(draw: st.DrawFn) -> str:
    """Events, odd lines and stretches of routine lines, with a clock that mostly goes on."""
    now = BEGINNING
    text = []

    def head(clock: datetime) -> str:
        return f"[{clock:%Y-%m-%d %H:%M:%S}{draw(RANKS)}]"

    for _ in range(draw(st.integers(1, 12))):
        now += timedelta(seconds=draw(SECONDS))
        odd = draw(st.sampled_from([0, 0, 0, 0, -3000, 3000, -30]))
        kind = draw(st.integers(0, 9))
        if kind < 4:
            text.append(f"{head(now + timedelta(seconds=odd))} {draw(EVENTS)}\n")
        elif kind < 7:
            text.append(f"{head(now)}{draw(st.sampled_from([' ', ' ', ' ', '']))}{draw(MESSAGES)}\n")
        else:
            text.append(draw(BARE_LINES) + "\n")
        if draw(st.integers(0, 2)):
            label, message = head(now)[20:], draw(ROUTINE)
            count, span = draw(st.sampled_from([3, 30, 60, 110])), draw(st.integers(0, 8))
            for at in range(count):
                now += timedelta(seconds=((at + 1) * span // count - at * span // count))
                text.append(f"[{now:%Y-%m-%d %H:%M:%S}{label} {message}\n")
    return "".join(text)


SERVING = "".join(
    f"[2026-05-01 09:59:{at * 60 // 120:02d}] Decode batch, #running-req: 2, accept len: 2.50\n" for at in range(120)
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    text=parts_of_logs(),
    serving=st.booleans(),
    crlf=st.booleans(),
    ended=st.booleans(),
    sizes=st.lists(st.sampled_from([1, 7, 100, 4096, 65536, 300000]), min_size=1, max_size=4),
)
def test_the_same_as_line_by_line(
    tmp_path: Path, text: str, serving: bool, crlf: bool, ended: bool, sizes: list[int]
) -> None:
    data = ((SERVING if serving else "") + text).encode()
    data = data.replace(b"\n", b"\r\n") if crlf else data
    data = data if ended else data.rstrip(b"\n")
    if sum(sizes) / len(sizes) < 1000:
        sizes = [*sizes, 65536]
    path = tmp_path / "log"
    path.write_bytes(data)
    expected = slowly(path)
    for search in SEARCHES:
        assert quickly(path, list(cut_up(data, sizes)), search) == expected


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_same_for_real_logs(path: Path) -> None:
    expected = slowly(path)
    for search in SEARCHES:
        for size in (997, 1 << 18):
            assert quickly(path, list(cut_up(path.read_bytes(), [size])), search) == expected


def test_a_healthy_stretch_is_not_framed(monkeypatch: pytest.MonkeyPatch) -> None:
    framed = []
    line = Skimmer.line

    def counted(self: Skimmer, text: str, offset: int) -> Iterator[Incident]:
        framed.append(text)
        return line(self, text, offset)

    monkeypatch.setattr(Skimmer, "line", counted)
    lines = (SERVING + SERVING.replace(" 09:", " 10:") * 20).encode()
    stats = Stats()
    assert list(skim(cut([lines], stats), "log", stats, known, fewest=0)) == []
    assert stats.lines == 21 * 120
    assert len(framed) < 130


def test_a_crash_far_behind_routine_lines_keeps_its_line_number(tmp_path: Path) -> None:
    head = "[2026-05-01 10:59:59] Scheduler hit an exception: Traceback (most recent call last):"
    crash = f"{head}\n{FRAMES}ValueError: x\n"
    path = tmp_path / "server.log"
    path.write_text(SERVING * 50 + crash)
    (got,) = incidents(str(path), Stats(), known)
    assert (got.error, got.root.number) == ("ValueError: x", 50 * 120 + 1 + len(FRAMES.splitlines()) + 1)
    assert path.read_bytes()[got.root.offset :] == b"ValueError: x\n"


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("search", SEARCHES)
@given(lines=st.lists(st.one_of(BARE_LINES, MESSAGES, st.sampled_from(BARE), st.text(max_size=8)), max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])
def test_the_engines_agree(level: Level, search: Search, lines: list[str]) -> None:
    data = b"\n" + "".join(f"{head}{line}\n" for line in lines for head in ("", "[2026-05-01 10:00:00 TP0] ")).encode()
    found, start = [], 1
    while (start := next_other(data, start, len(data), level)) < len(data):
        found.append(start)
        start = data.index(b"\n", start) + 1
    engine = search()
    if level is Level.BATCHES:
        places, unaccepted = routine.scan(data, len(data))
        assert places == found
        if engine is not None:
            quick, same = engine.scan(memoryview(data))
            assert sorted({data.rfind(b"\n", 0, place) + 1 for place in quick}) == found
            assert same == unaccepted
    starts = [at for at in range(1, len(data)) if data[at - 1 : at] == b"\n"]
    for at in starts:
        end = data.index(b"\n", at)
        words = (b"Decode batch", b"Prefill batch") if level is Level.BATCHES else ()
        body = data[at:end].partition(b"]")
        plain = data[at:end].startswith(b"INFO:") or (data[at : at + 2] == b"[2" and not body[1])
        headed = data[at : at + 2] == b"[2" and body[2].startswith(
            tuple(b" " + word for word in (b"Receive: ", b"Finish: ", *words))
        )
        if plain or headed:
            assert at not in found


AHEAD = """
import sys
from specwatch.log import ahead
from specwatch.log.prefilter import incidents
from specwatch.sources.once import Stats
ahead.FEWEST = 0
alone, together, some = Stats(), Stats(), Stats()
expected = list(incidents(sys.argv[1], alone))
assert expected
assert list(incidents(sys.argv[1], together, cores=2)) == expected
assert together == alone
left = incidents(sys.argv[1], some, cores=2)
assert next(left) == expected[0]
left.close()
"""


def test_a_second_process_changes_nothing_and_ends_with_its_reader(tmp_path: Path) -> None:
    head = "[2026-05-01 10:59:59] Scheduler hit an exception: Traceback (most recent call last):"
    crash = f"{head}\n{FRAMES}ValueError: x\n"
    start = "[2026-05-01 11:00:00] server_args={'model_path': '/models/target', 'tp_size': 1}\n"
    path = tmp_path / "server.log"
    path.write_text((SERVING * 150 + crash + start) * 8)
    subprocess.run([sys.executable, "-c", AHEAD, str(path)], check=True, timeout=60)
