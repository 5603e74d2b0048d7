"""Secrets in every spelling that people and programs use, what is no secret, and the time it takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwatch.commands.check import Checked, _annotations
from specwatch.domain import Evidence, Finding, Launch, Severity, Status, Verdict
from specwatch.launch.command import parse
from specwatch.report import as_json, markdown, redact, text

SECRET = "Zx9Secr3tQQ"
CORE = "python -m sglang.launch_server --model-path m --tp 2"
DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-k", SECRET],
        [f"--api-k={SECRET}"],
        ["--admin-api", SECRET],
        ["--ssl-keyfile-pass", SECRET],
        ["--api_key", SECRET],
        ["--api-keyy", SECRET],
        ["--my-token", SECRET],
        [f"--api-key=--{SECRET}"],
        ["--api-key", f"a, {SECRET}"],
        ["--extra", f'{{"access_key": "{SECRET}", "password": "{SECRET}"}}'],
        ["--extra", f'{{"token": "{SECRET}"}}'],
        ["--otlp-headers", f"Authorization: Basic {SECRET}"],
        [f"--env=HF_TOKEN={SECRET}"],
        [f"-e=HF_TOKEN={SECRET}"],
        [f"-eHF_TOKEN={SECRET}"],
        ["-e", f"HF_TOKEN={SECRET}"],
        [f"--export=ALL,HF_TOKEN={SECRET}"],
        ["sshpass", "-p", SECRET],
        ["sshpass", f"-p{SECRET}"],
        ["curl", "-u", f"me:{SECRET}"],
        [f"DB_PASS={SECRET}"],
        [f"PGPASSWORD=a b {SECRET}"],
        [f"HTTPS_PROXY=http://{SECRET}@proxy:1"],
        [f"http://u:p@{SECRET}@host/x"],
        [f"http://u:pa/{SECRET}@host/x"],
        [f"https://h/x?X-Goog-Signature={SECRET}&X-Amz-Security-Token={SECRET}"],
        ["bash", "-c", f"export HF_TOKEN={SECRET}; exec {CORE} --api-key '{SECRET}'"],
        ["bash", "-lc", f"""sh -c "HF_TOKEN={SECRET} {CORE}" """],
        ["bash", "-c", f"echo 'never closed HF_TOKEN={SECRET}"],
    ],
)
def test_hidden_in_a_command(words: list[str]) -> None:
    shown = redact.argv([*words, "--port", "30000"])
    assert SECRET not in " ".join(shown)
    assert shown[-2:] == ("--port", "30000")
    assert SECRET not in redact.text(" ".join(shown))


@pytest.mark.parametrize("name", ["DB_PASS", "PGPASS", "PGPASSWORD", "HF_TOKEN", "REDIS_AUTH", "apiKey", "API_KEY_2"])
def test_hidden_in_the_environment(name: str) -> None:
    assert redact.env({name: SECRET, "PORT": "1"}) == {name: redact.HIDDEN, "PORT": "1"}


@pytest.mark.parametrize(
    "said",
    [
        f"HF_TOKEN={SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"password={SECRET}",
        f'"password": "{SECRET}"',
        f"token='{SECRET}'",
        f"ssl_keyfile_password='{SECRET}'",
        f"Authorization: Basic {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"Bearer {SECRET[:5]}",
        f"x-api-key: {SECRET}",
        f"Invalid API key: {SECRET}",
        f"['--api-key', '{SECRET}']",
        f'{{\\"api_key\\": \\"{SECRET}\\"}}',
        f"b'api_key': b'{SECRET}'",
        f"api_key='a, {SECRET}'",
        f'api_key="a\' {SECRET}"',
        f"api_key='a\\' {SECRET}'",
        f"api_key='never closed {SECRET}",
        f"password=a,{SECRET}",
        f"launch_server.py: error: unrecognized arguments: --my-token {SECRET}",
        f"unrecognized arguments: --api-keyy={SECRET}",
        f"docker run -e HF_TOKEN={SECRET} image",
        f"sshpass -p {SECRET} ssh host",
        f"https://{SECRET}@huggingface.co/x",
        f"https://u:pa@{SECRET}@h/x",
        f"https://u:pa/{SECRET}@h/x",
        f"?sig={SECRET}&token={SECRET}",
        f"nvapi-{SECRET}",
        f"glpat-{SECRET}",
        f"xoxb-123-{SECRET}",
        f"xoxp-123-{SECRET}",
        f"eyJhbGciOi.{SECRET}.x",
        f"hf_{SECRET}",
        f"sk-{SECRET}-{SECRET}",
        f"ghp_{SECRET}{SECRET}",
        "AKIA" + SECRET.upper() + "ABCDE",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    ],
)
@pytest.mark.parametrize("around", ["{}", "FooError: bad {} is bad", "    foo({})", "['{}', 1]"])
def test_hidden_in_a_text(said: str, around: str) -> None:
    shown = redact.text(around.replace("{}", said))
    for part in (SECRET, SECRET.upper(), SECRET[:5]):
        assert part not in shown
    assert redact.text(shown) == shown


@pytest.mark.parametrize(
    "said",
    [
        "mask_token_id=1005",
        "mask_token='<|MASK|>'",
        "token='<|MASK|>'",
        "eos_token='</s>', pad_token=None",
        "--max-total-tokens 4096",
        "num_draft_tokens=4",
        "token usage: 0.0, #token: 20, #new-token: 29",
        "Decode batch, #full token: 20, full token usage: 0.01",
        "tokenizer_path='/m/tok', ssl_keyfile='/etc/key.pem', ssl_keyfile_password=None",
        "--ssl-keyfile /etc/key.pem --speculative-token-map map.pt",
        "api_key=None, admin_api_key=None",
        "token-to-id",
        "def f(api_key: Optional[str] = None, token: str):",
        "api_key=server_args.api_key",
        "usage: launch_server.py [--api-key API_KEY]",
        "KeyError: 'key'",
        "missing key: model.layers.0",
        "http://10.0.0.1:30000/v1/models@main",
        "pip install git+https://github.com/a/b@v1.2",
        "hf_quant_config hf_transfer hf_transformers disk-based-cache-manager",
        "expected the token: eos",
    ],
)
def test_shown_as_it_is(said: str) -> None:
    assert redact.text(said) == said


def test_no_log_that_we_have_loses_a_word() -> None:
    read = 0
    for file in sorted([*(DATA / "logs").rglob("*"), *(DATA / "cases").rglob("*")]):
        if file.suffix not in (".log", ".toml"):
            continue
        for line in file.read_bytes().decode("utf-8", "replace").split("\n"):
            assert redact.text(line) == line, file
            read += 1
    assert read > 10_000


def test_of_the_flags_only_three_hold_secrets() -> None:
    table = Path(redact.__file__).parents[1] / "launch" / "data" / "flags.jsonl"
    flags = set(re.findall(r'"(--[a-z][a-z0-9_-]+)"', table.read_text(encoding="utf-8")))
    assert len(flags) > 500
    assert {flag for flag in flags if redact.secret_name(flag)} == {
        "--api-key",
        "--admin-api-key",
        "--ssl-keyfile-password",
    }


@pytest.mark.parametrize("width", [None, 60])
@pytest.mark.parametrize(
    "script",
    [
        f"export HF_TOKEN={SECRET}; exec {CORE}",
        f'HF_TOKEN="{SECRET}" {CORE} --api-key {SECRET}',
        f"cd /srv && {CORE} --api-key={SECRET}",
    ],
)
def test_a_script_is_shown_without_its_secrets_and_stays_a_launch(script: str, width: int | None) -> None:
    shown = as_json.command(parse(("bash", "-c", script), "0.5.23"), width)
    assert SECRET not in shown
    assert parse(shown, "0.5.23").values["tp_size"] == 2


def test_a_launch_that_cannot_be_rendered_is_shown_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    from specwatch.errors import LaunchError
    from specwatch.launch import command

    def refuse(*_: object, **__: object) -> str:
        raise LaunchError("no launch")

    monkeypatch.setattr(command, "render", refuse)
    launch = parse(f"HF_TOKEN={SECRET} {CORE} --api-key {SECRET}", "0.5.23")
    assert as_json.command(launch).endswith("--tp 2 --api-key '<redacted>'")


def finding() -> Finding:
    said = f"unrecognized arguments: --my-token {SECRET}"
    return Finding(
        rule=None,
        cause="",
        incident=None,
        severity=Severity.FATAL,
        title=said,
        says=said,
        verdict=Verdict(
            status=Status.BROKEN,
            check="c",
            because=said,
            message="x " * 295 + f"api_key='{'z ' * 20}{SECRET}'",
            evidence=(
                Evidence(check="c", fact="api_key", value=SECRET, source=f"https://u:{SECRET}@h/config.json"),
                Evidence(check="c", fact="layers", value="36", source="config.json"),
            ),
        ),
        launch=Launch(sglang="0.5.23", argv=("python", "--api-k", SECRET), env={"DB_PASS": SECRET}),
    )


def test_hidden_in_every_form_of_a_report() -> None:
    one = finding()
    shown = {
        "json": json.dumps(as_json.check_document([(f"script:http://{SECRET}@h", [one], [one.verdict])])),
        "text": "\n".join("".join(piece.text for piece in line) for line in text.lines([one], 78)),
        "markdown": "\n".join(markdown.lines([one])),
        "github": "\n".join(_annotations([Checked(name=f"script:http://{SECRET}@h", findings=(one,))])),
    }
    for form, said in shown.items():
        assert SECRET not in said, form
        assert "redacted" in said, form
        assert form == "github" or "36" in said, form


def test_every_pattern_keeps_what_it_took_or_takes_little() -> None:
    patterns = [v for v in vars(redact).values() if isinstance(getattr(v, "pattern", None), str)]
    patterns += [*(shape for _, shape in redact._SHAPES), *redact._CLOSE.values()]
    assert len(patterns) > 20
    for pattern in patterns:
        bare = re.sub(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.", "x", pattern.pattern)
        assert not re.search(r"[\w)](?:[*+]|\{\d+,\})(?!\+)", bare), pattern.pattern


@given(st.data())
def test_what_a_shape_matches_holds_one_of_its_texts(data: st.DataObject) -> None:
    needles, shape = data.draw(st.sampled_from(redact._SHAPES))
    plain = re.sub(r"(?<=[*+?}])\+", "", shape.pattern)  # hypothesis has no possessive repeats
    found = data.draw(st.from_regex(plain).filter(shape.search))
    assert any(needle in found.lower() for needle in needles)
    assert redact.HIDDEN in redact.text(found)


@pytest.mark.parametrize("name", ["api key", "API KEY", "Api Key", "api \u212aey", "ap\u0130 key"])
def test_letters_that_only_case_makes_the_same_hide_no_secret(name: str) -> None:
    assert SECRET not in redact.text(f"{name} {SECRET}")


@pytest.mark.parametrize(
    "word", ["a", "a.", "a=", "http://", "token='", "password=a,", '{"token": ', "--api-key ", "eyJ", "?sig=", '\\"']
)
def test_two_megabytes_come_to_an_end(word: str) -> None:
    shown = redact.argv(["x", word * (2_000_000 // len(word)), "--port", "1"])
    assert shown[-2:] == ("--port", "1")
