"""Regular expressions that are compiled when they are first used.

A start imports some two hundred of them and uses a few dozen; compiling them all takes longer than Python itself.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def compiled(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, but compiled on first use. A mistake in the pattern shows only then."""
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))


class _Lazy:
    """Stands for a compiled expression; from the first use of a method on, that method is the expression's own."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        got = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, got)
        return got
