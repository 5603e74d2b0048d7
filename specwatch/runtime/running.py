"""Runs other programs: argument lists only, with a time-out, and an error that says which one and why."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, cast

from specwatch.errors import ApplyError

TIMEOUT = 60.0
"""Seconds that a program may take where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a program ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its complaint in one line."""
        text = " ".join((self.err.strip() or self.out.strip()).split())
        return text[:500] or f"exit code {self.code}"


Run = Callable[[Sequence[str]], Done]
"""Runs an argument list. Raises ApplyError where that cannot be started, or takes too long."""


def run(words: Sequence[str], timeout: float = TIMEOUT) -> Done:
    """Run a program to its end. Raises ApplyError naming it."""
    env = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env)
    except FileNotFoundError:
        raise ApplyError(f"{words[0]}: is not installed, or not in the PATH") from None
    except (OSError, ValueError) as error:
        raise ApplyError(f"{words[0]}: cannot be run: {error}") from None
    with cast("IO[bytes]", process.stdout) as out, cast("IO[bytes]", process.stderr) as err:
        try:
            texts = _written(process, (out.fileno(), err.fileno()), time.monotonic() + timeout)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if texts is None:
        raise ApplyError(f"{' '.join(words[:3])} …: no end within {timeout:.0f} s", retry=True)
    return Done(code=process.returncode, out=texts[0], err=texts[1])


def _written(process: subprocess.Popen[bytes], pipes: Sequence[int], end: float) -> list[str] | None:
    """What a program writes until it ends, None where it does not; who it leaves running may keep its pipes open."""
    held = {pipe: bytearray() for pipe in pipes}
    for pipe in pipes:
        os.set_blocking(pipe, False)
    while True:
        ended = process.poll() is not None  # asked first: what it wrote is in the pipes then
        for pipe in list(pipes):
            with suppress(BlockingIOError):
                for _ in range(16):  # more than a pipe holds: who is left running may write on and on
                    if not (block := os.read(pipe, 65536)):
                        pipes = [one for one in pipes if one != pipe]
                        break
                    held[pipe] += block
        if ended:
            return [data.decode(errors="replace") for data in held.values()]
        if time.monotonic() >= end:
            return None
        if pipes:
            select.select(pipes, [], [], 0.02)
        else:
            time.sleep(0.005)


def well(words: Sequence[str], runs: Run = run) -> str:
    """What a program writes. Raises ApplyError with its complaint where its exit code is not 0."""
    done = runs(words)
    if done.code:
        raise ApplyError(f"{' '.join(words)}: {done.said}")
    return done.out
