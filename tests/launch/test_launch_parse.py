from __future__ import annotations

import pytest
from launch_corpus import SAMPLES, Sample

from specwatch.errors import LaunchError
from specwatch.launch.command import parse, render

SERVER = "python -m sglang.launch_server --model-path /m/a"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_corpus(sample: Sample) -> None:
    launch = parse(sample.text, "0.5.23")
    assert {name: launch.values.get(name) for name in sample.values} == sample.values
    assert dict(launch.env) == sample.env
    assert launch.text == sample.text


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_what_is_rendered_means_the_same(sample: Sample) -> None:
    launch = parse(sample.text, "0.5.23")
    for shown in (render(launch), render(launch, width=78)):
        again = parse(shown, "0.5.23")
        assert dict(again.values) == dict(launch.values)
        assert dict(again.env) == dict(launch.env)
        assert again.argv == launch.argv


def test_rendering_breaks_between_flags() -> None:
    launch = parse(f"A=1 {SERVER} --speculative-algorithm EAGLE --speculative-num-steps 3 --port 1", "0.5.23")
    lines = render(launch, width=50).split("\n")
    assert len(lines) > 2
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(len(line) <= 50 for line in lines)
    assert lines[0].startswith("A=1 python -m sglang.launch_server")


def test_argv_keeps_wrappers_and_drops_assignments() -> None:
    launch = parse("A=1 env B=2 nohup python -m sglang.launch_server --model-path x > log 2>&1 &", "0.5.23")
    assert launch.argv == ("nohup", "python", "-m", "sglang.launch_server", "--model-path", "x")
    assert dict(launch.env) == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("typed", "name", "value"),
    [
        ("--context-length 2k", "context_length", 2000),
        ("--context-length 2Ki", "context_length", 2048),
        ("--context-length 1.5k", "context_length", 1500),
        ("--context-length ' 2 '", "context_length", 2),
        ("--mem-fraction-static .8", "mem_fraction_static", 0.8),
        ("--quantization-param-path None", "quantization_param_path", None),
        ("--sidecar-args '[\"a\", 1]'", "sidecar_args", ["a", 1]),
        ("--preferred-sampling-params '{\"a\": 1}'", "preferred_sampling_params", {"a": 1}),
        ("--cuda-graph-bs-decode 1 2 4", "cuda_graph_bs_decode", [1, 2, 4]),
        ("--model-checksum", "model_checksum", ""),
        ("--disable-cuda-graph", "disable_cuda_graph", True),
        ("--monokernel-backend amd", "enable_amd_monokernel", True),
        ("--enable-tf32-matmul --no-enable-tf32-matmul", "enable_tf32_matmul", False),
        ("--lora-paths a=/x '{\"lora_name\": \"b\", \"lora_path\": \"/y\"}'", "lora_paths",
         ["a=/x", {"lora_name": "b", "lora_path": "/y"}]),
        ("--fp8-gemm-backend triton", "fp8_gemm_runner_backend", "triton"),
        ("--tp 1 --tensor-parallel-size 2", "tp_size", 2),
    ],
)  # fmt: skip
def test_values_are_converted_as_by_the_parser(typed: str, name: str, value: object) -> None:
    got = parse(f"{SERVER} {typed}", "0.5.23").values
    assert got[name] == value
    assert type(got[name]) is type(value)


def test_an_argument_that_was_not_given_is_absent() -> None:
    assert set(parse(SERVER, "0.5.23").values) == {"model_path"}


@pytest.mark.parametrize(
    ("release", "typed", "refusal"),
    [
        ("0.5.7", "--page 16 --tp x", "launch_server.py: error: argument --tensor-parallel-size/--tp-size: "
         "invalid int value: 'x'"),
        ("0.5.11", "--speculative-algorithm eagle", "sglang serve: error: argument --speculative-algorithm: invalid "
         "choice: 'eagle' (choose from 'DFLASH', 'EAGLE', 'EAGLE3', 'NEXTN', 'STANDALONE', 'NGRAM')"),
        ("0.5.23", "--cuda-graph-bs-decode", "sglang serve: error: argument --cuda-graph-bs-decode: expected at least "
         "one argument"),
        ("0.5.23", "--trust-remote-code=yes", "sglang serve: error: argument --trust-remote-code: ignored explicit "
         "argument 'yes'"),
        ("0.5.23", "--cuda-graph-backend-decode tc_piecewise", "sglang serve: error: argument "
         "--cuda-graph-backend-decode: tc_piecewise was removed; select breakable, full, or disabled"),
    ],
)  # fmt: skip
def test_refusals_have_the_words_of_the_release(release: str, typed: str, refusal: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse(f"{SERVER} {typed}", release)
    assert caught.value.refusal == refusal


def test_serve_without_a_plain_model_path_is_refused_before_the_parser() -> None:
    with pytest.raises(LaunchError) as caught:
        parse("sglang serve --config c.yaml", "0.5.23", read_file=lambda path: "model-path: /m/a\n")
    assert caught.value.refusal == "Exception: Error: --model-path is required. Please provide the path to the model."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("python -m sglang.launch_server --model-path '/m/a", r"line 1 column 45: a single quote"),
        ('python \\\n -m sglang.launch_server --model-path "/m/a', r"line 2 column \d+: a double quote"),
        ("vllm serve /m/a", "no `python -m sglang"),
        ("", "no `python -m sglang"),
        ("python -m sglang.launch_server --model-path a\0b", "NUL"),
        ("x" * 1_000_001, "more than 1000000"),
        (f"{SERVER}\n{SERVER} --port 1\n", r"2 launches of sglang \(lines 1, 2\)"),
        ("python -m sglang_router.launch_server --model-path /m/a", "router"),
        (f"{SERVER} --help", "prints the help"),
        (f"{SERVER} --tp $TP", r"depends on \$TP"),
        (f'{SERVER} "$@"', r"depends on \$@"),
        ("sglang serve /m/a --model-type diffusion", "diffusion"),
        (f"{SERVER} {'--port 1 ' * 6000}", "more than 10000"),
        ("a(" * 400_000, "more than 50000 words"),
        ("$(" * 400_000, "never closed"),
    ],
)
def test_what_is_no_launch_has_a_reason_and_no_refusal(text: str, reason: str) -> None:
    with pytest.raises(LaunchError, match=reason) as caught:
        parse(text, "0.5.23")
    assert caught.value.refusal is None


def test_a_nul_in_argv_names_the_argument() -> None:
    with pytest.raises(LaunchError, match="argument 4"):
        parse(["python", "-m", "sglang.launch_server", "--model-path", "a\0"], "0.5.23")


def test_a_configuration_file_that_is_not_read_is_named() -> None:
    with pytest.raises(LaunchError, match=r"c\.yaml") as caught:
        parse(f"{SERVER} --config c.yaml", "0.5.23")
    assert caught.value.refusal is None

    def missing(path: str) -> str:
        raise FileNotFoundError(path)

    with pytest.raises(LaunchError, match=r"c\.yaml: no such file"):
        parse(f"{SERVER} --config c.yaml", "0.5.23", read_file=missing)


@pytest.mark.parametrize(
    ("release", "yaml", "values"),
    [
        ("0.5.23", "tp: 2\n", {"tp_size": 2}),
        ("0.5.7", "trust-remote-code: true\n", {"trust_remote_code": True}),
        ("0.5.13", "json-model-override-args: {a: 1}\n", {"json_model_override_args": "{'a': 1}"}),
        ("0.5.14", "json-model-override-args: {a: 1}\n", {"json_model_override_args": '{"a": 1}'}),
    ],
)
def test_configuration_files_by_release(release: str, yaml: str, values: dict[str, object]) -> None:
    got = parse(f"{SERVER} --config c.yaml", release, read_file=lambda path: yaml)
    assert {name: got.values.get(name) for name in values} == values


@pytest.mark.parametrize(
    "yaml",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
        "a: &a [*a]\n",
        "a: " + "[" * 20_000,
    ],
    ids=["bomb", "loop", "deep"],
)
def test_a_hostile_configuration_file_is_refused(yaml: str) -> None:
    with pytest.raises(LaunchError):
        parse(f"{SERVER} --config c.yaml", "0.5.23", read_file=lambda path: yaml)


def test_lenient_keeps_what_the_parser_would_take() -> None:
    launch = parse(f"{SERVER} --tp 2 --page 16 --enable_metrics --port x", "0.5.23", lenient=True)
    assert dict(launch.values) == {"model_path": "/m/a", "tp_size": 2}


def test_a_shell_comment_ends_a_continued_command_as_in_a_shell() -> None:
    launch = parse(f"{SERVER} \\\n  --tp 2 \\\n  # --page-size 16 \\\n  --port 1\n", "0.5.23")
    assert "port" not in launch.values
    assert launch.values["tp_size"] == 2


def test_single_quotes_keep_variables_as_text() -> None:
    assert parse("python -m sglang.launch_server --model-path '$HOME/m'", "0.5.23").values["model_path"] == "$HOME/m"


def test_a_conditional_assignment_is_not_believed() -> None:
    text = "TP=1\nif test -n x; then\n  TP=2\nfi\npython -m sglang.launch_server --model-path /m/a --tp $TP\n"
    with pytest.raises(LaunchError, match=r"\$TP"):
        parse(text, "0.5.23")
