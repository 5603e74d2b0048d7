"""The draft configuration of DSPARK as SGLang parses it, behind the parse that it shares with DFLASH.

Mirrors srt/speculative/dspark_components/dspark_config.py: parse_dspark_draft_config, and the check of the Markov head
in srt/model_executor/model_runner_components/spec_aux_hidden_state.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from specwatch.checks import dflash, dflash_config
from specwatch.checks.dflash import Malformed, Setting
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase, Value
from specwatch.models.base import ModelConfig

NAME = "dspark_draft_config"
HEADS = ("vanilla", "gated", "rnn")
DEFAULT_GAMMA = 7


class Parsed(NamedTuple):
    """What SGLang knows of a DSPARK draft: None is what the draft does not name. `gamma` is its block size."""

    gamma: int | None
    markov_rank: int
    markov_head: str | None
    mask_token_id: int | None
    rank_at: Setting
    mask_at: Setting


def _nested(config: ModelConfig, key: str) -> Mapping[str, Value]:
    raw = config.top.get(key)
    return raw if isinstance(raw, dict) else {}


def setting(config: ModelConfig, key: str, prefixed: str = "") -> Setting:
    """A value by SGLang's precedence: the prefixed key, `dspark_config`, `dflash_config`, the text part, the top."""
    if prefixed and config.top.get(prefixed) is not None:
        return Setting(config.top.get(prefixed), prefixed, config.top.origin(prefixed))
    for part in ("dspark_config", "dflash_config"):
        inner = _nested(config, part)
        if key in inner:
            return Setting(inner[key], f"{part}.{key}", config.top.origin(part))
    if config.text.has(key):
        return Setting(config.text.get(key), key, config.text.origin(key))
    return Setting(config.top.get(key), key, config.top.origin(key) if config.top.has(key) else "")


def _integer(at: Setting) -> int | None:
    return None if at.value is None else _cast(at)


def _cast(at: Setting) -> int:
    try:
        return int(at.value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed("malformed", str(error), at, type(error).__name__) from error


def parse(subject: Subject, config: ModelConfig) -> Parsed:
    """Parse a DSPARK draft in SGLang's own order. Raises Malformed."""
    base = dflash_config.parse(subject, config)
    rank_at = setting(config, "markov_rank", "dspark_markov_rank")
    rank = _integer(rank_at) or 0
    if rank < 0:
        raise Malformed("malformed", f"DSpark markov_rank must be >= 0, got {rank}.", rank_at)
    head_at = setting(config, "markov_head_type", "dspark_markov_head_type")
    head = None if head_at.value is None else str(head_at.value).lower()
    if rank > 0 and head is None and not dflash_config.bundles_dspark(config):
        raise Malformed("head-type", "DSpark requires markov_head_type when markov_rank > 0, got None.", head_at)
    if head is not None and head not in HEADS:
        text = f"Unsupported DSpark markov_head_type={head!r}. Supported: {HEADS}."
        raise Malformed("head-type", text, head_at)
    mask_at = setting(config, "mask_token_id", "dspark_noise_token_id")
    mask = _integer(mask_at)
    if mask is not None and mask < 0:
        raise Malformed("malformed", f"DSpark mask_token_id must be non-negative, got {mask}.", mask_at)
    prefixed = config.top.get("dspark_block_size")
    block_at = Setting(prefixed, "dspark_block_size", config.top.origin("dspark_block_size"))
    gamma = _integer(block_at) if prefixed is not None else base.block_size
    _prefixed_layers(config)
    return Parsed(gamma=gamma, markov_rank=rank, markov_head=head, mask_token_id=mask, rank_at=rank_at, mask_at=mask_at)


def _prefixed_layers(config: ModelConfig) -> None:
    """`dspark_target_layer_ids` must be a list of whole numbers; whether the target has them nobody asks."""
    value = config.top.get("dspark_target_layer_ids")
    if value is None:
        return
    at = Setting(value, "dspark_target_layer_ids", config.top.origin("dspark_target_layer_ids"))
    if not isinstance(value, list) or not value:
        text = f"DSpark dspark_target_layer_ids must be a non-empty list of ints, got {value!r}."
        raise Malformed("malformed", text, at)
    for entry in value:
        _cast(Setting(entry, at.key, at.source))


def _config(subject: Subject) -> Answer | None:
    if subject.algorithm != "DSPARK":
        return None
    draft = dflash_config.draft_of(subject)
    if draft is None:
        return None
    try:
        dflash_config.parse(subject, draft)
    except Malformed:
        return None  # said by dflash_draft_config
    try:
        parsed = parse(subject, draft)
    except Malformed as error:
        return dflash.refused(NAME, subject, draft, error)
    if parsed.markov_rank > 0:
        return Answer()
    name = draft.architectures[0] if draft.architectures else ""
    made_for_dflash = "DFlash" in name and not parsed.rank_at.overridden
    cause = "made-for-dflash" if made_for_dflash else "no-markov-head"
    return broken(
        cause + ("-overridden" if parsed.rank_at.overridden else ""),
        "ValueError",
        f"DSPARK requires markov_rank > 0 in the draft config, got markov_rank={parsed.markov_rank}.",
        fact(NAME, parsed.rank_at.key, parsed.rank_at.value, parsed.rank_at.source or draft.source),
        fact(NAME, "draft architecture", name, draft.source),
        draft=subject.draft_path or subject.target_path,
        target=subject.target_path,
        architecture=name,
        key=parsed.rank_at.key,
        source=parsed.rank_at.source.partition(" ")[0],
    )


DRAFT_CONFIG = Check(
    name=NAME,
    phase=Phase.TARGET,
    mirrors="srt/speculative/dspark_components/dspark_config.py: parse_dspark_draft_config",
    run=_config,
)
