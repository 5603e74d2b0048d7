"""Leave out the one option that a launch can do without."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.domain import Change
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal


def without_option(ask: Request) -> Iterator[Proposal]:
    """Take out the option, or the variable, that the check or the message names: SGLang's default holds then."""
    named = ask.verdict.facts.get("drop") or ask.captures.get("drop")
    if not isinstance(named, str) or not named or ask.launch is None:
        return
    if named.startswith("--"):
        changes = removal(ask.launch, (named,))
    else:
        changes = (Change(op="unset_env", name=named),) if named in ask.launch.env else ()
    if changes:
        yield edited(ask.launch, changes, f"without {named}, SGLang's default holds")
