"""What the kinds of receivers share: the request that is sent, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fate(StrEnum):
    """What came of an attempt: SENT; LATER, it may work when it is tried again; NEVER, it will not."""

    SENT = "sent"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an attempt, why, and how many seconds the receiver wants to be left alone.

    `content` says that the receiver refused what was said, not who said it or where: another message may be taken.
    """

    fate: Fate
    error: str = ""
    retry_after: float = 0.0
    content: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A POST to be made. `secrets` are texts that must not appear where it is spoken of."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
