"""A server that is a systemd unit (systemctl(1), org.freedesktop.systemd1(5))."""

from __future__ import annotations

from collections.abc import Sequence

from specwatch.errors import ApplyError
from specwatch.runtime.base import Life, State
from specwatch.runtime.running import Run, run, well

_ASKED = (
    "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "ExecMainCode", "ExecMainStatus",
    "InvocationID",
)  # fmt: skip


class Systemd:
    """One unit by its name."""

    def __init__(self, unit: str, runs: Run = run) -> None:
        self._unit = unit if "." in unit else f"{unit}.service"
        self._runs = runs

    def state(self) -> State:
        """A unit that waits for its own restart, or failed, is down; one that was stopped is not for us to start."""
        try:
            said = well(("systemctl", "show", self._unit, f"--property={','.join(_ASKED)}"), self._runs)
        except ApplyError as error:
            return State(life=Life.UNKNOWN, because=str(error))
        found = dict(line.partition("=")[::2] for line in said.split("\n") if "=" in line)
        if found.get("LoadState") not in ("loaded", None):
            return State(life=Life.UNKNOWN, because=f"systemd says of {self._unit}: {found.get('LoadState')}")
        return _judged(self._unit, found)

    def prepare(self) -> None:
        """Take the changed unit in, and forget the restarts that were counted for the old one."""
        reload, forget, _ = self.commands()
        well(reload, self._runs)
        self._runs(forget)  # a unit that is not loaded has nothing to forget, and says so

    def restart(self) -> None:
        """Start it anew, once `prepare` was called."""
        *_, restart = self.commands()
        well(restart, self._runs)

    def commands(self) -> Sequence[Sequence[str]]:
        """reset-failed as well, so that a start limit that the crash loop ran into does not forbid it."""
        return (
            ("systemctl", "daemon-reload"),
            ("systemctl", "reset-failed", self._unit),
            ("systemctl", "restart", "--no-block", self._unit),
        )


def _judged(unit: str, found: dict[str, str]) -> State:
    active, sub, result = found.get("ActiveState", ""), found.get("SubState", ""), found.get("Result", "")
    starts = int(found["NRestarts"]) if found.get("NRestarts", "").isdigit() else 0
    identity = found.get("InvocationID", "")
    again = f", restarted {starts} times by itself" if starts else ""
    died = f"{result}, status {found.get('ExecMainStatus', '?')}"
    says = f"{unit} is {active} ({sub}){again}"
    life = Life.UNKNOWN
    if active == "failed":
        life, says = Life.DOWN, f"{unit} failed: {died}{again}"
    elif active == "activating" and sub.startswith("auto-restart"):
        life, says = Life.DOWN, f"{unit} died ({died}) and waits for its restart{again}"
    elif active in ("active", "reloading", "activating"):
        life = Life.UP
    elif active == "inactive" and result not in ("success", ""):
        life, says = Life.DOWN, f"{unit} is inactive: {died}{again}"
    elif active == "inactive":
        says = f"{unit} was stopped, or ended without an error; it is for whoever stopped it to start it"
    return State(life=life, because=says, identity=identity, starts=starts)
