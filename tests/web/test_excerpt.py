"""The log around a root line: which lines are kept, what is echo, what must not stand in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specwatch.log.incidents import Known
from specwatch.rulebook.book import load_directories
from specwatch.sources.once import Raw
from specwatch.watching.excerpt import AFTER, BEFORE, LONGEST, MOST, excerpt
from specwatch.watching.live import Live, Told

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"


@pytest.fixture(scope="module")
def known() -> Known:
    return load_directories().book.role_of


def told(text: str, known: Known) -> Told:
    """The first incident of a log, as the daemon sees it once the log is quiet."""
    live = Live("s", known)
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        live.feed(Raw("s", number, offset, line), 1.0)
        offset += len(line.encode("utf-8", "surrogatepass")) + 1
    return next(change for change in live.look(100.0) if isinstance(change, Told))


def kept(text: str, known: Known) -> dict[str, Any]:
    one = told(text, known)
    made = excerpt(one.incident, one.around, lambda place, number: (number + 1000, place))
    found: dict[str, Any] = json.loads(made)
    return found


def crash(message: str, before: str = "", after: str = "") -> str:
    return (
        f"[2026-07-02 09:14:29] server_args=ServerArgs(model_path='/m', tp_size=2)\n{before}"
        "[2026-07-02 09:14:31 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
        "    scheduler = Scheduler(server_args)\n"
        f"ValueError: {message}\n"
        "\n"
        "[2026-07-02 09:14:31] Received sigquit from a child process. It usually means the child failed.\n"
        f"{after}"
    )


def test_a_real_crash_of_two_ranks(known: Known, examples: Path) -> None:
    found = kept((examples / "server.log").read_bytes().decode(), known)
    kinds = [line["kind"] for line in found["lines"]]
    (root,) = [line for line in found["lines"] if line["kind"] == "root"]
    assert root["line"] == 1083
    assert root["text"].startswith("ValueError: STANDALONE speculative decoding requires")
    assert root["ranks"] == ["TP1"]
    echoes = [line for line in found["lines"] if line["kind"] == "echo"]
    assert {tuple(line["ranks"]) for line in echoes} == {(), ("TP0",)}
    assert any(line["text"].startswith("Received sigquit") for line in echoes)
    assert kinds.count("cause") == 16
    assert kinds[:BEFORE] == ["context"] * BEFORE
    assert not found["cut"]


@pytest.mark.parametrize("path", sorted(LOGS.glob("*standalone-vocab*.log")), ids=lambda path: path.stem)
def test_every_shape_of_the_same_crash_has_its_root(path: Path, known: Known) -> None:
    found = kept(path.read_bytes().decode(), known)
    assert [line["text"][:40] for line in found["lines"] if line["kind"] == "root"] == [
        "ValueError: STANDALONE speculative decod"
    ]


def test_no_more_than_is_promised_before_and_after(known: Known) -> None:
    before = "".join(f"[2026-07-02 09:14:30] step {n}\n" for n in range(300))
    after = "".join(f"[2026-07-02 09:14:32] later {n}\n" for n in range(300))
    lines = kept(crash("no", before, after), known)["lines"]
    assert lines[0]["text"] == f"step {300 - BEFORE}"
    assert lines[-1]["text"] == f"later {AFTER - 1}"


def test_each_crash_of_a_loop_has_its_own_run_only(known: Known) -> None:
    """All in one read, as at the start of the daemon: the later crashes are none of the first one's lines."""
    live = Live("s", known)
    offset = 0
    runs = [crash(f"number {n}", before=f"[2026-07-02 09:14:30] {'x' * 900}\n" * 150) for n in range(4)]
    for number, line in enumerate("".join(runs).split("\n"), 1):
        live.feed(Raw("s", number, offset, line), 1.0)
        offset += len(line) + 1
    crashes = [change for change in live.look(100.0) if isinstance(change, Told)]
    assert len(crashes) == 4
    for n, one in enumerate(crashes):
        found = json.loads(excerpt(one.incident, one.around, lambda place, number: (number, place)))
        roots = [line["text"] for line in found["lines"] if line["text"].startswith("ValueError")]
        assert roots == [f"ValueError: number {n}"]
        assert sum(line["text"].startswith("server_args=") for line in found["lines"]) == 0, "40 lines before it only"


def test_secrets_are_not_kept(known: Known) -> None:
    before = (
        "[2026-07-02 09:14:30] started with --api-key sk-verysecret-0123456789 and HF_TOKEN=hf_abcdefghijklm\n"
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAq\nAoGBAKj34GkxFhD90v\n-----END RSA PRIVATE KEY-----\n"
        "[2026-07-02 09:14:30] all well\n"
    )
    text = json.dumps(kept(crash("no: Authorization: Bearer abcdef0123456789", before), known))
    for secret in ("verysecret", "abcdefghij", "MIIEow", "AoGBA", "0123456789"):
        assert secret not in text
    assert "all well" in text


def test_huge_lines_are_cut_and_leave_room_for_the_crash(known: Known) -> None:
    found = kept(crash("no", "".join(f"[2026-07-02 09:14:30] {'x' * 1_000_000}\n" for _ in range(3))), known)
    texts = [line["text"] for line in found["lines"]]
    assert all(len(text) < LONGEST + 100 for text in texts)
    assert any("[cut: the line has 10000" in text for text in texts)
    assert "ValueError: no" in texts


def test_never_more_than_the_cap(known: Known) -> None:
    found = kept(crash("y" * 1900, "".join(f"[2026-07-02 09:14:30] {'x' * 1900}\n" for _ in range(100))), known)
    assert sum(len(line["text"]) for line in found["lines"]) <= MOST
    assert found["cut"] or len(found["lines"]) < 100
    assert any(line["kind"] == "root" for line in found["lines"])


def test_text_that_no_encoding_has(known: Known) -> None:
    found = kept(crash("\udcff\ud800 no"), known)
    assert json.loads(json.dumps(found).encode("ascii")) == found


def test_a_root_that_is_not_there_any_more(known: Known) -> None:
    one = told(crash("no"), known)
    where: Callable[[int, int], tuple[int, int]] = lambda place, number: (number, place)  # noqa: E731
    assert excerpt(one.incident, one.around[:1], where) == ""
    assert excerpt(one.incident, (), where) == ""
