"""The README says what is true. `python tests/test_readme.py --bless` rewrites its example from a real run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"


def block(language: str, number: int = 0) -> str:
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)\n```", README.read_text(), re.DOTALL)
    return blocks[number]


def example_arguments() -> list[str]:
    """The arguments of the first command, as a shell in a checkout would pass them."""
    command = block("sh").rpartition(" && ")[2]
    command = command.replace('"$(cat examples/launch.sh)"', shlex.quote((ROOT / "examples/launch.sh").read_text()))
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/specwatch"
    return arguments


def run_example() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", *example_arguments()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout.rstrip("\n")


def test_the_example_prints_what_the_readme_shows() -> None:
    assert run_example() == block("text")


def test_the_second_command_is_the_test_script() -> None:
    assert (ROOT / block("sh", 1).split(" ")[1]).is_file()


def test_every_option_of_the_readme_exists() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", "diagnose", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for option in re.findall(r"specwatch diagnose [^\n#]*?(--[a-z-]+)", block("sh", 2)):
        assert f"  {option} " in text, option


def test_every_linked_file_exists() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (ROOT / link).exists(), link


if __name__ == "__main__" and "--bless" in sys.argv:
    shown = README.read_text()
    README.write_text(re.sub(r"(```text\n).*?(\n```)", lambda m: m[1] + run_example() + m[2], shown, flags=re.DOTALL))
