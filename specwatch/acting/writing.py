"""Puts edits into files and into the API of Kubernetes, each whole or not at all, and tells how far they got.

A file is written beside its place, forced onto the disk and renamed over it; its mode, owner and attributes stay, a
symbolic link stays and what it points to changes. Before that the file must be what the edit was planned on, byte for
byte: what somebody else wrote meanwhile is never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from specwatch.errors import ApplyError
from specwatch.launch.targets.base import ApiPatch, Edit, Rewrite
from specwatch.plainfile import opened
from specwatch.runtime.kubernetes import kubectl
from specwatch.runtime.running import Run
from specwatch.storage.audit import sync_folder

_TEMPORARY = ".specwatch-"
LARGEST = 1 << 24
"""Bytes of a file that are looked at; one of launches has at most a megabyte (launch.targets.base)."""


def standing(edit: Edit, runs: Run) -> str:
    """`before` or `after`, how an edit stands now; `other` where somebody else changed the same since."""
    if isinstance(edit, ApiPatch):
        if not runs((*_patch(edit, edit.operations), "--dry-run=server")).code:
            return "before"
        return "after" if not runs((*_patch(edit, edit.undo), "--dry-run=server")).code else "other"
    found = content(edit.path)
    return "before" if found == edit.before else "after" if found == edit.after else "other"


def make(edits: Sequence[Edit], runs: Run) -> None:
    """Make the edits that are not made yet. Raises ApplyError at the first that cannot be."""
    for edit in edits:
        if isinstance(edit, ApiPatch):
            done = runs(_patch(edit, edit.operations))
            if done.code:
                raise ApplyError(f"{described(edit)} cannot be changed: {done.said}")
        elif content(edit.path) != edit.after:
            put(edit.path, edit.before, edit.after, edit.mode)


def unmake(edits: Sequence[Edit], runs: Run) -> None:
    """Take back the edits that were made. Raises ApplyError before anything is touched where one was changed since."""
    stand = [(edit, standing(edit, runs)) for edit in edits]
    for edit, how in stand:
        if how == "other":
            raise ApplyError(f"{described(edit)} was changed by somebody else meanwhile: it is left as it is")
    for edit, how in reversed(stand):
        if how == "before":
            continue
        if isinstance(edit, ApiPatch):
            done = runs(_patch(edit, edit.undo))
            if done.code:
                raise ApplyError(f"{described(edit)} cannot be put back: {done.said}")
        else:
            put(edit.path, edit.after, edit.before, edit.mode)


def turned(edit: Edit) -> Edit:
    """The way back."""
    if isinstance(edit, ApiPatch):
        return ApiPatch(
            namespace=edit.namespace,
            kind=edit.kind,
            name=edit.name,
            container=edit.container,
            operations=edit.undo,
            undo=tuple(one for one in edit.operations if one.get("path") != "/metadata/resourceVersion"),
            resource_version="",
        )
    return Rewrite(path=edit.path, before=edit.after, after=edit.before, mode=edit.mode)


def described(edit: Edit) -> str:
    """What an edit changes."""
    return f"{edit.kind}/{edit.name} in {edit.namespace}" if isinstance(edit, ApiPatch) else str(edit.path)


def content(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none. Raises ApplyError where it cannot be read."""
    try:
        with opened(path) as file:
            return file.read(LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ApplyError(f"{path}: cannot be read: {error.strerror or error}") from None


def put(path: Path, before: bytes | None, after: bytes | None, mode: int = 0o644) -> None:
    """Make a file hold `after`, if it still holds `before`; None: there is no such file. Raises ApplyError.

    All is done within one folder that is opened once: whoever may rename it meanwhile leads us to no other.
    """
    try:
        place = path.resolve()
        if after is not None:
            _folder(place.parent)
        try:
            fd = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if before is None:
                return  # neither the file nor its folder is there
            raise
        try:
            _put(path, fd, place.name, before, after, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
    except FileExistsError:
        raise ApplyError(f"{path}: was made by somebody else meanwhile; nothing was written", retry=True) from None
    except OSError as error:
        raise ApplyError(f"{path}: cannot be written: {error.strerror or error}", retry=True) from None


def _put(path: Path, folder: int, name: str, before: bytes | None, after: bytes | None, mode: int) -> None:
    if after is None:
        _unchanged(path, folder, name, before)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        return
    _sweep(folder, name)
    temporary = f".{name}{_TEMPORARY}{secrets.token_hex(4)}"
    try:
        _write(folder, temporary, after, name if before is not None else None, mode)
        _unchanged(path, folder, name, before)  # as late as can be
        if before is None:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)  # unlike a rename, fails where there is one
        else:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _unchanged(path: Path, folder: int, name: str, before: bytes | None) -> None:
    found: bytes | None = None
    with contextlib.suppress(FileNotFoundError), opened(name, dir_fd=folder, follow=False) as file:
        found = file.read(LARGEST)
    if found != before:
        raise ApplyError(f"{path}: was changed by somebody else meanwhile; nothing was written", retry=True)


def _folder(folder: Path) -> None:
    if not folder.is_dir():
        if folder.exists():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is no directory")
        folder.mkdir(mode=0o755)
        sync_folder(folder.parent)


def sweep(edits: Sequence[Edit]) -> None:
    """Remove what an interrupted write left beside the files."""
    for edit in edits:
        if isinstance(edit, Rewrite):
            with contextlib.suppress(OSError):  # there is no such folder, or none of ours to write
                place = edit.path.resolve()
                fd = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    _sweep(fd, place.name)
                finally:
                    os.close(fd)


def _sweep(folder: int, name: str) -> None:
    """What an interrupted write left behind."""
    for left in os.listdir(folder):
        if left.startswith(f".{name}{_TEMPORARY}"):
            os.unlink(left, dir_fd=folder)


def _write(folder: int, temporary: str, data: bytes, like: str | None, mode: int) -> None:
    """A new file with that content; mode, owner and attributes are those of the file `like` beside it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=folder)
    with open(fd, "wb") as file:  # noqa: PTH123 (a descriptor)
        file.write(data)
        file.flush()
        if like is None:
            os.fchmod(fd, mode)
        else:
            with opened(like, dir_fd=folder, follow=False) as old:
                found = os.fstat(old.fileno())
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, found.st_uid, found.st_gid)
                os.fchmod(fd, found.st_mode & 0o7777)
                with contextlib.suppress(OSError):  # labels of SELinux and the like, where the file system has any
                    for attribute in os.listxattr(old.fileno()):
                        os.setxattr(fd, attribute, os.getxattr(old.fileno(), attribute))
        os.fsync(fd)


def _patch(edit: ApiPatch, operations: Sequence[object]) -> tuple[str, ...]:
    body = json.dumps([dict(one) if isinstance(one, dict) else one for one in operations])
    return (
        *(kubectl(), "patch", edit.kind, edit.name, "--namespace", edit.namespace),
        *("--type=json", f"--patch={body}"),
    )
