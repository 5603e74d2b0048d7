"""The audit log: one JSON object a line, each holding the hash of the one before, so that no entry can change unseen.

`hash` is SHA-256 over the entry without it, as canonical JSON (keys sorted, no blanks, ASCII). The last entry and the
hash of each one stand in `actions.db` as well, committed together with what they tell of, before the line is written.
So a line that a power loss cut short or kept away is known from one that somebody took out, and put back by the next
action; and whoever writes the whole file anew, hashes included, is found by the first hash that differs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from specwatch.errors import ApplyError

FIRST = "0" * 64
"""What stands for the hash before the first entry."""

Entry = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the store knows of the log: how many entries, the last line whole, and whether it reached the disk."""

    count: int = 0
    hash: str = FIRST
    line: str = ""
    written: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify` found. `problems` are tampering; `notes` are not."""

    entries: int
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def entry(head: Head, body: Mapping[str, object]) -> Head:
    """The head after one more entry with that body (JSON values)."""
    content = {"seq": head.count + 1, **body, "prev": head.hash}
    digest = hash_of(content)
    return Head(count=head.count + 1, hash=digest, line=_canonical({**content, "hash": digest}), written=False)


def hash_of(content: Entry) -> str:
    """The hash of an entry, whatever it says of it itself."""
    return hashlib.sha256(_canonical({k: v for k, v in content.items() if k != "hash"}).encode()).hexdigest()


def _canonical(content: Entry) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def append(path: Path, line: str) -> None:
    """Write a line to the end of the log and onto the disk. Raises OSError."""
    new = not path.exists()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if new:
            os.fchmod(fd, 0o644)  # whatever the umask: others may read what was done
        data = line.encode() + b"\n"
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    if new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names that were made or changed in a folder are on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def repair(path: Path, head: Head) -> str:
    """Write the last entry out where a power loss kept it, or a part of it, from the file; gives what was done.

    Only what the store holds whole is written; anything else is left for `verify` to show.
    """
    if head.written:
        return ""
    whole, torn = _split(path)
    before = json.loads(head.line)["prev"]
    last = _hash_in(whole[-1]) if whole else FIRST
    if last == head.hash and not torn:
        return ""
    if last != before or len(whole) != head.count - 1 or not head.line.encode().startswith(torn):
        return ""
    if torn:
        size = path.stat().st_size - len(torn)
        with path.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
    append(path, head.line)
    return f"entry {head.count} of {path} was not written out whole when the machine or specwatch stopped; written now"


def _split(path: Path) -> tuple[list[bytes], bytes]:
    """The whole lines, and what follows the last newline."""
    data = path.read_bytes() if path.exists() else b""
    *whole, torn = data.split(b"\n")
    return whole, torn


def _hash_in(line: bytes) -> str:
    try:
        return str(json.loads(line)["hash"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def read(path: Path) -> Iterator[dict[str, object]]:
    """The entries that can be read. Raises ApplyError where there is no log."""
    try:
        whole, _ = _split(path)
    except OSError as error:
        raise ApplyError(f"{path}: the audit log cannot be read: {error.strerror or error}") from None
    for line in whole:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield cast("dict[str, object]", found)


def verify(path: Path, head: Head | None, hashes: Sequence[str] = ()) -> Verified:
    """Hold the log against itself and against the store's `head` and `hashes` (None: the store is not there)."""
    if not path.exists() and head is not None and head.count > (not head.written):
        return Verified(entries=0, problems=(f"{path} is gone; actions.db knows of {head.count} entries",))
    try:
        whole, torn = _split(path)
    except OSError as error:
        raise ApplyError(f"{path}: the audit log cannot be read: {error.strerror or error}") from None
    problems: list[str] = []
    notes: list[str] = []
    previous = FIRST
    for number, line in enumerate(whole, 1):
        says, previous = _entry_problem(number, line, previous, hashes[number - 1] if number <= len(hashes) else "")
        problems += [f"entry {number} (line {number}): {one}" for one in says]
    if head is None:
        problems.append("actions.db is gone: entries that are missing at the end, or were written anew, cannot be told")
    else:
        _tail(len(whole), torn, head, problems, notes)
    return Verified(entries=len(whole), problems=tuple(problems), notes=tuple(notes))


def _entry_problem(number: int, line: bytes, previous: str, known: str) -> tuple[list[str], str]:
    """What is wrong with one line, and the hash that the next one has to name."""
    try:
        content = json.loads(line)
        said, prev, seq = str(content["hash"]), str(content["prev"]), content["seq"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ["is no entry: it was changed"], known or previous
    says = []
    if seq != number:
        says.append(f"has the number {seq}: entries were taken out, added or moved here")
    if prev != previous:
        says.append("does not follow the entry before it")
    if hash_of(content) != said:
        says.append("was changed: its hash is not that of its content")
    elif known and said != known:
        says.append("is not the one that actions.db knows: the log was written anew from here on")
    return says, known or said


def _tail(count: int, torn: bytes, head: Head, problems: list[str], notes: list[str]) -> None:
    if not head.written and count == head.count - 1 and head.line.encode().startswith(torn):
        notes.append(
            f"entry {head.count} is not written out whole (power loss, or at this moment); the next action does"
        )
    elif torn:
        problems.append(f"behind entry {count} stands {len(torn)} bytes that are no entry")
    elif count < head.count:
        gone = f"entry {head.count} is" if count == head.count - 1 else f"entries {count + 1} to {head.count} are"
        problems.append(f"{gone} gone from the end; actions.db knows {head.count} entries")
    elif count > head.count:
        problems.append(f"actions.db knows {head.count} entries, the log has {count}: the last ones are forged")
