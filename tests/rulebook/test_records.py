"""Documented records become draft rules that load, recognise their own message, and claim nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specwatch.commands import rules as commands
from specwatch.errors import ConfigError
from specwatch.proof import prove
from specwatch.rulebook import records
from specwatch.rulebook.book import Rulebook
from specwatch.rulebook.rule import load

RECORD: dict[str, Any] = {
    "id": "028f0ed0c513ef6e",
    "slug": "dflash-mask-token-id-is-outside-the-target-vocab-s",
    "errorMessage": "DFLASH mask_token_id is outside the target vocab size. mask_token_id={resolved_id}, "
    "vocab_size={vocab_size}. This likely means mask_token={mask_token!r} requires vocab expansion.",
    "messagePattern": r"DFLASH mask_token_id is outside the target vocab size\. mask_token_id=(.+?), "
    r"vocab_size=(.+?)\. This likely means mask_token=(.+?) requires vocab expansion\.",
    "errorClass": "ValueError",
    "severity": "critical",
    "filePath": "python/sglang/srt/speculative/dflash_worker_v2.py",
    "documentation": 'Text with "quotes", a \\ and a\nnew line',
    "solutions": ["first", "second"],
    "validationCode": "line one\nline two \x00\r[x]",
    "tags": ["a", "b"],
    "analyzedSha": "0132848",
    "schemaVersion": 2,
}


def write(path: Path, *values: object) -> Path:
    path.write_text("".join(json.dumps(value) for value in values))
    return path


@pytest.mark.parametrize(
    "values",
    [[{"record": RECORD}], [RECORD], [[{"record": RECORD}]]],
    ids=["wrapped", "bare", "list"],
)
def test_a_draft_rule_loads_and_holds(tmp_path: Path, values: list[object]) -> None:
    into = tmp_path / "rules.d"
    commands.import_records([write(tmp_path / "r.json", *values)], into)
    (path,) = into.iterdir()
    rule = load(path)
    assert rule.status == "experimental"
    assert "to do" in path.read_text().lower()
    assert "#     line two   [x]\n" in path.read_text()
    assert "dflash_worker_v2.py, line ? at 0132848." in path.read_text()
    assert prove(rule, Rulebook([rule])) == ()
    book = Rulebook([rule])
    found = book.look_up(
        "ValueError: DFLASH mask_token_id is outside the target vocab size. mask_token_id=5, vocab_size=4. This likely "
        "means mask_token='<|MASK|>' requires vocab expansion."
    )
    assert found
    assert found[2] == {"resolved_id": "5", "vocab_size": "4", "mask_token": "'<|MASK|>'"}


def test_concatenated_records(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", {"record": RECORD}, {"record": {**RECORD, "slug": "another"}})
    assert [records.identifier(record) for record in records.read(path)] == [
        "dflash-mask-token-id-is-outside-the-target-vocab-s",
        "another",
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no record"),
        ("{", "not JSON"),
        ('{"a": 1}', "expected an object with record.messagePattern"),
        (json.dumps({**RECORD, "schemaVersion": 3}), "schemaVersion is 3, expected 2"),
        ("[1]", "expected an object"),
    ],
)
def test_what_is_no_record(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        list(records.read(path))
    assert str(path) in str(caught.value)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", RECORD)
    commands.import_records([path], tmp_path / "out")
    with pytest.raises(ConfigError, match="is there already"):
        commands.import_records([path], tmp_path / "out")
