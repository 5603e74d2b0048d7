"""A server that a script starts: what restarts it is a command of the configuration, and only its health tells."""

from __future__ import annotations

from collections.abc import Sequence

from specwatch.errors import ApplyError
from specwatch.runtime.base import Life, State
from specwatch.runtime.running import Run, run, well


class Script:
    """A command (words, no shell) that starts the server anew and comes back."""

    def __init__(self, restart: Sequence[str], runs: Run = run) -> None:
        self._restart = tuple(restart)
        self._runs = runs

    def state(self) -> State:
        """Nothing but its health endpoint tells."""
        says = "nothing but a health endpoint tells whether a script's server is up"
        return State(life=Life.UNKNOWN, because=says, blind=True)

    def prepare(self) -> None:
        """Nothing: the command reads it."""

    def restart(self) -> None:
        """Run the command. Raises ApplyError where the configuration has none."""
        if not self._restart:
            raise ApplyError('there is no way to restart it: give the server restart = ["/path/to/command", "…"]')
        well(self._restart, self._runs)

    def commands(self) -> Sequence[Sequence[str]]:
        """The command."""
        return (self._restart,) if self._restart else ()
