"""Keeps what came of reading and proving rules, so that a start need not do it again.

The file holds the book's table, never code: a rule itself is read from its own file when it is needed. It is used only
if it was made by this version of specwatch, of files that are still the same ones (name, size, times, inode), and is
the user's own; one that is torn, foreign or cannot be written costs the time to read all rules, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
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
            first, _, rest = opened.read().partition(b"\n")
        kept = json.loads(rest) if first == expected.encode() else None
        return (Rulebook.restored(_checked(kept["table"])), [str(text) for text in kept["said"]]) if kept else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def write(file: Path | None, expected: str, book: Rulebook, said: Said) -> None:
    """Keeps a book; a reader sees the file whole or not at all."""
    if file is None or not expected:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(expected.encode() + b"\n" + json.dumps({"said": said, "table": book.table}).encode())
        part.chmod(0o600)
        part.replace(file)
    except OSError:
        return


def _checked(table: Any) -> Table:
    """The table if it has the form of one. Raises ValueError."""
    rules, index, anchors = table["rules"], table["index"], table["anchors"]
    if not all(isinstance(row, list) and len(row) == 4 for row in rules.values()):
        raise ValueError("rules")
    for rows in index.values():
        if not all(len(row) == 7 and row[0] in rules for row in rows):
            raise ValueError("index")
    if not isinstance(anchors, list) or not all(isinstance(text, str) and text.isascii() for text in anchors):
        raise ValueError("anchors")
    checked: Table = {"rules": rules, "index": index, "anchors": anchors}
    return checked
