"""Reads logs once, from start to end: plain, gzip or zstandard files, a directory of rotated parts, standard input.

Lines end at `\\n` only. A client can put U+2028, U+0085, form feeds and lone carriage returns into a log; a reader that
breaks lines there lets a request start a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from specwatch.errors import SourceError
from specwatch.lazy import compiled
from specwatch.sources.blocks import blocks, name_of

LINE_CAP = 64 * 1024
"""Bytes kept of a line."""
RECORD_CAP = 1024 * 1024
"""Bytes kept of a line that holds the server's own record of its arguments, `server_args=`."""

_JUDGED = 64 * 1024
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x08\x1b")) + b"\x7f"


class Raw(NamedTuple):
    """One physical line: `number` counts from 1, `offset` is in bytes of the decompressed source.

    A tuple and not a dataclass, because there is one for every line and a frozen dataclass takes four times as long.
    """

    source: str
    number: int
    offset: int
    text: str


@dataclass(slots=True)
class Stats:
    """What was read of a source so far: decompressed bytes, lines, and start-ups of a server once it was read."""

    bytes: int = 0
    lines: int = 0
    runs: int = 0


def read(path: str, stats: Stats | None = None) -> Iterator[Raw]:
    """The lines of a log, `-` for standard input (reported as `<stdin>`), in bounded memory.

    Bytes that are not UTF-8 become U+FFFD; a line longer than LINE_CAP is cut and says so. Raises SourceError, naming
    the path and the reason, for what cannot be read; when a file breaks off, after the lines before the break.
    """
    name = name_of(path)
    stats = stats if stats is not None else Stats()
    offset = 0
    line = LongLine()
    try:
        for block in judged(blocks(path), name):
            stats.bytes += len(block)
            *whole, rest = block.split(b"\n")
            for piece in whole:
                if line.length:
                    line.add(piece)
                    text, length = line.text(), line.length
                    line = LongLine()
                elif len(piece) <= LINE_CAP:
                    text, length = decoded(piece), len(piece)
                else:
                    line.add(piece)
                    text, length = line.text(), line.length
                    line = LongLine()
                stats.lines += 1
                yield Raw(name, stats.lines, offset, text)
                offset += length + 1
            line.add(rest)
    except SourceError:
        if line.length and stats.bytes:
            stats.lines += 1
            yield Raw(name, stats.lines, offset, line.text())
        raise
    if line.length:
        stats.lines += 1
        yield Raw(name, stats.lines, offset, line.text())


class LongLine:
    """A line that spans blocks: keeps what the cap allows and counts the rest in `length`."""

    __slots__ = ("_decided", "_hole", "_pieces", "_room", "length")

    def __init__(self) -> None:
        self.length = 0
        self._pieces: list[bytes] = []
        self._hole = 0
        self._room = RECORD_CAP
        self._decided = False

    def add(self, piece: bytes) -> None:
        """Takes in the next bytes of the line."""
        self.length += len(piece)
        if not self._room:
            return
        if not self._pieces and piece[:1] == b"\0":  # a hole: kept out of the cap
            hole = len(piece) - len(piece.lstrip(b"\0"))
            self._hole += hole
            piece = piece[hole:]
            if not piece:
                return
        self._pieces.append(piece[: self._room])
        self._room -= len(self._pieces[-1])
        if not self._decided and RECORD_CAP - self._room >= LINE_CAP:
            self._decided = True
            start = b"".join(self._pieces)
            if b"server_args=" not in start[:1024]:
                self._pieces, self._room = [start[:LINE_CAP]], 0

    def text(self) -> str:
        """The line as far as it is kept; one that was cut says so."""
        kept = b"".join(self._pieces)
        text = decoded(kept)
        length = self.length - self._hole
        if length > len(kept):
            text += f" … [cut by specwatch: the line has {length} bytes]"
        return text


def decoded(data: bytes) -> str:
    """The text of a line without its end, a carriage return included; bytes that are no UTF-8 become U+FFFD."""
    if data[-1:] == b"\r":
        data = data[:-1]
    if data[:1] == b"\0":  # the hole that a truncated log leaves when its writer goes on at the old offset
        data = data.lstrip(b"\0")
    return data.decode("utf-8", "replace")


def judged(source: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The same blocks, but SourceError at the first one with anything in it that is no text."""
    unknown = True
    for block in source:
        if unknown and (sample := block.lstrip(b"\0")[:_JUDGED]):
            _refuse_binary(sample, name)
            unknown = False
        yield block


def _refuse_binary(sample: bytes, name: str) -> None:
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SourceError(f"{name}: is UTF-16 text; convert it first: iconv -f utf-16 -t utf-8")
    control = len(sample) - len(sample.translate(None, _CONTROL))
    foreign = sample.decode("utf-8", "replace").count("\ufffd")
    # generous, as clients can put some of either into a log
    few = max(len(sample), 100)
    if sample.count(b"\0") > few // 20 or control > few // 3 or foreign > few // 5:
        raise SourceError(f"{name}: is binary, not a log")


_LOG_NAME = compiled(r"(?i)\.(?:log|out|err|txt|jsonl|ndjson)(?:[.-]|$)|^(?:stdout|stderr|syslog|messages)\b")
_TURN = compiled(r"(?i)(?P<stem>.*?)(?:[.-](?P<turn>\d+))?(?:\.(?:gz|zst|zstd))?$")


def expand(paths: Iterable[str]) -> list[str]:
    """The files to read, in order: a directory stands for the log-like files in it, oldest part first.

    Rotated parts of one log stand together, `server.log.2.gz`, `server.log.1`, `server.log`; different logs by the
    time of their last change. Raises SourceError for a directory without a log. A missing file is left to `read`.
    """
    found: list[str] = []
    for path in paths:
        if path != "-" and Path(path).is_dir():
            found += _inside(Path(path))
        else:
            found.append(path)
    return found


def _inside(folder: Path) -> list[str]:
    logs: dict[str, list[tuple[int, float, str]]] = {}
    try:
        for file in folder.iterdir():
            if file.name.startswith(".") or not _LOG_NAME.search(file.name) or not file.is_file():
                continue
            match = _TURN.match(file.name)
            stem, turn = (match["stem"], match["turn"]) if match else (file.name, None)
            # a small number counts backwards in time, a date forwards, and the bare name is the newest
            age = 0 if turn is None else int(turn) if len(turn) < 6 else 10**20 - int(turn)
            logs.setdefault(stem, []).append((-age, file.stat().st_mtime, str(file)))
    except OSError as error:
        raise SourceError(f"{folder}: cannot be listed: {error.strerror or error}") from None
    if not logs:
        raise SourceError(f"{folder}: holds no log (looked for *.log, *.out, *.err, *.txt and their rotated parts)")
    by_change = sorted(logs.values(), key=lambda parts: max(part[1] for part in parts))
    return [path for parts in by_change for *_, path in sorted(parts)]
