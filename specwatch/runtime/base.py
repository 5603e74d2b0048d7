"""What can be asked of, and done to, whatever runs a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Life(StrEnum):
    """Whether the process of a server is there: UP may still be loading its model, DOWN is dead or in a crash loop."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a server is, by what runs it.

    `identity` differs for every start of it that somebody asked for, empty where nothing tells one from another.
    `starts` counts the restarts that the runtime made by itself. `ready`: its own health check says that the server
    serves; None where it has none. `blind`: only a health endpoint can tell. `serving` names
    what serves all the same, as pods of the revision before do.
    """

    life: Life
    because: str
    identity: str = ""
    starts: int = 0
    ready: bool | None = None
    blind: bool = False
    serving: str = ""


class Runtime(Protocol):
    """One kind of thing that runs servers."""

    def state(self) -> State:
        """How the server is now. What cannot be told is UNKNOWN with the reason; nothing is raised."""

    def prepare(self) -> None:
        """Take in what is written now, and start nothing. Raises ApplyError."""

    def restart(self) -> None:
        """Begin to start the server anew from what is written now; does not wait for it. Raises ApplyError."""

    def commands(self) -> Sequence[Sequence[str]]:
        """What `prepare` and `restart` run, for people."""
