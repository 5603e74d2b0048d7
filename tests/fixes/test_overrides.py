"""What is left of --json-model-override-args when one key is taken out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specwatch.domain import Applicability, Status, Verdict
from specwatch.fixes.overrides import remove_draft_override
from specwatch.fixes.proposal import Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

DRAFT = {"block_size": 8, "dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 7}}


def left(given: dict[str, Any], key: str) -> tuple[Any, Applicability] | None:
    """The overrides after the repair (None: the flag is gone) and its ceiling; None where it has nothing to offer."""
    command = "python -m sglang.launch_server --model-path /target --speculative-draft-model-path /draft"
    launch = parse(f"{command} --json-model-override-args '{json.dumps(given)}'", "0.5.23")
    verdict = Verdict(check="x", status=Status.BROKEN, facts={"key": key})
    ask = Request(launch=launch, verdict=verdict, models=MemoryModels({"/target": {}, "/draft": DRAFT}))
    proposals = list(remove_draft_override(ask))
    if not proposals:
        return None
    fixed = proposals[0].launch
    assert fixed is not None
    text = fixed.text_value("json_model_override_args")
    return (json.loads(text) if text else None), proposals[0].ceiling


@pytest.mark.parametrize(
    ("given", "key", "kept"),
    [
        ({"block_size": 0}, "block_size", None),
        ({"block_size": 0, "rope_theta": 1}, "block_size", {"rope_theta": 1}),
        # the rest of a replaced section stays, completed from the draft's own
        (
            {"dflash_config": {"block_size": 0, "mask_token_id": 9}},
            "dflash_config.block_size",
            {"dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 9}},
        ),
        # what says the same as the draft's own need not be said
        ({"dflash_config": {"target_layer_ids": []}}, "dflash_config.target_layer_ids", None),
        # a key that is missing because the section was replaced
        ({"dflash_config": {"mask_token_id": 7}}, "target_layer_ids", None),
        ({"dflash_config": 3}, "dflash_config.block_size", None),
    ],
)
def test_what_is_kept(given: dict[str, Any], key: str, kept: Any) -> None:
    assert left(given, key) == (kept, Applicability.SAFE)


def test_a_key_that_the_target_reads_too_is_for_review() -> None:
    assert left({"vocab_size": 10}, "vocab_size") == (None, Applicability.REVIEW)


def test_nothing_to_offer_where_the_key_is_not_overridden() -> None:
    assert left({"rope_theta": 1}, "block_size") is None
