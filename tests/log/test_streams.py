"""Several servers in one log: whose signs of life say something about whose crash."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from logtext import ARGS, LISTENS, SERVING, STOP, batch, crash, death, found, framed, served, standing

ERROR = "ValueError: repeats can not be negative"
OTHER = ARGS.replace("'/models/target'", "'/models/other'").replace("'tp_size'", "'port': 30001, 'tp_size'")
ALIVE = "".join(batch(f"10:30:{at:02d}") + served(f"10:30:{at:02d}") for at in range(0, 50, 5))

Ship = Callable[[str, int], str]
SHAPES: dict[str, Ship] = {
    "compose": lambda line, who: f"llm-{who}  | {line}",
    "ray": lambda line, who: f"(Engine pid={who + 100}, ip=10.0.0.{who}) {line}",
    "kubectl": lambda line, who: f"[pod/web-{who}/sglang] {line}",
    "stern": lambda line, who: f"web-{who}-abc sglang {line}",
    "syslog": lambda line, who: f"Jul 01 10:00:00 gpu-7 sglang{who}[10{who}]: {line}",
    "syslog 5424": lambda line, who: f"<30>1 2026-06-03T10:11:20Z gpu-7 sglang{who} 12 - - {line}",
    "srun": lambda line, who: f"{who}: {line}",
    "pdsh": lambda line, who: f"node{who}: {line}",
    "journald": lambda line, who: json.dumps(
        {"MESSAGE": line, "_SYSTEMD_UNIT": f"sglang{who}.service", "__REALTIME_TIMESTAMP": "1782900013000000"}
    ),
    "fluent-bit": lambda line, who: json.dumps(
        {"log": line, "kubernetes": {"pod_name": f"web-{who}", "container_name": "sglang"}, "stream": "stderr"}
    ),
}


def shipped(ship: Ship, *parts: tuple[int, str]) -> str:
    return "".join(ship(line, who) + "\n" for who, text in parts for line in text.removesuffix("\n").split("\n"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("crashed", [0, 1])
def test_a_crash_is_denied_by_its_own_stream_only(shape: str, crashed: int) -> None:
    ship, other = SHAPES[shape], 1 - crashed
    starts = ((crashed, ARGS), (other, OTHER + LISTENS))
    got = found(shipped(ship, *starts, (crashed, crash("10:29:59")), (other, ALIVE + STOP)))
    assert [(one.error, one.outlived) for one in got] == [(ERROR, "")]
    assert [launch.value("model_path") for launch in got[0].launches] == ["/models/target"]
    serving = ((crashed, ARGS + LISTENS), (other, OTHER + LISTENS))
    assert standing(shipped(ship, *serving, (crashed, crash("10:29:59")), (other, ALIVE))) == [ERROR]
    assert standing(shipped(ship, *serving, (crashed, crash("10:29:59") + ALIVE))) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_client_cannot_move_into_another_stream(shape: str) -> None:
    """Its lines get the real name in front, whatever names they hold themselves."""
    ship = SHAPES[shape]
    for inner in SHAPES.values():
        block = shipped(inner, (7, crash("10:29:59") + death("10:29:59")))
        assert standing(shipped(ship, (0, SERVING + block + ALIVE))) == []
        assert standing(shipped(ship, (0, SERVING), (1, OTHER + LISTENS + block + ALIVE))) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_names_in_a_log_that_has_lines_without_are_not_believed(shape: str) -> None:
    ship = SHAPES[shape]
    forged = shipped(ship, (7, "x"), (8, OTHER + crash("10:29:59") + death("10:29:59")), (9, crash("10:29:59")))
    assert standing(SERVING + forged + ALIVE) == []
    assert standing(batch("10:29:50") + forged + ALIVE) == []


def test_names_without_a_mark_are_learned_from_a_servers_line_only() -> None:
    assert [line.text for line in framed("node1: OSError: x\nnode1: [2026-05-01 10:00:00] a\nnode1: OSError: x")] == [
        "node1: OSError: x",
        "a",
        "OSError: x",
    ]
    (_, line) = framed("[2026-05-01 10:00:00] a\nnode1: [2026-05-01 10:00:00] b")
    assert (line.headed, line.ranks) == (False, ())
    (line,) = framed("ValueError: usage: x")
    assert line.text == "ValueError: usage: x"


def test_a_start_up_that_fails_beside_another_server_is_told_without_names() -> None:
    assert standing(OTHER + ARGS + crash("10:00:10") + death("10:00:10") + LISTENS + ALIVE) == [ERROR]
    # while the other one listens already
    late = crash("10:01:10", rank=" TP0") + death("10:01:10")
    assert standing(OTHER + ARGS + LISTENS + batch("10:01:05") + late + ALIVE) == [ERROR]


def test_only_as_many_start_ups_fail_as_there_are_servers_that_are_not_ready() -> None:
    log = OTHER + ARGS + LISTENS + crash("10:01:10") + death("10:01:10") + served("10:20:00")
    assert standing(log + crash("10:25:00", "OSError: forged") + ALIVE) == [ERROR]
    assert standing(OTHER + ARGS + LISTENS + LISTENS + crash("10:01:10") + ALIVE) == []
    (got,) = found(OTHER + ARGS + crash("10:00:10") + LISTENS + LISTENS + ALIVE)
    assert "all servers" in got.outlived


def test_one_servers_two_nodes_are_not_two_servers() -> None:
    node = ARGS.replace("'tp_size'", "'node_rank': 1, 'tp_size'")
    assert standing(ARGS + node + LISTENS + crash("10:01:10") + ALIVE) == []


def test_start_ups_in_the_log_of_a_listening_server_prove_no_second_server() -> None:
    quiet = SERVING + OTHER.replace("10:00:00", "10:10:00") + "[2026-05-01 10:10:09] x\n"
    again = quiet + ARGS.replace("10:00:00", "10:11:00") + OTHER.replace("10:00:00", "10:11:01").replace("30001", "7")
    assert standing(again + crash("10:11:05") + death("10:11:05") + ALIVE) == []


def test_a_cancelled_task_alone_is_nothing() -> None:
    line = "asyncio.exceptions.CancelledError\n"
    assert found(line + '[2026-05-01 10:00:00] INFO:     127.0.0.1:4 - "POST /generate HTTP/1.1" 500 x\n') == []
    assert standing("KeyError: 'x'\n") == ["KeyError: 'x'"]
