"""What the watcher leaves for the one that may act: a file that names a server, a finding and a fix. Hints, no more.

The watcher is unprivileged and may be taken over. So a proposal says nothing that is acted upon but names: whoever
takes it looks the server up in its own configuration, and reads the log, the models and the launch again. And the
directory that holds it belongs to the watcher: `Inbox` opens everything in it so that no link, pipe, folder or size
leads a process of root anywhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from specwatch.errors import ApplyError, ConfigError

FOLDER = "proposals"
"""The directory of proposals within that of the watcher's state."""
SCHEMA = 1
LARGEST = 4096
"""Bytes that a proposal may have."""
MOST = 16
"""How many are taken in one go; what is beyond is removed, and said."""
SKEW = 5.0
"""Seconds that a proposal may come from the future: two clocks of one machine."""
_LISTED = 10_000
_APPROVAL = re.compile(r"[0-9a-f]{64}")
_SHAPES = {
    "server": re.compile(r"[\w.@:-]{1,100}", re.ASCII),
    "finding": re.compile(r"[0-9a-f]{12}"),
    "fix": re.compile(r"[a-z0-9][a-z0-9-]{0,99}"),
    "occurrence": re.compile(r"[0-9a-f]{32}"),
    "specwatch": re.compile(r"[\w.+-]{1,40}", re.ASCII),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """`finding` is a fingerprint, `fix` a fix's id, `created` seconds since 1970.

    `occurrence` stands for the one crash that it answers: a second proposal of the same is a replay. `approval` is a
    person's (`acting.approval`), empty where nobody was asked; then `occurrence` stands for the approval.
    """

    server: str
    finding: str
    fix: str
    occurrence: str
    created: float
    specwatch: str
    approval: str = ""

    @property
    def file_name(self) -> str:
        """One file for each server and finding: a later crash of the same takes the place of the earlier.

        What a person approved has one of its own, so that a crash that comes meanwhile does not take its place.
        """
        approved = "\0approved" if self.approval else ""
        return hashlib.sha256(f"{self.server}\0{self.finding}{approved}".encode()).hexdigest()[:32] + ".json"


def occurrence_of(key: str) -> str:
    """The name of one crash, of what the store knows it by (stream, file, offset, error)."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def dumps(proposal: Proposal) -> bytes:
    """A proposal as the file that holds it."""
    held = {name: value for name, value in asdict(proposal).items() if name != "approval" or value}
    return (json.dumps({"schema": SCHEMA, **held}, sort_keys=True) + "\n").encode()


def loads(data: bytes) -> Proposal:
    """The proposal that a file holds. Raises ApplyError with the reason where it is not exactly one."""
    try:
        held = json.loads(data.decode("ascii"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ApplyError(f"is no JSON: {error}") from None
    names = {one.name for one in fields(Proposal)} - {"approval"}
    if not isinstance(held, dict) or set(held) - {"approval"} != names | {"schema"}:
        raise ApplyError(f"expected an object with exactly schema, {', '.join(sorted(names))}")
    approval = held.get("approval", "")
    if not isinstance(approval, str) or (approval and not _APPROVAL.fullmatch(approval)):
        raise ApplyError("approval is none")
    if held["schema"] != SCHEMA or isinstance(held["schema"], bool):
        raise ApplyError(f"has another schema than {SCHEMA}")
    for name, shape in _SHAPES.items():
        if not isinstance(held[name], str) or not shape.fullmatch(held[name]):
            raise ApplyError(f"{name} is none")
    created = held["created"]
    if isinstance(created, bool) or not isinstance(created, (int, float)) or not 0 <= created < 1e11:
        raise ApplyError("created is no time")
    return Proposal(**{name: held[name] for name in _SHAPES}, created=float(created), approval=approval)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("a name stands twice")
    return held


def untimely(proposal: Proposal, now: float, oldest: float) -> str:
    """Why a proposal comes at the wrong time, empty where it does not; `oldest` is in seconds."""
    age = now - proposal.created
    if age < -SKEW:
        return f"it is from the future, by {-age:.0f} s: the clock was set back, or it was made up"
    if age > oldest:
        return f"it is stale: {age:.0f} s old, where [policy] proposal_age allows {oldest:.0f} s"
    return ""


def leave(state: Path, proposal: Proposal) -> Path:
    """Put a proposal where the actor finds it, whole or not at all. Raises OSError where the disk does not take it."""
    folder = state / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    # written beside the directory, not in it: what appears there wakes the actor
    whole = state / f".proposal-{os.getpid()}-{threading.get_ident()}"  # the page leaves some, too
    try:
        with whole.open("wb") as out:
            out.write(dumps(proposal))
            out.flush()
            os.fsync(out.fileno())
        whole.rename(folder / proposal.file_name)
    except OSError:
        whole.unlink(missing_ok=True)
        raise
    return folder / proposal.file_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one entry of the directory was: a proposal, or the reason why it is none."""

    name: str
    proposal: Proposal | None = None
    because: str = ""


class Inbox:
    """The directory of proposals under the watcher's state, opened; closes with `with`.

    The state directory itself is trusted to be where it is (systemd made it in a directory of root), nothing below is.
    """

    def __init__(self, state: Path) -> None:
        self._fd = -1
        try:
            above = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # the watcher never ran
        except OSError as error:
            raise ConfigError(f"{state}: the watcher's state cannot be opened: {error.strerror}") from None
        try:
            self._fd = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except FileNotFoundError:
            pass  # nothing was ever proposed
        except OSError as error:
            raise ConfigError(
                f"{state / FOLDER}: is no directory of its own ({error.strerror}): somebody put something else there; "
                "look at it and remove it"
            ) from None
        finally:
            os.close(above)

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def entries(self) -> tuple[list[Taken], int]:
        """The oldest entries, read, and how many more there are than are taken in one go."""
        if self._fd < 0:
            return [], 0
        names = []
        with os.scandir(self._fd) as listing:
            for entry in listing:
                with suppress(OSError):
                    names.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
                if len(names) >= _LISTED:
                    break
        names.sort()
        return [self._read(name) for _, name in names[:MOST]], max(0, len(names) - MOST)

    def drop(self, name: str) -> None:
        """Remove an entry, whatever it is."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except IsADirectoryError:
            with suppress(OSError):  # filled again meanwhile: that starts us again
                self._clear(name)
        except FileNotFoundError:
            return

    def _clear(self, name: str) -> None:
        """Remove a folder however deep it is: what is in it comes to the top, and goes from there."""
        folders = [name]
        while folders:
            fd = os.open(folders[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                inner = self._emptied(fd)
            finally:
                os.close(fd)
            os.rmdir(folders.pop(), dir_fd=self._fd)
            folders += inner

    def _emptied(self, fd: int) -> list[str]:
        """Empty one folder; gives the names that the folders in it have at the top now."""
        inner = []
        for entry in os.listdir(fd):
            try:
                os.unlink(entry, dir_fd=fd)
            except IsADirectoryError:
                inner.append(secrets.token_hex(16))
                os.rename(entry, inner[-1], src_dir_fd=fd, dst_dir_fd=self._fd)
        return inner

    def drop_rest(self, kept: set[str]) -> int:
        """Remove everything but those; gives how many."""
        gone = 0
        for name in self._names():
            if name not in kept:
                self.drop(name)
                gone += 1
        return gone

    def _names(self) -> Iterator[str]:
        if self._fd >= 0:
            with os.scandir(self._fd) as listing:
                yield from [entry.name for entry in listing]

    def _read(self, name: str) -> Taken:
        shown = name.encode("utf-8", "backslashreplace").decode()[:80]
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError as error:
            return Taken(name=name, because=f"{shown}: cannot be opened as a file of its own: {error.strerror}")
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                return Taken(name=name, because=f"{shown}: is no plain file of its own")
            data = os.read(fd, LARGEST + 1)
        except OSError as error:
            return Taken(name=name, because=f"{shown}: cannot be read: {error.strerror}")
        finally:
            os.close(fd)
        if len(data) > LARGEST:
            return Taken(name=name, because=f"{shown}: larger than {LARGEST} bytes")
        try:
            proposal = loads(data)
        except ApplyError as error:
            return Taken(name=name, because=f"{shown}: {error}")
        if proposal.file_name != name:
            return Taken(name=name, because=f"{shown}: is not the name of what it holds")
        return Taken(name=name, proposal=proposal)
