"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# the same examples on every machine, so that a red run is the change's; HYPOTHESIS_PROFILE=explore tries others
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def examples() -> Path:
    """The shipped example."""
    return ROOT / "examples"


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test sees, or writes into, the user's caches; all of a process share one home, as a user's runs do."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "NO_COLOR"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


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
