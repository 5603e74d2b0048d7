"""`specwatch enrich`: alerts on standard input, the same alerts with what specwatch knows on standard output.

The alerts come out whatever happens: what went wrong is said on stderr and by the exit code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from specwatch.commands.common import say
from specwatch.commands.contract import Exit
from specwatch.errors import ConfigError, SpecwatchError


def run(config: Path | None, state: Path | None) -> Exit:
    """Pass alerts through. 0: done, 2: the configuration or the store is missing, 3: these are no alerts."""
    body = sys.stdin.buffer.read()
    try:
        code, body = _enriched(body, config, state)
    except SpecwatchError as error:
        say(f"{error}; the alerts pass unchanged")
        code = Exit.USAGE
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
    return code


def _enriched(body: bytes, config: Path | None, state: Path | None) -> tuple[Exit, bytes]:
    from specwatch.alerts.enrich import enrich
    from specwatch.commands.alerts import configured

    settings, store = configured(config, state)
    if not store.is_file():
        raise ConfigError(f"{store.parent}: holds no store; name the daemon's with --config FILE or --state DIR")
    done = enrich(body, store, settings)
    for note in done.notes:
        say(note)
    if done.because:
        say(f"{done.because}; the alerts pass unchanged")
    return Exit.CLEAN if done.readable else Exit.UNREADABLE, done.body
