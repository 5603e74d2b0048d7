"""What came of reading rules is kept for the next start, and only ever used for the same files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from specwatch.commands.common import rulebook
from specwatch.rulebook import kept
from specwatch.rulebook.book import Rulebook, bundled_directory, load_directories

MESSAGE = "RuntimeError: DFLASH requires tokenizer initialization when dflash_config.mask_token_id is not set"
RULE = "dflash-mask-token-without-tokenizer"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with two shipped rules."""
    own = tmp_path / "rules"
    own.mkdir()
    for name in (RULE, "standalone-vocab-mismatch"):
        shutil.copy(bundled_directory() / f"{name}.toml", own)
    return own


@pytest.fixture
def book(folder: Path) -> Rulebook:
    rules = load_directories([folder]).book.rules
    return Rulebook([rules[RULE], rules["standalone-vocab-mismatch"]])


def test_a_kept_book_finds_what_the_read_one_finds(tmp_path: Path, folder: Path, book: Rulebook) -> None:
    file, signature = tmp_path / "cache" / "rules.json", kept.signature([folder])
    kept.write(file, signature, book, ["something to say"])
    got = kept.read(file, signature)
    assert got is not None
    restored, said = got
    assert said == ["something to say"]
    assert list(restored.rules) == list(book.rules)
    for text in (MESSAGE, "ValueError: another"):
        assert restored.role_of(text) == book.role_of(text)
    found, expected = restored.look_up(MESSAGE), book.look_up(MESSAGE)
    assert found is not None
    assert expected is not None
    assert (found[0], found[1].id, found[2]) == (expected[0], expected[1].id, expected[2])
    rule = book.rules["standalone-vocab-mismatch"]
    by_cause = restored.by_cause(rule.check or "", "vocabularies-differ")
    assert by_cause is not None
    assert by_cause.title == rule.title


def test_a_kept_rule_is_the_read_one_and_needs_no_toml(tmp_path: Path) -> None:
    book = load_directories().book
    file, signature = tmp_path / "rules.json", kept.signature([bundled_directory()])
    kept.write(file, signature, book, [])
    got = kept.read(file, signature)
    assert got is not None
    for name, rule in book.rules.items():
        own = got[0].rules[name]
        assert own._replace(context=()) == rule._replace(context=())
        assert [one.pattern for one in own.context] == [one.pattern for one in rule.context]
    code = f"""
import sys
from pathlib import Path
from specwatch.rulebook import kept
book, _ = kept.read(Path({str(file)!r}), {signature!r})
assert book.rules["standalone-vocab-mismatch"].causes
assert not {{"tomllib", "specwatch.rulebook.laws"}} & set(sys.modules), "a rule that was proved is proved again"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_that_another_start_wrote_anew_is_not_mixed_with_the_old_one(
    tmp_path: Path, folder: Path, book: Rulebook
) -> None:
    file, signature = tmp_path / "rules.json", kept.signature([folder])
    kept.write(file, signature, book, [])
    got = kept.read(file, signature)
    assert got is not None
    other = tmp_path / "other.json"
    other.write_bytes(file.read_bytes().replace(b'"title"', b'"tilte"'))
    other.replace(file)
    assert got[0].rules[RULE].title == book.rules[RULE].title


def test_a_changed_file_changes_the_signature(folder: Path) -> None:
    before = kept.signature([folder])
    assert kept.signature([folder]) == before
    path = folder / f"{RULE}.toml"
    at = path.stat()
    path.write_text(path.read_text().replace("a", "b"))
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert kept.signature([folder]) != before


def test_a_new_or_removed_file_changes_the_signature(folder: Path) -> None:
    before = kept.signature([folder])
    (folder / "new.toml").write_text("")
    assert kept.signature([folder]) != before
    (folder / "new.toml").unlink()
    (folder / f"{RULE}.toml").unlink()
    assert kept.signature([folder]) != before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"SIGNATURE",
        b"SIGNATURE\n",
        b"SIGNATURE\n{",
        b"SIGNATURE\n[]",
        b"SIGNATURE\n{}",
        b'SIGNATURE\n{"said": [], "table": 3}',
        b'SIGNATURE\n{"said": [], "places": {}, "table": 3}',
        b'SIGNATURE\n{"said": 3, "table": {"rules": {}, "index": {}}}',
        b'SIGNATURE\n{"said": [], "table": {"rules": {"a": 1}, "index": {}}}',
        b'SIGNATURE\n{"said": [], "table": {"rules": {}, "index": {"x": [["no-such-rule", "", "", "", "", "", ""]]}}}',
        b'SIGNATURE\n{"said": [], "places": {}, "table": {"rules": [], "index": {}, "anchors": []}}',
        b'SIGNATURE\n{"said": [], "places": {}, "table": {"rules": {}, "index": {"x": null}, "anchors": []}}',
        b"SIGNATURE\n" + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_torn_or_foreign_file_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rules.json"
    own = b"[1] %08x" % zlib.crc32(content.partition(b"\n")[2])  # so that only what is told can be wrong
    file.write_bytes(content.replace(b"SIGNATURE", own))
    file.chmod(0o600)
    assert kept.read(file, "[1]") is None


def test_what_a_disk_made_of_it_is_never_believed(tmp_path: Path, folder: Path, book: Rulebook) -> None:
    file, signature = tmp_path / "rules.json", kept.signature([folder])
    kept.write(file, signature, book, [])
    whole = file.read_bytes()
    read = 0
    for at in range(0, len(whole), 211):
        for torn in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at] + whole[at + 1 :], whole[:at]):
            file.write_bytes(torn)
            got = kept.read(file, signature)
            if got is None:
                continue
            read += 1
            assert [one._replace(context=()) for one in got[0].rules.values()] == list(book.rules.values())
            assert (found := got[0].look_up(MESSAGE))
            assert found[1].id == RULE
    assert read, "a rule that is torn alone is read from its file"


def test_a_file_that_others_may_write_is_none(tmp_path: Path, folder: Path, book: Rulebook) -> None:
    file, signature = tmp_path / "rules.json", kept.signature([folder])
    kept.write(file, signature, book, [])
    file.chmod(0o666)
    assert kept.read(file, signature) is None


def test_an_unwritable_place_costs_nothing_but_time(tmp_path: Path, book: Rulebook) -> None:
    (tmp_path / "file").write_text("")
    kept.write(tmp_path / "file" / "rules.json", "[1]", book, [])
    kept.write(None, "[1]", book, [])
    assert kept.read(None, "[1]") is None


def test_a_refused_rule_is_said_at_each_start(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder / "broken.toml").write_text("title = 3")
    said = []
    for _ in range(2):
        rulebook([folder])
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert "broken.toml" in said[0]
    (kept_file,) = (tmp_path / "cache" / "specwatch").glob("rules*.json")
    assert "broken.toml" in json.loads(kept_file.read_bytes().split(b"\n")[1])["said"][0]
