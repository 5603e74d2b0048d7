"""The override of a DFLASH mask token is taken out without leaving a worse one behind."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from specwatch.checks import CHECKS, examine
from specwatch.domain import Launch, Status
from specwatch.fixes import FIXES, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

TARGET = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 100,
    "num_hidden_layers": 8,
    "hidden_size": 32,
    "vocab": "a",
}
OWN = {"target_layer_ids": [1, 5], "mask_token_id": 90, "block_size": 8}
BASE = "python -m sglang.launch_server --model-path /t --speculative-algorithm DFLASH --speculative-draft-model-path /d"


def models(**draft: Any) -> MemoryModels:
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": 100,
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "dflash_config": OWN,
    }
    return MemoryModels({"/t": TARGET, "/d": {**config, **draft}})


def fixed(override: object, known: MemoryModels) -> list[Launch]:
    launch = parse(f"{BASE} --json-model-override-args {shlex.quote(json.dumps(override))} --tp 2", "0.5.23")
    verdict = CHECKS["mask_token"](launch, known)
    if verdict.status is not Status.BROKEN:
        verdict = CHECKS["dflash_draft_config"](launch, known)
    assert verdict.status is Status.BROKEN
    ask = Request(launch=launch, verdict=verdict, models=known)
    return [p.launch for p in FIXES["remove-mask-token-override"](ask) if p.launch]


def override_of(launch: Launch) -> object:
    text = launch.text_value("json_model_override_args")
    return json.loads(text) if text else None


@pytest.mark.parametrize(
    ("override", "left"),
    [
        # the whole dict goes: deleting the one key alone would hide the draft's own id
        ({"dflash_config": {"mask_token_id": 100}}, None),
        ({"dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 100}}, None),
        ({"dflash_config": {"mask_token_id": 100}, "rope_theta": 10.0}, {"rope_theta": 10.0}),
        # a sibling that somebody changed on purpose stays, with everything of the draft's own beside it
        (
            {"dflash_config": {"target_layer_ids": [2, 5], "mask_token_id": 100}},
            {"dflash_config": {**OWN, "target_layer_ids": [2, 5]}},
        ),
        ({"dflash_config": {"mask_token_id": -1}}, None),
        ({"dflash_config": {"mask_token_id": "7"}}, None),
        ({"dflash_config": {"mask_token_id": 100, "mask_token": "x"}}, None),
    ],
)
def test_what_is_left_of_the_override(override: object, left: object) -> None:
    (launch,) = fixed(override, models())
    assert override_of(launch) == left
    assert launch.text.endswith("--tp 2")
    assert launch.text.startswith(BASE)
    assert all(verdict.status is not Status.BROKEN for verdict in examine(launch, models()))
    # the id that the draft was trained with is in force again
    assert CHECKS["mask_token"](launch, models()).facts["mask_token_id"] == OWN["mask_token_id"]


def test_an_id_at_the_top_level() -> None:
    known = models(dflash_config={"target_layer_ids": [1, 5]}, mask_token_id=90)
    (launch,) = fixed({"mask_token_id": 100, "x": 1}, known)
    assert override_of(launch) == {"x": 1}
    assert CHECKS["mask_token"](launch, known).facts["mask_token_id"] == 90


def test_nothing_to_remove() -> None:
    launch = parse(BASE, "0.5.23")
    known = models(dflash_config={"target_layer_ids": [1, 5], "mask_token_id": 100})
    verdict = CHECKS["mask_token"](launch, known)
    assert verdict.cause == "made-for-another-target"
    assert not list(FIXES["remove-mask-token-override"](Request(launch=launch, verdict=verdict, models=known)))


def test_an_override_is_an_override_only_while_its_key_decides() -> None:
    """A top-level id of the override means nothing beside the draft's own dflash_config."""
    launch = parse(f"""{BASE} --json-model-override-args '{{"mask_token_id": 5}}'""", "0.5.23")
    known = models(dflash_config={"target_layer_ids": [1, 5], "mask_token_id": 100})
    assert CHECKS["mask_token"](launch, known).cause == "made-for-another-target"


def test_restating_needs_an_id_inside_the_table() -> None:
    known = MemoryModels(
        {
            "/t": {**TARGET, "added": {"<m>": 95, "<far>": 200}},
            "/d": {**models()._spec["/d"], "dflash_config": {**OWN, "mask_token": "<m>", "mask_token_id": 100}},
            "/e": {**models()._spec["/d"], "dflash_config": {**OWN, "mask_token": "<far>", "mask_token_id": 100}},
        }
    )
    for draft, expected in (("/d", {**OWN, "mask_token": "<m>", "mask_token_id": 95}), ("/e", None)):
        launch = parse(BASE.replace("/d", draft), "0.5.23")
        verdict = CHECKS["mask_token"](launch, known)
        ask = Request(launch=launch, verdict=verdict, models=known)
        found = [override_of(p.launch) for p in FIXES["restate-mask-token"](ask) if p.launch]
        assert found == ([{"dflash_config": expected}] if expected else [])
