"""How a server speaks, and the variables for benchmarks: what SGLang refuses, word for word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from specwatch.checks import CHECKS
from specwatch.domain import Status, Verdict
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels
from specwatch.rulebook.book import load_directories

MODELS = MemoryModels({"t": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_attention_heads": 4}})
SPECULATES = "--speculative-algorithm EAGLE --speculative-draft-model-path t --speculative-num-steps 3"


def judged(check: str, flags: str, release: str = "0.5.23", env: Mapping[str, str] | None = None) -> Verdict:
    launch = parse(f"python -m sglang.launch_server --model-path t {flags}", release)
    return CHECKS[check](replace(launch, env={**launch.env, **(env or {})}), MODELS)


REFUSED = [
    ("log_level", "--log-level foo", "AttributeError: module 'logging' has no attribute 'FOO'"),
    ("page_arguments", "--page-size 0", "ZeroDivisionError: integer modulo by zero"),
    (
        "encryption_arguments",
        "--ssl-certfile c.pem",
        "ValueError: --ssl-certfile requires --ssl-keyfile to be specified as well.",
    ),
    (
        "encryption_arguments",
        "--ssl-keyfile k.pem",
        "ValueError: --ssl-keyfile requires --ssl-certfile to be specified as well.",
    ),
    (
        "encryption_arguments",
        "--ssl-ca-certs a.pem",
        "ValueError: --ssl-ca-certs has no effect without --ssl-certfile and --ssl-keyfile.",
    ),
    (
        "diffusion_arguments",
        "--dllm-algorithm LowConfidence",
        "RuntimeError: Unknown diffusion LLM: Qwen3ForCausalLM",
    ),
]


@pytest.mark.parametrize(("check", "flags", "message"), REFUSED)
def test_a_refusal_is_told_word_for_word_and_has_a_rule(check: str, flags: str, message: str) -> None:
    got = judged(check, flags)
    assert f"{got.exception}: {got.message}" == message
    rule = load_directories().book.by_cause(check, got.cause)
    assert rule is not None
    assert any(pattern.regex.match(message) for pattern in rule.patterns)


@pytest.mark.parametrize(
    ("check", "flags"),
    [
        ("log_level", "--log-level debug"),
        ("log_level", "--log-level WARN"),
        ("page_arguments", "--page-size 16"),
        ("page_arguments", "--page-size 0 --chunked-prefill-size -1"),
        ("encryption_arguments", "--ssl-certfile c.pem --ssl-keyfile k.pem"),
        ("diffusion_arguments", ""),
    ],
)
def test_what_sglang_takes_is_taken(check: str, flags: str) -> None:
    assert judged(check, flags).status is Status.SOUND


def test_an_algorithm_of_another_release_is_not_judged() -> None:
    assert judged("diffusion_arguments", "--dllm-algorithm NextYears", "0.5.20").status is Status.UNKNOWN
    assert judged("diffusion_arguments", "--dllm-algorithm NextYears").cause == "no-such-algorithm"


@pytest.mark.parametrize(
    ("env", "release", "message"),
    [
        ({"LEN": "2.5", "TOKEN_MODE": "real"}, "0.5.23", "TOKEN_MODE 'real'; expected 'fixed' or 'real-draft-token'."),
        ({"LEN": "2.5", "METHOD": "foo"}, "0.5.6", "Invalid simulate_acc_method: foo"),
        ({"LEN": "2.5", "TOKEN_MODE": "real"}, "0.5.14", None),
        ({"LEN": "2.5"}, "0.5.23", None),
        ({"LEN": "-1", "METHOD": "foo"}, "0.5.23", None),
        ({"LEN": "x", "METHOD": "foo"}, "0.5.23", None),
    ],
)
def test_simulated_acceptance(env: dict[str, str], release: str, message: str | None) -> None:
    variables = {f"SGLANG_SIMULATE_ACC_{name}": value for name, value in env.items()}
    got = judged("simulated_acceptance", SPECULATES, release, variables)
    assert (got.message or "")[-len(message or "") :] == (message or "")
    assert (got.message is None) is (message is None)
    assert judged("simulated_acceptance", "", release, variables).message is None
