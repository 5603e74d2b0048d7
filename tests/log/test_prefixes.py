"""Every kind of prefix is taken off, however its line begins; and nothing is taken off lines that only look like it."""

from __future__ import annotations

import pytest

from specwatch.log.prefixes import peel

DAY, TIME = "2026-01-05", "08:00:00"
MESSAGE = "Loaded something"
HEADERS = (
    f"[{DAY} {TIME} TP0] ",
    f"{DAY} {TIME} TP0] ",
    f"26-01-05 {TIME} TP0] ",
    f"-01-05 {TIME} TP0] ",
    f"[{TIME} TP0] ",
    f"[01-05 {TIME}] ",
    f"{DAY} {TIME},123 INFO 12 [ TP0 scheduler.py:7] ",
    f"ERROR {TIME} scheduler.py:2626] ",
    f"INFO 01-05 {TIME} __init__.py:190] ",
    f"{DAY} {TIME}  INFO smg::server: ",
    f"{DAY}T{TIME}.123Z  INFO dynamo.planner: ",
)
RELAYS = (f"{DAY} {TIME},123 - parent.child - INFO - ", f"{DAY} {TIME}.123 | INFO     | parent:run:12 - ")
TRANSPORTS = (
    f"{DAY}T{TIME}.123Z stderr F ",
    f"{DAY}T{TIME}Z ",
    f"[{DAY}T{TIME}] ",
    f"01-05 {TIME}.123 ",
    f"job\tstep\t\ufeff{DAY}T{TIME}Z ",
    "web-1  | ",
    "7  | ",
    "(pid=7) ",
    "(Worker pid=7, ip=10.0.0.1) ",
    "host.a >> ",
    f"Jan  5 {TIME} host sglang[7]: ",
    f"Jan  5 {TIME} host kernel: [ 12.3] ",
    "[rank0]: ",
    "[pod/a/b] ",
    "[default0]:",
    "[1,7]<stderr>:",
    "[node1,7]<stderr>: ",
    f"<13>1 {DAY}T{TIME}Z host sglang 7 - - ",
)


@pytest.mark.parametrize("prefix", [*HEADERS, *RELAYS, *TRANSPORTS])
def test_each_kind_is_taken_off(prefix: str) -> None:
    line = peel(prefix + MESSAGE)
    assert line.text == MESSAGE
    assert (line.headed, line.relayed) == (prefix in HEADERS, prefix in RELAYS)


@pytest.mark.parametrize("prefix", [*HEADERS[:1], *HEADERS[2:], *RELAYS, *TRANSPORTS])
def test_each_kind_is_taken_off_behind_another(prefix: str) -> None:
    assert peel("web-1  | " + prefix + MESSAGE).text == MESSAGE


def test_fluentds_clock_and_tag_stand_before_a_record() -> None:
    assert peel(f'{DAY} {TIME}.5 +0000 kube.var.log: {{"log": "x"}}').text == '{"log": "x"}'
    assert peel(f'{DAY}T{TIME}Z\tkube.var.log\t{{"log": "x"}}').text == '{"log": "x"}'


def test_digits_of_any_script_are_digits() -> None:
    assert peel(f"{DAY}T{TIME}Z {MESSAGE}".replace("2026", "٢٠٢٦")).text == MESSAGE


@pytest.mark.parametrize(
    "text",
    ["ValueError: a | b", "Traceback (most recent call last):", "7 files", "100%|####| 7/7 [00:01<00:00]", "[1, 2]: x",
     "(a pid=x) b", "<1> b", "é | b", "Jan: it is 08:00", "a\tb"],
)  # fmt: skip
def test_other_lines_stay_as_they_are(text: str) -> None:
    line = peel(text)
    assert (line.text, line.headed, line.relayed, line.names) == (text, False, False, ())
