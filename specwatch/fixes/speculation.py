"""Give up, or change, what speculates."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.domain import Applicability, Change
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting

PREFIX = "--speculative-"
BY_ARCHITECTURE = (("DSpark", "DSPARK"), ("DFlash", "DFLASH"), ("Eagle3", "EAGLE3"))


def drop_speculation(ask: Request) -> Iterator[Proposal]:
    """Remove every `--speculative-*` flag and nothing else: the target alone gives the same outputs, slower."""
    launch, why = ask.launch, "same model, same outputs, slower"
    if launch is None:
        unknown = (Change(op="remove", name="--speculative-algorithm"),)
        yield Proposal(changes=unknown, why=f"{why}; take all --speculative-* flags with it")
        return
    changes = removal(launch, PREFIX)
    if changes:
        yield edited(launch, changes, why)


def fitting_algorithm(ask: Request) -> Iterator[Proposal]:
    """Use the algorithm that the draft was made for, as its architecture tells."""
    launch = ask.launch
    draft = launch.text_value("speculative_draft_model_path") if launch else None
    if launch is None or draft is None:
        return
    config = ask.models.config(draft, revision=launch.text_value("speculative_draft_model_revision"))
    name = config.architectures[0] if config.architectures else ""
    for mark, algorithm in BY_ARCHITECTURE:
        if mark in name and launch.value("speculative_algorithm") != algorithm:
            changes = (setting(launch, "--speculative-algorithm", algorithm),)
            why = f"{draft} is a {name}, made for {algorithm}"
            yield edited(launch, changes, why, ceiling=Applicability.REVIEW)
            return
