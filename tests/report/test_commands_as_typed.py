"""A fixed command is printed as it was typed, whatever the format, and its secrets are not."""

from __future__ import annotations

import pytest

from specwatch.domain import Applicability, Finding, Fix, Severity, Status, Verdict
from specwatch.launch.command import parse
from specwatch.report import as_json, markdown, text

SERVER = "python -m sglang.launch_server --model-path ~/m --api-key"
TYPED = [
    (f"cd /x && {SERVER} $API_KEY --port $PORT", None),
    (f"{SERVER} Zx9SecretQ --host $(hostname -i)", f"{SERVER} '<redacted>' --host $(hostname -i)"),
    (f"bash -c '{SERVER} Zx9SecretQ --port $PORT'", f"bash -c '{SERVER} '\\''<redacted>'\\'' --port $PORT'"),
    (f'bash -c "{SERVER} Zx9SecretQ --port $PORT"', f"bash -c \"{SERVER} '<redacted>' --port $PORT\""),
    (f"docker run -e HF_TOKEN=Zx9SecretQ -v ~/m:/m i {SERVER} $K",
     f"docker run -e HF_TOKEN='<redacted>' -v ~/m:/m i {SERVER} $K"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "shown"), TYPED)
def test_a_command_is_printed_as_it_was_typed(typed: str, shown: str | None) -> None:
    fix = Fix(id="f", applicability=Applicability.REVIEW, why="w", launch=parse(typed, "0.5.23"))
    verdict = Verdict(check="c", status=Status.BROKEN)
    finding = Finding(
        rule="r", title="t", severity=Severity.FATAL, cause="", says="", verdict=verdict, incident=None, fixes=(fix,)
    )
    plain = "\n".join("".join(piece.text for piece in line) for line in text.lines([finding], 500))
    marked = "\n".join(markdown.lines([finding]))
    assert as_json.command(parse(typed, "0.5.23")) == (shown or typed)
    assert f"      {shown or typed}" in plain.split("\n")
    assert (shown or typed) in marked.replace(" \\\n  ", " ")
    assert "SecretQ" not in plain + marked
