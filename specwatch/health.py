"""Asks a server's health endpoint without ever blocking, and judges from its answers and its silence whether it hangs.

Neither alone says anything: `/health` stays 200 on servers whose scheduler is dead, and fails during a long prefill on
healthy ones; a log is silent when nobody asks. Both together do.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT = 10.0
FAILURES = 3
"""Failures in a row before an endpoint counts as failing."""


class Probe:
    """One request to one health endpoint, under way."""

    def __init__(self, url: str, now: float) -> None:
        parts = urlsplit(url)
        self.started, self.until = now, now + TIMEOUT
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._ask = f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nUser-Agent: specwatch\r\n\r\n".encode()
        self._got = b""
        self._failed = ""
        self._socket: socket.socket | None = None
        try:
            where = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)[0]
            self._socket = socket.socket(where[0], where[1])
            self._socket.setblocking(False)
            code = self._socket.connect_ex(where[4])
            if code not in (0, errno.EINPROGRESS):
                self._failed = os.strerror(code)
        except (OSError, ValueError) as error:
            self._failed = str(error)

    def poll(self, now: float) -> str | None:
        """Empty when it answered well, else why not; None while it goes on."""
        if not self._failed and self._socket is not None:
            try:
                while self._ask:
                    self._ask = self._ask[self._socket.send(self._ask) :]
                while b"\n" not in self._got and len(self._got) < 4096:
                    data = self._socket.recv(4096)
                    if not data:
                        break
                    self._got += data
                first = self._got.split(b"\n")[0].decode("latin-1").split()
                good = len(first) > 1 and first[0].startswith("HTTP/") and first[1].isdigit() and first[1][0] in "23"
                self._failed = "" if good else f"answered {' '.join(first[1:4]) or 'nothing'}"
                self.close()
                return self._failed
            except BlockingIOError:
                if now < self.until:
                    return None
                self._failed = f"no answer within {TIMEOUT:.0f} s"
            except OSError as error:
                if error.errno == errno.ENOTCONN and now < self.until:
                    return None
                self._failed = error.strerror or str(error)
        self.close()
        return self._failed or "no answer"

    def close(self) -> None:
        """Drop the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@dataclass(slots=True)
class Pulse:
    """What is known of one server's life. `silence` is in seconds; all times are of the daemon's own clock."""

    silence: float
    last_line: float
    was_ready: bool = False
    crashed_at: float = -1.0
    failures: int = 0
    failing_since: float = -1.0
    why: str = ""
    answered_at: float = -1.0
    hung_at: float = -1.0
    """When the hang was reported, -1 while there is none; likewise for a zombie."""
    zombie_at: float = -1.0

    def saw_line(self, now: float) -> None:
        """The log goes on."""
        self.last_line = now

    def saw_ready(self) -> None:
        """The server said that it is ready."""
        self.was_ready, self.crashed_at = True, -1.0

    def saw_crash(self, now: float) -> None:
        """A fatal finding of it is firing."""
        self.crashed_at = now

    def saw_answer(self, started: float, failed: str) -> bool:
        """A probe ended; True when the server answers again after it had failed for long enough to count."""
        if failed:
            self.failing_since = started if not self.failures else self.failing_since
            self.failures, self.why = self.failures + 1, failed
            return False
        again = self.failures >= FAILURES
        self.failures, self.why, self.answered_at, self.was_ready = 0, "", started, True
        return again

    def is_hung(self, now: float) -> bool:
        """Silent and without an answer, though it was ready and no crash explains it; until either comes again."""
        if self.hung_at >= 0:
            return self.crashed_at < 0 and self.last_line <= self.hung_at and self.answered_at <= self.hung_at
        return (
            self.was_ready
            and self.crashed_at < 0
            and self.failures >= FAILURES
            and now - self.last_line >= self.silence
        )

    def is_zombie(self, now: float) -> bool:
        """It crashed by its log, has been silent since, and its endpoint still answers as if nothing were."""
        if self.zombie_at >= 0:
            return self.crashed_at >= 0 and self.last_line <= self.zombie_at and not self.failures
        return (
            0 <= self.crashed_at < self.answered_at - TIMEOUT
            and now - self.last_line >= min(self.silence, 60.0)
            and self.failures == 0
        )
