"""Give up, or change, what speculates."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.domain import Applicability, Change, Launch
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
    if not changes:
        if "--config" in launch.argv and launch.text_value("speculative_algorithm"):
            unseen = (Change(op="remove", name="--speculative-algorithm"),)
            because = "the --speculative-* values come from the file of --config: take them out there"
            yield Proposal(changes=unseen, why=why, ceiling=Applicability.MANUAL, because=because)
        return
    if _is_lossy(launch):
        why = "same model, slower; the accept thresholds below 1 that change its outputs go as well"
        yield edited(launch, changes, why, ceiling=Applicability.REVIEW)
        return
    if launch.text_value("disaggregation_mode") in ("prefill", "decode"):
        why = f"{why}; if the servers of the other role speculate, they have to do without it as well"
        yield edited(launch, changes, why, ceiling=Applicability.REVIEW)
        return
    yield edited(launch, changes, why)


def drop_named_draft(ask: Request) -> Iterator[Proposal]:
    """Do without speculation where what could not be read is the draft, and nothing else of the launch."""
    launch, named = ask.launch, ask.captures.get("model", "")
    draft = launch.text_value("speculative_draft_model_path") if launch else None
    if launch is None or not draft or not _is_about(named, draft):
        return
    others = (launch.text_value("model_path"), launch.text_value("tokenizer_path"))
    if not any(other is not None and _is_about(named, other) for other in others):
        yield from drop_speculation(ask)


def _is_about(named: str, path: str) -> bool:
    """Whether a message names a model: as the launch does, or by its folder in the hub's cache.

    Mirrors huggingface_hub/file_download.py, where `owner/name` lies in `models--owner--name`.
    """
    folder = f"models--{path.strip('/').replace('/', '--')}/"
    return named.rstrip("/") == path.rstrip("/") or folder in f"{named}/"


def _is_lossy(launch: Launch) -> bool:
    """Whether the launch accepts drafts that the target would not have written.

    Mirrors srt/speculative/eagle_utils.py, where thresholds below 1 loosen the verification.
    """
    values = (launch.value(f"speculative_accept_threshold_{kind}", 1.0) for kind in ("single", "acc"))
    return any(isinstance(value, (int, float)) and value != 1.0 for value in values)


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


def trained_block_size(ask: Request) -> Iterator[Proposal]:
    """Of two block sizes keep the one that the draft was trained with; where it is neither, the draft names its own."""
    launch = ask.launch
    tokens, block = "--speculative-num-draft-tokens", "--speculative-dflash-block-size"
    if launch is None:
        return
    trained, facts = ask.verdict.facts.get("trained"), ask.verdict.facts
    if trained is None or trained == facts.get("block"):
        kept = facts.get("block", launch.value("speculative_dflash_block_size"))
        whose = "the draft's own" if trained is not None else "the flag that is about nothing else"
        yield edited(launch, removal(launch, (tokens,)), f"blocks of {kept} tokens, {whose}")
    elif trained == facts.get("tokens"):
        yield edited(launch, removal(launch, (block,)), f"blocks of {trained} tokens, the draft's own")
    else:
        yield edited(launch, removal(launch, (tokens, block)), f"blocks of {trained} tokens, as the draft itself says")
