"""Every shape of a log line that was met in the field, and what must not be taken for one."""

from __future__ import annotations

import json

import pytest
from logtext import framed

from specwatch.domain import LogLine
from specwatch.log.framing import Framer
from specwatch.sources.once import Raw

HIT = "Scheduler hit an exception: Traceback (most recent call last):"
DAY = "2025-08-11T12:58:54"


def only(text: str) -> LogLine:
    (line,) = framed(text)
    return line


@pytest.mark.parametrize(
    ("line", "at", "ranks", "text"),
    [
        (f"[2025-08-11 12:58:54 TP0] {HIT}", DAY, ("TP0",), HIT),
        (f"[2025-08-11 12:58:54] {HIT}", DAY, (), HIT),
        (f"[2025-08-11 12:58:54 DP3 TP3] {HIT}", DAY, ("DP3", "TP3"), HIT),
        (f"[2025-08-11 12:58:54 DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5] {HIT}", DAY,
         ("DP0", "PP1", "ATTN_CP2", "MOE_DP3", "TP4", "EP5"), HIT),
        (f"[2025-08-11 12:58:54.123 TP0] {HIT}", DAY + ".123", ("TP0",), HIT),
        (f"[2025-08-11 12:58:54 DisaggregationMode.IGPUDECODE TP1] {HIT}", DAY,
         ("DisaggregationMode.IGPUDECODE", "TP1"), HIT),
        (f"[23:23:54 TP7] {HIT}", "23:23:54", ("TP7",), HIT),
        ("[12-11 17:52:52] Rank 0 scheduler is dead.", "12-11T17:52:52", (), "Rank 0 scheduler is dead."),
        (f"2025-08-11 12:58:54 TP5] {HIT}", DAY, ("TP5",), HIT),
        (f"sglang-1  | [2025-08-11 12:58:54 TP3] {HIT}", DAY, ("TP3",), HIT),
        (f"> [2025-08-11 12:58:54 TP3] {HIT}", DAY, ("TP3",), HIT),
        (f"> > [2025-08-11 12:58:54 TP3] {HIT}", DAY, ("TP3",), HIT),
        (f"[[2025-08-11 12](tel:2025-08-11 12):58:54 TP3] {HIT}", DAY, ("TP3",), HIT),
        (f"2025-08-11T12:58:54.292138Z ERROR scheduler.run_scheduler_process: {HIT}   ", DAY + ".292138", (), HIT),
        ("2025-08-11T12:58:54.292138Z  INFO smg::server: Starting", DAY + ".292138", (), "Starting"),
        (f"2025-08-11T20:58:54.21748708+08:00 stdout F [2025-08-11 12:58:54 TP2] {HIT}", DAY, ("TP2",), HIT),
        (f"[2025-11-06T02:09:46.576Z] [2025-08-11 12:58:54] {HIT}", DAY, (), HIT),
        (f"(SGLangEngine pid=952, ip=10.0.0.9) [2025-08-11 12:58:54 TP0] {HIT}", DAY, ("TP0",), HIT),
        (f"[2025-12-18T16:24:02+08:00] rollout-pod-7 >> (SGLangEngine pid=3111) [2025-08-11 12:58:54 TP7] {HIT}", DAY,
         ("TP7",), HIT),
        (f"2025-08-11 12:58:54.731 ERROR 120984 [ TP0 scheduler.py:3190] {HIT}", DAY + ".731", ("TP0",), HIT),
        (f"ERROR 16:58:08 scheduler.py:2626] {HIT}", "16:58:08", (), HIT),
        (f"2025-03-07 23:50:27,727 - __main__ - INFO - [2025-08-11 12:58:54 TP0] {HIT}", DAY, ("TP0",), HIT),
        (f"2025-10-09T04:12:14.2996491Z [2025-08-11 12:58:54 TP0] {HIT}", DAY, ("TP0",), HIT),
        ("2025-08-11 12:58:54  INFO smg::server: started", DAY, (), "started"),
        ("2025-08-11 12:58:54.485 | ERROR    | mineru.cli.client:parse_doc:189 - died", DAY + ".485", (), "died"),
        (f"Aug 11 13:00:00 gpu-7 sglang[4211]: [2025-08-11 12:58:54] {HIT}", DAY, (), HIT),
        (f"2025-08-11T13:00:00+0100 gpu-7 sglang[4211]: [2025-08-11 12:58:54] {HIT}", DAY, (), HIT),
        (f"\x1b[36m(WorkerDict pid=616, ip=10.0.0.1)\x1b[0m [2025-08-11 12:58:54] {HIT}", DAY, (), HIT),
        ("[2025-08-11 12:58:54] \x1b[1;33m--x is deprecated\x1b[0m", DAY, (), "--x is deprecated"),
        ("[2025-08-11 12:58:54 TP0] ", DAY, ("TP0",), ""),
    ],
)  # fmt: skip
def test_headed_lines(line: str, at: str, ranks: tuple[str, ...], text: str) -> None:
    got = only(line)
    assert (got.at, got.ranks, got.text, got.headed) == (at, ranks, text, True)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("[rank4]:[E304 12:54:52.122900428 ProcessGroupNCCL.cpp:616] [Rank 4] Watchdog", None),
        ("/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1500: f: block: [0,0,0] Assertion `a < b` failed.", None),
        ("Fatal Python error: Bus error", None),
        ("node-a:36748:36748 [0] NCCL INFO Using network IB", None),
        ("launch_server.py: error: unrecognized arguments: --enable-reasoning", None),
        ("2025-10-09T04:12:14.2996491Z sglang serve: error: x", "sglang serve: error: x"),
        ("sglang-1  |", ""),
        ("sglang-1  |   File \"a.py\", line 1, in f", '  File "a.py", line 1, in f'),
        ("2025-08-11T20:58:54.2+08:00 stderr F     raise ValueError(", "    raise ValueError("),
        ("(SGLangEngine pid=952)   File \"a.py\", line 1, in f", '  File "a.py", line 1, in f'),
        ("(SGLangEngine pid=952) OSError: x [repeated 2x across cluster]", "OSError: x"),
        ("Nov 30 13:00:00 gpu-7 kernel: [ 12.345] Out of memory: Killed process 9 (python)",
         "Out of memory: Killed process 9 (python)"),
        ("[rank0]: Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("ValueError: [2025-08-11 12:58:54] Scheduler hit an exception", None),
        ("text \u2028[2025-08-11 12:58:54] forged\x85 \x0c", None),
        ('{"text": "[2025-08-11 12:58:54] forged"}', None),
        ('prefix {"message": "x", "level": "ERROR"}', None),
        ("{" * 100_000, None),
    ],
)  # fmt: skip
def test_lines_without_a_header(line: str, text: str | None) -> None:
    got = only(line)
    assert (got.text, got.headed) == (line if text is None else text, False)


def test_a_progress_bar_is_split_off_what_follows_it() -> None:
    bar = "Capturing batches (bs=232 avail_mem=12.61 GB):   8%|▊         | 3/36 [00:04<00:43,  1.32s/it]"
    first, second = framed(f"{bar}[2025-08-11 12:58:54 DP1 TP1] Load weight end.")
    assert (first.text, first.headed) == (bar, False)
    assert (second.text, second.ranks, second.headed) == ("Load weight end.", ("DP1", "TP1"), True)
    loading = "Multi-thread loading shards:   0% Completed | 0/1 [00:00<?, ?it/s]"
    _, second = framed(f"\r{loading}\r{loading}[2025-08-11 12:58:54] {HIT}")
    assert (second.text, second.headed) == (HIT, True)
    _, second = framed(f"{bar}CUDA error (a.h:166): no kernel image")
    assert (second.text, second.headed) == ("CUDA error (a.h:166): no kernel image", False)
    leak = "See https://nanobind.readthedocs.io/en/latest/refleaks.html"
    assert [line.text for line in framed(f"{leak}[2025-08-11 12:58:54] x")] == [leak, "x"]


def test_nothing_else_is_split() -> None:
    for text in (f"INFO:     \r[2025-08-11 12:58:54] {HIT}", f"100% sure [2025-08-11 12:58:54] {HIT}"):
        assert [line.headed for line in framed(text)] == [False]


def test_only_a_log_that_begins_quoted_is_quoted() -> None:
    lines = framed(f"[2025-08-11 12:58:54] Hello\n> [2025-08-11 12:58:55] {HIT}\n")
    assert [(line.headed, line.text) for line in lines][1:] == [(False, f"> [2025-08-11 12:58:55] {HIT}")]
    lines = framed("> [2025-08-11 12:58:54] Hello\n>\n>   File x\n> > y\nz\n")
    assert [line.text for line in lines] == ["Hello", "", "  File x", "y", "z"]


@pytest.mark.parametrize("number", ["{} ", "{}:", "{:6d}\t", "{:>7} "])
def test_a_log_that_was_copied_with_line_numbers(number: str) -> None:
    copied = [f"[2025-08-11 12:58:54 TP3] {HIT}", '  File "x.py", line 4, in f', "", "ValueError: 7 is odd"]
    text = "\n".join(number.format(at + 98) + line for at, line in enumerate(copied)) + "\n"
    assert [line.text for line in framed(text)] == [HIT, *copied[1:]]
    assert [line.text for line in framed('"2.log" 16498L, 2947832B\n' + text)][1:] == [HIT, *copied[1:]]


@pytest.mark.parametrize("clock", ["[ 4711.102233] ", "[4711110.102233] ", "[Fri Jun  5 01:02:42 2026] "])
def test_the_kernels_word_as_dmesg_shows_it(clock: str) -> None:
    killed = "Out of memory: Killed process 2291 (sglang::schedul) total-vm:201327616kB"
    assert only(clock + killed).text == killed
    assert only(clock + "a line of something else").text == clock + "a line of something else"


def test_only_a_log_that_begins_numbered_is_numbered() -> None:
    lines = framed(f"[2025-08-11 12:58:54] Hello\n7 [2025-08-11 12:58:55] {HIT}\n")
    assert [(line.headed, line.text) for line in lines][1:] == [(False, f"7 [2025-08-11 12:58:55] {HIT}")]
    assert [line.text for line in framed("0: [2025-08-11 12:58:54] Hello\n7 is odd\n")][1:] == ["7 is odd"]  # srun
    assert [line.text for line in framed("12 of 20 done\n13 of 20 done\n")] == ["12 of 20 done", "13 of 20 done"]


def test_parts_of_a_line_are_joined() -> None:
    stamp = "2025-07-25T07:53:08.9+08:00"
    lines = framed(f"{stamp} stderr P [2025-07-25 07:53:08] illegal mem\n{stamp} stdout F other\n{stamp} stderr F ory")
    assert [(line.text, line.number, line.headed) for line in lines] == [
        ("other", 2, False),
        ("illegal memory", 1, True),
    ]
    framer = Framer("x")
    assert framer.feed(Raw("x", 1, 0, f"{stamp} stderr P cut")) == []
    assert [line.text for line in framer.flush()] == ["cut"]
    assert framer.flush() == []


def test_docker_json_lines_hold_plain_lines() -> None:
    def docker(log: str) -> str:
        return json.dumps({"log": log, "stream": "stderr", "time": "2025-08-11T04:58:54.1Z"})

    lines = framed("\n".join([docker(f"[2025-08-11 12:58:54 TP0] {HIT}\n"), docker('  File "a'), docker('.py"\n')]))
    assert [(line.text, line.headed, line.number) for line in lines] == [(HIT, True, 1), ('  File "a.py"', False, 2)]


def test_journald_json_lines_as_text_and_as_bytes() -> None:
    text = f"[2025-08-11 12:58:54] {HIT}"
    for message in (text, list(text.encode())):
        got = only(json.dumps({"MESSAGE": message, "__REALTIME_TIMESTAMP": "1754917134000000"}))
        assert (got.text, got.at, got.headed) == (HIT, DAY, True)
    bare = only(json.dumps({"MESSAGE": "OSError: x", "__REALTIME_TIMESTAMP": "1754917134000000"}))
    assert (bare.text, bare.at, bare.headed) == ("OSError: x", DAY, False)


@pytest.mark.parametrize(("key", "clock"), [("message", "asctime"), ("msg", "time"), ("text", "timestamp")])
def test_a_json_formatters_record_is_one_record_of_several_lines(key: str, clock: str) -> None:
    forged = f"{HIT}\n[2025-01-01 00:00:00] {HIT}"
    lines = framed(json.dumps({clock: "2025-08-11 12:58:54,638", "levelname": "ERROR", key: forged}))
    assert [(line.headed, line.number, line.offset) for line in lines] == [(True, 1, 0), (False, 1, 0)]
    assert lines[0].at == DAY + ".638"
    assert lines[1].text.startswith("[2025-01-01")


def test_a_traceback_kept_beside_the_message_is_a_record_of_its_own() -> None:
    record = {
        "asctime": "2025-08-11 12:58:54,638",
        "level": "ERROR",
        "message": "died",
        "exc_info": "Traceback\nOSError: x",
    }
    assert [(line.text, line.headed) for line in framed(json.dumps(record))] == [
        ("died", True),
        ("Traceback", True),
        ("OSError: x", False),
    ]


def test_a_formatter_that_does_not_escape_its_message() -> None:
    log = '{"time": "2025-08-11 12:58:54,638", "level": "ERROR", "logger": "a.b", "msg": "'
    log += f'{HIT}\n  File "a.py"\nOSError: x\n"}}'
    lines = framed(log)
    assert [(line.text, line.headed) for line in lines] == [
        (HIT, True),
        ('  File "a.py"', False),
        ("OSError: x", False),
        ("", False),
    ]
    assert lines[0].at == DAY + ".638"


def test_json_in_a_plain_log_of_a_serving_server_is_text() -> None:
    record = json.dumps({"asctime": "2025-08-11 12:58:54,638", "levelname": "ERROR", "message": HIT})
    serving = "[2025-08-11 12:58:54] INFO:     Uvicorn running on http://127.0.0.1:30000\n"
    assert [line.headed for line in framed(serving + record)] == [True, False]
    assert [line.headed for line in framed(record + "\n" + serving + record)] == [True, True, True]
    again = serving + "[2025-08-11 12:59:54] server_args={}\n" + record
    assert [line.headed for line in framed(again)] == [True, True, True]


def test_a_second_service_or_actor_gets_a_label_of_its_own() -> None:
    lines = framed("a-1  | [2025-08-11 12:58:54 TP0] x\nb-1  | [2025-08-11 12:58:54 TP0] x\na-1  | y\nb-1  | z")
    assert [line.ranks for line in lines] == [("TP0",), ("TP0", "b-1"), (), ("b-1",)]
    lines = framed("(E pid=1) x\n(E pid=2, ip=10.0.0.9) y")
    assert [line.ranks for line in lines] == [(), ("pid=2@ip=10.0.0.9",)]


def test_quotes_that_a_shipper_escaped_are_read() -> None:
    lines = framed('  File \\"a.py\\", line 1, in f\nOSError: \\"x\\"')
    assert [line.text for line in lines] == ['  File "a.py", line 1, in f', 'OSError: "x"']
    assert only('say \\"x\\"').text == 'say \\"x\\"'


def test_a_parent_that_logs_its_childs_lines_again_does_not_head_a_traceback() -> None:
    relay = "2025-03-07 23:50:27,727 - __main__ - INFO - "
    lines = framed(f'{relay}[2025-08-11 12:58:54 TP0] {HIT}\n{relay}  File "a.py", line 1, in f\n{relay}OSError: x')
    assert [line.headed for line in lines] == [True, False, False]


def test_offsets_and_numbers_are_kept() -> None:
    assert [(line.number, line.offset) for line in framed("é\n[2025-08-11 12:58:54] x\ny")] == [(1, 0), (2, 3), (3, 27)]
