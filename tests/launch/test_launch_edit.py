from __future__ import annotations

import shlex

import pytest

from specwatch.domain import Change
from specwatch.errors import LaunchError
from specwatch.launch.command import edit, parse, removal, render, setting, setting_env, typed_flags
from specwatch.launch.server_args import recorded

SERVER = "python -m sglang.launch_server --model-path /m/a"


def put(name: str, new: str = "") -> Change:
    return Change(op="set", name=name, new=new)


def drop(name: str) -> Change:
    return Change(op="remove", name=name)


def env(name: str, new: str) -> Change:
    return Change(op="set_env", name=name, new=new)


@pytest.mark.parametrize(
    ("text", "change", "after"),
    [
        (f"{SERVER} --tp 2", put("--tp-size", "4"), f"{SERVER} --tp 4"),
        (f"{SERVER} --tp=2", put("--tp-size", "4"), f"{SERVER} --tp=4"),
        (f"{SERVER} --tp  '2'  --port 1", put("--tp-size", "4"), f"{SERVER} --tp  4  --port 1"),
        (f"{SERVER} --tp 1 --port 1 --tensor-parallel-size 2", put("--tp-size", "4"),
         f"{SERVER} --port 1 --tensor-parallel-size 4"),
        (SERVER, put("--trust-remote-code"), f"{SERVER} --trust-remote-code"),
        (f"{SERVER} --trust-remote-code", put("--trust-remote-code"), f"{SERVER} --trust-remote-code"),
        (f"{SERVER} --no-enable-tf32-matmul", put("--enable-tf32-matmul"), f"{SERVER} --enable-tf32-matmul"),
        (f"{SERVER} --cuda-graph-bs-decode 1 2 4 --port 1", put("--cuda-graph-bs-decode", "1 8"),
         f"{SERVER} --cuda-graph-bs-decode 1 8 --port 1"),
        (SERVER, put("--chunked-prefill-size", "-1"), f"{SERVER} --chunked-prefill-size=-1"),
        (f"{SERVER} --chunked-prefill-size 8", put("--chunked-prefill-size", "-1"),
         f"{SERVER} --chunked-prefill-size=-1"),
        ("sglang serve /m/a --tp 2", put("--model-path", "/m/b"), "sglang serve /m/b --tp 2"),
        (f"{SERVER} > log 2>&1 &", put("--port", "1"), f"{SERVER} --port 1 > log 2>&1 &"),
        (f"{SERVER} 2>&1 | tee log", put("--port", "1"), f"{SERVER} --port 1 2>&1 | tee log"),
        (f"bash -c '{SERVER} | tee x'", put("--port", "1"), f"bash -c '{SERVER} --port 1 | tee x'"),
        (f'bash -c "{SERVER}"', put("--served-model-name", 'a "b" $c'),
         f'bash -c "{SERVER} --served-model-name \'a \\"b\\" \\$c\'"'),
        (f"{SERVER} \\\n  --tp 2 \\\n  --port 1\n", put("--page-size", "1"),
         f"{SERVER} \\\n  --tp 2 \\\n  --port 1 \\\n  --page-size 1\n"),
        (f"{SERVER} --tp 2 --port 1", drop("--tp-size"), f"{SERVER} --port 1"),
        (f"{SERVER} --tp=2", drop("--tp-size"), SERVER),
        (f"{SERVER} \\\n  --tp 1 --tp=2 \\\n  --tensor-parallel-size 3 \\\n  --port 1", drop("--tp-size"),
         f"{SERVER} \\\n  --port 1"),
        (f"{SERVER} \\\n  --tp 1 --tp=2 --port 1", put("--tp-size", "4"), f"{SERVER} \\\n  --tp=4 --port 1"),
        (f"{SERVER} \\\n  --tp 2 \\\n  --port 1\n", drop("--tp-size"), f"{SERVER} \\\n  --port 1\n"),
        (f"{SERVER} \\\n  --tp 2 \\\n  --port 1\n", drop("--port"), f"{SERVER} \\\n  --tp 2\n"),
        (f"{SERVER} \\\n  --tp 2 --port 1 \\\n  --page-size 1\n", drop("--tp-size"),
         f"{SERVER} \\\n  --port 1 \\\n  --page-size 1\n"),
        (f"{SERVER} \\\n  --tp 2 --port 1 \\\n  --page-size 1\n", drop("--port"),
         f"{SERVER} \\\n  --tp 2 \\\n  --page-size 1\n"),
        (f"{SERVER} \\\n  --tp 2 \\\n  --cuda-graph-bs-decode \\\n   1 \\\n   2 \\\n  --port 1",
         drop("--cuda-graph-bs-decode"),
         f"{SERVER} \\\n  --tp 2 \\\n  --port 1"),
        (f"# start\n{SERVER} --tp 2 # two cards\n", drop("--tp-size"), f"# start\n{SERVER} # two cards\n"),
        (f"{SERVER} --tp 2 > log", drop("--tp-size"), f"{SERVER} > log"),
        (f"{SERVER} > log --tp 2", drop("--tp-size"), f"{SERVER} > log"),
        (SERVER, env("A", "1"), f"A=1 {SERVER}"),
        (f"A=0 {SERVER}", env("A", "x y"), f"A='x y' {SERVER}"),
        (f"export A=0\n{SERVER}", env("A", "1"), f"export A=1\n{SERVER}"),
        (f"docker run -e A=0 img {SERVER}", env("A", "1"), f"docker run -e A=1 img {SERVER}"),
        (f"docker run --env=A=0 img {SERVER}", env("A", "1"), f"docker run --env=A=1 img {SERVER}"),
        (f"docker run --rm img {SERVER}", env("A", "1"), f"docker run -e A=1 --rm img {SERVER}"),
        (f"sudo {SERVER}", env("A", "1"), f"sudo env A=1 {SERVER}"),
        (f"A=1 B=2 {SERVER}", Change(op="unset_env", name="A"), f"B=2 {SERVER}"),
        (f"env A=1 {SERVER}", Change(op="unset_env", name="A"), SERVER),
        (f"docker run -e A=1 --rm img {SERVER}", Change(op="unset_env", name="A"), f"docker run --rm img {SERVER}"),
        (f"export A=1\n{SERVER}", Change(op="unset_env", name="A"), SERVER),
        (f"X='--tp 2'\n{SERVER} $X", put("--tp-size", "4"), f"X='--tp 2'\n{SERVER} $X --tp-size 4"),
        (f"TP=2\n{SERVER} --tp $TP", put("--tp-size", "4"), f"TP=2\n{SERVER} --tp 4"),
    ],
)  # fmt: skip
def test_an_edit_changes_nothing_else(text: str, change: Change, after: str) -> None:
    got = edit(parse(text, "0.5.23"), [change])
    assert got.text == after
    assert got.values == parse(after, "0.5.23").values


@pytest.mark.parametrize(
    "value",
    [
        "it's",
        'say "hi"',
        "a\nb",
        "$(reboot)",
        "`reboot`",
        "--tp",
        "-x",
        "a;b",
        "$HOME",
        "\\",
        "ünï",
        "a b",
        "#x",
        "x=1",
    ],
)
def test_a_value_stays_one_value_however_it_looks(value: str) -> None:
    for text in (SERVER, f"{SERVER} --served-model-name old", f"bash -c '{SERVER}'", f'bash -c "{SERVER}"'):
        got = edit(parse(text, "0.5.23"), [put("--served-model-name", value), env("A", value)])
        assert got.values["served_model_name"] == value
        assert got.env["A"] == value
        assert set(got.values) == {"model_path", "served_model_name"}
        again = parse(render(got), "0.5.23")
        assert (again.values["served_model_name"], again.env["A"]) == (value, value)


def test_nul_and_huge_values_are_refused() -> None:
    launch = parse(SERVER, "0.5.23")
    with pytest.raises(LaunchError, match="NUL"):
        edit(launch, [put("--served-model-name", "a\0b")])
    with pytest.raises(LaunchError, match="more than 1000000"):
        edit(launch, [put("--served-model-name", "x" * 1_000_001)])
    assert edit(launch, [put("--served-model-name", "x" * 900_000)]).values["served_model_name"] == "x" * 900_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop("--tp-size"), "is not in the launch command"),
        (put("--no-such-flag", "1"), "has no flag"),
        (put("--tp-size"), "needs a value"),
        (put("--trust-remote-code", "yes"), "takes no value"),
        (put("--tp-size", "two"), "invalid int value"),
        (put("--cuda-graph-bs-decode", "1 -x"), "cannot stand among several"),
        (Change(op="unset_env", name="A"), "not set in the launch command"),
        (env("A B", "1"), "no name of an environment variable"),
        (Change(op="replace", name="--tp-size"), "unknown change"),
        (drop("--model-path"), "required"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(change: Change, reason: str) -> None:
    with pytest.raises(LaunchError, match=reason):
        edit(parse(SERVER, "0.5.23"), [change])


def test_what_a_variable_holds_is_not_removed_here() -> None:
    launch = parse(f"X='--tp 2 --port 1'\n{SERVER} $X", "0.5.23")
    with pytest.raises(LaunchError, match=r"\$X"):
        edit(launch, [drop("--tp-size")])


def test_a_configuration_file_is_overridden_and_never_edited() -> None:
    files = {"c.yaml": "tp: 2\npage-size: 16\n"}
    launch = parse(f"{SERVER} --config c.yaml --port 1", "0.5.23", read_file=files.__getitem__)
    got = edit(launch, [put("--tp-size", "4")])
    assert got.text == f"{SERVER} --config c.yaml --port 1 --tp-size 4"
    assert dict(got.values) == {"model_path": "/m/a", "tp_size": 4, "page_size": 16, "port": 1}
    with pytest.raises(LaunchError, match=r"file c\.yaml of --config"):
        edit(launch, [drop("--page-size")])
    with pytest.raises(LaunchError, match="port: the file of --config may set it too"):
        edit(launch, [drop("--port")])
    assert "port" not in edit(launch, [drop("--port")], read_file=files.__getitem__).values


def test_an_argument_that_no_release_knows_can_be_taken_out() -> None:
    launch = parse(f"{SERVER} --num-speculative-tokens 3 --enable_metrics --tp 2", "0.5.23", lenient=True)
    got = edit(launch, [drop("--num-speculative-tokens"), drop("--enable_metrics"), put("--enable-metrics")])
    assert got.text == f"{SERVER} --tp 2 --enable-metrics"


def test_a_launch_without_text_is_edited_by_its_argv() -> None:
    launch = recorded("server_args=ServerArgs(model_path='/m/a b', tp_size=2)", "0.5.12")
    got = edit(launch, [put("--tp-size", "4"), env("A", "1")])
    assert got.argv == ("python", "-m", "sglang.launch_server", "--model-path", "/m/a b", "--tp-size", "4")
    assert (got.text, got.origin, dict(got.env), got.recorded) == ("", "reconstructed", {"A": "1"}, None)


def test_typed_flags_have_their_full_names() -> None:
    launch = parse(f"{SERVER} --speculative-algo EAGLE --speculative-num-steps=3 --tp 2", "0.5.23")
    assert typed_flags(launch, "--speculative-") == (
        ("--speculative-algorithm", ("--speculative-algo", "EAGLE")),
        ("--speculative-num-steps", ("--speculative-num-steps=3",)),
    )


def test_removal_has_one_change_a_flag() -> None:
    launch = parse(f"{SERVER} --speculative-algo EAGLE --speculative-algo NGRAM --tp 2 --page-size 1", "0.5.23")
    assert removal(launch, "--speculative-") == (Change(op="remove", name="--speculative-algorithm", old="NGRAM"),)
    assert [change.name for change in removal(launch, ["--tp", "--port"])] == ["--tp-size"]
    assert edit(launch, removal(launch, "--speculative-")).text == f"{SERVER} --tp 2 --page-size 1"


def test_setting_knows_the_present_value() -> None:
    launch = parse(f"A=0 {SERVER} --tp 2", "0.5.23")
    assert setting(launch, "--tp", 4) == Change(op="set", name="--tp-size", old="2", new="4")
    assert setting(launch, "--trust-remote-code", True) == Change(op="set", name="--trust-remote-code", new="")
    assert setting(launch, "--lora-paths", ["a=/x y", "b=/z"]).new == shlex.join(["a=/x y", "b=/z"])
    assert setting_env(launch, "A", "1") == Change(op="set_env", name="A", old="0", new="1")
