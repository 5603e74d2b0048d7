"""`specwatch findings show ID --html FILE`: one finding as a page that needs nothing else, to attach to a ticket."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from specwatch.commands.common import say
from specwatch.commands.contract import Exit
from specwatch.config import DEFAULT_FILE, Settings, load, state_directory
from specwatch.errors import ConfigError
from specwatch.storage.history import MOST, History, opened
from specwatch.storage.store import Kept


def write(name: str, target: str, config: Path | None, state: Path | None) -> Exit:
    """Write the page of a finding to the file `target`, `-` for standard output.

    `name` is the id or the beginning of it, or SERVER/ID where several servers have the same finding.
    """
    try:
        from specwatch.web import deeds, pages
    except ModuleNotFoundError as error:
        raise ConfigError(f"--html needs {error.name}: pip install 'specwatch[daemon]'") from None
    given = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    settings = load(given, allow_insecure=True) if given else Settings()
    if state:
        settings = replace(settings, state=replace(settings.state, dir=str(state)))
    with opened(state_directory(settings)) as history:
        row = _one(history, name)
        excerpt, moments = history.excerpt(row.server, row.fingerprint), history.moments(row.server)
    tried = deeds.attempts(Path(settings.state.actions), row.server)
    page = pages.one_file(row, excerpt, moments, tried, time.time())
    if target == "-":
        sys.stdout.buffer.write(page.encode("utf-8", "replace"))
        return Exit.CLEAN
    try:
        Path(target).write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror}") from None
    say(f"{target}: {row.fingerprint} of {row.server}, {len(page.encode()) / 1000:.0f} KB; open it in a browser")
    return Exit.CLEAN


def _one(history: History, name: str) -> Kept:
    server, _, finding = name.rpartition("/")
    found: list[Kept] = []
    for offset in range(0, 100_000, MOST):
        rows = history.findings(server=server, limit=MOST, offset=offset)
        found += [row for row in rows if finding and row.fingerprint.startswith(finding)]
        if len(rows) < MOST:
            break
    if not found:
        raise ConfigError(f"no finding has the id {name} (specwatch findings list --all)")
    if len(found) > 1:
        names = ", ".join(f"{row.server}/{row.fingerprint}" for row in found[:5])
        raise ConfigError(f"{len(found)} findings have the id {name}; name one of {names}")
    return found[0]
