"""Is the server really down? Asked of its endpoint and of what runs it, never of its log."""

from __future__ import annotations

import errno
import os

from specwatch.acting.base import Clock
from specwatch.health import Probe
from specwatch.policy import Down
from specwatch.runtime.base import Life, State

REFUSED = os.strerror(errno.ECONNREFUSED)
WITHOUT_HEALTH = (
    "; whether it serves or loads only its health endpoint tells: give --health URL, or health = in the configuration"
)


def answers(url: str, clock: Clock) -> str:
    """Empty where a health endpoint answers well, else why not."""
    probe = Probe(url, clock.now())
    while (failed := probe.poll(clock.now())) is None:
        clock.sleep(0.02)
    return failed


def down(state: State, health: str, clock: Clock) -> tuple[Down, str]:
    """Whether a server is down, and why so. `health` is the URL of its endpoint, empty where it has none.

    A slow answer, or none in time, proves nothing: a long prefill looks like that. A port on which nobody listens does,
    where the runtime says that it restarts the server again and again, or cannot say anything.
    """
    failed = answers(health, clock) if health else ""
    if health and not failed:
        return Down.NO, f"{health} answers"
    if state.serving:
        return Down.NO, f"{state.because}; {state.serving} serves"
    if state.life is Life.DOWN:
        return Down.YES, state.because
    if state.ready:
        return Down.NO, state.because
    if failed == REFUSED and state.life is Life.UP and state.starts:
        return Down.YES, f"{state.because}, and nobody listens at {health}"
    if failed == REFUSED and state.blind:
        return Down.YES, f"nobody listens at {health}"
    if state.life is Life.UP and not health and state.ready is None:
        return Down.NO, state.because + (WITHOUT_HEALTH if state.starts else "")
    also = f"; {health}: {failed}" if failed else ""
    return Down.UNKNOWN, state.because + also
