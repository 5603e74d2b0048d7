"""Follows a unit's lines in the systemd journal with `journalctl -o json`, from a cursor on.

Each entry is one line with the journal's own JSON, whose envelope `log.framing` takes off. Another
`_SYSTEMD_INVOCATION_ID` is another run of the server for certain, whatever its log says.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from specwatch.sources.base import BUDGET, OFFSET_MASK, PLACE_BITS, Splitter, place
from specwatch.sources.once import Raw

RESTART_AFTER = 2.0
OWN = "specwatch"
_KEPT = ("MESSAGE", "__REALTIME_TIMESTAMP")


class Journal:
    """One unit of the journal; implements `base.Source`. `options` go to journalctl, as in `--directory=DIR`."""

    def __init__(
        self, unit: str, stream: str, position: dict[str, object] | None = None, options: Sequence[str] = ()
    ) -> None:
        self._unit, self._stream = unit, stream
        self._options = tuple(options)
        saved = position or {}
        self._cursor = str(saved.get("cursor") or "")
        self._run, self._count = (int(cast("int", saved.get(name) or 0)) for name in ("run", "count"))
        self._invocation = str(saved.get("invocation") or "")
        self._safe = (self._cursor, self._run, self._count, self._invocation)
        self._notes: list[str] = []
        self._waiting: tuple[str, str, str] | None = None
        self._broke = self._more = False
        self._process: subprocess.Popen[bytes] | None = None
        self._split = Splitter()
        self._restart_at = 0.0
        self._machine = _machine() if not options else ""
        self._patience = RESTART_AFTER
        self._said = ""
        self._lines: list[str] = []

    @property
    def stream(self) -> str:
        """The name of the position."""
        return self._stream

    @property
    def more(self) -> bool:
        """Whether lines are waiting: those of the next run are kept apart from those of the last."""
        return self._more or bool(self._lines)

    @property
    def ended(self) -> bool:
        """A unit may always be started again."""
        return False

    def read(self, now: float) -> list[Raw]:
        """The entries that came, up to the next run."""
        self._broke = self._more = False
        if self._process is None and now >= self._restart_at:
            self._start()
        if not self._lines:
            self._fill(now)
        raws: list[Raw] = []
        while self._lines:
            try:
                entry = json.loads(self._lines[0])
                cursor, message = str(entry["__CURSOR"]), entry.get("MESSAGE")
            except (ValueError, KeyError, TypeError):
                self._lines.pop(0)
                continue
            invocation = str(entry.get("_SYSTEMD_INVOCATION_ID") or entry.get("INVOCATION_ID") or "")
            if invocation and self._invocation and invocation != self._invocation:
                if raws:
                    break  # what belongs to the run before is understood first
                self._broke = True
                self._run += 1
            self._invocation = invocation or self._invocation
            self._lines.pop(0)
            self._cursor = cursor
            self._count += 1
            if self._machine and entry.get("_MACHINE_ID", self._machine) != self._machine:
                continue  # --merge shows the journals that other machines sent here, too
            if message is None or entry.get("_COMM") == OWN or entry.get("SYSLOG_IDENTIFIER") in (OWN, "systemd"):
                continue  # never our own lines
            text = json.dumps({name: entry[name] for name in _KEPT if name in entry})
            raws.append(Raw(f"journal:{self._unit}", self._count, place(self._run, self._count), text))
        return raws

    def rest(self) -> Raw | None:
        """Entries are whole."""
        return None

    def broke(self) -> bool:
        """Whether the invocation changed before the lines of the last read."""
        return self._broke

    def mark(self) -> None:
        """Understood up to the last entry."""
        self._safe = (self._cursor, self._run, self._count, self._invocation)

    def position(self) -> dict[str, object]:
        """The cursor after which to go on."""
        cursor, run, count, invocation = self._safe
        return {"kind": "journal", "cursor": cursor, "run": run, "count": count, "invocation": invocation}

    def where(self, spot: int, number: int) -> tuple[int, int]:
        """The number of the entry, as counted by us; a journal has no byte offsets."""
        return number, spot & OFFSET_MASK & ((1 << PLACE_BITS) - 1)

    def notes(self) -> list[str]:
        """What has to be said."""
        notes, self._notes = self._notes, []
        return notes

    def filenos(self) -> Sequence[int]:
        """The pipe from journalctl."""
        return (self._pipe(),) if self._process is not None else ()

    def due(self, now: float) -> float | None:
        """Seconds until journalctl is to be started again."""
        return None if self._process is not None else max(0.0, self._restart_at - now)

    def close(self) -> None:
        """End journalctl."""
        self._stop()

    def _pipe(self) -> int:
        assert self._process is not None
        return cast("IO[bytes]", self._process.stdout).fileno()

    def _start(self) -> None:
        program = shutil.which("journalctl")
        if program is None:
            self._notes.append("journalctl is not installed; journal: sources cannot be read")
            self._restart_at = float("inf")
            return
        since = [f"--after-cursor={self._cursor}"] if self._cursor else []
        # --follow means this boot only, and would lose what came before a reboot; only --merge takes that back
        command = [program, "--follow", "--no-tail", "--merge", "--output=json", "--all", *since, *self._options]
        command += [f"--unit={self._unit}", "--quiet"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._split = Splitter()
        os.set_blocking(self._pipe(), False)

    def _fill(self, now: float) -> None:
        budget = BUDGET
        while self._process is not None:
            try:
                data = os.read(self._pipe(), 65536)
            except BlockingIOError:
                return
            if not data:
                self._ended(now)
                return
            self._lines += [text for _, text in self._split.feed(data)]
            budget -= len(data)
            if budget <= 0:
                self._more = True
                return

    def _ended(self, now: float) -> None:
        assert self._process is not None
        said = cast("IO[bytes]", self._process.stderr).read(2000).decode("utf-8", "replace").strip()
        self._stop()
        self._patience = min(60.0, 2 * self._patience if said == self._said else RESTART_AFTER)
        self._restart_at = now + self._patience
        if said == self._said:
            return
        self._said = said
        if "cursor" in said.lower():
            self._notes.append(
                f"journal:{self._unit}: the stored place is no longer in the journal; read from its start"
            )
            self._cursor = ""
        elif said:
            self._notes.append(f"journal:{self._unit}: journalctl ended: {said}")

    def _stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        self._process = None


def _machine() -> str:
    """The id of this machine, empty where it has none."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
