"""What stands around a server is told, with a command for a person; nothing of it is ever run."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from stage import nothing_there

from specwatch.acting.neighbourhood import look
from specwatch.runtime.running import Done


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with an orphan (41), a child of a service (42), and a process with a parent (43)."""
    for pid, parent, command, group in (
        (41, 1, "sglang::scheduler_TP0", "/user.slice/x.scope"),
        (42, 1, "python3\0-m\0sglang.launch_server", "/system.slice/sglang-b.service"),
        (43, 40, "sglang::scheduler_TP1", "/user.slice/x.scope"),
        (44, 1, "Xorg", "/user.slice"),
    ):
        (folder := tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} (a b) c) S {parent} 1 1")
        (folder / "cmdline").write_bytes(command.encode() + b"\0")
        (folder / "cgroup").write_text(f"0::{group}\n")
    return tmp_path / "proc"


def smi(words: Sequence[str]) -> Done:
    assert words[0] == "nvidia-smi"
    rows = [f"{pid}, 71234, [Not Found]" for pid in (41, 42, 43, 44, 99)]
    return Done(code=0, out="\n".join(rows) + "\n", err="")


def test_orphans_of_the_gpu_are_named_and_others_are_not(proc: Path, tmp_path: Path) -> None:
    found = look(None, smi, proc, tmp_path).found
    assert [text for text in found if "kill 41" in text and "71234 MiB" in text and "sglang::scheduler_TP0" in text]
    assert not [text for text in found for pid in ("42", "43", "44") if f"process {pid}" in text]
    assert [text for text in found if "process 99" in text and "another container" in text]


def test_without_a_gpu_it_says_so(proc: Path, tmp_path: Path) -> None:
    seen = look(None, nothing_there, proc, tmp_path)
    assert seen.found == ()
    assert "nvidia-smi: is not installed" in seen.unseen[0]


@pytest.fixture
def shm(tmp_path: Path) -> Iterator[Path]:
    (folder := tmp_path / "shm").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "specwatch-test", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_shared_memory_is_named(proc: Path, shm: Path) -> None:
    assert look(None, nothing_there, proc, shm).found == ()
    (shm / "left").write_bytes(b"x" * 1000 * 1024)
    (text,) = look(None, nothing_there, proc, shm).found
    assert f"{shm} is full" in text
    assert "fuser -v" in text


def test_whoever_holds_the_port_is_named() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        (text,) = (one for one in look(port, nothing_there).found if "port" in one)
        assert f"port {port} is held by process {os.getpid()}" in text
    assert not [one for one in look(port, nothing_there).found if "port" in one]
