"""What the commands share: the rulebook, saying things on stderr, and printing a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specwatch.errors import ConfigError, RuleError
from specwatch.rulebook.book import Rulebook, bundled_directory, load_directories

if TYPE_CHECKING:
    from specwatch.report.text import Line

SITE_RULES = Path("/etc/specwatch/rules.d")


def say(message: str) -> None:
    """A message that is no finding: on stderr, each line marked as ours."""
    from specwatch.report.text import clean

    for line in clean(message).split("\n"):
        print(f"specwatch: {line}", file=sys.stderr)


def cache_file(name: str) -> Path | None:
    """A file in the user's cache directory (XDG Base Directory Specification), None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME", "") and str(Path.home() / ".cache"))
    return Path(base) / "specwatch" / name if base and Path(base).is_absolute() else None


def rulebook(directories: Sequence[Path]) -> Rulebook:
    """The shipped rules and the further ones, which have to prove their examples before they may speak.

    A rule that does not hold is refused and named; the others go on. Raises RuleError when a shipped one is broken.
    What came of it is kept for the next start with the same files.
    """
    from specwatch.rulebook import kept

    extra = ([SITE_RULES] if SITE_RULES.is_dir() else []) + list(directories)
    signature = kept.signature((bundled_directory(), *extra))
    file = cache_file("rules.json" if not extra else "rules-extra.json")
    known = kept.read(file, signature)
    if known is None:
        known = _proved(extra)
        kept.write(file, signature, *known)
    book, said = known
    for text in said:
        say(text)
    return book


def _proved(extra: Sequence[Path]) -> tuple[Rulebook, list[str]]:
    """The rules that hold, and what has to be said about the others."""
    loaded = load_directories(extra)
    said = [*loaded.refused, *loaded.replaced]
    if loaded.refused and not loaded.book.rules:
        raise RuleError("\n".join((*said, "no rule could be loaded")))
    if not extra:
        return loaded.book, said
    from specwatch.proof import unproved

    foreign = [rule for rule in loaded.book.rules.values() if rule.path.parent != bundled_directory()]
    broken = unproved(foreign, loaded.book, cache_file("proved-rules.json"))
    said += ["\n".join(("refused:", *complaints)) for complaints in broken.values()]
    return Rulebook(rule for rule in loaded.book.rules.values() if rule.id not in broken), said


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
    if not sys.stdout.isatty():
        return 80
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def print_lines(lines: Iterable[Line]) -> None:
    """Print a report: in colour on a terminal that wants it (see https://no-color.org), else plain."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        for line in lines:
            print("".join(piece.text for piece in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    from specwatch.report.text import STYLES

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((piece.text, STYLES.get(piece.style, "")) for piece in line)))
