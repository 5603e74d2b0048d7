"""From log lines to findings: what is proved, what is not, and what is refuted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specwatch.domain import Applicability, Finding, Incident, Severity, Status
from specwatch.launch.command import parse
from specwatch.log.incidents import incidents
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import MOST_DIFFERENT, MOST_OF_A_KIND, Passed, conclusions, find, fold
from specwatch.proof import framed
from specwatch.rulebook.book import load_directories

BOOK = load_directories().book
MESSAGE = (
    "ValueError: STANDALONE speculative decoding requires the draft model to share the same vocabulary as the target "
    "model, but got target vocab_size={} and draft vocab_size={}. Use a draft model with a matching vocabulary, or a "
    "speculative algorithm that supports heterogeneous vocabularies."
)
LAUNCH = (
    "python -m sglang.launch_server --model-path /t --speculative-algorithm STANDALONE "
    "--speculative-draft-model-path /d"
)


def crash(message: str = "", second: int = 10, rank: str = "") -> str:
    message = message or MESSAGE.format(100, 200)
    head = f"[2026-07-02 09:00:{second:02d}{rank}] "
    return (
        f"{head}Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/speculative/standalone_worker_v2.py", line 194, in _validate_vocab_compatibility\n'
        f"    raise ValueError(\n{message}\n\n"
        f"[2026-07-02 09:00:{second:02d}] Received sigquit from a child process. It usually means the child failed.\n"
    )


def start(second: int, **changes: object) -> str:
    values = {
        "model_path": "/t",
        "tokenizer_path": "/t",
        "tp_size": 1,
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": "/d",
        **changes,
    }
    return f"[2026-07-02 09:00:{second:02d}] server_args={values!r}\n"


def model(size: int, letter: str = "a", **more: object) -> dict[str, Any]:
    return {"vocab_size": size, "vocab": letter, "hidden_size": 64, "num_hidden_layers": 8, **more}


def findings(
    log: str, models: Mapping[str, Mapping[str, Any]], launch: str = "", release: str = ""
) -> tuple[Finding, ...]:
    typed = parse(launch, release or "0.5.23") if launch else None
    return fold(find(framed(log), BOOK, MemoryModels(models), typed, release))


BOTH = {"/t": model(100), "/d": model(200, "b")}


def test_proved_by_the_files() -> None:
    (finding,) = findings(start(1) + crash(), BOTH, LAUNCH)
    assert finding.verdict.status is Status.BROKEN
    assert finding.verdict.because == ""
    assert [(fix.id, fix.applicability) for fix in finding.fixes] == [("drop-speculation", Applicability.SAFE)]


def test_the_files_are_not_here() -> None:
    (finding,) = findings(start(1) + crash(), {}, LAUNCH)
    assert finding.verdict.status is Status.UNKNOWN
    assert finding.cause == "vocabularies-differ"  # the wording alone gives it away
    assert {fix.applicability for fix in finding.fixes} == {Applicability.REVIEW}
    assert not any(fix.rechecked for fix in finding.fixes)


def test_the_files_were_changed_since() -> None:
    (finding,) = findings(start(1) + crash(), {"/t": model(100), "/d": model(100)}, LAUNCH)
    assert finding.verdict.status is Status.SOUND
    assert "changed since" in finding.verdict.because
    assert all(fix.applicability <= Applicability.REVIEW for fix in finding.fixes)


def test_the_log_names_other_numbers_than_the_files() -> None:
    (finding,) = findings(start(1) + crash(), {"/t": model(100), "/d": model(300, "b")}, LAUNCH)
    assert finding.verdict.status is Status.BROKEN
    assert finding.verdict.because == "the log says draft_vocab_size=200, it is now 300"


def test_no_launch_is_known() -> None:
    (finding,) = findings(crash(), BOTH)
    assert finding.verdict.status is Status.UNKNOWN
    assert "launch is not known" in finding.verdict.because
    (fix,) = finding.fixes
    assert (fix.applicability, fix.launch) == (Applicability.MANUAL, None)
    assert fix.changes


def test_a_message_that_cannot_come_from_this_launch() -> None:
    log = start(1, speculative_algorithm=None, speculative_draft_model_path=None) + crash()
    (finding,) = findings(log, BOTH)
    assert finding.verdict.status is Status.UNKNOWN
    assert "does not use what the message speaks of" in finding.verdict.because
    assert finding.fixes == ()


def test_the_record_is_what_ran() -> None:
    """The command given names another draft than the server recorded: the proof is about the recorded one."""
    models = {**BOTH, "/other": model(100)}
    log = start(1, speculative_draft_model_path="/d") + crash()
    (finding,) = findings(log, models, LAUNCH.replace("/d", "/other"))
    assert finding.verdict.status is Status.BROKEN
    assert finding.says == "/d has 200 tokens, /t has 100"


def test_a_matching_draft_is_found_and_rechecked() -> None:
    models = {
        **BOTH,
        "/fits": model(100, num_hidden_layers=1),
        "/other-tokens": model(100, "c", num_hidden_layers=1),
        "/moe": model(100, num_hidden_layers=1, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe"),
    }
    (finding,) = findings(start(1) + crash(), models, LAUNCH)
    fix = finding.fixes[0]
    assert (fix.id, fix.applicability, fix.rechecked) == ("matching-draft", Applicability.REVIEW, True)
    assert fix.launch
    assert fix.launch.text == LAUNCH.replace("/d", "/fits")
    offered = [f.launch.text for f in finding.fixes if f.id == "matching-draft" and f.launch]
    assert offered == [fix.launch.text]


def test_a_fix_that_fails_another_check_is_dropped() -> None:
    """Without the draft the target itself must still pass: here its context is too long."""
    (finding,) = findings(start(1, context_length=9999) + crash(), BOTH, f"{LAUNCH} --context-length 9999")
    assert not [fix for fix in finding.fixes if fix.launch]


def test_a_fix_need_not_mend_what_was_wrong_before() -> None:
    """A deprecated flag beside the fault does not condemn the fix of the fault."""
    (finding,) = findings(start(1) + crash(), BOTH, f"{LAUNCH} --disable-cuda-graph")
    assert [(fix.id, fix.applicability) for fix in finding.fixes] == [("drop-speculation", Applicability.SAFE)]


def test_a_crash_loop_is_one_finding() -> None:
    log = "".join(start(at) + crash(second=at + 2) for at in (10, 20, 30))
    (finding,) = findings(log, BOTH, LAUNCH)
    assert (finding.occurrences, finding.starts) == (3, 3)
    assert (finding.first_seen, finding.last_seen) == ("2026-07-02T09:00:12", "2026-07-02T09:00:32")


def test_another_launch_is_another_finding() -> None:
    log = start(10) + crash(second=12) + start(20, speculative_draft_model_path="/e") + crash(second=22)
    assert len(findings(log, {**BOTH, "/e": model(300, "e")})) == 2


def test_an_outlived_block_is_a_notice() -> None:
    going_on = "".join(
        f'[2026-07-02 09:00:{at:02d}] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK\n'
        f"[2026-07-02 09:00:{at:02d}] Decode batch, #running-req: 1, #token: 20, token usage: 0.00\n"
        for at in range(12, 50, 3)
    )
    log = start(1) + "[2026-07-02 09:00:05] The server is fired up and ready to roll!\n" + crash(second=10) + going_on
    (finding,) = findings(log, BOTH, LAUNCH)
    assert finding.severity is Severity.NOTICE
    assert finding.verdict.status is Status.REFUTED
    assert finding.verdict.because.startswith("claimed by the log, refuted by what follows: ")
    assert finding.fixes == ()


def test_an_old_release_does_not_refuse_it() -> None:
    """Before 0.5.15 such a pair started; whoever sees the message runs something newer or patched."""
    (finding,) = findings(start(1) + crash(), BOTH, LAUNCH, release="0.5.7")
    assert finding.verdict.status is Status.BROKEN
    assert finding.verdict.message is None


def test_a_fingerprint_does_not_hang_on_numbers() -> None:
    first, second = (
        findings(crash(f"FrobnicationError: worker {n} at 0x{n:x} died"), {})[0].fingerprint for n in (12, 345)
    )
    assert first == second


def test_of_very_many_different_crashes_some_are_examined_and_the_others_counted() -> None:
    (found,) = incidents(framed(start(1) + crash("ValueError: case 0")), BOOK.role_of)
    forged = found._replace(outlived="the server went on")

    def examined(several: Iterable[Incident]) -> tuple[int, int]:
        passed = Passed()
        got = list(conclusions(several, BOOK, lambda: MemoryModels({}), passed=passed))
        return len(got), passed.count

    many = [found._replace(error=f"ValueError: case {number}") for number in range(MOST_OF_A_KIND + 7)]
    assert examined(many) == (MOST_OF_A_KIND, 7)
    assert examined([*many, *many[:5]]) == (MOST_OF_A_KIND + 5, 7)  # what was examined once costs nothing more
    assert examined([*many, found._replace(error="KeyError: 'x'")]) == (MOST_OF_A_KIND + 1, 7)
    noise = [forged._replace(error=f"Made{number}Up: x") for number in range(MOST_DIFFERENT + 9)]
    assert examined([*noise, found]) == (MOST_DIFFERENT + 1, 9)


def test_a_trouble_of_requests_that_ends_in_a_crash_is_fatal() -> None:
    trouble = (
        "[2026-07-01 03:18:40 TP0] Decode handshake failed for request rank=0 decode_req.req.rid='a' with exception "
        "KVTransferError(bootstrap_room=3318): Could not fetch prefill info\n"
    )
    end = (
        "[2026-07-01 03:18:41 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/disaggregation/decode.py", line 611, in _resolve_pending_reqs\n'
        "    decode_req.kv_receiver.abort()\nAttributeError: 'NoneType' object has no attribute 'abort'\n\n"
    )
    (alone,) = fold(find(framed(trouble), BOOK, MemoryModels({})))
    (both,) = fold(find(framed(trouble + end), BOOK, MemoryModels({})))
    assert alone.rule == both.rule == "kv-transfer-failed"
    assert (alone.severity, both.severity) == (Severity.DEGRADED, Severity.FATAL)
    assert both.says.startswith(alone.says)
    assert "has no attribute 'abort'" in both.says
