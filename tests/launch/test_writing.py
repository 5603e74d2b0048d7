from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

import pytest
from launch_corpus import SAMPLES, Sample

from specwatch.domain import Change, Launch
from specwatch.launch.command import edit, parse, render
from specwatch.launch.shell import Lexer, Word

SERVER = "python -m sglang.launch_server --model-path /m/a"
SECRET = "Zx9SecretQ"


def raw_words(text: str) -> list[str]:
    lexer = Lexer(text, {})
    out = []
    while (token := lexer.next()) is not None:
        if isinstance(token, Word):
            out.append(text[token.start : token.end])
    return out


def hide(words: Sequence[str]) -> tuple[str, ...]:
    """What stands behind --api-key, and the values of variables whose name ends in TOKEN."""
    out = []
    for before, word in zip(("", *words), words, strict=False):
        named = re.match(r"(\w*TOKEN=|--api-key=)", word)
        out.append("<redacted>" if before == "--api-key" else f"{named[1]}<redacted>" if named else word)
    return tuple(out)


EXPANSIONS = [
    f"{SERVER} --port $PORT",
    f"{SERVER} --host $(hostname -i)",
    f"{SERVER} --port $((30000+1))",
    f"{SERVER} --host \"$(hostname -i)\" --port '1'",
    "python -m sglang.launch_server --model-path ~/models/x",
    f"docker run -v ~/models:/models -e A=$HOME img {SERVER} --host `hostname`",
    f'srun bash -c "cd /x && {SERVER} --port $PORT"',
    f"{SERVER} --port ${{PORT}}",
    f"cd /models && source env.sh; ulimit -n 1; {SERVER} > log 2>&1 | tee -a x &",
]


@pytest.mark.parametrize("text", [*(sample.text for sample in SAMPLES), *EXPANSIONS])
@pytest.mark.parametrize("width", [None, 40])
def test_words_are_written_as_they_were_typed(text: str, width: int | None) -> None:
    shown = render(parse(text, "0.5.23"), width)
    assert raw_words(shown) == raw_words(text)
    assert raw_words(render(parse(text, "0.5.23"), width, hide=tuple)) == raw_words(text)


@pytest.mark.parametrize("text", [sample for sample in EXPANSIONS if "\\" not in sample])
def test_one_line_without_secrets_is_the_text_itself(text: str) -> None:
    assert render(parse(text, "0.5.23"), hide=hide) == text


NO_SHELL = ("compose-folded", "compose-flags")


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.name not in NO_SHELL], ids=lambda sample: sample.name)
def test_a_shell_runs_the_same_with_what_is_rendered(sample: Sample) -> None:
    launch = parse(sample.text, "0.5.23")
    assert shell(render(launch, 50)) == shell(render(launch)) == shell(sample.text)


def shell(text: str) -> str:
    """What every command of a text would get, with no command in reach but printing ones."""
    programs = "docker env kubectl nohup numactl podman python python3 sglang srun sudo torchrun tmux"
    functions = [f"{name}() {{ printf '%s\\n' {name} \"$@\" >&9; }}" for name in programs.split()]
    functions += ['exec() { "$@"; }', "tee() { :; }", "cat() { :; }", "pkill() { :; }"]
    script = "\n".join([*functions, "set -- go", text])
    script = script.replace("/var/log/sglang.log", "/dev/null").replace("/tmp/c.json", "/dev/null")
    script = script.replace("/opt/venv/bin/python", "python")
    got = subprocess.run(
        ["/bin/bash", "-c", f"exec 9>&1 >/dev/null\n{script}\nwait"], capture_output=True, text=True, check=False,
        env={"PATH": "", "HOME": "/home/llm", "PORT": "30001", "HEAD": "h", "SLURM_NODEID": "0"},
    )  # fmt: skip
    assert got.stdout, got.stderr
    return got.stdout


def test_a_change_is_quoted_and_leaves_the_rest_as_typed() -> None:
    text = f"cd /x && A=$HOME {SERVER} --port $PORT --served-model-name old > log 2>&1"
    got = edit(parse(text, "0.5.23"), [Change(op="set", name="--served-model-name", new="$new one")])
    assert render(got) == text.replace("old", "'$new one'")


def test_comments_blank_lines_and_continuations_are_left_out() -> None:
    text = f"#!/bin/bash\n# serves\n\nset -e\n\n{SERVER} \\\n  --tp 2  # both\n\necho $?\n"
    assert render(parse(text, "0.5.23")) == f"set -e\n{SERVER} --tp 2\necho $?"


def test_here_documents_stay_with_their_lines() -> None:
    text = f"cat > c <<E\n  a:\t1\n\nE\n\n\n{SERVER} <<F\ny\nF"
    assert render(parse(text, "0.5.23")) == f"cat > c <<E\n  a:\t1\n\nE\n{SERVER} <<F\ny\nF"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{SERVER} --api-key {SECRET} --port $PORT", f"{SERVER} --api-key '<redacted>' --port $PORT"),
        (f"{SERVER} --api-key $KEY", f"{SERVER} --api-key $KEY"),
        (f"{SERVER} --api-key=${{KEY}}", f"{SERVER} --api-key=${{KEY}}"),
        (f"{SERVER} --api-key '$KEY'", f"{SERVER} --api-key '<redacted>'"),
        (f"K={SECRET}\n{SERVER} --api-key $K", f"K='<redacted>'\n{SERVER} --api-key $K"),
        (f"E='--api-key {SECRET} --tp 2'\n{SERVER} $E", f"E='--api-key <redacted> --tp 2'\n{SERVER} $E"),
        (f"export HF_TOKEN={SECRET}; {SERVER}", f"export HF_TOKEN='<redacted>'; {SERVER}"),
        (f"docker run -e HF_TOKEN={SECRET} -v ~/m:/m i {SERVER}",
         f"docker run -e HF_TOKEN='<redacted>' -v ~/m:/m i {SERVER}"),
        (f'bash -c "HF_TOKEN={SECRET} {SERVER} --port $PORT"',
         f"bash -c \"HF_TOKEN='<redacted>' {SERVER} --port $PORT\""),
        (f"bash -c 'export HF_TOKEN={SECRET}; {SERVER}'",
         f"bash -c 'export HF_TOKEN='\\''<redacted>'\\''; {SERVER}'"),
        (f"cat > c <<E\nHF_TOKEN={SECRET}\nE\n{SERVER}", f"cat > c <<E\nHF_TOKEN=<redacted>\nE\n{SERVER}"),
        (f"{SERVER} --api-key sglang", f"{SERVER} --api-key '<redacted>'"),
        (f"{SERVER} # {SECRET}", SERVER),
    ],
)  # fmt: skip
def test_only_the_words_that_hold_a_secret_change(text: str, shown: str) -> None:
    launch = parse(text, "0.5.23")
    assert render(launch, hide=hide) == shown
    assert SECRET not in render(launch, 30, hide)


def test_without_a_text_tokens_are_quoted_and_secrets_hidden() -> None:
    launch = parse([*SERVER.split(), "--host", "$(X)", "--api-key", SECRET], "0.5.23")
    assert render(launch, hide=hide) == f"{SERVER} --host '$(X)' --api-key '<redacted>'"


def test_a_text_that_is_no_launch_is_written_from_its_tokens() -> None:
    launch = Launch(sglang="0.5.23", argv=("python", "a b"), text="echo 'open")
    assert render(launch, hide=hide) == "python 'a b'"


def test_variables_from_elsewhere_come_before_the_command() -> None:
    launch = parse(f"cd /x && {SERVER}", "0.5.23")
    launch = Launch(sglang="0.5.23", argv=launch.argv, env={"A": "b c", "HF_TOKEN": SECRET}, text=launch.text)
    assert render(launch, hide=hide) == f"cd /x && A='b c' HF_TOKEN='<redacted>' {SERVER}"
