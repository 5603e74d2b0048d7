"""Tells systemd how we are (sd_notify): ready, reloading, stopping, and that work goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send a state such as `READY=1`; nothing where systemd did not start us, or is gone."""
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] in ("/", "@"):
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end,
        ):
            end.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)


def reloading() -> None:
    """A reload begins (systemd wants the time of it)."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd wants a sign of life at least, None when it wants none."""
    for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    with contextlib.suppress(ValueError):
        return int(environ["WATCHDOG_USEC"]) / 1e6 if for_us and "WATCHDOG_USEC" in environ else None
    return None
