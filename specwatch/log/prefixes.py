"""What stands before a log line's message: SGLang's header, and what shippers and parent programs put in front of it.

`peel` takes prefixes off one by one until SGLang's own header, or a line without one, remains. It never looks into the
middle of a line: what stands there may be a user's text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from specwatch.lazy import compiled

_DAY = r"\d{4}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d"
_LEVEL = r"(?:TRACE|DEBUG|INFO|SUCCESS|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_RANKS = r"(?P<ranks>(?: (?:DisaggregationMode\.\w+|[A-Z][A-Z_]*\d+))*)"

HEADER = compiled(rf"\[({_DAY}) ({_TIME})([.,]\d{{1,6}})?{_RANKS}\] ?", re.ASCII)
"""SGLang's header, 0.4.6 to 0.5.23 (srt/utils/common.py: configure_logger): day, time, milliseconds, rank labels."""


_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _Prefixes:
    """Expressions for prefixes, of which the first counts that matches. Most lines have none of them.

    Beside each stands what a text with it begins with (any of the characters, 0 for every digit; "" for anything) and
    what it holds, so that an expression is only asked, and compiled, where it may match.
    """

    __slots__ = ("_fitting",)

    def __init__(self, *known: tuple[str, str, re.Pattern[str]]) -> None:
        def fitting(first: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
            first = "0" if first.isdecimal() else first
            return tuple((holds, pattern) for begins, holds, pattern in known if first in begins or not begins)

        self._fitting = lru_cache(128)(fitting)

    def match(self, text: str) -> re.Match[str] | None:
        """The prefix with which a text that is not empty begins."""
        for holds, pattern in self._fitting(text[0]):
            if holds in text and (match := pattern.match(text)):
                return match
        return None


_OWN_HEADERS = _Prefixes(
    # the opening bracket lost in a paste
    ("0", "-", compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}(?:[.,]\d{{1,6}})?){_RANKS}\] ?")),
    # the beginning of the day lost with it
    ("0-", "-", compiled(rf"\d{{0,3}}-\d\d-\d\d (?P<day>)(?P<time>{_TIME}(?:[.,]\d{{1,6}})?){_RANKS}\] ?")),
    # the oldest form has no day, the diffusion server's no year
    ("[", "]", compiled(rf"\[(?P<day>\d\d-\d\d)? ?(?P<time>{_TIME}(?:[.,]\d{{1,6}})?){_RANKS}\] ?")),
    # a logger that puts rank, file and line in brackets of its own
    (
        "0",
        "-",
        compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}[.,]\d{{3}}) {_LEVEL} \d+ \[{_RANKS} ?[\w./-]+\.py:\d+\] ?"),
    ),
    # `ERROR 16:58:08 scheduler.py:2626] ` and `INFO 04-23 08:11:02 __init__.py:190] `
    ("TDISWECF", "]", compiled(rf"{_LEVEL} (?:(?P<day>\d\d-\d\d) )?(?P<time>{_TIME}(?:\.\d+)?) [\w./-]+\.\w+:\d+\] ?")),
    # the router: `2026-02-26 13:55:38  INFO smg::server: `
    ("0", "-", compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}) +{_LEVEL} [\w:]+: ")),
)

_TRACING = compiled(
    rf"(?P<day>{_DAY})T(?P<time>{_TIME}(?:\.\d{{1,9}})?)(?:Z|[+-]\d\d:\d\d) +{_LEVEL} [a-z_]\w*(?:(?:\.|::)\w+)+: "
)
"""Rust's `tracing` and what looks like it (Dynamo, which gives the server's messages to it): clock, level, place."""

_RELAYS = _Prefixes(
    # a parent program that logs its child's lines again, and loguru
    ("0", " - ", compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}[.,]\d{{3}}) - [\w.]+ - {_LEVEL} - ")),
    ("0", " | ", compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}[.,]\d{{3}}) \| {_LEVEL} *\| [\w.<>]+:[\w<>]+:\d+ - ")),
)

CRI = compiled(rf"(?P<at>{_DAY}T{_TIME}[\d.]*(?:Z|[+-]\d\d:\d\d)) (?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? ?")
"""A line of a container runtime's file; tag P is a part whose rest follows in the next line of the same stream."""

_ISO = rf"(?P<at>{_DAY}T{_TIME}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
_TRANSPORTS = _Prefixes(
    ("0", "T", compiled(rf"{_ISO}(?: |$)")),
    # `gh run view --log`: job, step and line between tabs
    ("", "\t", compiled(rf"[^\t\n]{{1,120}}\t[^\t\n]{{1,120}}\t\ufeff?(?={_DAY}T{_TIME})")),
    # fluentd's files: clock with zone, tag, and the record as JSON, which may also be set apart by tabs
    ("0", "{", compiled(rf"(?:{_ISO}|{_DAY} {_TIME}[\d.]* [+-]\d{{4}})[ \t][\w.*-]{{1,120}}(?:: |\t)(?=\{{)")),
    ("[", "T", compiled(rf"\[{_ISO}\] ?")),
    # Android's and some shippers' clock without a year: `04-20 13:32:25.784 `
    ("0", "-", compiled(rf"(?P<at>\d\d-\d\d {_TIME}\.\d{{3,6}})(?:  ?|$)")),
    (f"0{_CAPITALS}{_CAPITALS.lower()}", "|", compiled(r"(?P<identity>[A-Za-z0-9][\w.-]{0,80}) *\|(?: |$)")),
    ("(", "pid=", compiled(r"\((?:\w[\w.:]* )?(?P<identity>pid=\d+(?:, ip=[\w.:]+)?)\) ?")),
    ("", " >> ", compiled(r"[\w.-]{1,120} >> ")),
    (
        _CAPITALS,
        ": ",
        compiled(rf"[A-Z][a-z]{{2}} [ \d]\d {_TIME} [\w.-]+ (?!kernel)(?P<identity>[\w.@/-]+)(?:\[\d+\])?: "),
    ),
    (
        _CAPITALS,
        " kernel: ",
        compiled(rf"(?:[A-Z][a-z]{{2}} [ \d]\d {_TIME}) [\w.-]+ kernel: (?:\[ *[\d.]+\] )?"),
    ),
    # what dmesg and `dmesg -T` put before the kernel's word on a killed process
    (
        "[",
        " of memory: Killed",
        compiled(
            rf"\[(?: {{0,6}}\d{{1,8}}\.\d{{6}}|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {_TIME} \d{{4}})\] "
            r"(?=(?:Memory cgroup out|Out) of memory: Killed process )"
        ),
    ),
    ("[", "[rank", compiled(r"\[rank\d+\]: (?=\S| )")),
    # kubectl logs --prefix; torchrun; mpirun --tag-output, whose later releases put a space behind it
    ("[", "[pod/", compiled(r"\[pod/(?P<identity>[\w.-]{1,253}/[\w.-]{1,253})\](?: |$)")),
    ("[", "]:", compiled(r"\[(?!rank\d)(?P<identity>[a-z][a-z_]{0,40}\d{1,5})\]:")),
    ("[", "]<std", compiled(r"\[(?P<identity>\d+,\d+)\]<std(?:out|err|diag)>:")),
    ("[", "]<std", compiled(r"\[(?P<identity>[A-Za-z][\w.@-]{0,120},\d+)\]<std(?:out|err|diag)>: ?")),
    # RFC 5424: priority, clock, host, program, process, message id, structured data
    (
        "<",
        ">1 ",
        compiled(
            rf"<\d{{1,3}}>1 (?:{_ISO}|-) [\w.:-]{{1,255}} (?P<identity>[\w.@/-]{{1,48}}) [\w.-]{{1,128}} \S{{1,32}} "
            r"(?:-|(?:\[[^\]\n]{0,2000}\])+)(?: (?:\ufeff)?|$)"
        ),
    ),
)
_SYSLOG_ISO = compiled(r"[\w.-]+ (?P<identity>[\w.@/-]+)\[\d+\]: ")

_LINKED = compiled(rf"\[\[({_DAY} \d\d)\]\(tel:[\d -]{{1,20}}\)(?=:\d\d:\d\d)")
"""A browser took the clock of a header for a telephone number, and what was copied from there is its link."""

_REPEATED = compiled(r"\s*\[repeated \d+x across cluster\].*$")
_ANSI = compiled(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")

_NEVER = ("", " ", "\t")
"""First characters of a line that cannot begin with a prefix: most lines of a traceback."""

_BAR = compiled(r"[^\r\[\]%]{0,200}\d{1,3}%[^\r\[\]]{0,400}\[\d\d:\d\d(?::\d\d)?<[^\[\]\r]{1,60}\]")
_BAR_END = compiled(r"(?:[\r\s]|\x1b\[A)*")
_LEAK = "See https://nanobind.readthedocs.io/"


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Peeled:
    """A line without its prefixes. `headed`: it has a header of its own. `relayed`: a parent program logged it.

    `names`: what shippers told the services, pods, actors or units of the log apart by, the outermost first.
    """

    text: str
    at: str | None = None
    ranks: tuple[str, ...] = ()
    headed: bool = False
    relayed: bool = False
    names: tuple[str, ...] = ()


def peel(text: str) -> Peeled:
    """Takes the prefixes off one line."""
    text = uncoloured(text)
    line = Peeled(text=_LINKED.sub(r"[\1", text) if text[:2] == "[[" else text)
    for _ in range(8):
        if line.text[:1] in _NEVER or not _step(line):
            break
    return line


def uncoloured(text: str) -> str:
    """One line without colours and other escape sequences of terminals."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def header(text: str) -> tuple[str, tuple[str, ...], str] | None:
    """The clock, rank labels and message of a line that begins with SGLang's header, else None."""
    match = HEADER.match(text)
    if match is None:
        return None
    day, time, fraction, ranks = match.groups()
    at = f"{day}T{time}{fraction.replace(',', '.')}" if fraction else f"{day}T{time}"
    return at, tuple(ranks.split()), text[match.end() :]


def bars(text: str) -> tuple[str, str]:
    """Splits a line at the end of the progress bars that it begins with: the bars, and what was written behind them."""
    if "%" in text[:600]:
        end = len(text) - len(text.lstrip("\r"))
        while match := _BAR.match(text, end):
            gap = _BAR_END.match(text, match.end())
            end = gap.end() if gap else match.end()
        return text[:end].rstrip(), text[end:]
    if text.startswith(_LEAK) and "html" in text:
        end = text.index("html") + 4
        return text[:end], text[end:]
    return "", text


def _step(line: Peeled) -> bool:
    """Takes one prefix off; False when there is none left."""
    text = line.text
    own = header(text)
    if own:
        line.at, line.ranks, line.text = own
        line.headed = True
        return False
    if text[0].isdecimal() and (tracing := _TRACING.match(text)):
        line.at, line.text, line.headed = f"{tracing['day']}T{tracing['time']}", text[tracing.end() :], True
        return False
    if _transport(line):
        return True
    if match := _OWN_HEADERS.match(text):
        groups = match.groupdict()
        line.at = f"{groups['day']}T{groups['time']}" if groups["day"] else groups["time"]
        line.at = line.at.replace(",", ".")
        line.ranks = tuple((groups.get("ranks") or "").split())
        line.text, line.headed = text[match.end() :], True
        return False
    if match := _RELAYS.match(text):
        line.at = f"{match['day']}T{match['time']}".replace(",", ".")
        line.text, line.relayed = text[match.end() :], True
        return True
    return False


def _transport(line: Peeled) -> bool:
    text = line.text
    if text[0].isdecimal() and (match := CRI.match(text)):
        line.at, line.text = match["at"], text[match.end() :]
        return True
    match = _TRANSPORTS.match(text)
    if match is None:
        return False
    groups = match.groupdict()
    line.at = groups.get("at") or line.at
    line.text = text[match.end() :]
    if identity := groups.get("identity"):
        line.names = (*line.names, identity)
        line.text = _REPEATED.sub("", line.text) if identity.startswith("pid=") else line.text
    elif groups.get("at") and (host := _SYSLOG_ISO.match(line.text)) and host["identity"] != "kernel":
        line.names, line.text = (*line.names, host["identity"]), line.text[host.end() :]
    return True
