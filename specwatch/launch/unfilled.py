"""Values of a launch that only a shell could tell: no check may take `$MODEL` or `~/m` for what the server gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from specwatch.domain import Launch
from specwatch.errors import LaunchError
from specwatch.launch.flags import table
from specwatch.launch.locate import locate
from specwatch.launch.parsing import read
from specwatch.launch.shell import Lexer, Word
from specwatch.lazy import compiled

T = TypeVar("T")

_SUSPECT = compiled(r"[$`]|\A~")
_TILDE = compiled(r"~[A-Za-z0-9_.-]*(?:/|\Z)")
_SETS = compiled(r"(?:--env=|-e)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_LEFT = compiled(r"\$\([A-Za-z_]\w*\)")


class Unfilled(Exception):  # noqa: N818 - no error of a user: what reads the value cannot tell
    """A value was asked for that depends on what only a shell knows; the text names the argument and its words."""


class _Guarded(Mapping[str, T]):
    """A mapping; to ask for one of `unknown` (name to the words that stand for its value) raises Unfilled."""

    def __init__(self, known: Mapping[str, T], unknown: Mapping[str, str]) -> None:
        self._known, self._unknown = known, unknown

    def __getitem__(self, name: str) -> T:
        if name in self._unknown:
            raise Unfilled(
                f"{name} is {self._unknown[name]}, which only the shell that starts the server can fill in; "
                "give the command with its value"
            )
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._unknown


def guarded(launch: Launch) -> Launch:
    """The launch, with values and variables such that reading one which only a shell could tell raises Unfilled.

    What the server recorded is read from there and known all the same.
    """
    unknown = {
        name: value
        for name, value in launch.values.items()
        if isinstance(value, str) and _SUSPECT.search(value) and _unfilled(launch, name, value)
    }
    if unknown:
        launch = replace(launch, values=_Guarded(launch.values, unknown))
    if "$" in launch.text or "`" in launch.text:
        variables = {n: words for n, words in _open_variables(launch.text).items() if n not in launch.env}
        if variables:
            launch = replace(launch, env=_Guarded(launch.env, variables))
    return launch


def _unfilled(launch: Launch, name: str, value: str) -> bool:
    if _TILDE.match(value):
        return True  # SGLang opens no `~`: a shell did, or the path was never meant as it is written
    if not launch.text:
        return _LEFT.search(value) is not None  # Kubernetes, from a secret or another object
    return name in _open_names(launch.text, launch.sglang)


@lru_cache(maxsize=16)
def _open_names(text: str, sglang: str) -> frozenset[str]:
    """The arguments whose words hold an expansion that the text does not set."""
    try:
        reading = read(locate(text), table(sglang), None, strict=False)
    except LaunchError:
        return frozenset()
    given = reading.parsed.given
    return frozenset(one.flag.dest for one in given if any(arg.open for arg in reading.args(one)))


@lru_cache(maxsize=16)
def _open_variables(text: str) -> Mapping[str, str]:
    """The variables that the text sets to what only a shell could tell, with what stands there."""
    out: dict[str, str] = {}
    try:
        texts = [level.command.text for level in locate(text).levels]
        for lexer in (Lexer(inner, {}) for inner in texts):
            while (token := lexer.next()) is not None:
                found = _SETS.match(token.value) if isinstance(token, Word) and token.open else None
                if found:
                    out[found[1]] = found[2]
    except LaunchError:
        return out
    return out
