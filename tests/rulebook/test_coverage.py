"""Which messages of a source have a rule: read from a folder or a wheel, with nothing of it imported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from specwatch.commands import rules as commands
from specwatch.commands.contract import Exit, Format
from specwatch.errors import ConfigError
from specwatch.rulebook.book import Rulebook, load_directories
from specwatch.rulebook.coverage import HOLE, Site, coverage, rule_of, sites
from specwatch.rulebook.rule import load

BOOK = load_directories().book
SOURCE = """
raise SystemExit("importing this would end the test")
PREFIX = "DFLASH mask_token_id"

def resolve(value, name):
    if value is None:
        raise RuntimeError("A failure that nobody has ever seen.")
    if value < 0:
        raise ValueError(f"DFLASH dflash_config.mask_token_id must be non-negative, got {value}.")
    assert value, f"another {name} unknown thing"
    raise ValueError(message)

async def other(a, b):
    raise ValueError(
        PREFIX + " is outside the target vocab size. mask_token_id={}, vocab_size={}. ".format(a, b)
        + f"This likely means mask_token={a!r} requires vocab expansion beyond the model's embedding size. "
    )
"""


def folder(base: Path, text: str = SOURCE, file: str = "srt/speculative/dflash_worker.py") -> Path:
    path = base / "sglang" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (base / "sglang-0.5.99.dist-info").mkdir()
    return base / "sglang"


def wheel(base: Path) -> Path:
    inside = folder(base / "unpacked")
    path = base / "sglang-0.5.99-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in inside.rglob("*.py"):
            archive.write(file, file.relative_to(inside.parent))
    return path


def made(base: Path, kind: str) -> Path:
    return wheel(base) if kind == "wheel" else folder(base) if kind == "package" else folder(base).parent


@pytest.mark.parametrize("kind", ["wheel", "package", "above"])
def test_sites_are_read_and_held_against_the_rules(tmp_path: Path, kind: str) -> None:
    held = coverage(made(tmp_path, kind), BOOK)
    assert held.release == "0.5.99"
    assert [site.shown for site in held.missing] == [
        "SystemExit: importing this would end the test",
        "RuntimeError: A failure that nobody has ever seen.",
        "AssertionError: another {…} unknown thing",
    ]
    assert [(site.line, site.function) for site in held.missing] == [(2, "<module>"), (7, "resolve"), (10, "resolve")]
    assert [rule for _, rule in held.rules if rule] == ["dflash-mask-token-malformed", "dflash-mask-token-out-of-range"]


def test_files_outside_the_scope_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds none of sglang/srt/speculative/"):
        list(sites(folder(tmp_path, file="srt/layers/x.py")))


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"no zip", "not a wheel"), (b"def (", "is not Python that this Python reads")]
)
def test_what_is_no_source(tmp_path: Path, content: bytes, complaint: str) -> None:
    source = tmp_path / "sglang-1-py3-none-any.whl"
    source.write_bytes(content)
    if content.startswith(b"def"):
        source = folder(tmp_path, content.decode())
    with pytest.raises(ConfigError, match=complaint) as caught:
        list(sites(source))
    assert str(source) in str(caught.value)


def site(template: str, exception: str = "ValueError", file: str = "sglang/srt/speculative/dflash_utils.py") -> Site:
    return Site(file=file, line=1, function="f", exception=exception, template=template.replace("{}", HOLE))


def rule(tmp_path: Path, line: str, log: str, more: str = "") -> Rulebook:
    path = tmp_path / "a-rule.toml"
    path.write_text(
        "title = 'a'\nseverity = 'fatal'\nrole = 'cause'\nstatus = 'experimental'\nsglang = ''\n"
        "[docs]\nwhat = 'a'\nwhy = 'a'\nlimits = 'a'\n[cause.a]\nsays = 'a'\ntodo = 'a'\n"
        f"[[pattern]]\nname = 'a'\nline = '''{line}'''\n{more}\n"
        f"[[example]]\nname = 'a'\nlog = '''\n{log}\n'''\ncause = 'a'\nstatus = 'unknown'\n"
        "[[counterexample]]\nname = 'a'\nlog = 'a'\n"
    )
    return Rulebook([load(path)])


@pytest.mark.parametrize(
    ("line", "log", "template", "known"),
    [
        # values that no guess would hit are taken from the rule's own example
        (r"ValueError: [A-Z]{6} has no room", "ValueError: DFLASH has no room for it.", "{} has no room for it.", True),
        (r"ValueError: Invalid block_size='\w+'\.", "ValueError: Invalid block_size='a'.", "Invalid {}={}.", False),
        (r"ValueError: tokens=\d+ of \d+", "ValueError: tokens=7 of 8", "tokens={} of {}", True),
        (r"ValueError: tokens=\d+ of \d+", "ValueError: tokens=7 of 8", "tokens={} for {}", False),
    ],
)
def test_values_of_the_examples_count(tmp_path: Path, line: str, log: str, template: str, known: bool) -> None:
    book = rule(tmp_path, line, log)
    assert [name for _, name in coverage(folder(tmp_path / "t", _raising(template)), book).rules] == [
        "a-rule" if known else None
    ]


def _raising(template: str) -> str:
    return f"def f(x):\n    raise ValueError(f{template.replace('{}', '{x}')!r})\n"


def test_a_message_of_values_counts_only_from_its_own_file(tmp_path: Path) -> None:
    line, frame = r"ValueError: Invalid block_size='\w+'\.", '  File "/x/sglang/srt/speculative/%s", line 1, in f\n'
    message = "ValueError: Invalid block_size='a'."
    own = rule(tmp_path, line, "Traceback (most recent call last):\n" + frame % "dflash_worker.py" + message)
    other = rule(tmp_path, line, "Traceback (most recent call last):\n" + frame % "other.py" + message)
    source = folder(tmp_path / "s", _raising("Invalid {}={}."))
    assert not coverage(source, own).missing
    assert coverage(source, other).missing


def test_a_pattern_that_asks_for_a_frame_knows_its_own_place_only(tmp_path: Path) -> None:
    book = rule(tmp_path, "ValueError: bad", "ValueError: bad", "frame = 'speculative/dflash_utils.py:'")
    assert rule_of(site("bad"), book) == "a-rule"
    assert rule_of(site("bad", file="sglang/srt/speculative/eagle_utils.py"), book) is None


def test_a_key_error_is_looked_for_as_it_is_printed(tmp_path: Path) -> None:
    source = folder(tmp_path / "s", 'def f(x):\n    raise KeyError(f"no layer {x} here")\n')
    book = rule(tmp_path, r"KeyError: 'no layer \d+ here'", "KeyError: 'no layer 7 here'")
    assert not coverage(source, book).missing


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folder(tmp_path)
    assert commands.coverage(source, Format.TEXT, ()) is Exit.FINDINGS
    out = capsys.readouterr().out.split("\n")
    assert out[1] == "sglang/srt/speculative/dflash_worker.py:7: RuntimeError: A failure that nobody has ever seen."
    assert out[3] == f"sglang 0.5.99: 2 of 5 messages have a rule ({source})"
    assert commands.coverage(source, Format.JSON, ()) is Exit.FINDINGS
    answer = json.loads(capsys.readouterr().out)
    assert (answer["messages"], answer["covered"], answer["sglang"]) == (5, 2, "0.5.99")
    assert answer["missing"][1] == {
        "file": "sglang/srt/speculative/dflash_worker.py",
        "line": 7,
        "function": "resolve",
        "message": "RuntimeError: A failure that nobody has ever seen.",
    }
    assert answer["rules"] == {"dflash-mask-token-malformed": 1, "dflash-mask-token-out-of-range": 1}


def test_complete_coverage_is_a_clean_exit(tmp_path: Path) -> None:
    text = 'raise RuntimeError("DFLASH requires tokenizer initialization when dflash_config.mask_token_id is not set")'
    assert commands.coverage(folder(tmp_path, text), Format.TEXT, ()) is Exit.CLEAN


def test_the_installed_sglang_is_found_beside_the_python_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # whatever is installed where the tests run
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError, match="--sglang PATH"):
        commands.coverage(None, Format.TEXT, ())
    package = folder(tmp_path / "lib/python3.12/site-packages")
    (tmp_path / "bin").mkdir()
    program = shutil.copy("/bin/sh", tmp_path / "bin/python3")
    assert Path(program).is_file()
    assert commands.coverage(None, Format.TEXT, ()) is Exit.FINDINGS
    assert str(package) in capsys.readouterr().out


def test_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "specwatch.cli", "rules", "coverage", "--sglang", str(folder(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "2 of 5 messages have a rule" in done.stdout
    wrong = subprocess.run([*command[:-1], str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "expected a wheel of sglang" in wrong.stderr
