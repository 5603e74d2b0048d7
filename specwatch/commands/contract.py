"""What scripts rely on: exit codes and output formats. Imports nothing of specwatch, so that `--help` stays fast."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Exit(IntEnum):
    """The exit codes of the contract."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    UNREADABLE = 3


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
