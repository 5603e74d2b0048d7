"""What the checks of drafts find in plain data: precedence, bounds, releases, and what they refuse to guess."""

from __future__ import annotations

from typing import Any

import pytest

from specwatch.checks import CHECKS
from specwatch.domain import Status, Verdict
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

TARGET: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "vocab": "a",
}
DFLASH: dict[str, Any] = {
    **TARGET,
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 2,
    "block_size": 8,
    "dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 900},
}
DSPARK = DFLASH | {"architectures": ["Qwen3DSparkModel"], "markov_rank": 16, "markov_head_type": "vanilla"}
EAGLE3: dict[str, Any] = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "draft_vocab_size": 500,
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "kv_lora_rank": 16,
}


def ask(
    check: str,
    algorithm: str,
    draft: dict[str, Any] | None,
    flags: str = "",
    *,
    target: dict[str, Any] | None = None,
    release: str = "0.5.23",
    env: str = "",
) -> Verdict:
    """The verdict of one check on a launch of /target with /draft."""
    models = {"/target": target or TARGET} | ({"/draft": draft} if draft is not None else {})
    path = "--speculative-draft-model-path /draft" if draft is not None else ""
    command = f"{env} python -m sglang.launch_server --model-path /target --speculative-algorithm {algorithm} {path}"
    return CHECKS[check](parse(f"{command} {flags}".strip(), release), MemoryModels(models))


def inside(draft: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A draft with other keys in its dflash_config."""
    return draft | {"dflash_config": draft["dflash_config"] | changed}


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (DFLASH | {"block_size": "8"}, None),
        (DFLASH | {"block_size": 5.9}, None),
        (DFLASH | {"block_size": [8]}, "Invalid DFLASH block_size=[8]."),
        (DFLASH | {"block_size": -1}, "DFLASH block_size must be positive, got -1."),
        (inside(DFLASH | {"block_size": 0}, block_size=None), None),  # null in the section hides the top level
        (inside(DFLASH, block_size=0), "DFLASH block_size must be positive, got 0."),
        (inside(DFLASH, conv_kernel_size=-1), "DFLASH conv_kernel_size must be >= 0, got -1."),
        (inside(DFLASH, conv_kernel_size=3, conv_group_size=4), None),
        (inside(DFLASH, selector_rank=2, selector_top_k=4), None),
        (inside(DFLASH, final_logit_softcapping="a"), "could not convert string to float: 'a'"),
        (inside(DFLASH, final_logit_softcapping=None), None),
        (inside(DFLASH, attention_value_scale=2), None),
        (
            inside(DFLASH, attention_value_scale=True),
            "DFLASH dflash_config.attention_value_scale must be int|float|None, got True (type=bool).",
        ),
        (inside(DFLASH, target_layer_ids=["1", 5.9, True]), None),
        (DFLASH | {"dflash_config": None, "mask_token_id": 7}, None),
    ],
)
def test_dflash_configuration(draft: dict[str, Any], message: str | None) -> None:
    verdict = ask("dflash_draft_config", "DFLASH", draft)
    assert verdict.message == message
    assert verdict.status is (Status.BROKEN if message else Status.SOUND)


def test_newer_fields_are_not_asked_of_older_releases() -> None:
    half = inside(DFLASH, conv_kernel_size=3, attention_sink_bias="yes")
    assert ask("dflash_draft_config", "DFLASH", half, release="0.5.16").status is Status.SOUND
    assert ask("dflash_draft_config", "DFLASH", half, release="0.5.19").status is Status.BROKEN


def test_a_section_that_an_override_replaced_is_to_blame_for_what_is_missing() -> None:
    flags = """--json-model-override-args '{"dflash_config": {"projector_type": "domino"}}'"""
    verdict = ask("dflash_draft_config", "DFLASH", DFLASH, flags)
    assert verdict.cause == "domino-overridden"
    assert verdict.facts["source"] == "--json-model-override-args"


@pytest.mark.parametrize(
    ("ids", "trained", "cause"),
    [
        ([0, 7], None, ""),
        ([0, 8], None, "layer-out-of-range"),
        ([-1, 5], None, "layer-out-of-range"),
        ([1, 5], 5, "layer-out-of-own-range"),
        ([1, 5], 6, ""),
    ],
)
def test_target_layers(ids: list[int], trained: int | None, cause: str) -> None:
    draft = inside(DFLASH, target_layer_ids=ids) | {"num_target_layers": trained}
    assert ask("dflash_layers", "DFLASH", draft).cause == cause


def test_loops_deepen_a_target() -> None:
    draft = inside(DFLASH, target_layer_ids=[1, 15])
    assert ask("dflash_layers", "DFLASH", draft, target=TARGET | {"num_loops": 2}).status is Status.SOUND
    assert ask("dflash_layers", "DFLASH", draft).status is Status.BROKEN


def test_layers_are_picked_for_a_draft_that_names_none() -> None:
    silent = DFLASH | {"dflash_config": {"mask_token_id": 9}}
    assert ask("dflash_layers", "DFLASH", silent, target=TARGET | {"num_hidden_layers": 3}).cause == "layers-too-few"
    single = silent | {"num_hidden_layers": 1}
    assert ask("dflash_layers", "DFLASH", single, target=TARGET | {"num_hidden_layers": 1}).status is Status.SOUND


@pytest.mark.parametrize(
    ("heads", "kv", "tp", "fitting"),
    [(6, 2, 4, 2), (12, 6, 4, 2), (12, 3, 4, 1), (8, 2, 4, None), (8, 8, 8, None), (9, 3, 6, 1)],
)
def test_heads_are_dealt_out_evenly(heads: int, kv: int, tp: int, fitting: int | None) -> None:
    draft = DFLASH | {"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": 8}
    verdict = ask("dflash_build", "DFLASH", draft, f"--tp {tp}")
    assert verdict.facts.get("fitting_tp") == fitting
    assert verdict.exception == ("AssertionError" if fitting else None)


def test_heads_under_attention_data_parallelism_are_not_guessed() -> None:
    draft = DFLASH | {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}
    flags = "--tp 4 --dp 4 --enable-dp-attention --enable-dp-lm-head"
    assert ask("dflash_build", "DFLASH", draft, flags).status is Status.UNKNOWN
    assert ask("dflash_build", "DFLASH", draft, "--tp 4 --device cpu").status is Status.SOUND  # padded there


def test_a_draft_of_another_width_or_depth_is_told_without_a_message() -> None:
    verdict = ask("dflash_feature_width", "DFLASH", DFLASH | {"hidden_size": 32})
    assert (verdict.status, verdict.message) == (Status.BROKEN, None)
    assert verdict.facts["draft_hidden"] == 32
    verdict = ask("dflash_trained_depth", "DFLASH", DFLASH | {"num_target_layers": 9})
    assert (verdict.status, verdict.message) == (Status.BROKEN, None)
    assert ask("dflash_trained_depth", "DFLASH", DFLASH | {"num_target_layers": 8}).status is Status.SOUND


def test_a_width_that_no_file_names_is_not_held_against_a_draft() -> None:
    target = {key: value for key, value in TARGET.items() if key != "hidden_size"}
    assert ask("dflash_feature_width", "DFLASH", DFLASH, target=target).status is Status.SOUND


def test_packed_weights_are_not_compared() -> None:
    draft = DFLASH | {"weights": {"fc.weight": [64, 16]}}
    assert ask("dflash_weights", "DFLASH", draft).cause == "projection-shape"
    assert ask("dflash_weights", "DFLASH", draft | {"quantization_config": {}}).status is Status.SOUND


@pytest.mark.parametrize(
    ("changed", "check", "cause"),
    [
        ({}, "dspark_runtime", ""),
        ({"dspark_noise_token_id": 1000}, "dspark_runtime", "mask-outside"),
        ({"dspark_noise_token_id": 999}, "dspark_runtime", ""),
        ({"dspark_config": {"mask_token_id": None}}, "dspark_runtime", "mask-missing"),
        ({"dspark_config": {"mask_token_id": "1001"}}, "dspark_runtime", "mask-outside"),
        ({"markov_rank": 0}, "dspark_draft_config", "no-markov-head"),
        ({"markov_rank": 0, "dspark_markov_rank": 4}, "dspark_draft_config", ""),
        ({"markov_head_type": "RNN"}, "dspark_draft_config", ""),
        ({"markov_head_type": None}, "dspark_draft_config", "head-type"),
        ({"markov_head_type": None, "dspark_block_size": 7}, "dspark_draft_config", ""),  # prefixed keys: vanilla
        ({"dspark_target_layer_ids": [80]}, "dspark_draft_config", ""),  # nobody asks whether the target has it
        ({"dspark_target_layer_ids": [None]}, "dspark_draft_config", "malformed"),
        ({"architectures": ["DFlashDraftModel"], "markov_rank": None}, "dspark_draft_config", "made-for-dflash"),
    ],
)
def test_dspark(changed: dict[str, Any], check: str, cause: str) -> None:
    assert ask(check, "DSPARK", DSPARK | changed).cause == cause


def test_dspark_counts_the_padded_rows_of_a_target() -> None:
    draft = DSPARK | {"dspark_noise_token_id": 1010}
    assert ask("dspark_runtime", "DSPARK", draft, target=TARGET | {"padded_vocab_size": 1024}).status is Status.SOUND


def test_only_the_static_schedule_needs_no_confidence_head() -> None:
    draft = DSPARK | {"weights": {"markov_head.markov_w1.weight": [1000, 16]}}
    assert ask("dspark_weights", "DSPARK", draft).status is Status.SOUND
    verdict = ask("dspark_weights", "DSPARK", draft, env="SGLANG_RAGGED_VERIFY_MODE=compact")
    assert verdict.cause == "no-confidence-head"
    head = {"confidence_head.proj.weight": [1, 80], "confidence_head.proj.bias": [1]}
    whole = draft | {"weights": draft["weights"] | head}
    assert ask("dspark_weights", "DSPARK", whole, env="SGLANG_RAGGED_VERIFY_MODE=compact").status is Status.SOUND


def test_a_bundled_dspark_draft_is_the_target() -> None:
    target = TARGET | {"dspark_markov_rank": 4, "dspark_noise_token_id": 1000}
    assert ask("dspark_runtime", "DSPARK", None, target=target).cause == "mask-outside"
    assert ask("dspark_runtime", "DSPARK", None).because == "does not apply"


@pytest.mark.parametrize(
    ("algorithm", "draft", "cause"),
    [
        ("EAGLE3", EAGLE3, ""),
        ("EAGLE3", None, "no-draft"),
        ("EAGLE3", EAGLE3 | {"architectures": ["LlamaForCausalLMEagle"]}, "eagle-head-under-eagle3"),
        ("EAGLE3", EAGLE3 | {"architectures": ["SomeoneElsesEagle3"]}, ""),  # not known: not refused
        ("EAGLE", EAGLE3, "eagle3-head-under-eagle"),
        ("EAGLE", None, ""),
    ],
)
def test_eagle_head(algorithm: str, draft: dict[str, Any] | None, cause: str) -> None:
    assert ask("eagle_head", algorithm, draft).cause == cause


def test_a_target_with_a_draft_of_its_own_needs_no_head() -> None:
    assert ask("eagle_head", "EAGLE3", None, target=DEEPSEEK).status is Status.SOUND


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({}, ""),
        ({"num_aux_hidden_states": 2}, "features-differ"),
        ({"target_hidden_size": 32}, "features-differ"),
        ({"hidden_size": 32, "target_hidden_size": 64}, ""),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 8]}}, ""),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 9]}}, "layer-out-of-range"),
        ({"eagle_config": {"use_aux_hidden_state": False}, "num_aux_hidden_states": 2}, ""),
    ],
)
def test_eagle3_features(changed: dict[str, Any], cause: str) -> None:
    verdict = ask("eagle_features", "EAGLE3", EAGLE3 | changed)
    assert (verdict.cause, verdict.message) == (cause, None)


@pytest.mark.parametrize(
    ("weights", "cause"),
    [
        ({"fc.weight": [64, 192], "lm_head.weight": [500, 64], "d2t": [500]}, ""),
        ({"fc.weight": [64, 128]}, "head-shape"),
        ({"lm_head.weight": [1000, 64]}, "head-rows"),
        ({"model.embed_tokens.weight": [1024, 64]}, "head-rows"),
        ({"d2t": [400]}, "token-map-length"),
        ({}, ""),
    ],
)
def test_eagle3_weights(weights: dict[str, list[int]], cause: str) -> None:
    assert ask("eagle_weights", "EAGLE3", EAGLE3 | {"weights": weights}).cause == cause


@pytest.mark.parametrize(
    ("flags", "release", "cause", "status"),
    [
        ("", "0.5.23", "", Status.SOUND),
        ("--attention-backend torch_native", "0.5.23", "unsupported-backend", Status.BROKEN),
        ("--attention-backend torch_native --device cpu", "0.5.23", "unsupported-on-cpu", Status.BROKEN),
        (
            "--attention-backend torch_native --speculative-draft-attention-backend triton",
            "0.5.23",
            "",
            Status.SOUND,
        ),
        ("--attention-backend fa3", "0.5.10", "", Status.SOUND),
        ("--attention-backend fa4", "0.5.4", "unsupported-backend", Status.BROKEN),
        ("--attention-backend fa4", "0.5.7", "", Status.UNKNOWN),  # came somewhere between 0.5.4 and 0.5.10
        ("--attention-backend fa4", "0.5.10", "", Status.SOUND),
        ("--attention-backend trtllm_mla", "0.5.23", "latent-backend", Status.BROKEN),
        ("--attention-backend flashinfer", "0.5.10", "", Status.SOUND),
    ],
)
def test_draft_backend(flags: str, release: str, cause: str, status: Status) -> None:
    verdict = ask("draft_attention_backend", "EAGLE3", EAGLE3, flags, release=release)
    assert (verdict.cause, verdict.status) == (cause, status)


@pytest.mark.parametrize(("topk", "cause"), [(1, ""), (4, "one-branch-only")])
def test_latent_attention_follows_one_branch(topk: int, cause: str) -> None:
    flags = f"--attention-backend flashinfer --speculative-num-steps 3 --speculative-eagle-topk {topk}"
    verdict = ask("draft_attention_backend", "EAGLE", None, flags, target=DEEPSEEK)
    assert verdict.cause == cause
    assert verdict.facts.get("chain_tokens") == (4 if cause else None)


@pytest.mark.parametrize(
    ("target", "draft", "flags", "cause"),
    [
        ("bfloat16", "float16", "", "dtypes-differ"),
        ("bfloat16", "float16", "--dtype bfloat16", ""),
        ("bfloat16", None, "", ""),  # a default is not held against anybody
        ("bfloat16", "bfloat16", "", ""),
        ("float32", "float16", "", ""),  # nobody serves float32
    ],
)
def test_dtypes(target: str, draft: str | None, flags: str, cause: str) -> None:
    model = TARGET | {"torch_dtype": target}
    head = EAGLE3 | ({"torch_dtype": draft} if draft else {})
    assert ask("draft_dtype", "EAGLE3", head, flags, target=model).cause == cause


def test_a_standalone_draft_may_have_its_own_dtype() -> None:
    verdict = ask("draft_dtype", "STANDALONE", TARGET | {"torch_dtype": "float16"})
    assert verdict.because == "does not apply"


@pytest.mark.parametrize(
    ("flags", "env", "check", "broken"),
    [
        ("", "", "draft_context", True),
        ("", "", "given_context", False),
        ("--context-length 4096", "", "given_context", True),
        ("--context-length 2048", "", "draft_context", False),
        ("", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1", "draft_context", False),
        ("", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=2", "draft_context", True),
    ],
)
def test_context(flags: str, env: str, check: str, broken: bool) -> None:
    verdict = ask(check, "EAGLE3", EAGLE3 | {"max_position_embeddings": 2048}, flags, env=env)
    assert (verdict.status is Status.BROKEN) == broken


@pytest.mark.parametrize(("hidden", "cause"), [(64, ""), (48, "features-differ"), (None, "")])
def test_an_eagle_head_is_as_wide_as_its_target(hidden: int | None, cause: str) -> None:
    head = {key: value for key, value in EAGLE3.items() if key != "hidden_size"}
    head |= {"architectures": ["LlamaForCausalLMEagle"]} | ({"hidden_size": hidden} if hidden else {})
    assert ask("eagle_features", "EAGLE", head).cause == cause
