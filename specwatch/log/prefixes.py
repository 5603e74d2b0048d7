"""What stands before a log line's message: SGLang's header, and what shippers and parent programs put in front of it.

`peel` takes prefixes off one by one until SGLang's own header, or a line without one, remains. It never looks into the
middle of a line: what stands there may be a user's text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specwatch.lazy import compiled

_DAY = r"\d{4}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d"
_LEVEL = r"(?:TRACE|DEBUG|INFO|SUCCESS|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_RANKS = r"(?P<ranks>(?: (?:DisaggregationMode\.\w+|[A-Z][A-Z_]*\d+))*)"

HEADER = compiled(rf"\[({_DAY}) ({_TIME})([.,]\d{{1,6}})?{_RANKS}\] ?", re.ASCII)
"""SGLang's header, 0.4.6 to 0.5.23 (srt/utils/common.py: configure_logger): day, time, milliseconds, rank labels."""

_OWN_HEADERS = (
    # the opening bracket lost in a paste
    compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}(?:[.,]\d{{1,6}})?){_RANKS}\] ?"),
    # the beginning of the day lost with it
    compiled(rf"\d{{0,3}}-\d\d-\d\d (?P<day>)(?P<time>{_TIME}(?:[.,]\d{{1,6}})?){_RANKS}\] ?"),
    # the oldest form has no day, the diffusion server's no year
    compiled(rf"\[(?P<day>\d\d-\d\d)? ?(?P<time>{_TIME}(?:[.,]\d{{1,6}})?){_RANKS}\] ?"),
    # a logger that puts rank, file and line in brackets of its own
    compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}[.,]\d{{3}}) {_LEVEL} \d+ \[{_RANKS} ?[\w./-]+\.py:\d+\] ?"),
    # `ERROR 16:58:08 scheduler.py:2626] ` and `INFO 04-23 08:11:02 __init__.py:190] `
    compiled(rf"{_LEVEL} (?:(?P<day>\d\d-\d\d) )?(?P<time>{_TIME}(?:\.\d+)?) [\w./-]+\.\w+:\d+\] ?"),
    # the router: `2026-02-26 13:55:38  INFO smg::server: `
    compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}) +{_LEVEL} [\w:]+: "),
)

_RELAYS = (
    # a parent program that logs its child's lines again, and loguru
    compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}[.,]\d{{3}}) - [\w.]+ - {_LEVEL} - "),
    compiled(rf"(?P<day>{_DAY}) (?P<time>{_TIME}[.,]\d{{3}}) \| {_LEVEL} *\| [\w.<>]+:[\w<>]+:\d+ - "),
)

CRI = compiled(rf"(?P<at>{_DAY}T{_TIME}[\d.]*(?:Z|[+-]\d\d:\d\d)) (?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? ?")
"""A line of a container runtime's file; tag P is a part whose rest follows in the next line of the same stream."""

_ISO = rf"(?P<at>{_DAY}T{_TIME}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
_TRANSPORTS = (
    compiled(rf"{_ISO}(?: |$)"),
    # `gh run view --log`: job, step and line between tabs
    compiled(rf"[^\t\n]{{1,120}}\t[^\t\n]{{1,120}}\t\ufeff?(?={_DAY}T{_TIME})"),
    # fluentd's files: clock with zone, tag, and the record as JSON, which may also be set apart by tabs
    compiled(rf"(?:{_ISO}|{_DAY} {_TIME}[\d.]* [+-]\d{{4}})[ \t][\w.*-]{{1,120}}(?:: |\t)(?=\{{)"),
    compiled(rf"\[{_ISO}\] ?"),
    # Android's and some shippers' clock without a year: `04-20 13:32:25.784 `
    compiled(rf"(?P<at>\d\d-\d\d {_TIME}\.\d{{3,6}})(?:  ?|$)"),
    compiled(r"(?P<identity>[A-Za-z0-9][\w.-]{0,80}) *\|(?: |$)"),
    compiled(r"\((?:\w[\w.:]* )?(?P<identity>pid=\d+(?:, ip=[\w.:]+)?)\) ?"),
    compiled(r"[\w.-]{1,120} >> "),
    compiled(rf"[A-Z][a-z]{{2}} [ \d]\d {_TIME} [\w.-]+ (?!kernel)(?P<identity>[\w.@/-]+)(?:\[\d+\])?: "),
    compiled(rf"(?:[A-Z][a-z]{{2}} [ \d]\d {_TIME}) [\w.-]+ kernel: (?:\[ *[\d.]+\] )?"),
    compiled(r"\[rank\d+\]: (?=\S| )"),
    # kubectl logs --prefix; torchrun; mpirun --tag-output, whose later releases put a space behind it
    compiled(r"\[pod/(?P<identity>[\w.-]{1,253}/[\w.-]{1,253})\](?: |$)"),
    compiled(r"\[(?!rank\d)(?P<identity>[a-z][a-z_]{0,40}\d{1,5})\]:"),
    compiled(r"\[(?P<identity>\d+,\d+)\]<std(?:out|err|diag)>:"),
    compiled(r"\[(?P<identity>[A-Za-z][\w.@-]{0,120},\d+)\]<std(?:out|err|diag)>: ?"),
    # RFC 5424: priority, clock, host, program, process, message id, structured data
    compiled(
        rf"<\d{{1,3}}>1 (?:{_ISO}|-) [\w.:-]{{1,255}} (?P<identity>[\w.@/-]{{1,48}}) [\w.-]{{1,128}} \S{{1,32}} "
        r"(?:-|(?:\[[^\]\n]{0,2000}\])+)(?: (?:\ufeff)?|$)"
    ),
)
_SYSLOG_ISO = compiled(r"[\w.-]+ (?P<identity>[\w.@/-]+)\[\d+\]: ")

_REPEATED = compiled(r"\s*\[repeated \d+x across cluster\].*$")
_ANSI = compiled(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")

_NEVER = ("", " ", "\t")
"""First characters of a line that cannot begin with a prefix: most lines of a traceback."""

_BAR = compiled(r"[^\r\[\]%]{0,200}\d{1,3}%[^\r\[\]]{0,400}\[\d\d:\d\d(?::\d\d)?<[^\[\]\r]{1,60}\]")
_BAR_END = compiled(r"(?:[\r\s]|\x1b\[A)*")
_LEAK = "See https://nanobind.readthedocs.io/"


@dataclass(slots=True, kw_only=True)
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
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    line = Peeled(text=text)
    for _ in range(8):
        if line.text[:1] in _NEVER or not _step(line):
            break
    return line


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
    if _transport(line):
        return True
    for pattern in _OWN_HEADERS:
        if match := pattern.match(text):
            groups = match.groupdict()
            line.at = f"{groups['day']}T{groups['time']}" if groups["day"] else groups["time"]
            line.at = line.at.replace(",", ".")
            line.ranks = tuple((groups.get("ranks") or "").split())
            line.text, line.headed = text[match.end() :], True
            return False
    for pattern in _RELAYS:
        if match := pattern.match(text):
            line.at = f"{match['day']}T{match['time']}".replace(",", ".")
            line.text, line.relayed = text[match.end() :], True
            return True
    return False


def _transport(line: Peeled) -> bool:
    text = line.text
    if match := CRI.match(text):
        line.at, line.text = match["at"], text[match.end() :]
        return True
    for pattern in _TRANSPORTS:
        if match := pattern.match(text):
            groups = match.groupdict()
            line.at = groups.get("at") or line.at
            line.text = text[match.end() :]
            if identity := groups.get("identity"):
                line.names = (*line.names, identity)
                line.text = _REPEATED.sub("", line.text) if identity.startswith("pid=") else line.text
            elif groups.get("at") and (host := _SYSLOG_ISO.match(line.text)) and host["identity"] != "kernel":
                line.names, line.text = (*line.names, host["identity"]), line.text[host.end() :]
            return True
    return False
