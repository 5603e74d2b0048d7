#!/usr/bin/env python3
"""Measure the daemon: latency, idle cost, and a long busy day. Prints one JSON object a line.

    python benchmarks/daemon.py latency --crashes 100
    python benchmarks/daemon.py idle --files 1 100 1000 --seconds 20
    python benchmarks/daemon.py soak --rate 10000 --seconds 600

`latency` is from the write of a crash's last line to the line that says it. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Daemon:
    """A daemon in a process of its own, watching `*.log` of a folder."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        path = folder / "specwatch.toml"
        path.write_text(f'[[server]]\nname = "a"\nlogs = ["{folder}/*.log"]\n{config}[state]\ndir = "{folder}/state"\n')
        command = [
            sys.executable,
            "-m",
            "specwatch.cli",
            "watch",
            "--allow-insecure-permissions",
            "--config",
            str(path),
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        self.pipe = self.process.stderr.fileno()
        self._buffer = b""
        self.wait_for("watch_started", 30)

    def wait_for(self, event: str, seconds: float) -> tuple[float, dict[str, object]]:
        """When an event was said, and what."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                if not line.startswith(b"{"):
                    raise SystemExit(line.decode())
                said = json.loads(line)
                if said["event"] == event:
                    return time.perf_counter(), said
            if select.select([self.pipe], [], [], 0.5)[0]:
                self._buffer += os.read(self.pipe, 65536)
        raise SystemExit(f"{event} was not said within {seconds} s")

    def listen(self, seconds: float) -> None:
        """Let time pass, and take what is said: a full pipe would stop the daemon."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.pipe], [], [], left)[0]:
                os.read(self.pipe, 65536)

    def wait_for_crash(self, name: str, seconds: float) -> float:
        """When the crash of that name was said."""
        while True:
            at, said = self.wait_for("finding_raised", seconds)
            if f"the {name} broke" in json.dumps(said):
                return at

    def cpu(self) -> float:
        """Seconds of processor time so far, children included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS

    def rss(self) -> int:
        """Resident memory in KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def word(number: int) -> str:
    """A number in letters: digits would be taken for values of one and the same crash."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def crash(number: int, busy: bool = False) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S")
    start = "" if busy else f"[{at}] server_args=ServerArgs(model_path='/m', tp_size=1)\n"
    return (
        f"{start}[{at} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/managers/scheduler.py", line 2914, in run_scheduler_process\n'
        f"    scheduler = Scheduler(server_args)\nValueError: the {word(number)} broke\n\n"
    )


def latency(crashes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "server.log"
        log.touch()
        daemon = Daemon(folder)
        took = []
        for number in range(crashes):
            with log.open("a") as file:
                file.write(crash(number))
            began = time.perf_counter()
            said, what = daemon.wait_for("finding_raised", 10)
            assert word(number) in json.dumps(what)
            took.append(said - began)
        daemon.stop()
        took.sort()
        report("latency", crashes=crashes, p50=took[len(took) // 2], p99=took[int(len(took) * 0.99)], max=took[-1])


def idle(counts: list[int], seconds: float) -> None:
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for number in range(count):
                (folder / f"{number}.log").write_text(f"[2026-01-01 00:00:00] line of server {number}\n")
            daemon = Daemon(folder)
            daemon.listen(8)  # until everything that was there has been read and committed
            before = daemon.cpu()
            daemon.listen(seconds)
            report("idle", files=count, cpu_percent=100 * (daemon.cpu() - before) / seconds, rss_kib=daemon.rss())
            daemon.stop()


def soak(rate: int, seconds: float) -> None:
    """Serving lines at a steady rate, a crash that the server outlives now and then, and a real one at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "server.log"
        log.touch()
        daemon = Daemon(folder)
        sizes: list[int] = []
        began, written = time.perf_counter(), 0
        before = daemon.cpu()
        with log.open("a") as file:
            while (passed := time.perf_counter() - began) < seconds:
                at = time.strftime("%Y-%m-%d %H:%M:%S")
                due = int(passed * rate) - written
                file.write(
                    "".join(
                        f"[{at} TP0] Decode batch. #running-req: {n % 40}, #token: {n}, token usage: 0.{n % 90 + 10}, "
                        f"accept len: 2.1{n % 9}, cuda graph: True, gen throughput (token/s): {n % 4000}.00\n"
                        for n in range(written, written + due)
                    )
                )
                if written // (rate * 20) != (written + due) // (rate * 20):
                    file.write(crash(written // rate, busy=True))
                file.flush()
                written += due
                if len(sizes) < passed // 10 + 1:
                    sizes.append(daemon.rss())
                time.sleep(0.01)
            file.write(crash(123456789))
        said = daemon.wait_for_crash("bcdefghij", 60)
        lag = said - (began + seconds)
        cpu = 100 * (daemon.cpu() - before) / (said - began)
        if log.stat().st_size:
            report("soak", lines=written, bytes=log.stat().st_size, cpu_percent=cpu, lag_seconds=lag,
                   rss_kib_first=sizes[1] if len(sizes) > 1 else sizes[0], rss_kib_median=statistics.median(sizes),
                   rss_kib_last=sizes[-1], rss_kib_max=max(sizes))  # fmt: skip
        daemon.stop()


def report(what: str, **numbers: float) -> None:
    print(json.dumps({"what": what, **{name: round(number, 4) for name, number in numbers.items()}}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("latency").add_argument("--crashes", type=int, default=100)
    one = commands.add_parser("idle")
    one.add_argument("--files", type=int, nargs="+", default=[1, 100, 1000])
    one.add_argument("--seconds", type=float, default=20.0)
    one = commands.add_parser("soak")
    one.add_argument("--rate", type=int, default=10_000)
    one.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    if given.command == "latency":
        latency(given.crashes)
    elif given.command == "idle":
        idle(given.files, given.seconds)
    else:
        soak(given.rate, given.seconds)


if __name__ == "__main__":
    main()
