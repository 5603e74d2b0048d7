"""Runs other programs: argument lists only, with a time-out, and an error that says which one and why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specwatch.errors import ApplyError

TIMEOUT = 60.0
"""Seconds that a program may take where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a program ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its complaint in one line."""
        text = " ".join((self.err.strip() or self.out.strip()).split())
        return text[:500] or f"exit code {self.code}"


Run = Callable[[Sequence[str]], Done]
"""Runs an argument list. Raises ApplyError where that cannot be started, or takes too long."""


def run(words: Sequence[str], timeout: float = TIMEOUT, stdin: str = "") -> Done:
    """Run a program to its end. Raises ApplyError naming it."""
    try:
        done = subprocess.run(
            list(words),
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
        )
    except FileNotFoundError:
        raise ApplyError(f"{words[0]}: is not installed, or not in the PATH") from None
    except subprocess.TimeoutExpired:
        raise ApplyError(f"{' '.join(words[:3])} …: no end within {timeout:.0f} s", retry=True) from None
    except (OSError, ValueError) as error:
        raise ApplyError(f"{words[0]}: cannot be run: {error}") from None
    return Done(
        code=done.returncode, out=done.stdout.decode(errors="replace"), err=done.stderr.decode(errors="replace")
    )


def well(words: Sequence[str], runs: Run = run) -> str:
    """What a program writes. Raises ApplyError with its complaint where its exit code is not 0."""
    done = runs(words)
    if done.code:
        raise ApplyError(f"{' '.join(words)}: {done.said}")
    return done.out
