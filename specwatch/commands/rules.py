"""`specwatch rules …` and `specwatch explain`."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from pathlib import Path

from specwatch.commands.common import print_lines, rulebook
from specwatch.commands.contract import Exit, Format
from specwatch.errors import ConfigError
from specwatch.report.text import Line, Piece
from specwatch.rulebook.book import Rulebook
from specwatch.rulebook.rule import Rule


def list_rules(kind: Format, directories: Sequence[Path]) -> Exit:
    """Print every rule: id, severity, status, title."""
    rules = sorted(rulebook(directories).rules.values(), key=lambda rule: rule.id)
    if kind is Format.JSON:
        from specwatch.report.as_json import dumps, rules_document

        print(dumps(rules_document([_row(rule) for rule in rules])))
        return Exit.CLEAN
    for rule in rules:
        print(f"{rule.id:44} {rule.severity.name.lower():9} {rule.status:13} {rule.title}")
    return Exit.CLEAN


def _row(rule: Rule) -> dict[str, str]:
    return {
        "id": rule.id,
        "title": rule.title,
        "severity": rule.severity.name.lower(),
        "role": rule.role.value,
        "status": rule.status,
        "sglang": str(rule.sglang),
    }


def test_rules(names: Sequence[str], directories: Sequence[Path]) -> Exit:
    """Prove the rules by their own examples and print one line for each that holds and each complaint."""
    from specwatch.proof import prove
    from specwatch.rulebook.book import load_directories

    loaded = load_directories(directories)
    for text in loaded.refused:
        print(text)
    broken = len(loaded.refused)
    for name in names or sorted(loaded.book.rules):
        rule = _find(loaded.book, name)
        complaints = prove(rule, loaded.book)
        broken += bool(complaints)
        print("\n".join(complaints) if complaints else f"{rule.id}: holds, {len(rule.examples)} examples")
    return Exit.USAGE if broken else Exit.CLEAN


def _find(book: Rulebook, name: str) -> Rule:
    if name in book.rules:
        return book.rules[name]
    near = difflib.get_close_matches(name, book.rules, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"no rule is called '{name}'{hint} (specwatch rules list)")


def import_records(files: Sequence[Path], into: Path) -> Exit:
    """Write a draft rule for each documented record; an existing file is never overwritten."""
    from specwatch.rulebook import records

    into.mkdir(parents=True, exist_ok=True)
    for file in files:
        for record in records.read(file):
            path = into / f"{records.identifier(record)}.toml"
            if path.exists():
                raise ConfigError(f"{path}: is there already; remove it or choose another --into")
            path.write_text(records.draft_rule(record), encoding="utf-8")
            print(path)
    return Exit.CLEAN


def explain(name: str | None, directories: Sequence[Path]) -> Exit:
    """Print what a rule means; without a name, which rules there are."""
    if name is None:
        return list_rules(Format.TEXT, directories)
    rule = _find(rulebook(directories), name)
    print_lines(_page(rule))
    return Exit.CLEAN


def _page(rule: Rule) -> list[Line]:
    page: list[Line] = [(Piece(rule.id, "strong"), Piece(f": {rule.title}"))]
    page.append((Piece(f"{rule.severity.name.lower()}, {rule.status}, sglang {rule.sglang or 'any'}", "quiet"),))
    for heading, key in (("What happened", "what"), ("Why", "why"), ("Limits", "limits")):
        page += [(), (Piece(heading, "strong"),)]
        page += [(Piece(line),) for line in _filled(rule.docs[key])]
    page += [(), (Piece("Causes and fixes", "strong"),)]
    for cause in rule.causes.values():
        page.append((Piece(f"  {cause.name}: ", "strong"), Piece(cause.says)))
        for fix in cause.fixes:
            level = fix.applicability.name.lower()
            page.append(
                (Piece("    - "), Piece(f"[{level}]", level), Piece(f" {fix.use}: {fix.why or _purpose(fix.use)}"))
            )
        if cause.todo:
            page += [(Piece(f"    {line}"),) for line in textwrap.wrap(cause.todo, 74)]
    page += [(), (Piece("Example", "strong"),)]
    page += [(Piece(f"  {line}", "quiet"),) for line in rule.examples[0].log.strip("\n").split("\n")]
    if rule.check:
        from specwatch.checks import CHECKS

        page += [(), (Piece(f"Proved by {rule.check}, which mirrors sglang's {CHECKS[rule.check].mirrors}", "quiet"),)]
    page += [(Piece(f"See {link}", "quiet"),) for link in rule.docs.get("references", [])]
    return page


def _filled(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += textwrap.wrap(" ".join(paragraph.split()), 78)
    return lines


def _purpose(fix: str) -> str:
    from specwatch.fixes import FIXES

    return (FIXES[fix].__doc__ or "").split("\n")[0].rstrip(".").lower()
