"""What an incident keeps of its start-up, messages that are a cause only before a crash, and drafts in vain."""

from __future__ import annotations

import pytest

from specwatch.domain import Incident, Role
from specwatch.log.incidents import incidents
from specwatch.proof import framed

CRASH = """
[2026-05-04 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process
    scheduler = Scheduler(
RuntimeError: no
"""


def known(text: str) -> Role | None:
    """A rule book that knows three messages."""
    if text.startswith("Input length"):
        return Role.ADVICE
    return Role.CAUSE if text.startswith("Decode batch") else None


def found(log: str) -> list[Incident]:
    return list(incidents(framed(log), known))


def test_an_incident_keeps_the_steps_of_its_own_rank() -> None:
    log = (
        "[2026-05-04 10:00:00 TP0] Load weight begin. avail mem=80.00 GB\n"
        "[2026-05-04 10:00:00 TP1] Load weight begin. avail mem=70.00 GB\n"
        "[2026-05-04 10:00:01 TP0] Memory pool end. avail mem=9.00 GB\n"
        "[2026-05-04 10:00:02 TP0] Memory pool end. avail mem=2.00 GB" + CRASH
    )
    (one,) = found(log)
    steps = [line.text for line in one.lines if "avail mem" in line.text]
    assert steps == ["Load weight begin. avail mem=80.00 GB", "Memory pool end. avail mem=2.00 GB"]


def test_another_ranks_steps_where_it_has_none() -> None:
    (one,) = found("[2026-05-04 10:00:00 TP1] Load weight begin. avail mem=70.00 GB" + CRASH)
    assert one.lines[0].text == "Load weight begin. avail mem=70.00 GB"


def test_steps_of_the_run_before_do_not_count() -> None:
    log = "[2026-05-04 09:00:00 TP0] Load weight begin. avail mem=70.00 GB" + CRASH
    start = "[2026-05-04 11:00:00] server_args=ServerArgs(model_path='m', tp_size=1)\n"
    one, two = found(log + start + CRASH.replace("10:00", "11:00").replace("RuntimeError: no", "RuntimeError: yes"))
    assert any("avail mem" in line.text for line in one.lines)
    assert not any("avail mem" in line.text for line in two.lines)


ADVICE = "[2026-05-04 10:00:09 TP{}] Input length (9 tokens) exceeds the maximum allowed length (8 tokens)."


def test_a_message_right_before_a_crash_of_its_rank_is_the_cause() -> None:
    (one,) = found(f"{ADVICE.format(0)}\n{ADVICE.format(1)}{CRASH}")
    assert one.error.startswith("Input length")
    assert one.chain == ("RuntimeError: no",)
    assert set(one.ranks) == {"TP0", "TP1"}


@pytest.mark.parametrize("log", [ADVICE.format(0), ADVICE.format(0) + CRASH.replace("10:00:09", "10:00:19")])
def test_alone_or_long_before_it_is_none(log: str) -> None:
    assert not [one for one in found(log) if one.error.startswith("Input length")]


def decodes(*lengths: str, interval: int | None = None) -> str:
    args = f"[2026-05-04 09:00:00] server_args=ServerArgs(model_path='m', decode_log_interval={interval})\n"
    lines = (
        f"[2026-05-04 10:00:{10 + k} TP0] Decode batch, #running-req: 4, #token: {k}, token usage: 0.01, "
        f"accept len: {length}, accept rate: 0.00, cuda graph: True, gen throughput (token/s): 41.10, #queue-req: 0"
        for k, length in enumerate(lengths)
    )
    return (args if interval else "") + "\n".join(lines)


@pytest.mark.parametrize(
    ("log", "times"),
    [
        (decodes("1.00", "1.00", "1.00"), 1),
        (decodes(*["1.00"] * 9), 1),
        (decodes("1.00", "1.00", "1.01", "1.00", "1.00"), 0),
        (decodes(*["1.00"] * 9, interval=10), 0),
        (decodes(*["1.00"] * 12, interval=10), 1),
        (decodes("1.00", "1.00", "1.00", "2.00", "1.00", "1.00", "1.00"), 1),
        (decodes("2.10", "2.20", "2.30"), 0),
    ],
)
def test_drafts_that_are_never_accepted(log: str, times: int) -> None:
    assert len([one for one in found(log) if "accept len: 1.00" in one.error]) == times


BATCH = "[2026-05-04 10:00:{} TP0] Decode batch, #running-req: 40, #token: 31072"
HEAD = "Scheduler hit an exception: Traceback (most recent call last):"


@pytest.mark.parametrize("head", [f"[2026-05-04 10:00:02 TP0] {HEAD}", f"[2026-05-04 10:00:02 TP1] {HEAD}", HEAD])
def test_a_traceback_that_never_ends_is_denied_by_what_follows(head: str) -> None:
    log = "\n".join([BATCH.format("00"), head, *(BATCH.format(f"{at:02d}") for at in range(3, 30, 3))])
    assert all(one.outlived for one in found(log))
    (last,) = found("\n".join([BATCH.format("00"), f"[2026-05-04 10:00:02 TP0] {HEAD}"]))
    assert not last.outlived
