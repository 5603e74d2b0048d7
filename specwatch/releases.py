"""Which release of SGLang is older than another, and whether a range of releases holds one (PEP 440).

SGLang's releases are numbers such as 0.5.23, compared here; candidates, builds and whatever else a version may be are
left to `packaging`, which takes 7 ms to import, more than half as long as the interpreter takes to start.
"""

from __future__ import annotations

from functools import lru_cache

_HOLDS = {
    ">=": lambda release, bound: release >= bound,
    "<=": lambda release, bound: release <= bound,
    "==": lambda release, bound: release == bound,
    "!=": lambda release, bound: release != bound,
    ">": lambda release, bound: release > bound,
    "<": lambda release, bound: release < bound,
}
"""Operators of a range, two characters before one."""


def older(release: str, than: str) -> bool:
    """Whether a release is older than another; False for an unknown one, as "" or `main`."""
    own, other = _numbers(release), _numbers(than)
    if own is not None and other is not None:
        return own < other
    return bool(release) and _older(release, than)


def is_release(text: str) -> bool:
    """Whether a text is a version at all: `main`, a commit or "" is none."""
    return _numbers(text) is not None or _is_version(text)


@lru_cache(maxsize=1024)
def covers(releases: str, release: str) -> bool:
    """Whether a range, as `>=0.5.11,<0.5.20`, holds a release; an unknown release may be any.

    Candidates count as what they are: 0.5.20rc1 is in `>=0.5.19`, not in `>=0.5.20`.
    """
    if not release or not releases:
        return True
    clauses = [_clause(text) for text in releases.split(",")]
    own = _numbers(release)
    if own is not None and all(clauses):
        return all(_HOLDS[operator](own, bound) for operator, bound in filter(None, clauses))
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(releases).contains(Version(release), prereleases=True)
    except InvalidVersion:
        return True


def _numbers(text: str) -> tuple[int, ...] | None:
    """A plain release as numbers, zeros at its end left out (0.5 is 0.5.0), None for any other version."""
    parts = text.split(".")
    if not text.isascii() or not all(part.isdigit() and len(part) < 10 for part in parts):
        return None
    while parts and not int(parts[-1]):
        parts.pop()
    return tuple(map(int, parts))


def _clause(text: str) -> tuple[str, tuple[int, ...]] | None:
    text = text.strip()
    operator = next((known for known in _HOLDS if text.startswith(known)), "")
    bound = _numbers(text[len(operator) :].strip())
    return (operator, bound) if operator and bound is not None else None


@lru_cache(maxsize=256)
def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


@lru_cache(maxsize=256)
def _older(release: str, than: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(release) < Version(than)
    except InvalidVersion:
        return False
