"""Findings for a command of the configuration: a webhook's JSON on its standard input. No shell, few variables."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from specwatch.alerts.base import Fate, Outcome
from specwatch.alerts.saying import short

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""All that the command gets: no secret of ours is in it."""


def run(words: Sequence[str], body: bytes, deadline: float) -> Outcome:
    """Run it, and kill it with all that it started after `deadline` seconds. Exit code 0: it took the findings."""
    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(fate=Fate.LATER, error=f"{words[0]}: cannot be started: {error.strerror}")
    try:
        _, said = process.communicate(body, timeout=deadline)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Outcome(fate=Fate.LATER, error=f"{words[0]}: did not end within {deadline:g} s and was killed")
    if process.returncode == 0:
        return Outcome(fate=Fate.SENT)
    last = short(said[-2000:].decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
    how = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
    return Outcome(fate=Fate.LATER, error=f"{words[0]}: {how}{f': {last}' if last else ''}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()
