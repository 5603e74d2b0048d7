"""Take a value out of `--json-model-override-args`, so that what the model's own files say is in force again.

The flag reaches both models and replaces a dict as a whole: an override of `dflash_config` hides everything that the
draft's own `dflash_config` says. What stays of it is therefore restated together with the draft's own keys.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from specwatch.checks.subject import OVERRIDE, Subject, Unreadable
from specwatch.domain import Applicability, Change, Launch, Value
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting
from specwatch.lazy import compiled

SECTIONS = ("dflash_config", "dspark_config")
DRAFT_ONLY = compiled(
    r"(dflash|dspark)_config\..*|dspark_.*|block_size|(num_)?target_layer.*|mask_token.*|markov_.*|projector_type"
    r"|shift_label|pure_draft_prefix_len|gru_hidden_dim|emb_dim"
)
"""Keys that no target reads; the others are put back for both models."""


def remove_draft_override(ask: Request) -> Iterator[Proposal]:
    """Take out the key that the check found at fault, or restate the ones that an override of the dict hides."""
    launch, key = ask.launch, ask.verdict.facts.get("key")
    if launch is None or not isinstance(key, str):
        return
    try:
        subject = Subject(launch, ask.models)
        given = subject.overrides()
        kept = without(subject, given, (key.rpartition(".")[2],))
    except Unreadable:
        return
    if kept == given:
        return
    ceiling = Applicability.SAFE if DRAFT_ONLY.fullmatch(key) else Applicability.REVIEW
    yield edited(launch, override(launch, kept), f"the model's own {key} is in force again", ceiling=ceiling)


def without(subject: Subject, given: Mapping[str, Value], keys: Collection[str]) -> dict[str, Value]:
    """The overrides less some keys, at the top and in the draft's sections, these completed from the draft's files."""
    kept: dict[str, Value] = {key: value for key, value in given.items() if key not in keys}
    for name in SECTIONS:
        if name not in kept:
            continue
        own = own_section(subject, name)
        inner = given[name]
        rest = {key: value for key, value in inner.items() if key not in keys} if isinstance(inner, dict) else {}
        restated = {**own, **rest}
        if restated == own:
            kept.pop(name)
        else:
            kept[name] = restated
    return kept


def own_section(subject: Subject, name: str = "dflash_config") -> Mapping[str, Value]:
    """A section of the draft's configuration, as its files have it without the override."""
    launch = subject.launch
    own = subject.models.config(
        subject.draft_path or subject.target_path,
        config_file=launch.text_value("decrypted_draft_config_file"),
        revision=launch.text_value("speculative_draft_model_revision"),
        trust_remote_code=launch.is_set("trust_remote_code"),
    ).top.get(name)
    return own if isinstance(own, dict) else {}


def override(launch: Launch, kept: Mapping[str, Value]) -> tuple[Change, ...]:
    """The change that leaves just these overrides in force; the flag goes when none is left."""
    if not kept:
        return removal(launch, (OVERRIDE,))
    return (setting(launch, OVERRIDE, json.dumps(kept)),)
