"""Secrets stay out of every output."""

from __future__ import annotations

import pytest

from specwatch.launch.command import parse
from specwatch.report import redact
from specwatch.report.as_json import command

SECRET = "s3cr3t-Value-1234567890"


@pytest.mark.parametrize(
    "tokens",
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["--admin-api-key", SECRET],
        [f"HF_TOKEN={SECRET}"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        [f"https://user:{SECRET}@host/path"],
        [f"https://host/path?access_token={SECRET}"],
        [f"Authorization: Bearer {SECRET}"],
        ["hf_" + SECRET.replace("-", "")],
        ["sk-" + SECRET],
    ],
)
def test_hidden_in_a_command(tokens: list[str]) -> None:
    shown = " ".join(redact.argv(["python", *tokens, "--port", "30000"]))
    assert SECRET not in shown
    assert SECRET.replace("-", "") not in shown
    assert "--port 30000" in shown


@pytest.mark.parametrize(
    "text",
    [
        "--max-total-tokens 4096",
        "--speculative-num-draft-tokens 4",
        "mask_token_id=1005",
        "--ssl-keyfile /etc/key.pem",
        "--chunked-prefill-size 8192",
        "api_key=None",
        "num_tokens=3",
    ],
)
def test_shown_as_it_is(text: str) -> None:
    assert redact.text(text) == text
    assert list(redact.argv(text.split(" "))) == text.split(" ")


def test_hidden_in_the_printed_launch() -> None:
    launch = parse(
        f"HF_TOKEN={SECRET} PORT=1 python -m sglang.launch_server --model-path m --api-key {SECRET} --tp 2", "0.5.23"
    )
    for width in (None, 40):
        shown = command(launch, width)
        assert SECRET not in shown
        assert "PORT=1" in shown
        assert "--tp 2" in shown


def test_hidden_in_a_log_line() -> None:
    line = f"server_args={{'api_key': '{SECRET}', 'admin_api_key': None, 'port': 1}}"
    assert SECRET not in redact.text(line)
    assert "'port': 1" in redact.text(line)
