"""A rule may quote the milestones of the start-up, and a short beginning is still found through the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from specwatch.errors import RuleError
from specwatch.models.memory import MemoryModels
from specwatch.pipeline import find
from specwatch.proof import framed
from specwatch.rulebook.book import Rulebook
from specwatch.rulebook.rule import Rule, load

RULE = r"""
title = "t"
severity = "fatal"
status = "stable"
[docs]
what = "w"
why = "w"
limits = "l"
[[pattern]]
name = "p"
line = '''Rank (?P<rank>\d{1,3}) is gone'''
[[context]]
line = '''Load weight end\.[^\n]{0,80}? avail mem=(?P<after>\d{1,3}\.\d\d) GB'''
[cause.c]
says = "rank {rank} had {after} GB"
todo = "look"
[[example]]
name = "e"
cause = "c"
status = "unknown"
log = '''
Rank 3 is gone
'''
[[counterexample]]
name = "n"
log = "nothing"
"""


def rule(folder: Path, text: str = RULE) -> Rule:
    path = folder / "some-rule.toml"
    path.write_text(text)
    return load(path)


def test_the_last_line_joins_the_captures(tmp_path: Path) -> None:
    book = Rulebook([rule(tmp_path)])
    log = (
        "[2026-05-04 10:00:00 TP0] Load weight end. type=A, avail mem=5.30 GB\n"
        "[2026-05-04 10:00:01 TP0] Load weight end. type=B, avail mem=4.10 GB\n"
        "[2026-05-04 10:00:02 TP0] Rank 3 is gone"
    )
    (finding,) = find(framed(log), book, MemoryModels({}))
    assert finding.captures == {"rank": "3", "after": "4.10"}
    assert finding.says == "rank 3 had 4.10 GB"


def test_without_such_a_line_nothing_joins(tmp_path: Path) -> None:
    (finding,) = find(framed("[2026-05-04 10:00:02 TP0] Rank 3 is gone"), Rulebook([rule(tmp_path)]), MemoryModels({}))
    assert finding.captures == {"rank": "3"}
    assert finding.says == "t"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Load weight end", "(Load|Save) weight end", "literal characters"),
        ("avail mem=(", "avail mem=((", "no regular expression"),
        ("[[context]]", "[[context]]\nname = 'x'", "unknown key 'name'"),
        ("Rank (", r"R\w (", "literal characters"),
    ],
)
def test_laws(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(RuleError, match=complaint):
        rule(tmp_path, RULE.replace(old, new))
