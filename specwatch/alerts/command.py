"""Findings for a command of the configuration: a webhook's JSON on its standard input. No shell, few variables."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import BinaryIO

from specwatch.alerts.base import Fate, Outcome
from specwatch.alerts.saying import short

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""All that the command gets: no secret of ours is in it."""
_LAST_WORDS = 2000


def run(words: Sequence[str], body: bytes, deadline: float) -> Outcome:
    """Run it, and kill it with all that it started after `deadline` seconds. Exit code 0: it took the findings.

    What it leaves in the background may go on, and is not waited for.
    """
    try:
        with contextlib.closing(_held(body)) as given:
            process = subprocess.Popen(
                list(words),
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        return Outcome(fate=Fate.LATER, error=f"{words[0]}: cannot be started: {error.strerror}")
    assert process.stderr is not None
    with process.stderr:
        said = _last_words(process.pid, process.stderr.fileno(), deadline)
        if said is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    if said is None:
        return Outcome(fate=Fate.LATER, error=f"{words[0]}: did not end within {deadline:g} s and was killed")
    if code == 0:
        return Outcome(fate=Fate.SENT)
    last = short(said.decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    return Outcome(fate=Fate.LATER, error=f"{words[0]}: {how}{f': {last}' if last else ''}")


def _held(body: bytes) -> BinaryIO:
    """The body as a file in memory: no command can keep us from writing it by not reading."""
    given = os.fdopen(os.memfd_create("findings"), "w+b")
    given.write(body)
    given.seek(0)
    return given


def _last_words(pid: int, stderr: int, deadline: float) -> bytes | None:
    """The end of what a process said when it has ended, None where it does not end in time."""
    until = time.monotonic() + deadline
    said = b""
    ending = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(stderr, select.POLLIN)
        poll.register(ending, select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(left * 1000)}
            if stderr in ready:
                chunk = os.read(stderr, 65536)
                said = (said + chunk)[-_LAST_WORDS:]
                if not chunk:
                    poll.unregister(stderr)
            if ending in ready:
                return said
        return None
    finally:
        os.close(ending)
