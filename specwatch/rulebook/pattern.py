"""The wordings of a failure: what finds a rule, and so what every start needs of all rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from specwatch.domain import Frame

PREFIX = 10  # literal characters by which a pattern is found through an index
SHORTEST = 5  # those that it must begin with at least, as in "Rank 3 scheduler is dead"


_compiled = cache(re.compile)  # the cache of `re` has room for 512, and there are more wordings than that


class Pattern(NamedTuple):
    """One wording of the failure: a regular expression over a whole message, from its first character.

    `cause` names the cause that this wording alone gives away, where it does: it stands while no file can prove it.
    Where the text alone is not enough, `frame` must be part of a frame of the traceback (written `file:function`), and
    `source` part of the source line of the innermost one, as for an assertion without a text.

    A pattern with a `frame` and no `line` stands for a whole region of SGLang's code: every exception that comes out of
    it and that no wording knows. Its only capture is `message`.
    """

    name: str
    line: str = ""
    cause: str = ""
    frame: str = ""
    source: str = ""

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression."""
        return _compiled(self.line)

    def fits(self, frames: Sequence[Frame]) -> bool:
        """Whether a traceback has what the pattern asks for beside the text."""
        if self.frame and not any(self.frame in f"{frame.file}:{frame.function}" for frame in frames):
            return False
        return not self.source or bool(frames and self.source in frames[-1].source)

    @property
    def is_region(self) -> bool:
        """Whether it asks for a place only, whatever the message says."""
        return not self.line

    @property
    def prefix(self) -> str:
        """The literal text with which every message that the pattern matches begins."""
        return literal_prefix(self.line)


def literal_prefix(pattern: str) -> str:
    """The literal text at the start of a regular expression, escapes resolved; "" where it starts with a choice."""
    if _offers_a_choice(pattern):
        return ""
    text: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            following = pattern[at + 1 : at + 2]
            if not following or following.isalnum():
                break
            char, at = following, at + 1
        elif char in ".^$*+?{}[]|()":
            break
        if pattern[at + 1 : at + 2] in ("*", "?", "{"):
            break
        text.append(char)
        at += 1
    return "".join(text)


def _offers_a_choice(pattern: str) -> bool:
    """Whether a regular expression is a choice at its outermost level."""
    flat = re.sub(r"\\.|\[[^\]]*\]", "", pattern)
    while (smaller := re.sub(r"\([^()]*\)", "", flat)) != flat:
        flat = smaller
    return "|" in flat
