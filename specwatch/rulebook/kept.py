"""Keeps what came of reading and proving rules, so that a start need not do it again.

The file holds data, never code: the first line says what it hangs on, the second is the book's table, and behind it
stand the tables of each rule's own file, of which a start reads those that it needs: that is a tenth of the time that
TOML and the laws of a rule take. It is used only if it was made by this version of specwatch, of files that are still
the same ones (name, size, times, inode), and is the user's own; one that is torn, foreign or cannot be written costs
the time to read all rules, and nothing else. Check sums tell what a disk, or another start, made of it meanwhile.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specwatch import __version__
from specwatch.rulebook.book import Rulebook, Table

Said = list[str]


def signature(directories: Iterable[Path]) -> str:
    """What the rules in some directories hang on; differs whenever one of their files was written."""
    known: list[object] = [__version__]
    for directory in directories:
        known.append(str(directory.absolute()))
        try:
            with os.scandir(directory) as entries:
                files = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(".toml"))
        except OSError:
            return ""
        known += [[name, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for name, at in files]
    return json.dumps(known)


def read(file: Path | None, expected: str) -> tuple[Rulebook, Said] | None:
    """The book that was kept under a signature, and what has to be said about it; None where there is none."""
    if file is None or not expected:
        return None
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            told, head = opened.readline(), opened.readline()
            if told != _first_line(expected, head.removesuffix(b"\n")):
                return None
            kept = json.loads(head)
            own = _Tables(file, status.st_ino, opened.tell(), kept["places"])
        return Rulebook.restored(_checked(kept["table"]), own.of), [str(text) for text in kept["said"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _first_line(expected: str, head: bytes) -> bytes:
    return b"%b %08x\n" % (expected.encode(), zlib.crc32(head))


class _Tables:
    """The tables of rule files, behind `start` in a kept file; `places`: where each is, how long, its check sum."""

    def __init__(self, file: Path, inode: int, start: int, places: Mapping[str, Any]) -> None:
        self._file, self._inode, self._start, self._places = file, inode, start, places

    def of(self, rule: str) -> Mapping[str, Any] | None:
        """The tables of one rule; None where they cannot be had, as another start wrote the file anew meanwhile."""
        try:
            at, length, check = self._places[rule]
            with self._file.open("rb") as opened:
                if os.fstat(opened.fileno()).st_ino != self._inode:
                    return None
                opened.seek(self._start + at)
                own = opened.read(length)
            table = json.loads(own) if zlib.crc32(own) == check else None
            return table if isinstance(table, dict) else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None


def write(file: Path | None, expected: str, book: Rulebook, said: Said) -> None:
    """Keeps a book; a reader sees the file whole or not at all."""
    if file is None or not expected:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(f".{os.getpid()}")
        tables, places = _tables(book)
        head = json.dumps({"said": said, "table": book.table, "places": places}).encode()
        part.write_bytes(b"".join((_first_line(expected, head), head, b"\n", tables)))
        part.chmod(0o600)
        part.replace(file)
    except OSError:
        return


def _tables(book: Rulebook) -> tuple[bytes, Mapping[str, tuple[int, int, int]]]:
    """The tables of all rules one behind the other, and where each is; one that JSON cannot hold (a date) is none."""
    whole = bytearray()
    places: dict[str, tuple[int, int, int]] = {}
    for name, rule in book.rules.items():
        try:
            one = json.dumps(rule.table).encode()
        except (TypeError, ValueError):
            continue
        places[name] = len(whole), len(one), zlib.crc32(one)
        whole += one
    return bytes(whole), places


def _checked(table: Any) -> Table:
    """The table if it has the form of one. Raises ValueError."""
    rules, index, anchors = table["rules"], table["index"], table["anchors"]
    if not all(isinstance(row, list) and len(row) == 5 for row in rules.values()):
        raise ValueError("rules")
    for rows in index.values():
        if not all(len(row) == 7 and row[0] in rules for row in rows):
            raise ValueError("index")
    if not isinstance(anchors, list) or not all(isinstance(text, str) and text.isascii() for text in anchors):
        raise ValueError("anchors")
    checked: Table = {"rules": rules, "index": index, "anchors": anchors}
    return checked
