"""What the tests share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def examples() -> Path:
    """The shipped example."""
    return ROOT / "examples"


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees, or writes into, the user's caches."""
    home = tmp_path_factory.mktemp("home")
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def specwatch() -> Run:
    """Run the command as a process of its own."""

    def run(*arguments: str | Path, stdin: str | bytes | None = None) -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "specwatch.cli", *map(str, arguments)], input=data, capture_output=True, check=False
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        )

    return run
