"""The anchors of a rule book: each message of any rule holds one, and healthy lines hold none."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwatch.log import anchors as log_anchors
from specwatch.rulebook.anchors import choose
from specwatch.rulebook.book import load_directories
from specwatch.rulebook.kept import read, write

WORDS = st.sampled_from(
    ["ValueError:", "RuntimeError:", "the", "draft", "hidden", "size", "not", "Tried", "to", "allocate", "ü", "€"]
)
BEGINNINGS = st.lists(st.builds(" ".join, st.lists(WORDS, min_size=2)).filter(lambda text: len(text) >= 5), max_size=30)
ROUTINE = (
    "[2026-01-01 10:00:00 TP0] Decode batch, #running-req: 7, #token: 8123, token usage: 0.41, accept len: 2.31, "
    "cuda graph: True, gen throughput (token/s): 811.20, #queue-req: 0",
    "[2026-01-01 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 44, #cached-token: 12, token usage: 0.02",
    '[2026-01-01 10:00:00] INFO:     10.1.2.3:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
)


@given(BEGINNINGS)
@settings(deadline=None)
def test_every_beginning_holds_one(beginnings: list[str]) -> None:
    chosen = choose(beginnings)
    if all(text.isascii() for text in beginnings):
        assert bool(chosen) == bool(beginnings)
    for beginning in beginnings if chosen else ():
        assert any(anchor in beginning for anchor in chosen)
    assert all(anchor.isascii() and len(anchor) >= 5 for anchor in chosen)


def test_messages_that_no_rule_is_asked_about_need_none() -> None:
    assert choose(["Decode batch, #running-req", "Prefill batch"]) == ()


def test_too_many_are_none_at_all() -> None:
    different = [sha256(b"%d" % number).hexdigest() for number in range(3000)]
    assert 10 < len(choose(different[:20])) <= 20
    assert choose(different) == ()


def test_the_shipped_rules_need_few_and_healthy_lines_hold_none() -> None:
    book = load_directories().book
    texts = log_anchors.words(book.anchors)
    assert 20 < len(texts) < 64, "more are not found at once with vector instructions"
    for line in ROUTINE:
        assert not [text for text in texts if text.decode() in line], line
    for rows in book.table["index"].values():
        for row in rows:
            if row[1] and not row[1].startswith(("Decode batch", "Prefill batch")):
                assert any(text in row[1].encode() for text in texts), row[1]


def test_kept_anchors_of_another_form_are_not_used(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    book = load_directories().book
    write(file, "signature", book, [])
    known = read(file, "signature")
    assert known is not None
    assert list(known[0].anchors) == list(book.anchors)
    for wrong in ("[1]", '"text"', '["\\u00fc"]'):
        first, _, rest = file.read_text().partition('"anchors": [')
        (tmp := tmp_path / "wrong.json").write_text(first + '"anchors": ' + wrong + rest.partition("]")[2])
        tmp.chmod(0o600)
        assert read(tmp, "signature") is None


@pytest.mark.parametrize("count", [0, 1, 30, 100, 200])
def test_there_is_an_engine_for_any_number(count: int) -> None:
    engine = log_anchors.engine([f"anchor {number:03d}" for number in range(count)])
    line = b"\nanchor 000 of a line\n"
    others, _ = engine.scan(memoryview(line))
    assert [line.rfind(b"\n", 0, place) + 1 for place in others] == [1]
