"""JSON records: what container runtimes, journald, shippers and JSON formatters write, one object a line.

A client can put JSON into a log, so being JSON makes no record: the whole line must be one object that holds a message
and a clock, level or stream. `Records` decides whether a source writes such lines at all.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from specwatch.domain import Value
from specwatch.lazy import compiled

MESSAGE = ("message", "msg", "log", "MESSAGE", "text")
_CLOCK = ("asctime", "timestamp", "time", "@timestamp", "ts", "datetime", "date")
_LEVEL = ("levelname", "level", "severity", "lvl", "log.level")
TRACE = ("exc_info", "exception", "stack_trace", "stack", "traceback")
_UNITS = ("CONTAINER_NAME", "_SYSTEMD_USER_UNIT", "_SYSTEMD_UNIT")
NAMING = ("kubernetes", "_HOSTNAME", *_UNITS)
"""Keys that tell services, containers and units of one log apart."""
_NAIVE = compiled(
    r'\{"(?:asctime|timestamp|time|ts)": "(?P<at>[^"]{1,40})", '
    r'(?:"\w{1,20}": (?:"[^"]{0,200}"|\d+), ){0,6}"(?:message|msg)": "(?P<text>.*)'
)
_DATED = compiled(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_DOCKERS = {"log", "stream", "time", "attrs"}
"""All that a line of Docker's json-file driver may hold; shippers add fields and drop the newline."""
_LONGEST = 1024 * 1024
_SERVES = ("INFO:     Uvicorn running on", "Prefill batch", "Decode batch", "The server is fired up")


class Record(NamedTuple):
    """A JSON line: its message, and whether the program itself wrote it (`own`) or a transport wrapped a plain line.

    `more` says that a runtime split the line and that the rest follows. `trace` is a traceback kept beside the message.
    `unescaped`: the formatter only pasted the message in, which may end some lines below. `name`: the unit, pod or
    container that a transport says it came from.
    """

    text: str
    at: str | None = None
    own: bool = False
    more: bool = False
    trace: str = ""
    stream: str = ""
    unescaped: bool = False
    name: str = ""


def record(line: str) -> Record | None:
    """The record that a line is, None for anything else."""
    if line[:1] != "{" or len(line) > _LONGEST:
        return None
    if line[-1:] != "}":
        return _naive(line)
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return _naive(line)
    return _read(fields) if isinstance(fields, dict) else None


def _read(fields: dict[str, Value]) -> Record | None:
    key = next((key for key in MESSAGE if key in fields), None)
    if key is None:
        return None
    text = _text(fields[key])
    if text is None:
        return None
    stream, level = fields.get("stream"), any(key in fields for key in _LEVEL)
    clock = next((fields[key] for key in _CLOCK if key in fields), None)
    name = _name(fields)
    if key == "log" and (stream in ("stdout", "stderr") or isinstance(fields.get("kubernetes"), dict)):
        docker = "time" in fields and fields.keys() <= _DOCKERS
        more = not text.endswith("\n") if docker else fields.get("logtag", fields.get("_p")) == "P"
        at = _clock(clock)
        return Record(text=text.removesuffix("\n"), at=at, more=more, stream=str(stream or ""), name=name)
    if key == "MESSAGE":
        micros = fields.get("__REALTIME_TIMESTAMP")
        return Record(text=text, at=_clock(micros), name=name) if micros is not None else None
    if clock is None and not level and stream is None:
        return None
    trace = next((got for key in TRACE if isinstance(got := fields.get(key), str)), "")
    return Record(text=text, at=_clock(clock), own=level, trace=trace, name=name)


def _name(fields: dict[str, Value]) -> str:
    """The unit of a journal or the pod and container of a shipper; processes of one server have several ids each."""
    pod = fields.get("kubernetes")
    if isinstance(pod, dict):
        told = [pod.get(key) for key in ("namespace_name", "pod_name", "container_name")]
        return "/".join(part for part in told if isinstance(part, str) and part)
    host = fields.get("_HOSTNAME")
    for key in _UNITS:
        if isinstance(unit := fields.get(key), str) and unit:
            return f"{host}/{unit}" if isinstance(host, str) and host else unit
    return ""


def _naive(line: str) -> Record | None:
    """A record of a formatter that pastes the message between quotes unescaped, so that it may end lines later."""
    match = _NAIVE.match(line)
    if match is None:
        return None
    return Record(text=match["text"].removesuffix('"}'), at=_clock(match["at"]), own=True, unescaped=True)


def _text(value: Value) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # journald gives a message that is not plain UTF-8 as numbers
        try:
            return bytes(byte for byte in value if isinstance(byte, int)).decode("utf-8", "replace")
        except ValueError:
            return None
    return None


def _clock(value: Value) -> str | None:
    """An ISO clock from text, or from seconds, milliseconds, microseconds since 1970."""
    if isinstance(value, str) and (match := _DATED.match(value)):
        day, time, fraction = match.groups()
        return f"{day}T{time}.{fraction}" if fraction else f"{day}T{time}"
    try:
        number = float(value) if isinstance(value, (int, float, str)) else 0.0
        while 1e11 < number < inf:
            number /= 1000
        return datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%S") if 0 < number < inf else None
    except (ValueError, OverflowError, OSError):
        return None


class Records:
    """Whether a source writes JSON records: they must begin before the server answers clients, and then stay.

    A plain log in which a JSON line turns up later was given that line by a client. `serving`: clients can reach the
    server. `writes`: the source has had a record.
    """

    __slots__ = ("serving", "writes")

    def __init__(self) -> None:
        self.writes = False
        self.serving = False

    def starts(self) -> None:
        """A server starts: how it will log is open again."""
        self.serving = False

    def heard(self, message: str) -> None:
        """A message came in a line that is no record: it may show that clients can reach the server."""
        if message.startswith(_SERVES):
            self.serving = True
        elif message.startswith("server_args="):
            self.starts()

    def accept(self, line: str) -> Record | None:
        """The record that a line is, unless this source writes none."""
        if self.serving and not self.writes:
            return None
        got = record(line)
        if got is not None:
            self.writes = True
        return got
