"""What an option means that a release does not take: only what can be shown is certain."""

from __future__ import annotations

import pytest

from specwatch.launch.flags import releases, table
from specwatch.launch.foreign import FOREIGN, RENAMED, SPELLED_OUT
from specwatch.launch.meaning import Certainty, meaning
from specwatch.launch.speculative_config import said_in_flags


@pytest.mark.parametrize(
    ("release", "option", "texts", "certainty", "flags"),
    [
        ("0.5.23", "--enable_metrics", (), "CERTAIN", (("--enable-metrics", ()),)),
        ("0.5.23", "--Model-Path", ("m",), "CERTAIN", (("--model-path", ("m",)),)),
        ("0.5.23", "-model-path", ("m",), "CERTAIN", (("--model-path", ("m",)),)),
        ("0.5.23", "\u2014tp-size", ("2",), "CERTAIN", (("--tp-size", ("2",)),)),
        ("0.5.23", "--enable_metrics", ("true",), "CERTAIN", (("--enable-metrics", ()),)),
        ("0.5.23", "--enable_metrics", ("off",), "CERTAIN", ()),
        ("0.5.23", "--enable_metrics", ("much",), "LIKELY", (("--enable-metrics", ()),)),
        ("0.5.23", "--cuda-graph-max-bs", ("8",), "CERTAIN", (("--cuda-graph-max-bs-decode", ("8",)),)),
        ("0.5.7", "--cuda-graph-max-bs-decode", ("8",), "CERTAIN", (("--cuda-graph-max-bs", ("8",)),)),
        ("0.5.23", "--page", ("16",), "CERTAIN", (("--page-size", ("16",)),)),
        ("0.5.23", "--disable-piecewise-cuda-graph", (), "CERTAIN", (("--cuda-graph-backend-prefill", ("disabled",)),)),
        ("0.5.10", "--attn-dp-size", ("4",), "CERTAIN", (("--dp-size", ("4",)), ("--enable-dp-attention", ()))),
        ("0.5.23", "--collect-tokens-histogram", (), "CERTAIN", ()),
        (
            "0.5.23",
            "--trust-remote-code--tp-size",
            ("2",),
            "CERTAIN",
            (("--trust-remote-code", ()), ("--tp-size", ("2",))),
        ),
        ("0.5.23", "--tp-size--port", ("2",), "UNKNOWN", ()),
        ("0.5.23", "--max-model-len", ("2048",), "LIKELY", (("--context-length", ("2048",)),)),
        ("0.5.23", "--enforce-eager", (), "LIKELY", (("--disable-cuda-graph", ()),)),
        ("0.5.23", "--enable-prefix-caching", (), "LIKELY", ()),
        ("0.5.23", "--mem-fracton-static", ("0.8",), "LIKELY", (("--mem-fraction-static", ("0.8",)),)),
        ("0.5.23", "--keep-mm-feature-on-device", (), "UNKNOWN", ()),
        ("0.5.4", "--speculative-dspark-block-size", ("8",), "UNKNOWN", ()),
        ("0.5.23", "--bogus-flag", ("3",), "UNKNOWN", ()),
    ],
)
def test_meaning(
    release: str, option: str, texts: tuple[str, ...], certainty: str, flags: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    found = meaning(table(release), option, texts)
    assert (found.certainty.name, found.flags) == (certainty, flags)
    assert found.why


@pytest.mark.parametrize(("old", "new"), [("0.5.19", "0.5.23"), ("0.5.23", "0.5.13")])
def test_what_is_certain_is_taken_by_the_release(old: str, new: str) -> None:
    """A flag of one release, said in the words of another, is a flag there, and takes as many values."""
    flags = table(new)
    gone = [flag for flag in table(old).flags if flags.exact(flag.name) is None]
    assert gone
    for flag in gone[:60]:
        found = meaning(flags, flag.name, () if flag.bare else ("1",))
        if found.certainty is Certainty.CERTAIN:
            for name, texts in found.flags:
                target = flags.exact(name)
                assert target is not None, flag.name
                assert target.bare == (not texts), flag.name


def test_the_tables_name_real_flags() -> None:
    known = {name for release in releases() for flag in table(release).flags for name in flag.names}
    assert set(FOREIGN.values()) <= known
    assert set(RENAMED) <= known
    assert set(RENAMED.values()) <= known
    assert {name for name, _ in SPELLED_OUT} <= known
    assert {name for given in SPELLED_OUT.values() for name, _ in given} <= known


def test_no_foreign_word_is_a_flag_of_the_newest_release() -> None:
    newest = table(releases()[-1])
    assert [name for name in FOREIGN if newest.exact(name)] == []


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        (
            '{"method": "mtp", "num_speculative_tokens": 3}',
            "algorithm EAGLE num-steps 3 eagle-topk 1 num-draft-tokens 4",
        ),
        (
            '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}',
            "algorithm EAGLE num-steps 2 eagle-topk 1 num-draft-tokens 3",
        ),
        (
            '{"method": "eagle3", "model": "lab/head", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 1}',
            "algorithm EAGLE3 draft-model-path lab/head num-steps 2 eagle-topk 1 num-draft-tokens 3",
        ),
        (
            '{"method": "draft_model", "model": "lab/small", "num_speculative_tokens": 4}',
            "algorithm STANDALONE draft-model-path lab/small num-steps 4 eagle-topk 1 num-draft-tokens 5",
        ),
        (
            '{"method": "dflash", "model": "lab/block", "num_speculative_tokens": 15}',
            "algorithm DFLASH draft-model-path lab/block num-draft-tokens 16",
        ),
        ('{"method": "eagle3", "num_speculative_tokens": 2}', ""),  # with which head
        ('{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}', ""),  # sized in another way
        ('{"method": "medusa", "model": "lab/m", "num_speculative_tokens": 4}', ""),
        ('{"method": "mtp"}', ""),
        ('{"method": "mtp", "num_speculative_tokens": true}', ""),
        ('{"method": "mtp", "num_speculative_tokens": 0}', ""),
        ('["mtp"]', ""),
        ("{method: mtp}", ""),
    ],
)
def test_speculation_as_vllm_says_it(config: str, flags: str) -> None:
    words = [word for flag, values in said_in_flags(config) for word in (flag.removeprefix("--speculative-"), *values)]
    assert " ".join(words) == flags


def test_a_configuration_that_is_not_understood_is_no_word_of_vllm() -> None:
    config = '{"method": "mtp", "num_speculative_tokens": 3}'
    assert meaning(table("0.5.23"), "--speculative_config", (config,)).certainty is Certainty.LIKELY
    assert meaning(table("0.5.23"), "--speculative-config", ("mtp",)).certainty is Certainty.UNKNOWN
