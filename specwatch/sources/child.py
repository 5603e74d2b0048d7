"""Runs the server as our child, `specwatch watch -- CMD …`: output, signals and exit code pass through unchanged."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, cast

from specwatch.errors import SourceError
from specwatch.sources.stream import Pipes

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Wrapped:
    """A server that runs as our child. `pipes` is the source of its lines."""

    def __init__(self, command: Sequence[str], stream: str) -> None:
        try:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise SourceError(f"{command[0]}: cannot be started: {error.strerror}") from None
        self._to = {
            cast("IO[bytes]", self._process.stdout).fileno(): 1,
            cast("IO[bytes]", self._process.stderr).fileno(): 2,
        }
        self.pipes = Pipes(stream, f"<{os.path.basename(command[0])}>", tuple(self._to), self._pass)  # noqa: PTH119

    def signal(self, number: int) -> None:
        """Hand a signal on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def exit_code(self) -> int | None:
        """The child's exit code, 128 + N when signal N killed it; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _pass(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._to[fd], view) :]
            except BlockingIOError:
                import select

                select.select([], [self._to[fd]], [])
            except OSError:
                return  # nobody reads it any more: the server must not notice that
