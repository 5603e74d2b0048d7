"""The same truth through every way in which a log is shipped, and no line that takes long."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from logtext import FRAMES, SERVING, found, framed

from specwatch.domain import Role
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.sources.once import Raw, read

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
CLOCK = "2026-11-30T14:00:00.123456789"
Ship = Callable[[str], str]


def relay(line: str) -> str:
    return f"2026-11-30 14:00:00,727 - __main__ - INFO - {line}"


SHAPES: dict[str, Ship] = {
    "compose": lambda line: f"sglang-1  | {line}",
    "cri": lambda line: f"{CLOCK}Z stderr F {line}",
    "ci": lambda line: f"{CLOCK}Z {line}",
    "ray": lambda line: f"(SGLangEngine pid=952, ip=10.0.0.9) {line}",
    "syslog": lambda line: f"Nov 30 14:00:00 gpu-7 sglang[4211]: {line}",
    "platform": lambda line: f"[2026-11-30T22:00:00+08:00] rollout-pod-7 >> {line}",
    "relay": relay,
    "docker": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": CLOCK + "Z"}),
    "journald": lambda line: json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": "1796047200000000"}),
    "kubectl": lambda line: f"[pod/web-7f9-abc/sglang] {line}",
    "stern": lambda line: f"web-7f9-abc sglang {line}",
    "srun": lambda line: f" 0: {line}",
    "mpirun": lambda line: f"[1,0]<stderr>:{line}",
    "prterun": lambda line: f"[prterun-gpu-7-4211@1,0]<stdout>: {line}",
    "torchrun": lambda line: f"[default0]:{line}",
    "pdsh": lambda line: f"node1: {line}",
    "syslog 5424": lambda line: f'<30>1 {CLOCK}Z gpu-7 sglang 4211 - [a@1 b="c"] {line}',
    "fluent-bit": lambda line: json.dumps({"log": line, "kubernetes": {"pod_name": "web-0"}, "stream": "stderr"}),
    "fluent-bit stdout": lambda line: json.dumps({"date": 1796047200.5, "log": line, "kubernetes": {}}),
    "gh run view": lambda line: f"unit-test-2-gpu\tRun tests\t{CLOCK}Z {line}",
    "fluentd": lambda line: (
        f"2026-11-30 14:00:00.123456789 +0000 kube.sglang: {json.dumps({'log': line, 'stream': 'stderr'})}"
    ),
    "fluentd file": lambda line: (
        f"2026-11-30T14:00:00+00:00\tkube.sglang\t{json.dumps({'log': line, 'stream': 'stderr'})}"
    ),
    "quoted in a mail": lambda line: f"> {line}",
    "padded": lambda line: f"{line}  \t",
    "vector": lambda line: json.dumps({"message": line, "timestamp": CLOCK + "Z", "host": "gpu-7"}),
}


def causes(name: str, ship: Ship) -> tuple[list[str], int]:
    path = next(path for end in ("", ".gz", ".zst") if (path := LOGS / f"{name}.log{end}").exists())
    assembler, framer = Assembler(), Framer("x")
    raws = (Raw("x", raw.number, raw.offset, ship(raw.text)) for raw in read(str(path)))
    got = [one for line in framer.frames(raws) for one in assembler.feed(line)] + assembler.flush()
    return [one.error for one in got if one.role is Role.CAUSE and not one.outlived], assembler.runs


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["standalone-vocab-tp2", "cpu-ranks-dp2", "broken-config", "request-kills-scheduler"])
def test_a_crash_is_the_same_in_every_shape(name: str, shape: str) -> None:
    assert causes(name, SHAPES[shape]) == causes(name, str)
    assert len(causes(name, str)[0]) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_lines_prove_nothing_in_any_shape(shape: str) -> None:
    assert causes("healthy-raw-newlines", SHAPES[shape]) == ([], 1)
    assert causes("healthy-jsonlines", SHAPES[shape]) == ([], 1)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "9%",
        "[00:00<",
        " 1%|[00:0",
        "x.cu:1: ",
        'File "',
        '\\"',
        '{"a":',
        "[2026-",
        "Error",
        " | ",
        "(a pid=1) ",
        "\r",
        "\x1b[",
        "Traceback (most recent call last):",
        'INFO:     1:1 - "POST /generate ',
        "\u2028",
        "\0",
        "- ",
    ],
)
def test_no_line_takes_long(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    block = "[2026-05-01 10:30:00] Scheduler hit an exception: Traceback (most recent call last):\n" + FRAMES
    began = time.process_time()
    for before in ("", "[2026-05-01 10:30:00] ", "[2026-05-01 10:30:00] INFO:     ", "usage: ", "RuntimeError: ", "  "):
        framed(before + text)
        found(SERVING + before + text)
        found(SERVING + block + before + text)
    assert time.process_time() - began < 2.0
