"""Findings for a person: what is the cause, what proves it, what to run. Made for 80 columns at night."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from specwatch.domain import Applicability, Change, Finding, Fix, Severity, Status, Verdict
from specwatch.lazy import compiled
from specwatch.report import redact
from specwatch.report.as_json import SourceRead, command

WORDS = {Severity.FATAL: "error", Severity.DEGRADED: "warning", Severity.NOTICE: "note"}
LONGEST_MESSAGE = 600
NARROWEST = 40
# control characters but the newline: none of a log's may reach a terminal
_CONTROL = compiled(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Piece(NamedTuple):
    """A run of text with the name of its style; see `STYLES` for what the names mean on a terminal."""

    text: str
    style: str = ""


Line = tuple[Piece, ...]

STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
    "strong": "bold",
    "quiet": "dim",
    "proved": "green",
    "unproved": "yellow",
    "removed": "red",
    "added": "green",
    "safe": "bold green",
    "review": "bold yellow",
    "manual": "bold magenta",
    "command": "bold",
}


def clean(text: str) -> str:
    """A text that cannot move a terminal's cursor or turn its writing around; secrets taken out."""
    return inert(redact.text(text))


def inert(text: str) -> str:
    """The same for a command, whose words are without secrets already: as a text its quotes would not survive."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\t", "    "))


def lines(findings: Iterable[Finding], width: int = 80) -> Iterator[Line]:
    """The report, line by line."""
    width = max(width, NARROWEST)
    for number, finding in enumerate(findings):
        if number:
            yield ()
        yield from _finding(finding, width)


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    word = WORDS[finding.severity]
    name = f"[{finding.rule}]" if finding.rule else ""
    for at, part in enumerate(_wrap(f"{word}{name}: {clean(finding.title)}", width, "    ")):
        head = len(word) + len(name) if at == 0 else 0
        yield Piece(part[:head], word), Piece(part[head:], "strong")
    yield from _place(finding, width)
    if finding.incident is not None:
        message = clean(finding.incident.error)
        short = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 2] + " …"
        for paragraph in short.split("\n"):
            for part in _wrap(paragraph, width - 5, ""):
                yield Piece("   |  ", "quiet"), Piece(part)
    elif finding.verdict.message is not None:
        said = f"{finding.verdict.exception}: {finding.verdict.message}".rstrip(": ")
        for part in _wrap(clean(said)[:LONGEST_MESSAGE], width - 5, ""):
            yield Piece("   |  ", "quiet"), Piece(part)
    yield from _proof(finding, width)
    for number, fix in enumerate(finding.fixes, 1):
        yield from _fix(fix, number, width)
    if finding.rule:
        yield (Piece(f"  help: specwatch explain {finding.rule}", "quiet"),)
    if finding.incident is not None and finding.fixes:
        yield (Piece(f"  id: {finding.fingerprint}", "quiet"),)  # what `specwatch apply` asks for


def _place(finding: Finding, width: int) -> Iterator[Line]:
    facts: list[str] = []
    incident = finding.incident
    if incident is not None:
        facts.append(f"{clean(incident.root.source)}:{incident.root.number}")
        ranks = " ".join(incident.ranks[:8]) + (
            f" and {len(incident.ranks) - 8} more" if len(incident.ranks) > 8 else ""
        )
        facts += [ranks, (finding.first_seen or "").replace("T", " ")]
        if finding.occurrences > 1:
            starts = f"{finding.starts} start" + ("s" if finding.starts != 1 else "")
            facts.append(f"{finding.occurrences} times in {starts}")
    else:
        facts.append(f"while {finding.verdict.phase.value}" if finding.verdict.message else "not refused, but wrong")
    if finding.launch and finding.launch.sglang:
        facts.append(f"sglang {finding.launch.sglang}" + " (a guess)" * finding.launch.guessed)
    if finding.echoes:
        facts.append(f"{finding.echoes} echo" + ("es" if finding.echoes != 1 else ""))
    rows = [""]
    for fact in filter(None, facts):
        if rows[-1] and len(rows[-1]) + len(fact) + 9 > width:
            rows.append("")
        rows[-1] = f"{rows[-1]}   {fact}" if rows[-1] else fact
    for at, part in enumerate(part for row in rows for part in _wrap(row, width - 6, "")):
        yield Piece("      " if at else "  --> ", "quiet"), Piece(part)


def _proof(finding: Finding, width: int) -> Iterator[Line]:
    verdict = finding.verdict
    says = clean(finding.says)
    if verdict.status is Status.BROKEN:
        yield from _labelled("proved", says, "proved", width)
    elif verdict.status is Status.UNKNOWN:
        yield from _labelled("cause", says, "unproved", width)
        yield from _labelled("not proved", clean(verdict.because), "unproved", width)
    else:
        label = "refuted" if verdict.status is Status.REFUTED else "not confirmed"
        yield from _labelled(label, clean(verdict.because or says), "unproved", width)
    for evidence in verdict.evidence:
        text = f"{evidence.fact} = {redact.secret(evidence.fact, evidence.value)}   ({evidence.source})"
        for part in _wrap(clean(text), width - 10, "    "):
            yield Piece("        - ", "quiet") if not part.startswith("    ") else Piece(" " * 10), Piece(part.strip())
    if verdict.status is Status.BROKEN and verdict.because:
        yield from _labelled("but", clean(verdict.because), "unproved", width)


def could_not_tell(verdict: Verdict, width: int = 80) -> Iterator[Line]:
    """A check that could not be made, and why."""
    yield from _labelled(f"could not tell ({verdict.check})", clean(verdict.because), "unproved", width)


def _labelled(label: str, text: str, style: str, width: int) -> Iterator[Line]:
    room = width - len(label) - 7
    for at, part in enumerate(_wrap(text, max(room, 20), "")):
        head = Piece("   = ", "quiet"), Piece(f"{label}: ", style)
        yield (*head, Piece(part)) if at == 0 else (Piece(" " * (len(label) + 7)), Piece(part))


def _fix(fix: Fix, number: int, width: int) -> Iterator[Line]:
    level = fix.applicability.name.lower()
    head = f"  fix {number} "
    first, *rest = _wrap(f"[{level}] {fix.id}: {clean(fix.why)}", width - len(head), "")
    mark = len(level) + 2
    yield Piece(head), Piece(first[:mark], level), Piece(first[mark:])
    for part in rest:
        yield Piece(" " * len(head)), Piece(part)
    if fix.because:
        for part in _wrap(f"{_weaker(fix)}: {clean(fix.because)}", width - 8, ""):
            yield Piece(" " * 8), Piece(part, "unproved")
    for sign, text in _diff(fix.changes):
        for at, part in enumerate(_wrap(clean(text), width - 9, "")):
            yield Piece(f"     {sign if at == 0 else ' '}  "), Piece(part, "removed" if sign == "-" else "added")
    if fix.launch is not None and not fix.around:
        for part in command(fix.launch, width=width - 6).split("\n"):
            yield Piece("      "), Piece(inert(part), "command")


def _weaker(fix: Fix) -> str:
    return "by hand" if fix.applicability is Applicability.MANUAL else "look at it first"


def _diff(changes: Iterable[Change]) -> Iterator[tuple[str, str]]:
    """What goes and what comes, flags and values together, one line of each sort where they fit."""
    gone = [_spelled(c, c.old) for c in changes if c.old is not None or c.op in ("remove", "unset_env")]
    come = [_spelled(c, c.new) for c in changes if c.new is not None]
    if gone:
        yield "-", " ".join(gone)
    if come:
        yield "+", " ".join(come)


def _spelled(change: Change, value: str | None) -> str:
    shown = redact.HIDDEN if value and redact.secret_name(change.name) else value
    if change.op.endswith("_env"):
        return f"{change.name}={shown or ''}"
    if change.around:
        return f"{change.name}: {shown or ''}"
    return f"{change.name} {shown}" if shown else change.name


def _wrap(text: str, width: int, indent: str) -> list[str]:
    import textwrap  # with the expressions that it compiles: a healthy log needs none

    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    ) or [""]


def summary(findings: tuple[Finding, ...], shown: int, sources: Iterable[SourceRead]) -> str:
    """The last line: what was read, and what was found."""
    read = tuple(sources)
    size = sum(source.bytes for source in read)
    total = sum(source.lines for source in read)
    what = f"{total:,} lines ({_size(size)})" + (f" in {len(read)} files" if len(read) > 1 else "")
    if not shown:
        hidden = f"; {len(findings)} notices (--all shows them)" if findings else ""
        return f"nothing wrong found in {what}{hidden}"
    fatal = sum(1 for finding in findings if finding.severity is Severity.FATAL)
    passed = sum(source.passed for source in read)
    more = f"; {passed:,} more crashes like these were not examined" if passed else ""
    return f"{shown} finding{'s' if shown != 1 else ''}, {fatal} fatal, in {what}{more}"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
