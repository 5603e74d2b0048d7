"""What somebody meant by an option that this release of SGLang does not take.

Only what can be shown counts as certain: the same flag in another spelling, or what an older or newer release says of
itself. Words of other servers and typing errors are likely, and marked so.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from specwatch.launch.flags import Ambiguous, Flag, FlagTable, releases_with, table
from specwatch.launch.foreign import FOREIGN, NEEDLESS, RENAMED, SPELLED_OUT
from specwatch.launch.speculative_config import FLAG, said_in_flags

_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_YES = frozenset({"true", "1", "yes", "y", "on"})
_NO = frozenset({"false", "0", "no", "n", "off", "none"})


class Certainty(IntEnum):
    """How sure a reading is: UNKNOWN (nothing is near), LIKELY (a word of another server, a typing error), CERTAIN."""

    UNKNOWN = 0
    LIKELY = 1
    CERTAIN = 2


class Meaning(NamedTuple):
    """The flags that were meant, each with its values; none where the option has to go. `why` says it in words."""

    certainty: Certainty
    why: str
    flags: tuple[tuple[str, tuple[str, ...]], ...] = ()


def meaning(flags: FlagTable, option: str, texts: Sequence[str] = ()) -> Meaning:
    """What an unknown option with these values stands for in a release."""
    name = normalised(option)
    known = flags.exact(name)
    if known is not None and known.action not in ("refused", "raises"):
        return _spelling(known, option, name, tuple(texts))
    return (
        _glued(flags, name, tuple(texts))
        or _of_another_release(flags, name, tuple(texts))
        or _foreign(flags, name, tuple(texts))
        or _typing_error(flags, name, tuple(texts))
        or Meaning(certainty=Certainty.UNKNOWN, why=f"no flag of sglang {flags.release} is near to {option}")
    )


def normalised(option: str) -> str:
    """An option with two plain dashes in front, lower case, dashes for underscores."""
    name = option.split("=", 1)[0].lower().replace("_", "-")
    return "--" + name.lstrip(_DASHES)


def switch(flag: Flag, texts: Sequence[str]) -> tuple[str, bool] | None:
    """A flag that takes no value and got one: the spelling to use, and whether it is to be given at all.

    None where the value says neither yes nor no.
    """
    words = {text.strip().lower() for text in texts}
    if words <= _YES:
        return flag.name, True
    if words <= _NO:
        off = next((name for name in flag.names if name.startswith("--no-")), None)
        return (off, True) if flag.action == "optional" and off else (flag.name, False)
    return None


def _spelling(flag: Flag, option: str, name: str, texts: tuple[str, ...]) -> Meaning:
    why = f"{option} is spelled {name}"
    if not flag.bare or not texts:
        return Meaning(certainty=Certainty.CERTAIN, flags=((name, texts),), why=why)
    wanted = switch(flag, texts)
    if wanted is None:
        return Meaning(certainty=Certainty.LIKELY, flags=((name, ()),), why=f"{why} and takes no value")
    given = ((wanted[0], ()),) if wanted[1] else ()
    return Meaning(certainty=Certainty.CERTAIN, flags=given, why=f"{why} and takes no value")


def _glued(flags: FlagTable, name: str, texts: tuple[str, ...]) -> Meaning | None:
    place = name.find("--", 2)
    if place < 0:
        return None
    first, second = flags.exact(name[:place]), flags.exact(name[place:])
    if first is None or second is None or not (first.bare or first.nargs == "?"):
        return None
    return Meaning(
        certainty=Certainty.CERTAIN,
        flags=((name[:place], ()), (name[place:], texts)),
        why=f"a space is missing between {name[:place]} and {name[place:]}",
    )


def _of_another_release(flags: FlagTable, name: str, texts: tuple[str, ...]) -> Meaning | None:
    """The flag as another release knows it, the newest one first, said in the words of this release."""
    spelled = SPELLED_OUT.get((name, texts[0] if len(texts) == 1 else None)) or SPELLED_OUT.get((name, "*"))
    if spelled and all(flags.exact(flag) for flag, _ in spelled):
        given = tuple((flag, texts if value == "*" else (value,) if value else ()) for flag, value in spelled)
        written = " ".join(" ".join((flag, *values)) for flag, values in given)
        return Meaning(certainty=Certainty.CERTAIN, flags=given, why=f"{name} is {written} in sglang {flags.release}")
    known: str | None = None
    for release in reversed(releases_with(name)):
        if release == flags.release:
            continue
        try:
            found = table(release).match(name)
        except Ambiguous:
            continue
        if found is None:
            continue
        known = known or release
        meant = _same(flags, found[0], found[1], texts)
        if meant is not None:
            target, values = meant
            if target == "":
                why = f"{name} did nothing in sglang {release} any more"
                return Meaning(certainty=Certainty.CERTAIN, why=why)
            why = f"{name}, which sglang {release} took, is {target} in {flags.release}"
            return Meaning(certainty=Certainty.CERTAIN, flags=((target, values),), why=why)
    if known is None:
        return None
    why = f"sglang {flags.release} has no {name}, sglang {known} has"
    return Meaning(certainty=Certainty.UNKNOWN, why=why)


def _same(flags: FlagTable, old: Flag, spelling: str, texts: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """A flag of another release as this one says it; "" for one that did nothing; None where it says nothing of it."""
    if old.action == "ignored":
        return "", ()
    if old.action in ("refused", "raises", "help"):
        return None
    direct = flags.exact(old.name)
    target = direct or flags.by_dest(old.dest)
    if target is None:
        later = RENAMED.get(old.name) or next((o for o, n in RENAMED.items() if n == old.name), None)
        target = flags.exact(later) if later else None
    if target is None or target.action in ("refused", "raises", "ignored"):
        return None
    if old.action == "const":
        return (target.name, (str(old.const),)) if not target.bare else None
    if old.bare != target.bare or (old.action == "optional" and spelling.startswith("--no-")):
        return None
    return target.name, texts


def _foreign(flags: FlagTable, name: str, texts: tuple[str, ...]) -> Meaning | None:
    if name in NEEDLESS:
        return Meaning(certainty=Certainty.LIKELY, why=f"{name} is not SGLang's: {NEEDLESS[name]}")
    if name == FLAG and len(texts) == 1:
        said = said_in_flags(texts[0])
        known = said and all(flags.exact(flag) is not None for flag, _ in said)
        why = f"{name} is vLLM's; these flags say it here, with the token that verification adds counted in"
        return Meaning(certainty=Certainty.LIKELY, flags=said, why=why) if known else None
    target = flags.exact(FOREIGN.get(name, ""))
    if target is None:
        return None
    why = f"{name} is another server's word for {target.name}"
    return Meaning(certainty=Certainty.LIKELY, flags=((target.name, () if target.bare else texts),), why=why)


def _typing_error(flags: FlagTable, name: str, texts: tuple[str, ...]) -> Meaning | None:
    import difflib

    current = [n for flag in flags.flags if not flag.deprecated for n in flag.names if n.startswith("--")]
    close = difflib.get_close_matches(name, current, n=2, cutoff=0.85)
    if not close or (len(close) > 1 and _likeness(name, close[0]) - _likeness(name, close[1]) < 0.02):
        return None
    target = flags.exact(close[0])
    if target is None or target.bare != (not texts):
        return None
    why = f"{name} looks like a typing error of {close[0]}"
    return Meaning(certainty=Certainty.LIKELY, flags=((close[0], texts),), why=why)


def _likeness(one: str, other: str) -> float:
    import difflib

    return difflib.SequenceMatcher(None, other, one).ratio()
