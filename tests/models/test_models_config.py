"""Configurations as the library fills them in, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from specwatch.errors import ModelError
from specwatch.models import config, library
from specwatch.models.base import ModelConfig

QWEN: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 103}


def read(data: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, **more: Any) -> ModelConfig:
    return config.model_config(data, path="/models/x", source="/models/x/config.json", overrides=overrides, **more)


def refusal(data: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> tuple[str | None, str | None]:
    with pytest.raises(ModelError) as caught:
        read(data, overrides)
    return caught.value.exception, caught.value.message


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in QWEN.items() if key not in keys}


def test_a_missing_key_is_the_class_default_and_says_so() -> None:
    got = read(without("vocab_size"))
    assert got.vocab_size == 151936
    assert got.top.origin("vocab_size") == "transformers class default of qwen3"
    assert got.top.origin("hidden_size") == "/models/x/config.json"
    assert got.top.origin("nothing") == ""


def test_other_names_of_a_key() -> None:
    got = read({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 48, "n_positions": 99})
    assert got.text.get("hidden_size") == 48
    assert got.context_length == 99
    assert got.text.get("num_hidden_layers") == 12


def test_derived_values() -> None:
    got = read(
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 96, "num_attention_heads": 6}
    )
    assert got.top.get("head_dim") == 16
    assert got.top.get("num_key_value_heads") == 6
    window = QWEN | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    assert read(window).top.get("layer_types") == ["full_attention"] + ["sliding_attention"] * 3
    assert read(QWEN | {"sliding_window": 8}).top.get("sliding_window") is None


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({}, 4096),
        ({"max_position_embeddings": 1000, "seq_length": 500}, 500),
        ({"model_max_length": 700, "max_seq_len": 600}, 600),
        ({"seq_length": None}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 8192),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 1.5}}, 6144),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 4096),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}}, 4096),
    ],
)
def test_context_length(changes: dict[str, Any], length: int) -> None:
    assert read(QWEN | changes).context_length == length


def test_a_class_default_of_the_context() -> None:
    assert read(without("max_position_embeddings")).context_length == 32768


def test_nested_rope_parameters_do_not_lengthen_the_context() -> None:
    gemma = QWEN | {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}
    assert read(gemma | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}).context_length == 4096


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_a_dict_becomes_the_language_part(key: str) -> None:
    got = read(QWEN | {key: TEXT})
    assert got.vocab_size == 103
    assert got.context_length == 2048
    assert got.top.get("vocab_size") == 100
    assert got.top.get(key) is not None


def test_the_order_of_the_language_parts() -> None:
    got = read(
        QWEN
        | {"text_config": TEXT | {"vocab_size": 1}, "language_config": TEXT, "thinker_config": TEXT | {"vocab_size": 2}}
    )
    assert got.vocab_size == 2


def test_llava_names_keep_the_top() -> None:
    got = read(QWEN | {"architectures": ["LlavaQwenForCausalLM"], "text_config": TEXT})
    assert got.vocab_size == 100
    assert got.text is got.top


def test_a_vision_model_takes_its_text_class() -> None:
    llava = {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {"vocab_size": 7},
    }
    got = read(llava)
    assert got.vocab_size == 7
    assert got.text.get("hidden_size") == 4096
    assert got.top.get("hidden_size") == 4096  # sglang copies what the top lacks
    flat = {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "vocab_size": 9}
    assert read(flat).vocab_size == 9


def test_glm_image_predicts_vision_tokens() -> None:
    glm = QWEN | {"architectures": ["GlmImageForConditionalGeneration"], "vision_vocab_size": 16512}
    assert read(glm).vocab_size == 16512


def test_raw_mamba_pads_its_vocabulary() -> None:
    raw = {"d_model": 768, "n_layer": 2, "ssm_cfg": {}, "vocab_size": 50277, "pad_vocab_size_multiple": 8}
    assert read(raw).vocab_size == 50280


def test_overrides() -> None:
    assert read(QWEN, {"vocab_size": 5}).vocab_size == 5
    assert read(QWEN, {"vocab_size": 5}).top.origin("vocab_size") == "--json-model-override-args"
    merged = read(QWEN | {"text_config": TEXT}, {"text_config": {"vocab_size": 4}})
    assert (merged.vocab_size, merged.text.get("hidden_size")) == (4, 64)
    rope = QWEN | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert read(rope, {"rope_scaling": {"factor": 3.0}}).context_length == 3 * 4096
    flash = read(
        QWEN | {"dflash_config": {"mask_token_id": 1, "block_size": 8}}, {"dflash_config": {"mask_token_id": 2}}
    )
    assert flash.top.get("dflash_config") == {"mask_token_id": 2}
    # what was derived from a value is not derived again
    assert read(without("num_key_value_heads"), {"num_attention_heads": 2}).top.get("num_key_value_heads") == 32


FIELD = "Validation error for field 'vocab_size':\n    TypeError: Field 'vocab_size' expected int, got "


@pytest.mark.parametrize(
    ("changes", "overrides", "exception", "message"),
    [
        ({"vocab_size": None}, None, "StrictDataclassFieldValidationError", FIELD + "NoneType (value: None)"),
        ({"vocab_size": "100"}, None, "StrictDataclassFieldValidationError", FIELD + "str (value: '100')"),
        ({"vocab_size": True}, None, "StrictDataclassFieldValidationError", FIELD + "bool (value: True)"),
        ({}, {"vocab_size": 1.5}, "StrictDataclassFieldValidationError", FIELD + "float (value: 1.5)"),
        (
            {"sliding_window": "x"},
            None,
            "StrictDataclassFieldValidationError",
            "Validation error for field 'sliding_window':\n    TypeError: Field 'sliding_window' with value 'x' "
            "doesn't match any type in (<class 'int'>, <class 'NoneType'>). "
            "Errors: Field 'sliding_window' expected int, got "
            "str (value: 'x'); Field 'sliding_window' expected NoneType, got str (value: 'x')",
        ),
        (
            {"layer_types": ["full_attention"]},
            None,
            "StrictDataclassClassValidationError",
            "Class validation error for validator 'validate_layer_type':\n    ValueError: `num_hidden_layers` (4) must "
            "be equal to the number of `layer_types` (1)",
        ),
        (
            {"rope_scaling": {"rope_type": "linear"}},
            None,
            "KeyError",
            "\"Missing required keys in `rope_parameters` for 'rope_type'='linear': {'factor'}\"",
        ),
        ({"torch_dtype": "half2"}, None, "AttributeError", "module 'torch' has no attribute 'half2'"),
        ({"architectures": []}, None, "IndexError", "list index out of range"),
        ({"architectures": None}, None, "TypeError", "'NoneType' object is not subscriptable"),
        ({"text_config": {"vocab_size": 5}}, None, "AssertionError", ""),
        (
            {"language_config": {"vocab_size": 5, "hidden_size": 8, "num_attention_heads": 2}},
            None,
            "AttributeError",
            "'PreTrainedConfig' object has no attribute 'num_hidden_layers'",
        ),
        (
            {"thinker_config": {"text_config": TEXT}},
            None,
            "AttributeError",
            "'dict' object has no attribute 'dtype'",
        ),
        (
            {"architectures": ["DeepseekV3ForCausalLM"]},
            None,
            "AttributeError",
            "'Qwen3Config' object has no attribute 'kv_lora_rank'",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], overrides: dict[str, Any] | None, exception: str, message: str) -> None:
    assert refusal(QWEN | changes, overrides) == (exception, message)


def test_of_several_wrong_fields_the_class_order_decides() -> None:
    assert (refusal({**QWEN, "num_hidden_layers": "x", "vocab_size": "y"})[1] or "").startswith(FIELD)


def test_model_types() -> None:
    missing = "Unrecognized model in /models/x. Should have a `model_type` key in its config.json."
    assert refusal(without("model_type")) == ("ValueError", missing)
    assert refusal({}) == ("ValueError", missing)
    exception, message = refusal(QWEN | {"model_type": "foobar"})
    assert exception == "ValueError"
    assert (message or "").startswith("The checkpoint you are trying to load has model type `foobar` but")
    assert refusal(QWEN | {"model_type": "vit"})[0] is None  # known to the library, not to the table
    ministral = read(QWEN | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "layer_types": None})
    assert ministral.model_type == "ministral"


def test_code_of_the_repository_is_never_needed_for_known_types() -> None:
    mapped = QWEN | {"auto_map": {"AutoConfig": "configuration_x.X"}}
    assert read(mapped).remote_code is False
    assert read(mapped, trust_remote_code=True).remote_code is True
    unknown = mapped | {"model_type": "x"}
    exception, message = refusal(unknown)
    assert exception == "ValueError"
    assert (message or "").endswith("Please pass the argument `trust_remote_code=True` to allow custom code to be run.")
    trusted = read(unknown, trust_remote_code=True)
    assert (trusted.vocab_size, trusted.remote_code) == (100, True)
    with pytest.raises(ModelError, match="never run here") as caught:
        read({key: value for key, value in mapped.items() if key != "vocab_size"}, trust_remote_code=True)
    assert caught.value.exception is None


def test_what_a_class_computes_by_code_is_not_guessed() -> None:
    olmo = {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}
    got = read(olmo)
    assert got.vocab_size
    with pytest.raises(ModelError, match="not known here"):
        got.top.get("layer_types")


@pytest.mark.parametrize("path", ["/m/Mistral-Large-3-675B", "/m/mistral-eagle-head"])
def test_mistrals_own_format_is_not_read(path: str) -> None:
    with pytest.raises(ModelError, match="Mistral's own format") as caught:
        config.model_config(QWEN, path=path, source="x")
    assert caught.value.exception is None


@pytest.mark.parametrize(
    ("content", "exception", "message"),
    [
        (b"{", "OSError", "It looks like the config file at '/m/config.json' is not a valid JSON file."),
        (b"", "OSError", "It looks like the config file at '/m/config.json' is not a valid JSON file."),
        (b'{"a": "\xff"}', "OSError", "It looks like the config file at '/m/config.json' is not a valid JSON file."),
        (b"\xef\xbb\xbf{}", "OSError", "It looks like the config file at '/m/config.json' is not a valid JSON file."),
        (b"[1]", "AttributeError", "'list' object has no attribute 'get'"),
        (b"null", "TypeError", "argument of type 'NoneType' is not iterable"),
        (b"5", "TypeError", "argument of type 'int' is not iterable"),
        (b"[" * 100_000 + b"]" * 100_000, None, None),
        (b'{"a":' * 300 + b"1" + b"}" * 300, None, None),
    ],
)
def test_content_that_is_no_configuration(content: bytes, exception: str | None, message: str | None) -> None:
    with pytest.raises(ModelError) as caught:
        config.parse(content, "/m/config.json")
    assert (caught.value.exception, caught.value.message) == (exception, message)


def test_the_table_is_small_and_loads_without_the_library() -> None:
    table = library.table()
    assert table["versions"]["transformers"] == "5.19.0"
    assert len(json.dumps(table)) < 160_000
    assert len(table["classes"]) > 300
