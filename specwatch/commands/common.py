"""What the commands share: the rulebook, saying things on stderr, and printing a report."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from specwatch.errors import ConfigError, RuleError
from specwatch.report.text import STYLES, Line
from specwatch.rulebook.book import Rulebook, load_directories

SITE_RULES = Path("/etc/specwatch/rules.d")


def say(message: str) -> None:
    """A message that is no finding: on stderr, each line marked as ours."""
    for line in message.split("\n"):
        print(f"specwatch: {line}", file=sys.stderr)


def cache_file(name: str) -> Path | None:
    """A file in the user's cache directory (XDG Base Directory Specification), None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME", "") and str(Path.home() / ".cache"))
    return Path(base) / "specwatch" / name if base and Path(base).is_absolute() else None


def rulebook(directories: Sequence[Path]) -> Rulebook:
    """The shipped rules and the further ones, which have to prove their examples before they may speak.

    A rule that does not hold is refused and named; the others go on. Raises RuleError when a shipped one is broken.
    """
    extra = ([SITE_RULES] if SITE_RULES.is_dir() else []) + list(directories)
    loaded = load_directories(extra)
    for text in (*loaded.refused, *loaded.replaced):
        say(text)
    if loaded.refused and not loaded.book.rules:
        raise RuleError("no rule could be loaded")
    if not extra:
        return loaded.book
    from specwatch.proof import unproved
    from specwatch.rulebook.book import bundled_directory

    foreign = [rule for rule in loaded.book.rules.values() if rule.path.parent != bundled_directory()]
    broken = unproved(foreign, loaded.book, cache_file("proved-rules.json"))
    for complaints in broken.values():
        say("\n".join(("refused:", *complaints)))
    return Rulebook(rule for rule in loaded.book.rules.values() if rule.id not in broken)


def path_maps(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of `--path-map FROM=TO`. Raises ConfigError for one that is none."""
    pairs = []
    for text in given:
        inside, equals, outside = text.partition("=")
        if not equals or not inside.startswith("/") or not outside:
            raise ConfigError(
                f"--path-map {text}: expected FROM=TO with FROM an absolute path, as in /models=/data/models"
            )
        pairs.append((inside, outside))
    return tuple(pairs)


def width() -> int:
    """The columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80


def print_lines(lines: Iterable[Line]) -> None:
    """Print a report: in colour on a terminal that wants it (see https://no-color.org), else plain."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        for line in lines:
            print("".join(piece.text for piece in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((piece.text, STYLES.get(piece.style, "")) for piece in line)))
