"""Running past routine lines loses nothing: the same incidents as from every line, whatever the log holds."""

from __future__ import annotations

import re
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
from specwatch.log import anchors, echoes, routine
from specwatch.log.anchors import Engine
from specwatch.log.colours import View
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.log.prefilter import Search, Skimmer, incidents, skim
from specwatch.log.routine import BARE, Level, next_other
from specwatch.rulebook.anchors import choose
from specwatch.sources.chunks import cut
from specwatch.sources.once import Stats, read

LOGS = sorted((Path(__file__).resolve().parents[1] / "data").rglob("*.log"))
BEGINNINGS = ("KV cache pool is full", "Decode batch", "Using default HuggingFace", "Torch allocator")
"""Of the messages that `known` knows."""
WORDS = anchors.words(choose(BEGINNINGS))
ENGINES: dict[str, Engine] = {
    "standard": routine.Standard(),
    "aho-corasick": anchors.Aho(WORDS),
    "hyperscan, literals": anchors.Literals(WORDS),
    "hyperscan, automaton": routine.Hyperscan(),
}
SEARCHES: list[Search] = [lambda engine=engine: engine for engine in ENGINES.values()]  # type: ignore[misc]
"""The search that works everywhere, and the fast ones."""


def known(text: str) -> Role | None:
    """A rule book of a few messages, some of which a healthy server writes too."""
    if text.startswith(BEGINNINGS[:2]):
        return Role.CAUSE
    if text.startswith(BEGINNINGS[2]):
        return Role.ADVICE
    return Role.ECHO if text.startswith(BEGINNINGS[3]) else None


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


def assert_both_ways_agree(path: Path, text: str, crlf: bool, ended: bool, sizes: list[int]) -> None:
    """Whatever the ends of the lines, the blocks and the engine are."""
    data = text.encode()
    data = data.replace(b"\n", b"\r\n") if crlf else data
    data = data if ended else data.rstrip(b"\n")
    if sum(sizes) / len(sizes) < 1000:
        sizes = [*sizes, 65536]
    path.write_bytes(data)
    expected = slowly(path)
    for search in SEARCHES:
        assert quickly(path, list(cut_up(data, sizes)), search) == expected


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
        "\0usage: x [-h]",
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
    assert_both_ways_agree(tmp_path / "log", (SERVING if serving else "") + text, crlf, ended, sizes)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_same_for_real_logs(path: Path) -> None:
    expected = slowly(path)
    for search in SEARCHES:
        for size in (997, 1 << 18):
            assert quickly(path, list(cut_up(path.read_bytes(), [size])), search) == expected


def test_a_healthy_stretch_is_not_framed(monkeypatch: pytest.MonkeyPatch) -> None:
    framed = []
    line = Skimmer.line

    def counted(self: Skimmer, text: str, offset: int, view: View | None = None) -> Iterator[Incident]:
        framed.append(text)
        return line(self, text, offset, view)

    monkeypatch.setattr(Skimmer, "line", counted)
    lines = (SERVING + SERVING.replace(" 09:", " 10:") * 20).encode()
    stats = Stats()
    assert list(skim(cut([lines], stats), "log", stats, known, fewest=0)) == []
    assert stats.lines == 21 * 120
    assert len(framed) < 130


@pytest.mark.parametrize("search", SEARCHES, ids=ENGINES)
@pytest.mark.parametrize("refused", [2, 3, 200])
def test_refused_drafts_are_counted_among_lines_run_past(tmp_path: Path, search: Search, refused: int) -> None:
    path = tmp_path / "server.log"
    line = "[2026-05-01 10:00:00] Decode batch, #running-req: 2, accept len: {}, token usage: 0.03\n"
    path.write_text(SERVING * 3 + line.format("1.00") + line.format("1.03") * 9 + line.format("1.00") * refused)
    expected = slowly(path)
    assert len(expected[0]) == (refused > 2)
    assert quickly(path, [path.read_bytes()], search) == expected


FRAMING_ODD = (
    "2026-05-01 10:00:09,100 - __main__ - INFO - [2026-05-01 10:00:09] {}",
    '2026-05-01 10:00:09,100 - __main__ - INFO -   File "/opt/x.py", line 1, in x\n{}',
    "2026-05-01T10:00:09.5Z stderr P [2026-05-01 10:00:09] {}",
    "worker-2  | {}",
    "(Engine pid=952, ip=10.0.0.9) {}",
    '    File \\"/opt/x.py\\", line 1\n{}',
    "2026-05-01 13:55:38  INFO smg::server: {}",
    "[2026-05-01T10:00:09Z] [2026-05-01 10:00:09] {}",
    "Loading: 100%|#| 2/2 [00:01<00:00, 3.1it/s][2026-05-01 13:00:00] {}",
)


@pytest.mark.parametrize("search", SEARCHES, ids=ENGINES)
@pytest.mark.parametrize("odd", FRAMING_ODD)
@pytest.mark.parametrize("follow", FRAMING_ODD)
def test_what_unknown_lines_change_in_framing_is_kept(tmp_path: Path, search: Search, odd: str, follow: str) -> None:
    crash = f"Scheduler hit an exception: Traceback (most recent call last):\n{FRAMES}ValueError: x\n"
    lines = [f.format("something unheard of") + "\n" for f in (odd, *[odd] * 40)]
    tail = follow.format(crash) + follow.format("usage: launch_server.py [-h]\nlaunch_server.py: error: x\n")
    later = SERVING.replace(" 09:59", " 10:01") + "[2026-05-01 10:02:00] " + crash
    path = tmp_path / "server.log"
    path.write_text(SERVING * 2 + "".join(lines) + tail + later)
    expected = slowly(path)
    assert expected[0]
    assert quickly(path, [path.read_bytes()], search) == expected


ANY = re.compile(b"|".join(re.escape(word) for word in anchors.words(())))


HAPPENINGS = (
    "usage: launch_server.py [-h] --model-path MODEL\n   [--x]\nlaunch_server.py: error: unrecognized arguments: --y",
    "usage: sglang serve --model-path MODEL [OPTIONS]\nsglang serve: error: unrecognized arguments: --y",
    'Fatal Python error: Segmentation fault\n\nThread 0x0 (most recent call first):\n  File "a.py", line 1 in x',
    "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: x",
    "what():  CUDA failure 700",
    "[2026-05-01 10:00:00] server_args={'model_path': '/models/target', 'tp_size': 1}",
    "launch_server.py:1: UserWarning: 'python -m sglang.launch_server' is still supported",
    "[rank0]:[E501 10:00:00.1 ProcessGroupNCCL.cpp:61] [Rank 0] Watchdog caught collective operation timeout: x",
    "[2026-05-01 10:00:00] SIGQUIT received. signum=None, frame=None.",
    "[2026-05-01 10:00:00] Received sigquit from a child process.",
    "[2026-05-01 10:00:00] kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
    "[2026-05-01 10:00:00] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
    "[2026-05-01 10:00:00] ERROR:    [Errno 98] error while attempting to bind: address already in use",
    "[2026-05-01 10:00:00] Subprocess scheduler (pid=7) crashed with exit code -9",
    "[2026-05-01 10:00:00] Rank 3 scheduler is dead. Please check if there are relevant logs.",
    "/opt/x.cu:12: fail: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.",
    "Out of memory: Killed process 77 (python)",
    "[2026-05-01 10:00:00] KV cache pool is full. Retract requests.",
    "KV cache pool is full.",
    "web-1  | KV cache pool is full.",
)
"""What ends a stretch of healthy lines, each by itself."""
ASIDES = (
    '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 1, in x\n  | ExceptionGroup: x',
    f"Traceback (most recent call last):\n{FRAMES}ValueError: x",
    "Killed",
    "Aborted (core dumped)",
)
"""What means something beside other lines only."""


@pytest.mark.parametrize("search", SEARCHES, ids=ENGINES)
@pytest.mark.parametrize("happening", HAPPENINGS + ASIDES)
def test_what_ends_a_healthy_stretch_is_seen(tmp_path: Path, search: Search, happening: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(SERVING * 3)
    healthy = slowly(path)
    path.write_text(f"{SERVING * 3}{happening}\n")
    expected = slowly(path)
    assert happening in ASIDES or expected[0] or expected[1].runs > healthy[1].runs
    assert quickly(path, [path.read_bytes()], search) == expected


@pytest.mark.parametrize("search", SEARCHES, ids=ENGINES)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_line_that_a_runtime_split_is_put_together(tmp_path: Path, search: Search, stream: str) -> None:
    head = f"2026-05-01T10:00:09.5Z {stream}"
    split = (
        f"{head} P [2026-05-01 10:00:09] Schedu\n{head} F ler hit an exception: Traceback (most recent call last):\n"
    )
    path = tmp_path / "server.log"
    path.write_text(SERVING * 2 + split + f"{FRAMES}ValueError: x\n")
    expected = slowly(path)
    assert [found.error for found in expected[0]] == ["ValueError: x"]
    assert quickly(path, [path.read_bytes()], search) == expected


@pytest.mark.parametrize("pattern", echoes.WORDINGS, ids=lambda pattern: pattern.pattern[:30])
@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_every_known_wording_holds_an_anchor(pattern: re.Pattern[str], data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(pattern.pattern)))
    answered = echoes.shows_listening(text) and not echoes.is_progress(text)  # it listens by then
    batch = text.startswith(echoes.BATCH)
    if pattern.match(text) and not answered and not batch:
        assert ANY.search(text.encode("utf-8", "replace"))


def test_a_crash_far_behind_routine_lines_keeps_its_line_number(tmp_path: Path) -> None:
    head = "[2026-05-01 10:59:59] Scheduler hit an exception: Traceback (most recent call last):"
    crash = f"{head}\n{FRAMES}ValueError: x\n"
    path = tmp_path / "server.log"
    path.write_text(SERVING * 50 + crash)
    (got,) = incidents(str(path), Stats(), known)
    assert (got.error, got.root.number) == ("ValueError: x", 50 * 120 + 1 + len(FRAMES.splitlines()) + 1)
    assert path.read_bytes()[got.root.offset :] == b"ValueError: x\n"


@pytest.mark.parametrize("level", Level)
@given(lines=st.lists(st.one_of(BARE_LINES, MESSAGES, st.sampled_from(BARE), st.text(max_size=8)), max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])
def test_the_engines_agree_on_what_is_routine(level: Level, lines: list[str]) -> None:
    data = b"\n" + "".join(f"{head}{line}\n" for line in lines for head in ("", "[2026-05-01 10:00:00 TP0] ")).encode()
    found, start = [], 1
    while (start := next_other(data, start, len(data), level)) < len(data):
        found.append(start)
        start = data.index(b"\n", start) + 1
    if level is Level.BATCHES:
        quick, _ = routine.Hyperscan().scan(memoryview(data))
        assert sorted({data.rfind(b"\n", 0, place) + 1 for place in quick}) == found
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
answered = []
scan = ahead.Helper.scan
def noted(self, chunk):
    answered.append(scan(self, chunk))
    return answered[-1]
ahead.Helper.scan = noted
alone, together, some = Stats(), Stats(), Stats()
expected = list(incidents(sys.argv[1], alone))
assert expected
assert list(incidents(sys.argv[1], together, cores=2)) == expected
assert together == alone
third = len(answered) // 3
assert all(got is None for got in answered[: third - 1]), answered
assert all(got is not None for got in answered[third + 1 :]), answered
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
