from __future__ import annotations

from pathlib import Path

import pytest

from specwatch.launch import flags
from specwatch.launch.command import parse as parse_launch
from specwatch.launch.server_args import guess_release, merge, parse, recorded

DATA = Path(__file__).parent.parent / "data" / "launch" / "server_args"


def test_a_real_line_of_0_5_23() -> None:
    values = parse((DATA / "0.5.23-dflash.txt").read_text())
    assert len(values) == 546
    assert values["speculative_algorithm"] == "DFLASH"
    assert values["mem_fraction_static"] == 0.716
    assert guess_release(values) == "0.5.23"


def test_a_repr_of_a_dataclass() -> None:
    values = parse((DATA / "0.5.16-repr.txt").read_text())
    assert values["model_path"] == "openai/gpt-oss-120b"
    assert values["speculative_num_steps"] == 3


def test_what_is_no_literal_does_not_cost_the_rest() -> None:
    text = (
        "server_args=ServerArgs(model_path='it\\'s, (a) \"path\"', mode=<Mode.NULL: 'null'>, config=Config(a=[1, (2)], "
        "b='x)'), pair=(1, 2), rate=inf, sets={'a'}, obj=<object at 0x7f>, tp_size=2, flag=True) and more"
    )
    assert parse(text) == {
        "model_path": 'it\'s, (a) "path"',
        "mode": "null",
        "pair": [1, 2],
        "rate": float("inf"),
        "sets": ["a"],
        "tp_size": 2,
        "flag": True,
    }


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (40, set()),
        (44, {"model_path"}),
        (58, {"model_path"}),
        (59, {"model_path", "tp_size"}),
        (93, {"model_path", "tp_size"}),
        (104, {"model_path", "tp_size", "served_model_name"}),
    ],
)
def test_a_cut_line_keeps_what_is_whole(cut: int, kept: set[str]) -> None:
    text = "server_args={'model_path': '/models/target', 'tp_size': 16, 'served_model_name': 'abcdefghij', 'port': 3}"
    whole = {"model_path": "/models/target", "tp_size": 16, "served_model_name": "abcdefghij", "port": 3}
    assert parse(text[:cut]) == {name: whole[name] for name in kept}


def test_nothing_is_evaluated(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    values = parse(f"server_args=ServerArgs(a=open({str(marker)!r}, 'w'), tp_size=[].__class__, port=1)")
    assert values == {"port": 1}
    assert not marker.exists()


@pytest.mark.parametrize(
    "text", ["", "no arguments", "server_args=", "server_args={", "server_args={1: 2}", "(" * 90_000]
)
def test_no_record_is_an_empty_one(text: str) -> None:
    assert parse(text) == {}


def test_deep_nesting_is_left_out() -> None:
    assert parse(f"server_args=ServerArgs(a={'[' * 50_000}{']' * 50_000}, port=1)") == {"port": 1}


@pytest.mark.parametrize("release", flags.RELEASES)
def test_every_release_is_known_by_its_arguments(release: str) -> None:
    names = dict.fromkeys(flags.field_names(release))
    alike = [one for one in flags.RELEASES if flags.field_names(one) == flags.field_names(release)]
    assert guess_release(names) == alike[0]
    assert len(alike) <= 3, "post-releases and what came right before"


def test_a_part_of_a_line_is_of_the_newest_release_that_it_fits_and_marked() -> None:
    assert guess_release({"model_path": "/m"}) == ""
    assert guess_release({"model_path": "/m", "enable_deepep_moe": True}) == "0.5.2"
    assert guess_release({"no_such": 1}) == ""
    assert guess_release({}) == ""
    part = "server_args=ServerArgs(model_path='/m', enable_deepep_moe=True)"
    assert (recorded(part).sglang, recorded(part).guessed) == ("0.5.2", True)
    assert (recorded(part, "0.4.7").sglang, recorded(part, "0.4.7").guessed) == ("0.4.7", False)
    assert not recorded((DATA / "0.5.23-dflash.txt").read_text()).guessed


def test_a_launch_is_rebuilt_from_what_differs() -> None:
    launch = recorded((DATA / "0.5.23-dflash.txt").read_text())
    assert launch.argv == (
        "python", "-m", "sglang.launch_server", "--model-path", "/models/qwen3-target", "--load-format", "dummy",
        "--max-total-tokens", "4096", "--port", "33243", "--speculative-algorithm", "DFLASH",
        "--speculative-draft-model-path", "/models/dflash-mask-1005", "--speculative-num-draft-tokens", "8",
    )  # fmt: skip
    assert (launch.sglang, launch.origin, launch.text) == ("0.5.23", "reconstructed", "")
    assert launch.recorded is not None
    assert launch.value("attention_backend") == "torch_native"
    assert parse_launch(list(launch.argv), "0.5.23").values == launch.values


@pytest.mark.parametrize(
    ("record", "release", "flags_typed"),
    [
        ("model_path='/m', tokenizer_path='/m', served_model_name='/m', random_seed=7", "0.5.12", []),
        ("model_path='/m', served_model_name='x y', page_size=1", "0.5.12", ["--served-model-name", "x y"]),
        ("model_path='/m', page_size=16, trust_remote_code=True", "0.5.12",
         ["--page-size", "16", "--trust-remote-code"]),
        ("model_path='/m', speculative_algorithm='EAGLE', speculative_draft_model_path='/m', "
         "speculative_draft_model_revision='main', max_running_requests=48", "0.5.12",
         ["--speculative-algorithm", "EAGLE"]),
        ("model_path='/m', max_running_requests=48", "0.5.12", ["--max-running-requests", "48"]),
        ("model_path='/m', served_model_name='--tp'", "0.5.12", ["--served-model-name=--tp"]),
        ("model_path='/m', served_model_name='a\\x00b'", "0.5.12", []),
        ("model_path='/m', lora_strict_loading=True, dllm_fdfo=False", "0.5.23",
         ["--lora-strict-loading", "--no-dllm-fdfo"]),
        ("model_path='/m', default_chat_template_kwargs={'a': 1}, gc_threshold=[1, 2]", "0.5.23",
         ["--default-chat-template-kwargs", '{"a": 1}', "--gc-threshold", "1", "2"]),
        ("model_path='/m', enable_watermark=True, watermark_config='<redacted>'", "0.5.23", ["--enable-watermark"]),
    ],
)  # fmt: skip
def test_what_sglang_fills_in_is_not_typed_again(record: str, release: str, flags_typed: list[str]) -> None:
    launch = recorded(f"server_args=ServerArgs({record})", release)
    assert list(launch.argv) == ["python", "-m", "sglang.launch_server", "--model-path", "/m", *flags_typed]


def test_merge_keeps_the_typed_command() -> None:
    typed = parse_launch("python -m sglang.launch_server --model-path /m --tp 2", "")
    record = recorded("server_args=ServerArgs(model_path='/m', tp_size=2, page_size=64)", "0.5.12")
    both = merge(typed, record)
    assert (both.text, both.argv, both.values) == (typed.text, typed.argv, typed.values)
    assert both.sglang == "0.5.12"
    assert both.value("page_size") == 64
