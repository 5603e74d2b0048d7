"""Times of the store and of receivers as text."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(at: float) -> datetime:
    """Seconds since 1970 as a time in UTC; the first of all where a damaged value is none."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def iso(at: float) -> str:
    """The same as RFC 3339 text, in whole seconds, with a Z behind it."""
    return utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")
