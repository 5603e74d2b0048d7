"""Every shipped rule proves itself, and the laws refuse what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from specwatch.checks import CHECKS
from specwatch.domain import Severity
from specwatch.errors import RuleError
from specwatch.fixes import FIXES
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import find
from specwatch.proof import framed, prove
from specwatch.rulebook.book import Rulebook, bundled_directory, load_directories
from specwatch.rulebook.pattern import literal_prefix
from specwatch.rulebook.rule import load

LOADED = load_directories()
BOOK = LOADED.book


def test_all_shipped_rules_load() -> None:
    assert LOADED.refused == ()
    assert set(BOOK.rules) == {path.stem for path in bundled_directory().glob("*.toml")}


@pytest.mark.parametrize("name", sorted(BOOK.rules))
def test_rule_holds(name: str) -> None:
    assert prove(BOOK.rules[name], BOOK) == ()


def test_every_fix_is_used_by_a_rule() -> None:
    used = {fix.use for rule in BOOK.rules.values() for cause in rule.causes.values() for fix in cause.fixes}
    assert used == set(FIXES)


def test_every_check_that_a_rule_names_exists() -> None:
    assert {rule.check for rule in BOOK.rules.values() if rule.check} <= set(CHECKS)


@pytest.mark.parametrize("name", sorted(BOOK.rules))
def test_messages_inside_a_prompt_are_silent(name: str) -> None:
    """The message of every example, handed in by a client through each field that reaches the log."""
    for example in BOOK.rules[name].examples:
        for line in example.log.split("\n"):
            if not any(pattern.regex.match(line) for pattern in BOOK.rules[name].patterns):
                continue
            log = "\n".join(
                (
                    f"[2026-07-02 09:20:00] Receive: obj=GenerateReqInput(rid='1', text={line!r})",
                    f"[2026-07-02 09:20:00] [http_server] Error: Duplicate request ID detected: {line}",
                    f'[2026-07-02 09:20:00] INFO:     127.0.0.1:41 - "GET /{line} HTTP/1.1" 404 Not Found',
                    '[2026-07-02 09:20:01] INFO:     127.0.0.1:41 - "POST /generate HTTP/1.1" 200 OK',
                )
            )
            assert [f for f in find(framed(log), BOOK, MemoryModels({})) if f.severity > Severity.NOTICE] == []


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"ValueError: a\.b \d+", "ValueError: a.b "),
        (r"abc(d|e)", "abc"),
        (r"abcd?e", "abc"),
        (r"abc|def", ""),
        (r"^abc", ""),
        (r"a\\b", "a\\b"),
        (r"abc\s", "abc"),
    ],
)
def test_literal_prefix(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


GOOD = (bundled_directory() / "dflash-mask-token-without-tokenizer.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('use = "mask_token"', 'use = "mask_tokn"', "no check is called 'mask_tokn'"),
        ('use = "init-tokenizer"', 'use = "init"', "no fix is called 'init'"),
        ('severity = "fatal"', 'severity = "deadly"', "none of"),
        ('status   = "stable"', 'status   = "done"', "none of"),
        ('sglang   = ">=0.5.11"', 'sglang   = "new"', "no version range"),
        ("RuntimeError: DFLASH requires", ".* DFLASH requires", "bare"),
        ("RuntimeError: DFLASH requires", r"\w+: DFLASH requires", "literal characters"),
        ("RuntimeError: DFLASH requires", "RuntimeError: (DFLASH requires", "no regular expression"),
        ('cause  = "no-tokenizer"', 'cause  = "other"', "which the rule does not have"),
        ("[cause.no-tokenizer]", "[cause.never]", "has no example"),
        ("[[counterexample]]", "[[counter]]", "unknown key"),
        ("[[counterexample]]", "[[example]]", "needs a log that looks like it"),
        ('title    = "', 'title    = 3 # "', "must be a text"),
        ("[docs]", "[docs", "not a rule file"),
    ],
)
def test_laws_on_load(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    path = tmp_path / "a-rule.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(RuleError, match=complaint) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('sglang = "0.5.23"\ncause', 'sglang = "0.5.23"\ncaptures = { a = "1" }\ncause', "captures are"),
        ('fixed  = "python -m', 'fixed  = "python3 -m', "first fixed command"),
        ("[2026-07-02 09:20:00] Receive: obj=GenerateReqInput(text='", "[2026-07-02 09:20:00] ", "is taken for"),
    ],
)
def test_laws_by_proof(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    path = tmp_path / "a-rule.toml"
    path.write_text(GOOD.replace(old, new))
    rule = load(path)
    rules = [other for other in BOOK.rules.values() if other.id != "dflash-mask-token-without-tokenizer"]
    assert complaint in "\n".join(prove(rule, Rulebook([*rules, rule])))


def test_a_slow_pattern_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a-rule.toml"
    path.write_text(GOOD.replace("mask_token_id is not set'''", "mask_token_id is (?:not set|(?:a+)+b)'''"))
    rule = load(path)
    assert "takes over" in "\n".join(prove(rule, Rulebook([rule])))


def test_look_up_is_from_the_first_character() -> None:
    message = "ValueError: DFLASH dflash_config.mask_token_id must be non-negative, got -1."
    assert BOOK.look_up(message)
    assert BOOK.look_up(" " + message) is None
    assert BOOK.look_up("x: " + message) is None


def test_a_later_directory_replaces_a_rule(tmp_path: Path) -> None:
    path = tmp_path / "dflash-mask-token-without-tokenizer.toml"
    path.write_text(GOOD.replace('title    = "DFLASH', 'title    = "Own: DFLASH'))
    loaded = load_directories([tmp_path])
    assert loaded.book.rules[path.stem].title.startswith("Own:")
    assert len(loaded.replaced) == 1


def test_a_broken_rule_does_not_blind_the_rest(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("title = ")
    loaded = load_directories([tmp_path])
    assert set(loaded.book.rules) == set(BOOK.rules)
    assert "broken.toml" in loaded.refused[0]
