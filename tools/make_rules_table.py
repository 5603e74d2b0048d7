"""Write rules/README.md, the table of the shipped rules. With --check: exit 1 if it differs from them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from specwatch.rulebook.book import Rulebook, load_directories  # noqa: E402
from specwatch.rulebook.rule import Cause, FixRef, Rule  # noqa: E402

OUT = ROOT / "rules" / "README.md"
HEAD = """# The rules

One failure, one file. `specwatch explain RULE` says what a rule means, why it happens and where it is wrong;
`specwatch rules test RULE` proves it by its own examples. How to add one: [CONTRIBUTING.md](../CONTRIBUTING.md).

A fix is offered with the trust in brackets, or less: it never rises, and falls where the cause is not proved.
*by hand* is what a person has to do. Experimental rules report, and are never applied.

This page is written by `python tools/make_rules_table.py`; {count} rules.

| rule | severity | status | sglang | failure | causes and fixes |
|---|---|---|---|---|---|
"""


def table(book: Rulebook) -> str:
    """The page as the rules have it."""
    rows = "".join(_row(book.rules[name]) for name in sorted(book.rules))
    return HEAD.format(count=len(book.rules)) + rows


def _row(rule: Rule) -> str:
    causes = "<br>".join(_cause(cause) for cause in rule.causes.values())
    role = "" if rule.role.value == "cause" else f", {rule.role.value}"
    cells = (
        f"[{rule.id}]({rule.id}.toml)",
        f"{rule.severity.name.lower()}{role}",
        rule.status,
        str(rule.sglang) or "any",
        _cell(rule.title),
        causes,
    )
    return f"| {' | '.join(cells)} |\n"


def _cause(cause: Cause) -> str:
    fixes = [_fix(fix) for fix in cause.fixes] + (["*by hand*"] if cause.todo else [])
    return f"**{cause.name}**: {', '.join(fixes)}"


def _fix(fix: FixRef) -> str:
    name = fix.use
    if name == "change":
        words = [f"{flag.split('|')[0]} {value}".strip() for flag, value in fix.edit.set.items()]
        words += [f"{variable}={value}" for variable, value in fix.edit.set_env.items()]
        taken = [flag.split("|")[0] for flag in fix.edit.remove] + list(fix.edit.unset_env)
        words += [f"without {taken[0]}" + (" …" if len(taken) > 1 else "")] if taken else []
        name = ", ".join(f"`{word}`" for word in words)
    return _cell(f"{name} [{fix.applicability.name.lower()}]")


def _cell(text: str) -> str:
    """A text inside a cell: one line, and no bar that would end it."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def main() -> int:
    page = table(load_directories().book)
    if "--check" in sys.argv:
        return int(not OUT.is_file() or OUT.read_text() != page)
    OUT.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
