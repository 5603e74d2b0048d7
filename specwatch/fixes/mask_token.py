"""Put the mask token of a DFLASH draft right on the command line.

`--json-model-override-args` reaches both models and replaces a dict as a whole, so an override of `dflash_config`
hides everything that the draft's own `dflash_config` says. What is restated here is therefore always the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import dflash
from specwatch.checks.subject import Subject, Unreadable
from specwatch.domain import Applicability, Value
from specwatch.errors import ModelError
from specwatch.fixes.overrides import override, own_section, without
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal

KEYS = ("mask_token_id", "mask_token")


def remove_mask_token_override(ask: Request) -> Iterator[Proposal]:
    """Take the mask token out of the override, so that the one the draft was trained with is in force again."""
    launch = ask.launch
    if launch is None:
        return
    subject = Subject(launch, ask.models)
    try:
        given = subject.overrides()
        own = own_section(subject)
        kept = without(subject, given, KEYS)
    except Unreadable:
        return
    if kept == given:
        return
    trained = f"mask_token_id {own['mask_token_id']}" if "mask_token_id" in own else "mask token"
    yield edited(launch, override(launch, kept), f"the draft's own {trained} is in force again")


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
    yield edited(launch, override(launch, kept), why, ceiling=Applicability.REVIEW)


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
