"""What stands in the way around a server and needs no change of its launch: told to a person, never done.

Processes that hold GPU memory and whose parent is gone (`nvidia-smi`), a full /dev/shm (statvfs), whoever holds the
server's port (/proc/net/tcp, proc(5)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specwatch.errors import ApplyError
from specwatch.runtime.running import Run, run, well

SHM_FULL = 0.9
"""Part of /dev/shm in use from which on it is told."""
_QUERY = ("nvidia-smi", "--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")
_OURS = re.compile(r"sglang|launch_server|python")
_LISTEN = "0A"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """What was seen: one text each for what is in the way, and for what could not be seen."""

    found: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def look(port: int | None, runs: Run = run, proc: Path = Path("/proc"), shm: Path = Path("/dev/shm")) -> Neighbourhood:  # noqa: S108
    """Look at the GPU's processes, the shared memory, and whoever listens at `port`. Raises nothing."""
    found: list[str] = []
    unseen: list[str] = []
    try:
        found += _orphans(well(_QUERY, runs), proc)
    except ApplyError as error:
        unseen.append(f"GPU processes: {error}")
    try:
        found += _full(shm)
    except OSError as error:
        unseen.append(f"{shm}: {error.strerror or error}")
    if port is not None:
        found += _holders(port, proc)
    return Neighbourhood(found=tuple(found), unseen=tuple(unseen))


def _orphans(said: str, proc: Path) -> Iterator[str]:
    """Processes of a dead server: their parent is gone (init took them), and they still hold memory."""
    for line in said.split("\n"):
        pid, _, rest = line.partition(",")
        memory, _, name = rest.strip().partition(",")
        if not pid.strip().isdigit():
            continue
        known = _process(int(pid), proc)
        if known is None:
            yield (
                f"GPU memory ({memory.strip()} MiB) is held by process {pid.strip()} ({name.strip()}), which is not "
                "one of this machine's: it may be in another container"
            )
        elif known.parent == 1 and not known.unit and _OURS.search(known.command):
            yield (
                f"{memory.strip()} MiB of GPU memory are held by process {pid.strip()} ({known.command[:80]}), whose "
                f"parent is gone: look at it with `ps -fp {pid.strip()}`, and end it with `kill {pid.strip()}`"
            )


def _full(shm: Path) -> Iterator[str]:
    found = os.statvfs(shm)
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    if total and 1 - free / total >= SHM_FULL:
        used = (total - free) / 2**30
        yield (
            f"{shm} is full ({used:.1f} of {total / 2**30:.1f} GiB): `ls -lS {shm}` shows what dead processes left "
            "there; remove what no process has open (`fuser -v`), or make it larger (--shm-size, mount size=)"
        )


def _holders(port: int, proc: Path) -> Iterator[str]:
    sockets = _listening(port, proc)
    if not sockets:
        return
    holders = [one for one in _processes(proc) if sockets & _sockets(one.pid, proc)]
    for one in holders:
        yield (
            f"port {port} is held by process {one.pid} ({one.command[:80]}"
            f"{', of ' + one.unit if one.unit else ''}): if that is not the server itself, end it or take another port"
        )
    if not holders:
        yield f"port {port} is held by a process that cannot be seen from here (run as root: `ss -ltnp`)"


def _listening(port: int, proc: Path) -> set[str]:
    """The inodes of the sockets that listen at a port."""
    found = set()
    for name in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for line in (proc / name).read_text(encoding="ascii", errors="replace").split("\n")[1:]:
                words = line.split()
                if len(words) > 9 and words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(words[9])
    return found


def _sockets(pid: int, proc: Path) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in (proc / str(pid) / "fd").iterdir():
            with suppress(OSError):
                link = str(entry.readlink())
                if link.startswith("socket:["):
                    found.add(link[8:-1])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    command: str
    unit: str


def _processes(proc: Path) -> Iterator[_Process]:
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := _process(int(entry.name), proc)) is not None:
            yield found


def _process(pid: int, proc: Path) -> _Process | None:
    """A process, None where there is none; `unit` is the service that it belongs to."""
    folder = proc / str(pid)
    try:
        status = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        parent = int(status.rpartition(")")[2].split()[1])
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (OSError, ValueError, IndexError):
        return None
    unit = ""
    with suppress(OSError):
        groups = (folder / "cgroup").read_text(encoding="utf-8", errors="replace")
        services = re.findall(r"/([^/\n]+\.service)", groups)
        unit = services[-1] if services else ""
    return _Process(
        pid=pid, parent=parent, command=words or status[status.find("(") + 1 : status.rfind(")")], unit=unit
    )
