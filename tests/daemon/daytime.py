"""A scripted day of a server that crashes again and again, and a daemon in a process of its own to be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from specwatch.config import Server, Settings
from specwatch.daemon import Daemon
from specwatch.rulebook.book import Rulebook
from specwatch.storage.store import Store

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def word(number: int) -> str:
    """A name for a crash: digits would be taken for values of one and the same crash."""
    out = ""
    while number or not out:
        number, digit = divmod(number, 26)
        out += ALPHABET[digit]
    return out


def run_of(number: int) -> list[str]:
    """The lines of one start that serves a little and crashes."""
    hour, minute = divmod(number * 4, 60)

    def at(second: int) -> str:
        return f"[2026-01-{1 + hour // 24:02} {hour % 24:02}:{minute:02}:{second:02} TP0]"

    return [
        f"{at(0)[:-5]}] server_args=ServerArgs(model_path='/m', host='127.0.0.1', port=30000, tp_size=2)",
        f"{at(1)} Load weight begin. avail mem=7.00 GB",
        f"{at(2)} Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16",
        f"{at(9)} Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/sglang/srt/managers/scheduler.py", line 2914, in run_scheduler_process',
        "    scheduler = Scheduler(server_args)",
        f"ValueError: the {word(number)} broke",
        "",
        f"{at(10)} Received sigquit from a child process. It usually means the child failed.",
    ]


class Time:
    """The real time."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


def settings_for(log: Path, state: Path) -> Settings:
    del state
    return Settings(servers=(Server(name="a", logs=(str(log),)),))


def daemon_in(log: Path, state: Path, book: Rulebook, say: Callable[..., None] | None = None) -> tuple[Daemon, Store]:
    store = Store(state, lambda text: None)
    quiet: Callable[..., None] = say or (lambda *args, **fields: None)
    return Daemon(settings_for(log, state), store, book, quiet, Time()), store


class Forked:
    """The daemon in a child process; each turn of its loop writes one byte into a pipe."""

    def __init__(self, log: Path, state: Path, book: Rulebook) -> None:
        self.turns, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                daemon, _ = daemon_in(log, state, book)
                while True:
                    daemon.turn(5.0)
                    os.write(write, b".")
            finally:
                os._exit(1)
        os.close(write)

    def wait_turns(self, number: int) -> None:
        for _ in range(number):
            if not os.read(self.turns, 1):
                raise AssertionError("the daemon died by itself")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.turns)
