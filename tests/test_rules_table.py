"""rules/README.md says what the rules say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from specwatch.rulebook.book import load_directories

ROOT = Path(__file__).resolve().parents[1]


def test_the_table_equals_the_rules() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "make_rules_table.py"))["table"](load_directories().book)
    assert (ROOT / "rules" / "README.md").read_text() == made, "run python tools/make_rules_table.py"


def test_every_rule_has_one_row_of_six_cells() -> None:
    rows = [line for line in (ROOT / "rules" / "README.md").read_text().split("\n") if line.startswith("| [")]
    assert [re.split(r"\]\(", row)[0].removeprefix("| [") for row in rows] == sorted(load_directories().book.rules)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
