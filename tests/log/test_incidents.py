"""What becomes one incident, and what counts as its echo."""

from __future__ import annotations

import json

import pytest
from logtext import ARGS, FRAMES, LISTENS, SERVING, batch, crash, death, found, framed, served, standing

from specwatch.domain import Role
from specwatch.log.incidents import Assembler, incidents

DIED = "[2026-05-01 10:00:30] Received sigquit from a child process. It usually means the child failed.\n"
RUNTIME = (
    'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    '  File "/opt/sglang/launch_server.py", line 84, in <module>\n    run_server(server_args)\n'
)


def test_a_crash_of_one_rank() -> None:
    (got,) = found(ARGS + crash("10:00:30", "ValueError: a\nb", " TP0") + DIED + "Killed\n")
    assert (got.error, got.ranks, got.echoes, got.run, got.role) == ("ValueError: a\nb", ("TP0",), 2, 1, Role.CAUSE)
    assert (got.root.text, got.root.at, got.root.ranks) == ("ValueError: a", "2026-05-01T10:00:30", ("TP0",))
    assert [frame.function for frame in got.frames] == ["run_scheduler_process", "run_event_loop"]
    assert (got.frames[1].line, got.frames[1].source) == (1151, "dispatch_event_loop(self)")
    assert got.launch is not None
    assert got.launch.recorded is not None
    assert got.launch.recorded["model_path"] == "/models/target"


def test_the_same_failure_of_all_ranks_is_one() -> None:
    log = crash("10:00:30", "OSError: GPU 1 has 3 bytes", " TP1") + crash(
        "10:00:30", "OSError: GPU 0 has 4 bytes", " TP0"
    )
    (got,) = found(ARGS + log + DIED)
    assert (got.ranks, got.error) == (("TP0", "TP1"), "OSError: GPU 1 has 3 bytes")


def test_different_failures_of_two_ranks_are_two() -> None:
    assert standing(ARGS + crash("10:00:30", "OSError: a", " TP1") + crash("10:00:30", "OSError: b", " TP0")) == [
        "OSError: a",
        "OSError: b",
    ]


def test_tracebacks_of_two_ranks_mixed_line_by_line() -> None:
    one, two = (crash("10:00:30", "OSError: same", f" TP{rank}").split("\n") for rank in (0, 1))
    mixed = "\n".join(line for pair in zip(one, two, strict=True) for line in pair)
    (got,) = found(ARGS + mixed + DIED)
    assert (got.error, got.ranks) == ("OSError: same", ("TP0", "TP1"))
    assert len(got.frames) == 2


def test_a_record_in_the_middle_of_a_traceback() -> None:
    head, *rest = crash("10:00:30", "OSError: x", " TP0").split("\n")
    other = "[2026-05-01 10:00:30 TP1] Load weight end. elapsed=20.00 s"
    (got,) = found(ARGS + "\n".join([head, *rest[:2], other, *rest[2:]]) + DIED)
    assert (got.error, len(got.frames)) == ("OSError: x", 2)


def test_merged_logs_of_two_services_are_kept_apart() -> None:
    one, two = (crash("10:00:30", f"OSError: {name}").removesuffix("\n").split("\n") for name in "ab")
    pairs = zip(one, two, strict=True)
    log = "\n".join(f"a-1  | {left}\nb-1  | {right}" for left, right in pairs)
    assert [(got.error, got.ranks) for got in found(log)] == [("OSError: a", ()), ("OSError: b", ("b-1",))]


@pytest.mark.parametrize("above", ["", "           ^^^^^^^^^^^\n", "    return forward_call(*args, **kwargs)\n"])
def test_a_log_that_begins_within_a_traceback(above: str) -> None:
    (got,) = found(f"{above}{FRAMES}RuntimeError: odd\n\n" + DIED)
    assert (got.error, got.role, got.outlived) == ("RuntimeError: odd", Role.CAUSE, "")
    assert [frame.function for frame in got.frames] == ["run_scheduler_process", "run_event_loop"]


def test_a_log_that_begins_within_a_traceback_that_the_server_outlived() -> None:
    assert all(one.outlived for one in found(f"{FRAMES}RuntimeError: odd\n\n" + LISTENS))


def test_only_a_log_begins_within_a_traceback() -> None:
    (got,) = found(f"[2026-05-01 10:00:00] Load weight begin.\n{FRAMES}RuntimeError: odd\n\n" + DIED)
    assert got.role is Role.ECHO


def test_the_rest_of_a_cut_traceback_of_another_rank_is_an_echo() -> None:
    cut = crash("10:00:30", "", " TP1").removesuffix("\n\n\n")
    (got,) = found(ARGS + cut + "\n" + crash("10:00:30", "OSError: x", " TP0") + DIED)
    assert (got.error, got.ranks) == ("OSError: x", ("TP0", "TP1"))


def test_a_traceback_that_breaks_off_gives_its_last_frame() -> None:
    (got,) = found(ARGS + crash("10:00:30", "").rstrip("\n"))
    assert got.error.split("\n")[0] == "Scheduler hit an exception: Traceback (most recent call last):"
    assert got.error.endswith("line 1151, in run_event_loop\n    dispatch_event_loop(self)")


def test_a_died_child_is_an_echo_of_its_own_traceback_only() -> None:
    died = RUNTIME + "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3). If exit code is -9\n"
    eof = f"Traceback (most recent call last):\n{FRAMES}EOFError\n\n"
    eof += "During handling of the above exception, another exception occurred:\n\n"
    assert standing(ARGS + crash("10:00:30", "OSError: x") + eof + died) == ["OSError: x"]
    (got,) = found(ARGS + eof + died)
    assert got.error.startswith("RuntimeError: Rank 0 scheduler died during initialization (exit code: -3)")


def test_a_child_killed_without_a_word() -> None:
    line = "Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
    (got,) = found(SERVING + f"[2026-05-01 10:30:00] {line}\n" + death("10:30:00"))
    assert (got.error, got.echoes) == (line, 2)
    assert standing(SERVING + crash("10:30:00", "OSError: x") + f"[2026-05-01 10:30:00] {line}\n") == ["OSError: x"]


def test_the_kernels_word_on_a_kill_explains_it() -> None:
    line = "Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
    kernel = "Nov 30 10:30:00 gpu-7 kernel: Out of memory: Killed process 77 (python) total-vm:1kB\n"
    assert standing(SERVING + f"[2026-05-01 10:30:00] {line}\n" + kernel)[0].startswith("Out of memory: Killed process")


def test_echoes_alone_give_one_incident_that_says_so() -> None:
    (got,) = found(SERVING + death("10:30:00"))
    assert (got.role, got.error[:16]) == (Role.ECHO, "SIGQUIT received")
    assert found(SERVING + death("10:30:00") + batch("10:30:09") + served("10:30:09")) == []


def test_a_survivors_time_out_is_an_echo() -> None:
    nccl = (
        "[rank4]:[E304 12:54:52.1 ProcessGroupNCCL.cpp:616] [Rank 4] Watchdog caught collective operation timeout: x\n"
    )
    assert standing(ARGS + nccl + crash("10:00:30", "OSError: x", " TP0") + nccl) == ["OSError: x"]
    assert standing(SERVING + nccl + "Fatal Python error: Aborted\n" + DIED) == [nccl.strip()]
    lost = crash("10:00:31", "RuntimeError: NCCL error: unhandled system error", " TP1")
    assert standing(ARGS + crash("10:00:30", "OSError: x", " TP0") + lost) == ["OSError: x"]


def test_a_device_assertion_is_the_cause_of_the_cuda_error() -> None:
    flood = "".join(
        f"/p/Indexing.cu:1500: f: block: [{n},0,0], thread: [{n},0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        for n in range(50)
    )
    log = (
        ARGS
        + flood
        + crash(
            "10:00:30",
            "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously",
        )
    )
    (got,) = found(log + DIED)
    assert got.error == flood.split("\n")[0]
    assert got.chain == ("RuntimeError: CUDA error: device-side assert triggered",)
    assert (len(got.frames), got.echoes) == (2, 50)


def test_an_argparse_error_is_its_last_line() -> None:
    usage = "usage: sglang serve [-h] --model-path MODEL_PATH\n             [--dtype {auto,half}]\n"
    assert standing(usage + "sglang serve: error: argument --dtype: invalid choice: 'x'\n") == [
        "sglang serve: error: argument --dtype: invalid choice: 'x'"
    ]


def test_a_port_in_use_explains_a_failed_warm_up() -> None:
    bind = "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"
    warm = "[2026-05-01 10:02:00] Initialization failed. warmup error: Traceback (most recent call last):\n" + FRAMES
    warm += "AssertionError: res=<Response [404]>\n\n"
    assert standing(ARGS + f"[2026-05-01 10:00:00] {bind}\n" + warm) == [bind]
    assert standing(ARGS + warm) == ["AssertionError: res=<Response [404]>"]


def test_a_segmentation_fault_with_its_frames() -> None:
    dump = (
        "Fatal Python error: Segmentation fault\n\nThread 0x00007769465bb6c0 (most recent call first):\n"
        '  File "/opt/threading.py", line 359 in wait\n\nCurrent thread 0x00007769465bb740 (most recent call first):\n'
        '  File "/opt/linear.py", line 1254 in weight_loader\n  File "/opt/qwen3.py", line 318 in load_weights\n'
    )
    (got,) = found(ARGS + dump + DIED)
    assert got.error == "Fatal Python error: Segmentation fault"
    assert [(frame.function, frame.line) for frame in got.frames] == [("load_weights", 318), ("weight_loader", 1254)]


def test_what_a_process_did_not_catch_ended_it() -> None:
    frames = '  File "/usr/lib/python3.12/multiprocessing/process.py", line 314, in _bootstrap\n    self.run()\n'
    trace = f"Process worker-0:\nTraceback (most recent call last):\n{frames}RuntimeError: gave up\n"
    health = '[2026-05-01 10:02:00] INFO:     10.0.0.5:50570 - "GET /health HTTP/1.1" 200 OK\n'
    (got,) = found(SERVING + trace + health)
    assert (got.error, got.outlived) == ("RuntimeError: gave up", "")
    later = "".join(served(f"10:{minute}:00") + batch(f"10:{minute}:01") for minute in range(10, 40))
    assert [one for one in found(SERVING + trace + later) if not one.outlived] == []


def test_a_line_that_could_not_be_logged_is_no_crash() -> None:
    trouble = (
        "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/logging/__init__.py", line 1113, in emit\n'
        "    stream.write(msg + self.terminator)\n"
        "RuntimeError: reentrant call inside <_io.BufferedWriter name='<stderr>'>\n"
        "Call stack:\n"
        '  File "/opt/sglang/srt/entrypoints/engine.py", line 343, in sigquit_handler\n'
        "    logger.error(\n"
        "Message: 'Received sigquit from a child proces. It usually means the child failed.'\nArguments: ()\n"
    )
    (got,) = found(ARGS + "[2026-05-01 10:00:30] Received sigquit from a child proces.\n" + trouble)
    assert (got.role, got.error[:16]) == (Role.ECHO, "Received sigquit")


def test_the_end_of_a_container_is_no_part_of_a_message() -> None:
    (got,) = found(
        "".join(f"web-1  | {line}\n" for line in crash("10:00:30").rstrip().splitlines()) + "web-1 exited with code 1\n"
    )
    assert got.error == "ValueError: repeats can not be negative"


def test_the_oldest_releases_announce_a_failed_start() -> None:
    head = "Initialization failed. router_init_state: Traceback (most recent call last):\n"
    (got,) = found(head + FRAMES + "KeyError: 'lm_head.weight'\nInitialization failed. detoken_init_state: init ok\n")
    assert (got.error, got.role) == ("KeyError: 'lm_head.weight'", Role.CAUSE)


def test_the_last_word_of_amds_runtime_is_a_cause_where_a_rule_knows_it() -> None:
    word = ":0:rocdevice.cpp            :3675: 2139 us:  Callback: Queue 0x7 aborting with error : HSA_STATUS_ERROR_X"
    end = f"{word}\nFatal Python error: Aborted\n\nCurrent thread 0x0 (most recent call first):\n{FRAMES}"
    (got,) = found(end, lambda text: Role.CAUSE if text == word else None)
    assert got.error == word
    (unknown,) = found(end)
    assert unknown.error == "Fatal Python error: Aborted"


def test_a_cpp_termination() -> None:
    log = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 2] Process group watchdog thread terminated with exception: CUDA error\n"
        "CUDA kernel errors might be asynchronously reported\nframe #0: c10::Error\nFatal Python error: Aborted\n"
    )
    assert standing(SERVING + log + DIED)[0].split("\n")[1:] == [
        "  what():  [PG ID 2] Process group watchdog thread terminated with exception: CUDA error"
    ]


def test_a_known_line_is_a_cause_unless_something_crashed() -> None:
    line = "[2026-05-01 10:00:10 TP5] Input length (9 tokens) exceeds the maximum allowed length (8 tokens)\n"

    def known(text: str) -> Role | None:
        return Role.CAUSE if text.startswith("Input length") else None

    assert standing(ARGS + line + DIED, known) == [line[26:].strip()]
    assert standing(ARGS + line + crash("10:00:30", "OSError: later"), known) == ["OSError: later"]
    # right before a traceback of the same rank it is what led to it
    (got,) = found(ARGS + line + crash("10:00:10", "TypeError: x", " TP5") + DIED, known)
    assert (got.error, got.chain) == (line[26:].strip(), ("TypeError: x",))


def test_a_known_echo_is_counted_and_advice_is_not_asked_twice() -> None:
    roles = {"Exit soon": Role.ECHO, "Try this": Role.ADVICE}
    log = ARGS + "[2026-05-01 10:00:01] Exit soon\n[2026-05-01 10:00:01] Try this\n" + crash("10:00:30", "OSError: x")
    (got,) = found(log, roles.get)
    assert (got.error, got.echoes) == ("OSError: x", 1)


def test_known_is_not_asked_about_requests_batches_or_blocks() -> None:
    asked: list[str] = []

    def known(text: str) -> Role | None:
        asked.append(text)
        return None

    log = SERVING + "[2026-05-01 10:30:00] Receive: obj=GenerateReqInput(text='OSError: x')\n" + crash("10:30:01")
    found(log + "[2026-05-01 10:30:00] [http_server] Error: x\n", known)
    assert asked == []


def test_a_multi_line_json_record() -> None:
    record = {"asctime": "2026-05-01 10:00:30", "levelname": "ERROR"}
    text = crash("10:00:30", "OSError: x").split("] ", 1)[1]
    assert standing(json.dumps(record | {"message": text})) == ["OSError: x"]
    forged = f"Invalid: r\n{crash('10:00:30', 'OSError: x')}"
    assert found(json.dumps(record | {"message": forged})) == []
    aside = "Invalid: r\nTraceback (most recent call last):\nOSError: x"
    assert found(json.dumps(record | {"message": aside})) == []


def test_runs_are_counted_and_numbered() -> None:
    warning = "/opt/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still supported, but\n"
    log = (warning + ARGS + crash("10:00:30", "OSError: x") + death("10:00:31")) * 3
    assembler = Assembler()
    got = [incident for line in framed(log) for incident in assembler.feed(line)] + assembler.flush()
    assert ([one.run for one in got], assembler.runs) == ([1, 2, 3], 3)


def test_a_log_that_begins_in_the_middle_of_a_run() -> None:
    assembler = Assembler()
    lines = framed(batch("09:00:00") + crash("09:00:01", "OSError: x") + death("09:00:02") + ARGS + LISTENS)
    got = [incident for line in lines for incident in assembler.feed(line)] + assembler.flush()
    assert ([(one.run, one.launches) for one in got], assembler.runs) == ([(1, ())], 2)


def test_refused_arguments_one_after_the_other() -> None:
    usage = "usage: launch_server.py [-h]\nlaunch_server.py: error: unrecognized arguments: --a\n"
    broken = RUNTIME + "ValueError: no\n"
    assert [got.run for got in found(usage * 2)] == [1, 2]
    assert [got.run for got in found(broken * 2)] == [1, 2]


def test_two_servers_that_start_into_one_log() -> None:
    first = ARGS.replace("None", "'STANDALONE'")
    second = ARGS.replace("None", "'DSPARK'")
    for error, algorithm in (("ValueError: STANDALONE no", "STANDALONE"), ("ValueError: DSpark no", "DSPARK")):
        (got,) = found(first + second + crash("10:00:30", error))
        assert got.launch is not None
        assert got.launch.value("speculative_algorithm") == algorithm
        assert len(got.launches) == 2
    (got,) = found(first + first + crash("10:00:30", "ValueError: no"))
    assert len(got.launches) == 1


def test_a_new_source_is_a_new_log() -> None:
    lines = framed(crash("10:00:30", "OSError: a"), "one") + framed(crash("10:00:30", "OSError: a"), "two")
    assert [got.root.source for got in incidents(lines)] == ["one", "two"]


def test_flush_gives_each_incident_once() -> None:
    assembler = Assembler()
    for line in framed(ARGS + crash("10:00:30", "OSError: a")):
        assembler.feed(line)
    assert [got.error for got in assembler.flush()] == ["OSError: a"]
    assert assembler.flush() == []
    for line in framed(death("10:00:31")):
        assembler.feed(line)
    assert assembler.flush() == []


@pytest.mark.parametrize(
    "line",
    [
        "Ignore import error when loading sglang.srt.models.x: No module named 'quack'",
        "Setup Custom allreduce failed with . To silence this warning, specify --disable-custom-all-reduce explicitly.",
        "Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845",
        "Hit invalid regex_schema: key_string='(', e=ValueError('x')",
        "[http_server] Error: temperature must be a non-negative finite number, got -1.",
        "TokenizerManager watchdog timeout (self.watchdog_timeout=8.0, self.soft=True)",
    ],
)
def test_scary_lines_of_a_healthy_server(line: str) -> None:
    assert found(SERVING + f"[2026-05-01 10:30:00] {line}\n" + batch("10:30:00")) == []


def test_memory_is_bounded() -> None:
    forged = "".join(
        crash("10:30:00", f"Error{chr(65 + n % 26)}{chr(65 + n // 26 % 26)}{chr(65 + n // 676)}Error: x")
        for n in range(1500)
    )
    got = found(SERVING + forged)
    assert len(got) == 1000
    assert got[0].echoes >= 500
    deep = crash("10:30:00", "RecursionError: x").replace(FRAMES, FRAMES * 2000)
    (one,) = found(ARGS + deep)
    assert (one.error, len(one.lines) <= 200) == ("RecursionError: x", True)
