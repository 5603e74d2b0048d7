"""A model of a log's life drives the file source at random and compares with what was written: 10,000 steps in all.

`STEPS=100000` in the environment makes it longer.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from specwatch.sources.file import Followed

STEPS = int(os.environ.get("STEPS", "10000"))
PER_RUN = 50


class LogsLife(RuleBasedStateMachine):
    """The writer, the rotations and the reader of one log."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "server.log"
        self.written: list[str] = []
        self.may_lose: set[str] = set()
        self.got: dict[int, str] = {}
        self.count = 0
        self.clock = 1000.0
        self.stamp = 10**18
        self.open_part = ""
        self.writer = -1
        self.late: int | None = None
        self.position: dict[str, object] | None = None
        self.reader: Followed | None = Followed(self.path, "s")
        self.reopen()
        self.drain()
        self.commit_unsettled()  # of what was rotated away before the first start nothing is read

    def teardown(self) -> None:
        if self.reader is None:
            self.start()
        for _ in range(3):
            self.drain()
        for fd in (self.writer, self.late):
            if fd is not None and fd >= 0:
                os.close(fd)
        self.compare()
        if self.reader:
            self.reader.close()
        shutil.rmtree(self.folder)

    # the writer

    def reopen(self) -> None:
        self.end_line()
        if self.writer >= 0:
            os.close(self.writer)
        self.writer = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.touch()

    def touch(self, fd: int | None = None) -> None:
        """File systems have coarse clocks; the model's writes are all at different times."""
        self.stamp += 10**9
        os.utime(self.writer if fd is None else fd, ns=(self.stamp, self.stamp))

    def put(self, text: str, fd: int | None = None) -> None:
        os.write(self.writer if fd is None else fd, text.encode())
        self.touch(fd)

    def line(self, size: int = 0) -> str:
        self.count += 1
        text = f"[2026-01-01 00:00:{self.count % 60:02}] line {self.count} {'x' * size}"
        self.written.append(text)
        return text

    def end_line(self) -> None:
        if self.open_part:
            self.put("\n")
            self.open_part = ""

    @rule(n=st.integers(1, 5), size=st.sampled_from([0, 3, 200, 3000]))
    def write(self, n: int, size: int) -> None:
        self.end_line()
        self.put("".join(self.line(size) + "\n" for _ in range(n)))

    @rule()
    def write_a_part(self) -> None:
        if not self.open_part:
            self.open_part = self.line()
            self.put(self.open_part[:15])
            self.put(self.open_part[15:])

    # what happens to the file

    def shift(self, packed: bool) -> Path:
        for number in range(PER_RUN + 2, 0, -1):
            for end in ("", ".gz"):
                old = self.folder / f"server.log.{number}{end}"
                if old.exists():
                    old.rename(self.folder / f"server.log.{number + 1}{end}")
        if packed and (self.folder / "server.log.2").exists():
            self.pack(self.folder / "server.log.2")
        return self.folder / "server.log.1"

    def pack(self, path: Path) -> None:
        if self.late is not None:  # nobody packs a file that is still written to: that is what delaycompress is for
            os.close(self.late)
            self.late = None
        stat = path.stat()
        packed = path.with_name(path.name + ".gz")
        with gzip.open(packed, "wb") as out:
            out.write(path.read_bytes())
        os.utime(packed, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
        path.unlink()

    @rule(packed=st.booleans(), keep=st.booleans())
    def rotate(self, packed: bool, keep: bool) -> None:
        """logrotate's rename and create; the old writer may write on for a while."""
        self.end_line()
        if self.late is not None:
            os.close(self.late)
            self.late = None
        self.path.rename(self.shift(packed))
        if keep:
            self.late = os.dup(self.writer)
        self.reopen()

    @precondition(lambda self: self.late is not None and self.reader is not None)
    @rule()
    def write_late(self) -> None:
        assert self.late is not None
        self.drain()  # whoever was down while the old file was written to after its successor finds it, or not
        self.put(self.line() + "\n", self.late)
        self.drain()

    @rule(packed=st.booleans())
    def copytruncate(self, packed: bool) -> None:
        self.end_line()
        if self.path.stat().st_size < 400:
            self.put(self.line(400) + "\n")
        part = self.shift(packed)
        shutil.copyfile(self.path, part)
        os.utime(part, ns=(self.stamp, self.stamp))
        os.ftruncate(self.writer, 0)
        self.put(self.line() + "\n")

    @precondition(lambda self: self.reader is not None)
    @rule(regrow=st.booleans())
    def truncate(self, regrow: bool) -> None:
        self.end_line()
        self.drain()
        size = self.path.stat().st_size
        os.ftruncate(self.writer, 0)
        self.put(self.line(size + 10 if regrow else 0) + "\n")

    @precondition(lambda self: self.reader is not None)
    @rule(again=st.booleans())
    def delete(self, again: bool) -> None:
        self.drain()
        self.end_line()
        self.path.unlink()
        self.put(self.line() + "\n")
        if again:
            self.drain()
        self.reopen()

    # the reader

    def take(self) -> None:
        assert self.reader is not None
        self.clock += 0.1
        for raw in self.reader.read(self.clock):
            assert self.got.setdefault(raw.offset, raw.text) == raw.text, "one place, two lines"

    def drain(self) -> None:
        assert self.reader is not None
        self.take()
        while self.reader.more:
            self.take()
        self.take()

    @precondition(lambda self: self.reader is not None)
    @rule()
    def read(self) -> None:
        self.take()

    @precondition(lambda self: self.reader is not None)
    @rule()
    def commit(self) -> None:
        assert self.reader is not None
        self.reader.mark()
        self.position = json.loads(json.dumps(self.reader.position()))

    @precondition(lambda self: self.reader is not None)
    @rule()
    def commit_unsettled(self) -> None:
        """What the daemon does in the middle of a crash: new generations are stored, the mark stays."""
        assert self.reader is not None
        self.position = json.loads(json.dumps(self.reader.position()))

    @precondition(lambda self: self.reader is not None)
    @rule()
    def kill(self) -> None:
        assert self.reader is not None
        self.drain()
        self.commit_unsettled()
        self.reader.close()
        self.reader = None

    @precondition(lambda self: self.reader is None)
    @rule()
    def start(self) -> None:
        self.reader = Followed(self.path, "s", self.position)

    @invariant()
    def nothing_is_made_up(self) -> None:
        assert len(set(self.got.values())) == len(self.got), "a line came twice"

    def compare(self) -> None:
        got = set(self.got.values())
        assert got <= set(self.written)
        lost = [line for line in self.written if line not in got and line != self.open_part]
        assert not lost, f"lost: {lost}"


LogsLife.TestCase.settings = settings(
    max_examples=STEPS // PER_RUN,
    stateful_step_count=PER_RUN,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestLogsLife = LogsLife.TestCase
