"""Refusals that follow from the arguments alone, written down one after the other as SGLang's source has them.

A check made of laws goes through them in order and answers with the first that the launch breaks, so that of two
faults the same one is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import NOTHING, Evidence, Phase, Value
from specwatch.releases import older


class Law(NamedTuple):
    """One refusal that a launch runs into: its cause, the flags and variables it hangs on, and what SGLang raises.

    `since` is the first release with it, `before` the first without; empty where every known release has it. `facts`
    are the values that a rule may quote or set.
    """

    cause: str
    flags: tuple[str, ...]
    message: str
    exception: str = "ValueError"
    since: str = ""
    before: str = ""
    facts: Mapping[str, Value] = NOTHING

    def holds(self, release: str) -> bool:
        """Whether a release has this law; an unknown release is taken for the newest."""
        if self.since and older(release, self.since):
            return False
        return not self.before or older(release, self.before)


class Doubt(NamedTuple):
    """What cannot be told from here, and why: the check ends with it."""

    because: str


Laws = Callable[[Subject], Iterator[Law | Doubt]]


def first(name: str, laws: Iterator[Law | Doubt], subject: Subject) -> Answer:
    """The answer of the first law that the launch breaks."""
    for law in laws:
        if isinstance(law, Doubt):
            return Answer(unknown=law.because)
        if not law.holds(subject.launch.sglang):
            continue
        evidence = tuple(_evidence(name, flag, subject) for flag in law.flags)
        return broken(law.cause, law.exception, law.message, *evidence, **{"flags": " ".join(law.flags), **law.facts})
    return Answer()


def _evidence(name: str, flag: str, subject: Subject) -> Evidence:
    if not flag.startswith("--"):
        return fact(name, flag, subject.launch.env.get(flag), "environment")
    value = subject.launch.value(flag.removeprefix("--").replace("-", "_"))
    shown = value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
    return fact(name, flag, shown, "launch")


def law_check(name: str, mirrors: str, applies: Callable[[Subject], bool], laws: Laws) -> Check:
    """A check of the argument phase made of laws; it says nothing of launches that it does not apply to."""

    def run(subject: Subject) -> Answer | None:
        return first(name, laws(subject), subject) if applies(subject) else None

    return Check(name=name, phase=Phase.ARGUMENTS, mirrors=mirrors, run=run)
