"""The same finding as text, JSON and Markdown."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from specwatch.domain import (
    Applicability,
    Change,
    Evidence,
    Finding,
    Fix,
    Incident,
    LogLine,
    Severity,
    Status,
    Verdict,
)
from specwatch.launch.command import parse
from specwatch.report import as_json, markdown, text

SCHEMA = json.loads(resources.files("specwatch.report").joinpath("diagnose.schema.json").read_text("utf-8"))


def finding(error: str = "ValueError: no", **changes: object) -> Finding:
    launch = parse("python -m sglang.launch_server --model-path /m --speculative-algorithm NGRAM --tp 2", "0.5.23")
    fixed = parse("python -m sglang.launch_server --model-path /m --tp 2", "0.5.23")
    given: dict[str, object] = {
        "rule": "a-rule",
        "title": "A thing is wrong",
        "severity": Severity.FATAL,
        "cause": "a-cause",
        "says": "the thing is wrong",
        "verdict": Verdict(
            check="a_check",
            status=Status.BROKEN,
            cause="a-cause",
            evidence=(Evidence(check="a_check", fact="size", value=3, source="/m/config.json"),),
        ),
        "incident": Incident(
            error=error, root=LogLine(source="a.log", number=7, offset=70, text=error), ranks=("TP0", "TP1")
        ),
        "launch": launch,
        "fixes": (
            Fix(
                id="drop",
                applicability=Applicability.SAFE,
                why="it goes",
                changes=(
                    Change(op="remove", name="--speculative-algorithm", old="NGRAM"),
                    Change(op="set_env", name="A_VARIABLE", new="1"),
                ),
                launch=fixed,
                rechecked=True,
            ),
        ),
        "first_seen": "2026-01-01T00:00:00",
        "occurrences": 3,
        "starts": 2,
        "echoes": 1,
    }
    return Finding(**{**given, **changes})  # type: ignore[arg-type]


def plain(found: Finding, width: int = 80) -> str:
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in text.lines([found], width))


def test_json_follows_its_schema() -> None:
    source = as_json.SourceRead(path="a.log", bytes=1, lines=1, runs=1)
    answer = as_json.document([source], [finding(), finding(rule=None, incident=None, launch=None, fixes=())])
    jsonschema.validate(json.loads(as_json.dumps(answer)), SCHEMA)


def test_the_schema_refuses_other_things() -> None:
    answer = json.loads(as_json.dumps(as_json.document([], [finding()])))
    answer["findings"][0]["severity"] = "bad"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(answer, SCHEMA)


def test_json_changes() -> None:
    answer = json.loads(as_json.dumps(as_json.document([], [finding()])))
    assert answer["findings"][0]["fixes"][0]["changes"] == [
        {"op": "remove", "flag": "--speculative-algorithm", "old": "NGRAM", "new": None},
        {"op": "set_env", "name": "A_VARIABLE", "old": None, "new": "1"},
    ]


def test_a_change_of_the_container_is_no_change_of_the_command() -> None:
    """What a person, or an alert, would run again is the command that failed."""
    launch = finding().launch
    change = Change(op="set", name="shm_size", new="32g")
    fix = Fix(id="more", applicability=Applicability.REVIEW, why="so", changes=(change,), launch=launch)
    one = finding(fixes=(fix,))
    answer = json.loads(as_json.dumps(as_json.document([], [one])))
    jsonschema.validate(answer, SCHEMA)
    (told,) = answer["findings"][0]["fixes"]
    assert told["changes"] == [{"op": "set", "flag": "shm_size", "old": None, "new": "32g"}]
    assert (told["command"], told["argv"] is None) == (None, False)
    assert "     +  shm_size: 32g\n  help:" in plain(one)
    assert "```yaml\nshm_size: 32g\n```" in "\n".join(markdown.lines([one]))
    mixed = fix._replace(changes=(change, Change(op="set", name="--tp-size", old="4", new="2")))
    assert "python -m sglang.launch_server" in plain(finding(fixes=(mixed,)))


def test_text_says_it_all() -> None:
    shown = plain(finding())
    for part in (
        "error[a-rule]: A thing is wrong",
        "  --> a.log:7   TP0 TP1   2026-01-01 00:00:00   3 times in 2 starts\n      sglang 0.5.23   1 echo",
        "   |  ValueError: no",
        "   = proved: the thing is wrong",
        "- size = 3   (/m/config.json)",
        "  fix 1 [safe] drop: it goes",
        "     -  --speculative-algorithm NGRAM",
        "     +  A_VARIABLE=1",
        "      python -m sglang.launch_server --model-path /m --tp 2",
        f"  help: specwatch explain a-rule\n  id: {finding().fingerprint}",
    ):
        assert part in shown


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_text_keeps_to_the_width(width: int) -> None:
    shown = plain(finding("ValueError: " + "word " * 50), width)
    assert max(len(line) for line in shown.split("\n")) <= width


HOSTILE = (
    "ValueError: \x1b[31mred\x1b[0m \x9b31m \x07 \x00 \r\x08 \u202eevil \u2028 ``` </script><script>alert(1)</script>"
)


def test_no_control_character_reaches_a_terminal() -> None:
    shown = plain(finding(HOSTILE, says=HOSTILE, title=HOSTILE))
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", shown) == []
    assert "\\x1b[31mred" in shown


def test_no_control_character_in_json() -> None:
    written = as_json.dumps(as_json.document([], [finding(HOSTILE)]))
    assert re.findall(r"[^\n -~]", written) == []
    assert json.loads(written)["findings"][0]["root"]["text"] == HOSTILE


def test_markdown_cannot_be_broken_out_of() -> None:
    shown = "\n".join(markdown.lines([finding(HOSTILE, says="a `b` <script> [x](y)")]))
    assert "````\nValueError" in shown
    assert "<script> " not in shown
    assert "\\<script\\>" in shown


def test_a_long_message_is_cut() -> None:
    assert len(plain(finding("ValueError: " + "x" * 100_000))) < 3000


def test_the_schema_is_shipped(examples: Path) -> None:
    assert (examples.parent / "specwatch" / "report" / "diagnose.schema.json").is_file()
