"""What the parser refuses, taken apart."""

from __future__ import annotations

import pytest

from specwatch.errors import LaunchError
from specwatch.launch.command import parse, refused
from specwatch.launch.refusals import Refused


def of(arguments: str, release: str = "0.5.23", text: str | None = None, start: str = "--model-path m") -> Refused:
    read = None if text is None else (lambda _path: text)
    launch = parse(f"python -m sglang.launch_server {start} {arguments}", release, read_file=read, lenient=True)
    found = refused(launch, read)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("arguments", "kind", "flag", "text", "strays"),
    [
        ("--max-model-len 2048 --x=1", "unrecognized", None, None, ["--max-model-len 2048", "--x=1"]),
        ("--trust-remote-code true", "unrecognized", None, None, ["true"]),
        ("--served-model-name a b c", "unrecognized", None, None, ["b c"]),
        ("-- --tp-size 2", "unrecognized", None, None, ["--", "--tp-size 2"]),
        ("--pp 2", "ambiguous", None, "2", ["--pp 2"]),
        ("--pp=2", "ambiguous", None, "2", ["--pp=2"]),
        ("--dtype bf16", "choice", "--dtype", "bf16", []),
        ("--tp-size 2.0", "value", "--tp-size", "2.0", []),
        ("--context-length 32K", "value", "--context-length", "32K", []),
        ("--mem-fraction-static 85%", "value", "--mem-fraction-static", "85%", []),
        ("--quantization --port 3", "no-value", "--quantization", None, []),
        ("--cuda-graph-bs-decode", "no-value", "--cuda-graph-bs-decode", None, []),
        ("--trust-remote-code=yes", "explicit", "--trust-remote-code", "yes", []),
    ],
)
def test_kinds(arguments: str, kind: str, flag: str | None, text: str | None, strays: list[str]) -> None:
    found = of(arguments)
    assert (found.kind, found.flag and found.flag.name, found.text) == (kind, flag, text)
    assert [str(stray) for stray in found.strays] == strays
    assert found.exception == "SystemExit"
    assert found.said.startswith("sglang serve: error: ")
    assert not found.in_file


def test_values_behind_a_switch_know_it() -> None:
    (stray,) = of("--trust-remote-code true").strays
    assert stray.after is not None
    assert stray.after.name == "--trust-remote-code"


def test_no_model() -> None:
    assert of("/models/x", start="").kind == "required"
    launch = parse("sglang serve --model-pa m", "0.5.23", lenient=True)  # `sglang serve` itself knows no abbreviation
    found = refused(launch)
    assert found is not None
    assert (found.kind, found.exception) == ("no-model", "Exception")


def test_a_flag_that_is_kept_to_be_refused() -> None:
    found = of("--enable-expert-distribution-metrics", "0.5.19")
    assert (found.kind, found.flag and found.flag.name) == ("withdrawn", "--enable-expert-distribution-metrics")
    found = of("--enable-deepep-moe", "0.5.4")
    assert (found.kind, found.exception) == ("withdrawn", "ValueError")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("max-model-len: 2048\n", "unrecognized"),
        ("tp-size: two\n", "value"),
        ("dtype: bf16\n", "choice"),
        ("enable-tf32-matmul: true\n", "config"),
        ("[1, 2]\n", "config"),
        ("a: b: c\n", "config"),
    ],
)
def test_faults_of_a_file(text: str, kind: str) -> None:
    found = of("--config /etc/x.yaml", text=text)
    assert found.kind == kind
    assert found.in_file or kind == "config"


def test_a_sound_launch() -> None:
    assert refused(parse("sglang serve --model-path m --tp 2", "0.5.23")) is None


@pytest.mark.parametrize(
    ("arguments", "release"), [("--config /etc/x.yaml", "0.5.23"), ("--never-heard-of 1", "0.9.0")]
)
def test_what_cannot_be_told(arguments: str, release: str) -> None:
    launch = parse(f"sglang serve --model-path m {arguments}", release, lenient=True)
    with pytest.raises(LaunchError) as caught:
        refused(launch)
    assert caught.value.refusal is None


def test_a_lenient_launch_keeps_what_is_sound_and_what_the_file_says() -> None:
    launch = parse(
        "sglang serve --model-path m --config /x.yaml --tp-size two --port 1",
        "0.5.23",
        read_file=lambda _: "dp-size: 2\ndtype: bf16\n",
        lenient=True,
    )
    assert dict(launch.values) == {"dp_size": 2, "model_path": "m", "port": 1}
