"""What SGLang 0.5.23 itself answered to launches, held against our reading of the same files.

The answers were recorded from the real program on a machine without a GPU. Only what is read from configurations is
compared: the values that the checks of a launch start from, and refusals to read a model.
"""

from __future__ import annotations

import json
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
ODD_DATA = Path(__file__).parent.parent / "data" / "models" / "odd"
DONE = re.compile(r"draft ModelConfig arch=(\[.*?\]) vocab_size=(\d+|None) .* ctx=(\d+)")
CONFIG_CODE = (
    "transformers/configuration_utils.py",
    "transformers/models/auto",
    "transformers/utils/hub.py",
    "huggingface_hub/",
    "transformers/dynamic_module_utils.py",
    "sglang/srt/utils/hf_transformers/common.py",
    "sglang/srt/configs/model_config.py:699",
)


def cases() -> list[dict[str, Any]]:
    found = []
    for name in ("cases.jsonl", "launches.jsonl"):
        found += [json.loads(line) for line in (DATA / name).read_text("utf-8").split("\n") if line]
    return found


def option(argv: list[str], flag: str, shortest: str = "") -> str | None:
    """The last value of a flag, also under an abbreviation of at least `shortest`."""
    value = None
    for at, token in enumerate(argv):
        name, equals, rest = token.partition("=")
        if name == flag or (shortest and flag.startswith(name) and len(name) >= len(shortest)):
            value = rest if equals else argv[at + 1] if at + 1 < len(argv) else None
    return value


def target_path(argv: list[str]) -> str | None:
    return option(argv, "--model-path", "--model")


def draft_path(argv: list[str]) -> str | None:
    """The draft; without one SGLang reads the target a second time."""
    given = option(argv, "--speculative-draft-model-path", "--speculative-draft-model-p")
    given = given if given is not None else option(argv, "--speculative-draft-model")
    return target_path(argv) if given is None else given


def overrides(argv: list[str]) -> Mapping[str, Any] | None:
    text = option(argv, "--json-model-override-args", "--json")
    try:
        got = json.loads(text) if text is not None else {}
    except ValueError:
        return None
    return got if isinstance(got, dict) else ({} if got is None else None)


def target_of(models: LocalModels, argv: list[str]) -> ModelConfig:
    return models.config(target_path(argv) or "", overrides=overrides(argv))


def draft_of(models: LocalModels, argv: list[str]) -> ModelConfig:
    file = option(argv, "--decrypted-draft-config-file")
    return models.config(draft_path(argv) or "", overrides=overrides(argv), config_file=file)


def read_all(models: LocalModels, argv: list[str]) -> None:
    target_of(models, argv)
    draft_of(models, argv)
    models.tokenizer(option(argv, "--tokenizer-path") or target_path(argv) or "")


def read_alone(case: dict[str, Any]) -> bool:
    """Whether the case names its models in a way that this small reader of arguments understands."""
    argv = case["argv"]
    return target_path(argv) is not None and overrides(argv) is not None


COMPARED = [case for case in cases() if read_alone(case) and any(map(DONE.match, case.get("done") or ()))]
REFUSED = [
    case for case in cases() if read_alone(case) and not case["ok"] and str(case["where"]).startswith(CONFIG_CODE)
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
    draft = draft_of(models, case["argv"])
    target = target_of(models, case["argv"])
    assert str(list(draft_architectures(draft.architectures))) == done.group(1)
    assert str(draft.vocab_size) == done.group(2)
    # The draft is given the target's length, which must not be longer than its own.
    length = int(done.group(3))
    if "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN" not in (case.get("env") or {}):
        assert draft.context_length >= length
    if option(case["argv"], "--context-length", "--context") is None:
        assert target.context_length == length


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["case"])
def test_refuses_what_sglang_refuses_to_read(case: dict[str, Any], models: LocalModels) -> None:
    argv = case["argv"]
    with pytest.raises(ModelError) as caught:
        read_all(models, argv)
    if "couldn't connect" in case["message"]:
        assert caught.value.exception is None  # the server may find elsewhere what is not on this machine
    else:
        message = case["message"].replace("ORACLE", str(Path.cwd()))
        assert (caught.value.exception, caught.value.message) == (case["exception"], message)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["case"])
def test_reads_what_sglang_reads(case: dict[str, Any], models: LocalModels) -> None:
    argv = case["argv"]
    assert target_of(models, argv).vocab_size
    assert draft_of(models, argv).architectures


ODD = [json.loads(line) for line in (ODD_DATA / "answers.jsonl").read_text("utf-8").split("\n") if line]


@pytest.mark.parametrize("case", ODD, ids=lambda case: case["case"])
def test_odd_configurations(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draft configurations with one fault or oddity each, asked of the real program in the same way."""
    monkeypatch.chdir(ODD_DATA)
    models = LocalModels(environ={"HOME": "/nonexistent"})
    argv = [token.replace("ORACLE", str(ODD_DATA)) for token in case["argv"]]
    message = (case["message"] or "").replace("ORACLE", str(ODD_DATA))
    done = next((match for line in case["done"] or () if (match := DONE.match(line))), None)
    draft = _unless_refused(models, argv, case["exception"], message)
    if draft is None:
        return
    if done is not None:
        assert (str(list(draft_architectures(draft.architectures))), str(draft.vocab_size)) == done.groups()[:2]
        assert draft.context_length >= int(done.group(3))
    elif not case["ok"]:
        # refused later, by a check that names what it read from this draft
        assert f"({draft.context_length})" in message or f"draft vocab_size={draft.vocab_size}." in message


def _unless_refused(models: LocalModels, argv: list[str], exception: str | None, message: str) -> ModelConfig | None:
    """The draft; None where we refuse target or draft, and then it is held against the expected refusal."""
    refusal = None
    try:
        target_of(models, argv)
        return draft_of(models, argv)
    except ModelError as error:
        refusal = error
    # sorted: the library prints missing keys as a set, in no fixed order
    assert (refusal.exception, sorted(refusal.message or "")) == (exception, sorted(message))
    return None


def test_the_sets_are_not_empty() -> None:
    assert len(COMPARED) > 250
    assert len(REFUSED) > 20
    assert len(ACCEPTED) > 280
