"""What a repair is asked and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from specwatch.domain import NOTHING, Applicability, Change, Launch, Verdict
from specwatch.errors import LaunchError
from specwatch.launch.command import edit
from specwatch.models.base import Models


class Edit(NamedTuple):
    """The edit that a rule spells out for the fix `change`: flags and variables, values with facts in braces.

    A flag may be given as alternatives, newest first (`--cuda-graph-max-bs-decode|--cuda-graph-max-bs`): the first that
    the launch's release has is meant.
    """

    set: Mapping[str, str] = NOTHING
    remove: tuple[str, ...] = ()
    set_env: Mapping[str, str] = NOTHING
    unset_env: tuple[str, ...] = ()


class Request(NamedTuple):
    """What a repair has to go by: the launch, what its check found, the log's own values, and the models.

    `edit` and `why` are what the rule says beside the fix's name, `captures` what its pattern took from the message.
    """

    launch: Launch | None
    verdict: Verdict
    models: Models
    captures: Mapping[str, str] = NOTHING
    edit: Edit = Edit()
    why: str = ""


class Proposal(NamedTuple):
    """A change that a repair would make, before anything has been checked again.

    `launch` is None where no command is known. `ceiling` lowers the trust of the rule, with `because`. `refused` tells
    that SGLang's own parser would not take the changed command.
    """

    changes: tuple[Change, ...]
    why: str
    launch: Launch | None = None
    ceiling: Applicability = Applicability.SAFE
    because: str = ""
    refused: bool = False


class Repair(Protocol):
    """From a launch and what its check found to changed launches, best first; nothing where it cannot help."""

    def __call__(self, ask: Request, /) -> Iterable[Proposal]:
        """The proposals for one launch."""


def edited(
    launch: Launch, changes: tuple[Change, ...], why: str, ceiling: Applicability = Applicability.SAFE
) -> Proposal:
    """The proposal with its command; without one, and with the reason, where the edit cannot be made in place."""
    try:
        after = edit(launch, changes)
        # variables that stand beside the command (a unit's Environment=) are in force for the changed one as well
        gone = {change.name for change in changes if change.op == "unset_env"}
        beside = {k: v for k, v in launch.env.items() if k not in after.env and k not in gone}
        after = replace(after, env={**beside, **after.env})
        return Proposal(changes=changes, why=why, launch=after, ceiling=ceiling)
    except LaunchError as error:
        if error.refusal is not None:
            return Proposal(changes=changes, why=why, because=error.refusal, refused=True)
        return Proposal(changes=changes, why=why, ceiling=Applicability.MANUAL, because=str(error))
