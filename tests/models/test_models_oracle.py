"""What SGLang 0.5.23 itself answered to launches, held against our reading of the same files.

The answers were recorded from the real program on a machine without a GPU. Only what is read from configurations is
compared: the values that the checks of a launch start from, and refusals to read a model.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specwatch.errors import ModelError
from specwatch.models.base import ModelConfig
from specwatch.models.drafts import draft_architectures
from specwatch.models.files import LocalModels

DATA = Path(__file__).parent.parent / "data" / "oracle"
DONE = re.compile(r"draft ModelConfig arch=(\[.*?\]) vocab_size=(\d+|None) .* ctx=(\d+)")
CONFIG_CODE = ("transformers/configuration_utils.py", "transformers/models/auto", "transformers/utils/hub.py")
CONFIG_CODE += ("huggingface_hub/", "transformers/dynamic_module_utils.py", "sglang/srt/utils/hf_transformers/common.py")
CONFIG_CODE += ("sglang/srt/configs/model_config.py:699",)


def cases() -> list[dict[str, Any]]:
    found = []
    for name in ("cases.jsonl", "launches.jsonl"):
        found += [json.loads(line) for line in (DATA / name).read_text("utf-8").split("\n") if line]
    return found


def option(argv: list[str], *names: str) -> str | None:
    value = None
    for at, token in enumerate(argv):
        for name in names:
            if token == name and at + 1 < len(argv):
                value = argv[at + 1]
            elif token.startswith(f"{name}="):
                value = token.partition("=")[2]
    return value


def overrides(argv: list[str]) -> Mapping[str, Any] | None:
    text = option(argv, "--json-model-override-args")
    try:
        got = json.loads(text) if text is not None else {}
    except ValueError:
        return None
    return got if isinstance(got, dict) else ({} if got is None else None)


def target_of(models: LocalModels, argv: list[str]) -> ModelConfig:
    return models.config(option(argv, "--model-path", "--model") or "", overrides=overrides(argv))


def draft_of(models: LocalModels, argv: list[str], path: str) -> ModelConfig:
    return models.config(
        path, overrides=overrides(argv), config_file=option(argv, "--decrypted-draft-config-file")
    )


def read_alone(case: dict[str, Any]) -> bool:
    """Whether the case names its models in a way that this small reader of arguments understands."""
    argv = case["argv"]
    return option(argv, "--model-path", "--model") is not None and overrides(argv) is not None


COMPARED = [case for case in cases() if read_alone(case) and any(map(DONE.match, case.get("done") or ()))]
REFUSED = [
    case
    for case in cases()
    if read_alone(case) and not case["ok"] and str(case["where"]).startswith(CONFIG_CODE)
]
ACCEPTED = [case for case in cases() if read_alone(case) and case["ok"] and case["mode"] == "worker"]


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels(environ={"HOME": "/nonexistent"})


@pytest.fixture(autouse=True)
def _inside_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case["case"])
def test_reads_the_draft_as_sglang_does(case: dict[str, Any], models: LocalModels) -> None:
    done = next(match for line in case["done"] if (match := DONE.match(line)))
    draft = draft_of(models, case["argv"], option(case["argv"], *DRAFT_FLAGS) or "")
    target = target_of(models, case["argv"])
    assert str(list(draft_architectures(draft.architectures))) == done.group(1)
    assert str(draft.vocab_size) == done.group(2)
    # The draft is given the target's length, which must not be longer than its own.
    length = int(done.group(3))
    if "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN" not in (case.get("env") or {}):
        assert draft.context_length >= length
    if option(case["argv"], "--context-length") is None:
        assert target.context_length == length


DRAFT_FLAGS = ("--speculative-draft-model-path", "--speculative-draft-model")


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["case"])
def test_refuses_what_sglang_refuses_to_read(case: dict[str, Any], models: LocalModels) -> None:
    argv = case["argv"]
    with pytest.raises(ModelError) as caught:
        target_of(models, argv)
        draft_of(models, argv, option(argv, *DRAFT_FLAGS) or "")
        models.tokenizer(option(argv, "--tokenizer-path") or option(argv, "--model-path", "--model") or "")
    if "couldn't connect" in case["message"]:
        assert caught.value.exception is None  # the server may find elsewhere what is not on this machine
    else:
        message = case["message"].replace("ORACLE", os.getcwd())
        assert (caught.value.exception, caught.value.message) == (case["exception"], message)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["case"])
def test_reads_what_sglang_reads(case: dict[str, Any], models: LocalModels) -> None:
    argv = case["argv"]
    assert target_of(models, argv).vocab_size
    if path := option(argv, *DRAFT_FLAGS):
        assert draft_of(models, argv, path).architectures


def test_the_sets_are_not_empty() -> None:
    assert len(COMPARED) > 300
    assert len(REFUSED) > 15
    assert len(ACCEPTED) > 200
