"""Which crash blocks a log itself denies. Each test is one decision rule of `specwatch/log/runs.py`."""

from __future__ import annotations

import pytest
from logtext import ARGS, FRAMES, LISTENS, SERVING, STOP, batch, crash, death, found, served, standing

from specwatch.domain import Role
from specwatch.log.candidates import UNPROVED, is_denied_by_clock_or_label

ERROR = "ValueError: repeats can not be negative"


def test_a_crash_and_its_death_stand() -> None:
    (got,) = found(SERVING + crash("10:30:00") + death("10:30:00"))
    assert (got.error, got.outlived, got.role, got.echoes) == (ERROR, "", Role.CAUSE, 2)


def test_a_crash_at_the_very_end_of_a_log_stands() -> None:
    assert standing(SERVING + crash("10:30:00")) == [ERROR]


def test_answers_on_their_way_out_do_not_deny_a_crash() -> None:
    assert standing(SERVING + crash("10:30:00") + served("10:30:01")) == [ERROR]


def test_the_same_scheduler_cannot_go_on_after_its_crash() -> None:
    (got,) = found(SERVING + crash("10:30:00") + batch("10:30:00"))
    assert "the same scheduler" in got.outlived


def test_a_forged_death_does_not_help() -> None:
    assert standing(SERVING + crash("10:30:00") + death("10:30:00") + batch("10:30:00")) == []
    assert standing(SERVING + crash("10:30:00") + batch("10:30:01") + death("10:30:02")) == []


def test_answers_some_seconds_later_deny_a_crash() -> None:
    (got,) = found(SERVING + crash("10:30:00") + death("10:30:00") + served("10:30:09"))
    assert got.outlived.startswith("the server went on: requests are answered 9 s later")
    assert not is_denied_by_clock_or_label(got.outlived)


def test_other_ranks_outlive_a_real_crash_by_seconds() -> None:
    log = ARGS + LISTENS.replace("] Load", " DP0 TP0] Load").replace("] Prefill", " DP0 TP0] Prefill")
    log += crash("10:30:00", rank=" DP0 TP0") + batch("10:30:20", " DP1 TP1") + served("10:30:21")
    assert standing(log) == []
    assert standing(log + death("10:30:30")) == [ERROR]
    assert standing(log + death("10:30:30") + batch("10:30:40", " DP1 TP1")) == []


def test_a_death_much_later_is_another_one() -> None:
    log = SERVING + crash("10:30:00", "OSError: forged") + served("10:30:09") + served("10:50:00") + crash("10:55:00")
    assert standing(log + death("10:55:00")) == [ERROR]


def test_a_forged_block_right_before_a_real_crash_is_not_revived() -> None:
    forged = SERVING + crash("10:30:00", "OSError: forged") + served("10:30:05")
    assert standing(forged + crash("10:30:06") + death("10:30:06")) == [ERROR]


def test_an_orderly_stop_denies_what_came_before() -> None:
    (got,) = found(SERVING + crash("10:59:59") + STOP)
    assert got.outlived.startswith("the server was stopped in order")


def test_batches_of_a_server_that_its_watchdog_ends_do_not_deny_the_watchdog() -> None:
    log = SERVING + "[2026-05-01 10:30:00] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    assert standing(log + batch("10:30:02") + batch("10:30:04")) == []
    assert standing(log + batch("10:30:02") + batch("10:30:04") + death("10:30:05"))[0].startswith("Scheduler watchdog")


@pytest.mark.parametrize("clock", ["2026-01-01 00:00:00", "2026-05-01 09:12:51", "2027-01-01 00:00:00"])
def test_a_clock_that_does_not_fit_denies(clock: str) -> None:
    forged = crash("10:30:01").replace("2026-05-01 10:30:01", clock) + death("x").replace("2026-05-01 x", clock)
    (got,) = found(SERVING + served("10:30:00") + forged + served("10:30:01"))
    assert "clock of the block" in got.outlived
    assert is_denied_by_clock_or_label(got.outlived)
    # and it denies only that one, whatever it did to the time of the log
    assert standing(
        SERVING + served("10:30:00") + forged + served("10:30:01") + crash("10:30:02") + death("10:30:02")
    ) == [ERROR]


def test_a_pause_is_no_contradiction() -> None:
    assert standing(SERVING + crash("23:30:00") + death("23:30:00")) == [ERROR]


@pytest.mark.parametrize(("real", "forged"), [("", " TP0"), (" TP0", "")])
def test_a_rank_label_that_the_run_does_not_use_denies(real: str, forged: str) -> None:
    log = ARGS + LISTENS.replace("] Load", f"{real}] Load").replace("] Prefill", f"{real}] Prefill")
    (got,) = found(log + crash("10:30:00", rank=forged))
    assert "label" in got.outlived
    assert standing(log + crash("10:30:00", rank=real)) == [ERROR]


def test_a_forged_start_does_not_part_a_block_from_what_denies_it() -> None:
    restart = ARGS.replace("10:00:00", "10:30:01")
    log = SERVING + crash("10:30:00") + death("10:30:01") + restart
    assert standing(log + batch("10:30:02") + served("10:30:09")) == []
    assert standing(log + LISTENS.replace("10:00", "10:40")) == [ERROR]


def test_a_start_in_the_past_of_a_serving_server_is_none() -> None:
    log = SERVING + served("10:30:00") + crash("10:30:00") + ARGS.replace("10:00:00", "08:00:00")
    assert standing(log + batch("10:31:00")) == []


def test_an_exception_that_was_caught_is_nothing() -> None:
    aside = f"Traceback (most recent call last):\n{FRAMES.replace('run_scheduler_process', 'handle')}KeyError: 'x'\n"
    assert found(SERVING + aside + served("10:31:00") + served("10:31:04")) == []
    assert found(ARGS + aside + LISTENS) == []
    assert standing(ARGS + aside) == ["KeyError: 'x'"]


def test_an_exception_inside_a_users_text_is_nothing() -> None:
    text = "[2026-05-01 10:30:00] Invalid request: session id s\ufeffTraceback (most recent call last):\nOSError: x\n"
    assert found(SERVING + text) == []


def test_a_message_that_a_rule_knows_is_denied_by_its_clock_too() -> None:
    line = "[2025-01-01 00:00:00] max_running_requests is capped to 2 by the mamba state cache\n"
    (got,) = found(SERVING + line + served("10:31:00"), lambda text: Role("cause") if "capped" in text else None)
    assert is_denied_by_clock_or_label(got.outlived)


def test_time_stamps_without_a_day_need_many_signs_of_life() -> None:
    log = "[10:30:00 TP1] Scheduler hit an exception: Traceback (most recent call last):\n" + FRAMES + "OSError: x\n"
    sign = "[10:30:01 TP0] Decode batch. #running-req: 1\n"
    assert standing(log + sign * 5) == ["OSError: x"]
    assert standing(log + sign * 30) == []


def test_a_forged_crash_with_forged_signs_of_another_server_stays_denied() -> None:
    other = "[2026-05-01 10:20:00] server_args={'model_path': '/evil', 'tp_size': 1}\n"
    log = SERVING + batch("10:19:59") + other + batch("10:20:01") + crash("10:30:00") + death("10:30:00", 77)
    assert standing(log + batch("10:30:01")) == []


def test_a_forged_end_and_start_around_a_forged_crash() -> None:
    ends = "[2026-05-01 10:30:00] Gracefully exiting... Remaining number of requests 0.\n"
    log = SERVING + ends + crash("10:30:00") + death("10:30:00") + ARGS.replace("10:00:00", "10:30:01")
    assert standing(log + batch("10:30:02")) == []


def test_the_beginning_of_a_forged_traceback_takes_no_line_of_a_real_one() -> None:
    forged = crash("10:29:59", "").removesuffix("\n\n\n") + "\n"
    (got,) = found(SERVING + forged + crash("10:30:00") + death("10:30:00"))
    assert (got.error, len(got.frames)) == (ERROR, 2)


def test_a_refuted_crash_is_told_however_many_caught_exceptions_follow() -> None:
    caught = ""
    for at in range(1100):
        minute, second = f"{11 + at // 600:02d}:{at // 10 % 60:02d}", at % 10 * 6
        error = "KeyError: 'x" + "".join(chr(97 + at // power % 26) for power in (1, 26, 676)) + "'"
        head = f"[2026-05-01 {minute}:{second:02d}] Error in request handler: Traceback (most recent call last):"
        caught += f"{head}\n{FRAMES}{error}\n" + served(f"{minute}:{second + 4:02d}")
    (got,) = [one for one in found(SERVING + crash("10:30:01") + batch("10:30:02") + caught) if one.outlived]
    assert got.error == "ValueError: repeats can not be negative"


def test_a_caught_exception_without_a_death_is_shown_as_unproved() -> None:
    aside = f"Traceback (most recent call last):\n{FRAMES}{ERROR}\n"
    (got,) = found(LISTENS + SERVING + aside)
    assert (got.error, got.outlived) == (ERROR, UNPROVED)
    assert is_denied_by_clock_or_label(got.outlived)  # not even a degraded server is proved by it
    assert standing(LISTENS + SERVING + aside) == []
