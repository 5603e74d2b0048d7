"""Several logs side by side: the same output in the same order as one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def diagnose(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", "diagnose", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_side_by_side_is_one_after_the_other(examples: Path, tmp_path: Path) -> None:
    log = (examples / "server.log").read_text()
    paths = []
    for number in range(5):
        path = tmp_path / f"{number}.log"
        path.write_text(log.replace("/models/sprout", f"/models/sprout{number % 2}") * (number + 1))
        paths.append(str(path))
    paths.insert(2, str(tmp_path / "missing.log"))
    options = ("--path-map", f"/models={examples / 'models'}", "--format", "json")
    alone = diagnose("--jobs", "1", *options, *paths)
    assert alone[0] == 3
    assert '"occurrences": ' in alone[1]
    assert "missing.log: no such file" in alone[2]
    assert diagnose("--jobs", "3", *options, *paths) == alone
    assert diagnose(*options, *paths) == alone


def test_jobs_is_a_number_of_at_least_one(examples: Path) -> None:
    code, _, error = diagnose("--jobs", "0", str(examples / "server.log"))
    assert code == 2
    assert "--jobs" in error
