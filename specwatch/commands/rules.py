"""`specwatch rules …` and `specwatch explain`."""

from __future__ import annotations

import difflib
import importlib.util
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path

from specwatch.commands.common import print_lines, rulebook, say
from specwatch.commands.contract import Exit, Format
from specwatch.domain import Incident, Role
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
        "sglang": rule.sglang,
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


def new_rule(name: str, log: str, into: Path, directories: Sequence[Path]) -> Exit:
    """Write a draft rule of the first crash of a log that no rule knows.

    Raises ConfigError when the id is taken or none, or when there is no such crash.
    """
    from specwatch.report import redact
    from specwatch.rulebook import drafting
    from specwatch.rulebook.rule import ID

    book = rulebook(directories)
    path = into / f"{name}.toml"
    if not ID.fullmatch(name):
        raise ConfigError(f"{name}: a rule's id is lower-case words joined by '-', which name the failure")
    if name in book.rules or path.exists():
        where = path if path.exists() else book.rules[name].path
        raise ConfigError(f"{name}: there is such a rule already: {where}; choose another id")
    incident = _unknown_crash(log, book)
    hidden = incident._replace(
        error=redact.text(incident.error),
        root=incident.root._replace(text=redact.text(incident.root.text)),
        lines=tuple(line._replace(text=redact.text(line.text)) for line in incident.lines),
    )
    launch = redact.launch(incident.launch) if incident.launch else None
    draft = drafting.of_incident(hidden, launch.argv if launch else ())
    into.mkdir(parents=True, exist_ok=True)
    path.write_text(draft.text(), encoding="utf-8")
    print(path)
    say(f"what is to do stands in the file; then: specwatch rules test {name} --rules {into}")
    return Exit.CLEAN


def _unknown_crash(log: str, book: Rulebook) -> Incident:
    """The first crash of a log that no rule knows; consequences, and what the server outlived, are none.

    A rule that knows only the part of SGLang that it came out of leaves it unknown.
    """
    from specwatch.log.prefilter import incidents
    from specwatch.sources.once import Stats

    known: dict[str, int] = {}
    for incident in incidents(log, Stats(), book.role_of):
        if incident.outlived or incident.role is not Role.CAUSE:
            continue
        match = book.match(incident)
        if match is None or "message" in match.captures:
            return incident
        known.setdefault(match.rule, incident.root.number)
    if not known:
        raise ConfigError(f"{log}: holds no crash")
    told = ", ".join(f"{rule} (line {number})" for rule, number in known.items())
    raise ConfigError(f"{log}: every crash in it has a rule: {told}; see specwatch explain")


def coverage(source: Path | None, kind: Format, directories: Sequence[Path]) -> Exit:
    """Hold the rules against the messages of an sglang; exit 1 where one has no rule.

    Raises ConfigError where there is no sglang to read.
    """
    from specwatch.rulebook.coverage import coverage as hold

    source = source or _installed()
    book = rulebook(directories)
    held = hold(source, book)
    if kind is Format.JSON:
        from specwatch.report.as_json import coverage_document, dumps

        print(dumps(coverage_document(str(source), held.release, held.rules)))
        return Exit.FINDINGS if held.missing else Exit.CLEAN
    for site in held.missing:
        print(f"{site.file}:{site.line}: {' '.join(site.shown.split())}")
    covered = len(held.rules) - len(held.missing)
    release = held.release or "(release unknown)"
    print(f"sglang {release}: {covered} of {len(held.rules)} messages have a rule ({source})")
    used = sorted({rule for _, rule in held.rules if rule})
    for name in used:
        if held.release and not book.rules[name].covers(held.release):
            say(f"rule {name} knows a message of {held.release}, and says sglang{book.rules[name].sglang}")
    return Exit.FINDINGS if held.missing else Exit.CLEAN


def _installed() -> Path:
    """The folder of the installed sglang, found without importing it: beside our Python, else the one on the PATH."""
    spec = importlib.util.find_spec("sglang")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    for program in ("sglang", "python3", "python"):
        place = shutil.which(program)
        if place is not None:
            for folder in sorted(Path(place).parent.parent.glob("lib/python3*/site-packages/sglang")):
                return folder
    raise ConfigError("no sglang is installed here: give one with --sglang PATH, a wheel or the folder it lies in")


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
