"""Draft rules: the text of a rule file that loads and recognises its own message, and says what is still to be done.

A draft proves nothing, so it is experimental, has no check and no fixes. What it is made of: a documented record
(`records`), or a crash in a log that no rule knows (`of_incident`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from specwatch.domain import Frame, Incident, LogLine
from specwatch.rulebook.pattern import SHORTEST

LONGEST_MESSAGE = 400  # characters of a message that its pattern is made of
MOST_LINES = 60  # of a log excerpt
_TELLING = 20  # letters by which a message cannot be taken for another one
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]()|])")
_VALUE = re.compile(
    r"(?P<quoted>(?<!\w)'[^'\n]{1,200}'(?!\w)|(?<!\w)\"[^\"\n]{1,200}\"(?!\w))"
    r"|(?P<path>(?<![\w/.:<])/[\w.+@%~/-]{0,300}[\w-])"
    r"|(?P<address>\b0x[0-9a-fA-F]{1,16}\b)"
    r"|(?P<hidden><redacted>)"
    r"|(?P<decimal>(?<![\w.])-?\d{1,18}\.\d{1,18}(?!\w))"
    r"|(?P<number>(?<![\w.])-?\d{1,18}(?!\w))"
)
_SHAPES = {
    "quoted": r"""(?:'[^'\n]{1,200}'|"[^"\n]{1,200}")""",
    "path": r"/[^\s'\",;\n]{1,300}",
    "address": r"0x[0-9a-fA-F]{1,16}",
    "hidden": r"[^\s'\",;\n]{1,300}",
    "decimal": r"-?\d{1,18}(?:\.\d{1,18})?",
    "number": r"-?\d{1,18}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is known of a failure, before anybody has worked on it."""

    comments: tuple[str, ...]
    title: str
    severity: str
    what: str
    why: str
    limits: str
    references: tuple[str, ...] = ()
    line: str
    frame: str = ""
    source: str = ""
    todo: str
    example: str
    log: str
    launch: str = ""
    sglang: str = ""
    captures: Mapping[str, str] = field(default_factory=dict)
    message: str

    def text(self) -> str:
        """The rule file."""
        quoted = f"[2026-01-01 00:00:00] Receive: obj=GenerateReqInput(text={self.message!r})"
        captures = ", ".join(f"{name} = {string(value)}" for name, value in self.captures.items())
        lines = [
            *(f"# {comment}".rstrip() for comment in self.comments),
            f"title    = {string(self.title)}",
            f"severity = {string(self.severity)}",
            'role     = "cause"',
            'status   = "experimental"',
            'sglang   = ""   # to do',
            "",
            "[docs]",
            f"what       = {string(self.what)}",
            f"why        = {string(self.why)}",
            f"limits     = {string(self.limits)}",
            f"references = [{', '.join(string(link) for link in self.references)}]",
            "",
            "[[pattern]]",
            'name = "message"',
            *([f"frame = {string(self.frame)}"] if self.frame else []),
            *([f"source = {string(self.source)}"] if self.source else []),
            f"line = {_raw(self.line)}",
            "",
            "[cause.undetermined]",
            f"says = {string(self.title)}",
            f"todo = {string(self.todo)}",
            "",
            "[[example]]",
            f"name   = {string(self.example)}",
            f"log    = {_raw(self.log)}",
            *([f"launch = {string(self.launch)}"] if self.launch else []),
            *([f"sglang = {string(self.sglang)}"] if self.sglang else []),
            *([f"captures = {{ {captures} }}"] if captures else []),
            'cause  = "undetermined"',
            'status = "unknown"',
            "",
            "[[counterexample]]",
            'name = "the text arrives in a prompt"',
            f"log  = {string(quoted)}",
            "",
        ]
        return "\n".join(lines)


def of_incident(incident: Incident, command: Iterable[str] = ()) -> Draft:
    """The draft of a crash. Secrets in it must have been taken out before; `command` is its launch as words."""
    message = incident.error.split("\n")[0][:LONGEST_MESSAGE]
    line = pattern(message)
    frame = _own(incident.frames)
    telling = len(re.sub(r"[^A-Za-z]", "", literal(message))) >= _TELLING
    place = f"{frame.file}, line {frame.line}, in {frame.function}" if frame else "an unknown place"
    found = re.match(line, message)
    log = incident.root.source.rpartition("/")[2]
    what = " ".join(incident.error.split())[:LONGEST_MESSAGE]
    return Draft(
        comments=(
            f"Drafted from {one_line(log)}, line {incident.root.number}; raised in {one_line(place)}.",
            "To do: a title and a cause in an operator's words, names for the values of the pattern, the first release",
            "that prints the message, a check that proves the cause, and fixes by their names (specwatch explain).",
        ),
        title=title(message),
        severity="fatal",
        what=f"To do. The server said: {what}",
        why="To do.",
        limits="To do. Nothing is proved.",
        line=line,
        frame="" if telling or frame is None else f"{frame.file}:{frame.function}",
        source="" if telling or frame is None or ":" in message else frame.source,
        todo="To do: what a person has to do.",
        example="to do: when this happens",
        log=_excerpt(incident),
        launch=shlex.join(command),
        sglang=incident.launch.sglang if incident.launch else "",
        captures=found.groupdict() if found else {},
        message=message,
    )


def pattern(message: str) -> str:
    """A message as a pattern of the rule format: numbers, quoted words, paths and addresses named and bounded."""
    out: list[str] = []
    names: set[str] = set()
    at = _fixed(message)
    out.append(escape(message[:at]))
    for value in _VALUE.finditer(message, at):
        kind = value.lastgroup or "number"
        out.append(escape(message[at : value.start()]))
        out.append(f"(?P<{_name(message[: value.start()], kind, names)}>{_SHAPES[kind]})")
        at = value.end()
    return "".join(out) + escape(message[at:])


def literal(message: str) -> str:
    """What is left of a message without its exception's class and its values."""
    at = _fixed(message)
    return _VALUE.sub("", message[at:])


def _fixed(message: str) -> int:
    """How much of a message's start stays as it is: the exception's class, and what a pattern must begin with."""
    return max(_class(message), SHORTEST)


def _class(message: str) -> int:
    """The length of the exception's class and its colon at the start of a message."""
    found = re.match(r"[\w.]{0,80}(?:Error|Exception|Exit|Interrupt|Warning): ", message)
    return found.end() if found else 0


def _name(before: str, kind: str, names: set[str]) -> str:
    """A name for a value: the word before its `=`, else its kind; each name once."""
    found = re.search(r"([A-Za-z]\w{0,30})=$", before)
    base = found[1] if found else kind
    name, count = base, 1
    while name in names:
        count += 1
        name = f"{base}_{count}"
    names.add(name)
    return name


def escape(text: str) -> str:
    """A text as part of a regular expression, spaces and hyphens as they are."""
    return _SPECIAL.sub(r"\\\1", text)


def _own(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame, its file named from `sglang/` on."""
    if not frames:
        return None
    last = frames[-1]
    _, inside, rest = last.file.rpartition("/sglang/")
    name = f"sglang/{rest}" if inside else last.file.rpartition("/")[2]
    return Frame(file=name, line=last.line, function=last.function, source=last.source)


def _excerpt(incident: Incident) -> str:
    """The lines of the log that belong to the crash, with SGLang's header put back."""
    block = [line for line in incident.lines if line.number <= incident.root.number]
    numbers = {line.number for line in block}
    start = incident.root.number
    while start - 1 in numbers and not _at(block, start).headed:
        start -= 1
    lines = [_written(line) for line in incident.lines if line.number >= start]
    lines = lines or [_written(incident.root)]
    if len(lines) > MOST_LINES:
        lines = lines[:3] + lines[3 - MOST_LINES :]
    return "\n".join(lines).rstrip() + "\n"


def _at(lines: Iterable[LogLine], number: int) -> LogLine:
    return next(line for line in lines if line.number == number)


def _written(line: LogLine) -> str:
    if not line.headed or line.at is None:
        return line.text
    label = " ".join((line.at[:19].replace("T", " "), *line.ranks))
    return f"[{label}] {line.text}"


def title(message: str) -> str:
    """A first title: the first sentence of a message, its values left out."""
    plain = _VALUE.sub("…", message[_class(message) :])
    plain = re.sub(r"\s*\{[^{}]*\}", " …", plain)
    return plain.split(". ")[0][:100].strip().rstrip(".") or message[:100].strip() or "to do"


def one_line(text: object) -> str:
    """A text that stays inside its comment: no control characters, which TOML refuses there."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", " ", str(text))


def comments(text: str) -> Iterator[str]:
    """A text of several lines as comments."""
    yield from (f"    {one_line(line)}".rstrip() for line in text.split("\n"))


def string(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _raw(text: str) -> str:
    """A TOML literal string, in which a regular expression or a log stands as it is; where it can hold the text."""
    if "'''" in text or text.endswith("'") or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        return string(text)
    return f"'''\n{text}'''" if "\n" in text else f"'''{text}'''"
