"""Models made of plain data, as rule examples use them."""

from __future__ import annotations

from typing import Any

import pytest

from specwatch.errors import ModelError
from specwatch.models.base import Models
from specwatch.models.files import LocalModels
from specwatch.models.memory import MemoryModels, token_map

SPEC: dict[str, dict[str, Any]] = {
    "/models/big": {"vocab_size": 256000, "vocab": "a", "num_hidden_layers": 40},
    "/models/small": {"vocab_size": 256000, "vocab": "a", "num_hidden_layers": 2, "max_position_embeddings": 4096},
    "/models/other": {"vocab_size": 256000, "vocab": "b", "added": {"<mask>": 70}, "mask_token": "<mask>"},
    "/models/bare": {"weights": {}},
}


def test_both_kinds_fulfil_the_protocol() -> None:
    kinds: list[Models] = [MemoryModels({}), LocalModels()]
    assert len(kinds) == 2


def test_config() -> None:
    models = MemoryModels(SPEC)
    got = models.config("/models/big/", overrides={"vocab_size": 5})
    assert (got.vocab_size, got.model_type, got.architectures) == (5, "llama", ("LlamaForCausalLM",))
    assert got.top.origin("num_hidden_layers") == "/models/big//config.json"
    with pytest.raises(ModelError):
        models.config("/models/none")
    with pytest.raises(ModelError) as caught:
        MemoryModels({"/x": {"vocab_size": "1"}}).config("/x")
    assert caught.value.exception == "StrictDataclassFieldValidationError"


def test_two_letters_never_share_a_map() -> None:
    assert len(token_map("a")) == 64
    assert not set(token_map("a")) & set(token_map("b")) - {"<unk>", "<s>", "</s>"}


def test_tokenizers() -> None:
    models = MemoryModels(SPEC)
    assert models.tokenizer("/models/big").digest == models.tokenizer("/models/small").digest
    other = models.tokenizer("/models/other")
    assert other.digest != models.tokenizer("/models/big").digest
    assert (other.mask_token, other.mask_token_id) == ("<mask>", 70)
    assert other.append_mask("<|MASK|>") == 71
    assert other.append_mask("<mask>") == 70
    assert models.tokenizer("/models/big").append_mask("<|MASK|>") == 64
    with pytest.raises(ModelError):
        models.tokenizer("/models/bare")


def test_files_and_weights() -> None:
    models = MemoryModels(SPEC | {"/w": {"weights": {"fc.weight": [2, 4]}, "files": ["mask_embedding.pt"]}})
    assert models.weights("/w") == {"fc.weight": (2, 4)}
    assert models.has_weights("/models/big")
    assert not models.has_weights("/models/bare")
    assert models.file_exists("/w", "mask_embedding.pt")
    assert not models.file_exists("/models/big", "mask_embedding.pt")
    assert models.exists("/w")
    assert not models.exists("/none")


def test_drafts() -> None:
    models = MemoryModels(SPEC)
    found = models.drafts("/models/big", target=models.config("/models/big"), exclude=("/models/other",))
    assert [(candidate.path, candidate.fits) for candidate in found] == [
        ("/models/small", True),
        ("/models/bare", False),
    ]


def test_another_configuration_file() -> None:
    models = MemoryModels({"/x": {"vocab_size": 1, "config_files": {"c.json": {"vocab_size": 2}}}})
    assert models.config("/x", config_file="c.json").vocab_size == 2
    with pytest.raises(ModelError):
        models.config("/x", config_file="d.json")
