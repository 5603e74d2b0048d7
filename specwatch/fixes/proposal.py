"""What a repair is asked and what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from specwatch.domain import Applicability, Change, Launch, Verdict
from specwatch.errors import LaunchError
from specwatch.launch.command import edit
from specwatch.models.base import Models


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change that a repair would make, before anything has been checked again.

    `launch` is None where no command is known. `ceiling` lowers the trust of the rule, with `because`.
    """

    changes: tuple[Change, ...]
    why: str
    launch: Launch | None = None
    ceiling: Applicability = Applicability.SAFE
    because: str = ""


class Repair(Protocol):
    """From a launch and what its check found to changed launches, best first; nothing where it cannot help."""

    def __call__(self, launch: Launch | None, verdict: Verdict, models: Models, /) -> Iterable[Proposal]:
        """The proposals for one launch."""


def edited(
    launch: Launch, changes: tuple[Change, ...], why: str, ceiling: Applicability = Applicability.SAFE
) -> Proposal:
    """The proposal with its command; without one, and with the reason, where the edit cannot be made in place."""
    try:
        return Proposal(changes=changes, why=why, launch=edit(launch, changes), ceiling=ceiling)
    except LaunchError as error:
        return Proposal(changes=changes, why=why, ceiling=Applicability.MANUAL, because=str(error))
