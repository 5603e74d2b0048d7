"""Follows one log file by its name through everything that can happen to it.

The protocol of `Followed`: events are hints, the file is the truth. Each `read` looks at the name and at what is open:

appended                        size beyond what was read              read on
partial last line               no newline yet                         kept, offered as `rest`, position before it
renamed, perhaps created anew   no such name, or another inode         the old file is read on for late writes
rotated several times at once   unknown rotated parts changed since    read in the order of their change
copytruncate, truncate          smaller than what was read             the copy's unread rest, then from 0
... and regrown past that       first or last read bytes differ        the same
... written on at the old place a hole of zeros                        the hole is skipped
deleted                         no such name                           the open file is read to its end
symlink replaced                another inode behind the name          like a rotation
inode reused                    inode the same, content another        a new generation from 0
rotated or compressed while     stored identity found beside the name  its rest first, then what came after it
we were down
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from specwatch.sources import generations
from specwatch.sources.base import BUDGET, OFFSET_MASK, PLACE_BITS, Splitter, place
from specwatch.sources.generations import Found, Generation, Stored
from specwatch.sources.once import Raw

CHUNK = 256 * 1024
LATE_LINKED = 600.0
"""Seconds for which a rotated file without news is kept open for late writes."""
LATE_DELETED = 60.0
MOST_OLD = 8


class Followed:
    """One followed file; implements `base.Source`. `held` tells the manager which inodes are taken."""

    def __init__(self, path: Path, stream: str, position: dict[str, object] | None = None) -> None:
        self.path = path
        self._stream = stream
        self._notes: list[str] = []
        self._complained = ""
        self._next = 1
        self._count = 0
        self._old: list[Generation] = []
        self._now: Generation | None = None
        self._changed_at = 0
        self._known: list[Generation] = []
        self._more = True
        self._resumed = position is not None
        if position is not None:
            self._resume(position)
        else:  # what was rotated away before the first start is history
            times = [part.stat().st_mtime_ns + 1 for part in generations.siblings(path)]
            self._changed_at = max(times, default=0)

    # base.Source

    @property
    def stream(self) -> str:
        """The name of the position."""
        return self._stream

    @property
    def more(self) -> bool:
        """Whether the budget of the last read was used up."""
        return self._more

    @property
    def ended(self) -> bool:
        """A file never ends: its name may come back."""
        return False

    def read(self, now: float) -> list[Raw]:
        """Look at the name, then read what is new: older generations before younger ones."""
        raws: list[Raw] = []
        self._more = False
        self._look(raws, now)
        for one in [*self._old, *([self._now] if self._now else [])]:
            if len(raws) and self._more:
                break
            self._drain(one, raws, now)
        self._retire(raws, now)
        return raws

    def rest(self) -> Raw | None:
        """The unfinished last line of the current file."""
        one = self._now or (self._old[-1] if self._old else None)
        if one is None or not one.split.pending:
            return None
        before = one.base if one.base >= 0 else self._count
        return Raw(str(self.path), before + one.lines + 1, place(one.id, one.split.offset), one.split.text())

    def broke(self) -> bool:
        """A file does not tell."""
        return False

    def mark(self) -> None:
        """All that was handed out is understood."""
        for one in self._all():
            one.mark()

    def position(self) -> dict[str, object]:
        """The generations that may have unread lines."""
        return {
            "kind": "file",
            "path": str(self.path),
            "next": self._next,
            "count": self._count,
            "changed": self._changed_at,
            "generations": [one.save() for one in self._all()],
            "past": [mark for one in self._known if (mark := one.past or generations.mark_of(one.head))[0]],
        }

    def where(self, spot: int, number: int) -> tuple[int, int]:
        """Line and offset in the file."""
        one = next((one for one in (*self._known, *self._all()) if one.id == spot >> PLACE_BITS), None)
        return number - (one.base if one else 0), spot & OFFSET_MASK

    def notes(self) -> list[str]:
        """What has to be said."""
        notes, self._notes = self._notes, []
        return notes

    def filenos(self) -> Sequence[int]:
        """Files are always readable: wakes come from elsewhere."""
        return ()

    def close(self) -> None:
        """Close what is open."""
        for one in self._all():
            self._shut(one)

    @property
    def held(self) -> set[tuple[int, int]]:
        """Device and inode of all files that this stream reads."""
        return {(one.dev, one.ino) for one in self._all() if one.fd >= 0}

    @property
    def missing(self) -> bool:
        """Whether there is nothing under the name and nothing left to read."""
        return self._now is None and not self._old

    # looking

    def _all(self) -> list[Generation]:
        return [*self._old, *([self._now] if self._now else [])]

    def _look(self, raws: list[Raw], now: float) -> None:
        """Compare what the name stands for with what is open."""
        for open_one in self._all():
            if open_one.fd >= 0 and not self._is_same(open_one):
                self._emptied(open_one, raws, now)
        try:
            seen = self.path.stat()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._complain(f"{self.path}: cannot be looked at: {error.strerror}")
            self._put_aside(now)
            return
        if not stat.S_ISREG(seen.st_mode):
            self._complain(f"{self.path}: is no regular file; expected a log")
            return
        one = self._now
        if one is not None and (one.dev, one.ino) == (seen.st_dev, seen.st_ino):
            if self._resumed or (one.read == 0 and seen.st_size):
                self._resumed = False
                self._adopt_between(now)  # before the first bytes of a file: what it had until it was emptied
            return
        again = next((old for old in self._old if (old.dev, old.ino) == (seen.st_dev, seen.st_ino)), None)
        if again is not None and again.fd >= 0:  # it was renamed back
            self._put_aside(now)
            self._old.remove(again)
            self._now = again
            if self._resumed or again.read == 0:
                self._resumed = False
                self._adopt_between(now)
            return
        if one is not None or self._old or self._known or self._resumed:
            self._resumed = False
            self._put_aside(now)
            self._adopt_between(now)
        self._open_current(now)

    def _open_current(self, now: float) -> None:
        fd = self._open(self.path)
        if fd >= 0:
            found = os.fstat(fd)
            self._now = self._new(found.st_dev, found.st_ino, fd, now)
            self._changed_at = max(self._changed_at, found.st_mtime_ns if found.st_size == 0 else 0)
            self._complained = ""

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._complain(f"{path}: cannot be opened: {error.strerror}")
            return -1

    def _new(self, dev: int, ino: int, fd: int, now: float) -> Generation:
        made = Generation(self._next, dev, ino, fd=fd, quiet_since=now)
        self._next += 1
        return made

    def _put_aside(self, now: float) -> None:
        """The name no longer stands for the current file; its writer may still write into it."""
        if self._now is not None:
            self._now.quiet_since = now
            self._old.append(self._now)
            self._now = None
            self._more = True

    def _is_same(self, one: Generation) -> bool:
        try:
            return os.fstat(one.fd).st_size >= one.read and one.is_unchanged(one.fd)
        except OSError:
            return False

    def _emptied(self, one: Generation, raws: list[Raw], now: float) -> None:
        """The file was emptied under us: first what a copy of it still holds, then the file from its start."""
        stored = Stored.load({**one.save(), **_exactly(one)})
        rest = self._find_rest(stored, self.held) if stored.tells_anything() else None
        fresh = self._new(one.dev, one.ino, one.fd, now)
        at = self._old.index(one) if one in self._old else len(self._old)
        self._old[at : at + (one in self._old)] = [one] if rest is not None else []
        if rest is not None:
            one.fd, one.chunks, one.dev, one.ino, head = rest
            one.head = one.head if one.fd >= 0 else head
            at += 1
        else:
            one.fd = -1
            self._finish(one, raws)
            self._known = [*self._known, one][-16:]
        if one is self._now:
            self._now = fresh
            self._adopt_between(now)
        else:
            self._old.insert(at, fresh)
        self._more = True

    def _finish(self, one: Generation, raws: list[Raw]) -> None:
        """A file is over: its unfinished line is all that there will be of it."""
        if one.split.pending:
            self._emit(one, [(one.split.offset, one.split.text())], raws)
            one.split = Splitter(one.read)

    # after a rotation, and after a restart

    def _find_rest(self, stored: Stored, without: set[tuple[int, int]]) -> Found | None:
        """Where a generation goes on: in the file of its name, in a rotated part, in a compressed one."""
        for part in (self.path, *reversed(generations.siblings(self.path))):
            fd = self._open(part)
            if fd < 0:
                continue
            seen = os.fstat(fd)
            inode = (seen.st_dev, seen.st_ino)
            if inode in without or not stat.S_ISREG(seen.st_mode):
                os.close(fd)
                continue
            packed = generations.is_packed(part.name)
            if not packed and stored.fits(fd) and (stored.tells_anything() or inode == (stored.dev, stored.ino)):
                return Found(fd, None, *inode, os.pread(fd, generations.HEAD, 0))
            os.close(fd)
            if packed and stored.tells_anything():
                rest = generations.unpacked_rest(part, stored)
                if rest is not None:
                    return Found(-1, rest, *inode, generations.unpacked_head(part))
        return None

    def _adopt_between(self, now: float) -> None:
        """Rotated parts that came and went between two looks: those changed since, and not known."""
        gens = [*self._all(), *self._known]
        known = {(one.dev, one.ino) for one in gens if one.fd >= 0}  # an inode is only sure while it is held
        marks = [generations.mark_of(os.pread(one.fd, generations.HEAD, 0)) for one in gens if one.fd >= 0]
        closed = [one for one in self._known if one.read]
        marks += [one.past or generations.mark_of(one.head) for one in gens if one.fd < 0]
        for part in generations.siblings(self.path):
            try:
                found = part.stat()
            except OSError:
                continue
            inode = (found.st_dev, found.st_ino)
            if found.st_mtime_ns < self._changed_at or inode in known:
                continue
            packed = generations.is_packed(part.name)
            fd = -1 if packed else self._open(part)
            if not packed and fd < 0:
                continue
            if not packed and self._reopened(fd, closed, now):
                continue
            head = generations.unpacked_head(part) if packed else os.pread(fd, generations.HEAD, 0)
            if (packed and not head) or any(generations.is_marked(head, mark) for mark in marks):
                if fd >= 0:
                    os.close(fd)
                continue
            made = self._new(*inode, fd, now)
            if packed:
                self._changed_at = max(self._changed_at, found.st_mtime_ns)
                made.head, made.chunks = head, generations.unpacked_rest(part, Stored.load(made.save()))
            marks.append(generations.mark_of(head))
            self._old.append(made)

    def _reopened(self, fd: int, closed: list[Generation], now: float) -> bool:
        """Whether an open file is one that was closed because nobody wrote into it any more; then it goes on."""
        found = os.fstat(fd)
        for one in closed:
            if (one.dev, one.ino) == (found.st_dev, found.st_ino) and found.st_size >= one.read:
                if not (one.tail and one.is_unchanged(fd)):
                    continue
                one.fd, one.quiet_since = fd, now
                self._known.remove(one)
                self._old.append(one)
                closed.remove(one)
                return True
        return False

    def _resume(self, position: dict[str, object]) -> None:
        """Find again what was open when the position was stored."""
        try:
            saved = [Stored.load(one) for one in cast("list[dict[str, object]]", position["generations"])]
            self._next, self._count = int(cast("int", position["next"])), int(cast("int", position["count"]))
            self._changed_at = int(cast("int", position["changed"]))
            past = [(int(n), str(digest)) for n, digest in cast("list[tuple[int, str]]", position.get("past", []))]
            self._known = [Generation(0, 0, 0, past=mark) for mark in past]
        except (KeyError, TypeError, ValueError):
            self._notes.append(f"{self.path}: the stored position cannot be understood; read from the start")
            return
        taken: set[tuple[int, int]] = set()
        # those with content first: one without is known by its inode alone, which may be another file's by now
        for stored in sorted(saved, key=lambda stored: not stored.tells_anything()):
            one = stored.generation()
            rest = self._find_rest(stored, taken)
            if rest is None:
                if stored is saved[-1]:
                    self._notes.append(
                        f"{self.path}: the file that was read to byte {stored.offset} is gone; what came after is lost"
                    )
                one.past = stored.head
                self._known = [*self._known, one][-16:]
                continue
            one.fd, one.chunks, one.dev, one.ino, one.head = rest
            taken.add((one.dev, one.ino))
            if one.fd >= 0:
                one.head = one.head[: max(one.read, stored.head[0])]
                one.tail = os.pread(one.fd, min(generations.TAIL, one.read), max(0, one.read - generations.TAIL))
                one.safe_tail = one.tail
            self._old.append(one)
        order = [stored.id for stored in saved]
        self._old.sort(key=lambda one: order.index(one.id))
        if self._old:
            last = self._old[-1]
            try:
                named = self.path.stat()
            except OSError:
                return
            if last.fd >= 0 and (last.dev, last.ino) == (named.st_dev, named.st_ino):
                self._now = self._old.pop()

    # reading

    def _drain(self, one: Generation, raws: list[Raw], now: float) -> None:
        budget = BUDGET
        while budget > 0:
            data = self._chunk(one)
            if not data:
                return
            budget -= len(data)
            one.quiet_since = now
            if data[:1] == b"\0" and not one.split.pending:
                data = self._skip_hole(one, data)
            one.took(data)
            self._emit(one, one.split.feed(data), raws)
        self._more = True

    def _chunk(self, one: Generation) -> bytes:
        if one.chunks is not None:
            return next(one.chunks, b"")
        if one.fd < 0:
            return b""
        try:
            data = os.pread(one.fd, CHUNK, one.read)
            if data and not one.is_unchanged(one.fd):
                self._more = True  # emptied between the look and the read: the next look sees it
                return b""
            if data:
                self._changed_at = max(self._changed_at, os.fstat(one.fd).st_mtime_ns)
        except OSError as error:
            self._complain(f"{self.path}: cannot be read: {error.strerror}")
            return b""
        return data

    def _skip_hole(self, one: Generation, data: bytes) -> bytes:
        """What a writer that went on at its old offset left: zeros, gigabytes of them where the file is sparse."""
        kept = data.lstrip(b"\0")
        hole = len(data) - len(kept)
        if not kept and one.fd >= 0:
            with contextlib.suppress(OSError):  # no data behind it, or a file system that does not tell
                hole = max(hole, os.lseek(one.fd, one.read + hole, os.SEEK_DATA) - one.read)
        if one.read == 0:
            one.head = b""
        one.read += hole
        one.split.skip(hole)
        one.tail = b""
        return kept

    def _emit(self, one: Generation, lines: list[tuple[int, str]], raws: list[Raw]) -> None:
        name = str(self.path)
        if one.base < 0:
            one.base = self._count
        for offset, text in lines:
            one.lines += 1
            raws.append(Raw(name, one.base + one.lines, place(one.id, offset), text))
        self._count = max(self._count, one.base + one.lines)

    def _retire(self, raws: list[Raw], now: float) -> None:
        """Close rotated files that nobody writes into any more."""
        empty = self._now is None or self._now.read == 0
        for one in list(self._old):
            one.quiet_since = one.quiet_since or now
            if one.chunks is not None and not self._more:
                self._drop(one, raws)
                continue
            if one.fd < 0:
                if one.chunks is None:
                    self._drop(one, raws)
                continue
            deleted = os.fstat(one.fd).st_nlink == 0
            patience = LATE_DELETED if deleted else LATE_LINKED
            crowded = len(self._old) > MOST_OLD and one is self._old[0] and not self._more
            if (now - one.quiet_since > patience and (deleted or not empty)) or crowded:
                self._drop(one, raws)

    def _drop(self, one: Generation, raws: list[Raw]) -> None:
        self._finish(one, raws)
        self._old.remove(one)
        self._shut(one)
        self._known = [*self._known, one][-16:]

    def _shut(self, one: Generation) -> None:
        if one.fd >= 0:
            os.close(one.fd)
            one.fd = -1

    def _complain(self, text: str) -> None:
        if text != self._complained:
            self._complained = text
            self._notes.append(text)


def _exactly(one: Generation) -> dict[str, object]:
    """What `save` says, but at the byte that was read last rather than at the mark."""
    at = Generation(one.id, one.dev, one.ino, head=one.head, safe_tail=one.tail)
    at.safe = one.read
    return {name: at.save()[name] for name in ("offset", "head", "tail")}
