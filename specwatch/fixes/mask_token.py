"""Put the mask token of a DFLASH draft right on the command line.

`--json-model-override-args` reaches both models and replaces a dict as a whole, so an override of `dflash_config`
hides everything that the draft's own `dflash_config` says. What is restated here is therefore always the whole of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from specwatch.checks import dflash
from specwatch.checks.subject import OVERRIDE, Subject, Unreadable
from specwatch.domain import Applicability, Change, Launch, Value
from specwatch.errors import ModelError
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting

KEYS = ("mask_token_id", "mask_token")


def remove_mask_token_override(ask: Request) -> Iterator[Proposal]:
    """Take the mask token out of the override, so that the one the draft was trained with is in force again."""
    launch = ask.launch
    if launch is None:
        return
    subject = Subject(launch, ask.models)
    try:
        given = dict(subject.overrides())
        own = _own_section(subject)
    except Unreadable:
        return
    kept: dict[str, Value] = {key: value for key, value in given.items() if key not in KEYS}
    inner = given.get("dflash_config")
    if "dflash_config" in given and isinstance(inner, dict):
        without = {key: value for key, value in inner.items() if key not in KEYS}
        restated = {**own, **without}
        if restated == own:
            kept.pop("dflash_config")
        else:
            kept["dflash_config"] = restated
    elif "dflash_config" in given:
        kept.pop("dflash_config")
    if kept == given:
        return
    trained = f"mask_token_id {own['mask_token_id']}" if "mask_token_id" in own else "mask token"
    yield edited(launch, _override(launch, kept), f"the draft's own {trained} is in force again")


def restate_mask_token(ask: Request) -> Iterator[Proposal]:
    """Name the id under which the target's tokenizer knows the mask token.

    Whether the draft was trained with that id no file tells, so a person has to look at it.
    """
    launch = ask.launch
    if launch is None:
        return
    subject = Subject(launch, ask.models)
    size = ask.verdict.facts.get("vocab_size")
    try:
        given, draft = subject.overrides(), subject.draft()
        token = dflash.mask_token(draft).value
        tokenizer = subject.target_tokenizer()
    except (Unreadable, ModelError, dflash.Malformed):
        return
    known = tokenizer.vocab.get(str(token)) if tokenizer else None
    if known is None or not isinstance(size, int) or known >= size:
        return
    restated: dict[str, Value] = {**dflash.section(draft), "mask_token": token, "mask_token_id": known}
    kept: dict[str, Value] = {key: value for key, value in given.items() if key not in KEYS}
    kept["dflash_config"] = restated
    why = f"the target's tokenizer knows {token} as {known}; the draft must have been trained with it"
    yield edited(launch, _override(launch, kept), why, ceiling=Applicability.REVIEW)


def drop_draft_config_file(ask: Request) -> Iterator[Proposal]:
    """Read the draft's own config.json instead of the file of `--decrypted-draft-config-file`."""
    launch = ask.launch
    if launch is None or not launch.text_value("decrypted_draft_config_file"):
        return
    changes = removal(launch, ("--decrypted-draft-config-file",))
    yield edited(launch, changes, "the draft's own config.json is read again", ceiling=Applicability.REVIEW)


def init_tokenizer(ask: Request) -> Iterator[Proposal]:
    """Let the server load its tokenizer, which then knows or appends the mask token."""
    launch = ask.launch
    if launch is None or not launch.is_set("skip_tokenizer_init"):
        return
    changes = removal(launch, ("--skip-tokenizer-init",))
    why = "the server resolves the mask token with its tokenizer; clients get text back instead of token ids"
    yield edited(launch, changes, why, ceiling=Applicability.REVIEW)


def _own_section(subject: Subject) -> Mapping[str, Value]:
    """The draft's own `dflash_config`, as its files have it without the override."""
    launch = subject.launch
    own = subject.models.config(
        subject.draft_path or "",
        config_file=launch.text_value("decrypted_draft_config_file"),
        revision=launch.text_value("speculative_draft_model_revision"),
        trust_remote_code=launch.is_set("trust_remote_code"),
    )
    return dflash.section(own)


def _override(launch: Launch, kept: Mapping[str, Value]) -> tuple[Change, ...]:
    """The change that leaves just these overrides in force; the flag goes when none is left."""
    if not kept:
        return removal(launch, (OVERRIDE,))
    return (setting(launch, OVERRIDE, json.dumps(kept)),)
