"""Put a command right that SGLang's argument parser refuses: word by word, until the parser takes it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from specwatch.checks.parsing import reader
from specwatch.domain import Applicability, Change, Launch
from specwatch.errors import LaunchError
from specwatch.fixes import choices
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import (
    Certainty,
    Meaning,
    Refused,
    Stray,
    candidates,
    edit,
    meaning,
    refused,
    removal,
    setting,
    switch,
)
from specwatch.launch.foreign import FOREIGN

MAX_ROUNDS = 12
_SPECULATION = frozenset({"speculative_algorithm", "speculative_draft_model_path"})
"""Without one of these the others mean nothing: the target would be taken for its own draft, or nothing speculates."""
_TRUST = {
    Certainty.CERTAIN: Applicability.SAFE,
    Certainty.LIKELY: Applicability.REVIEW,
    Certainty.UNKNOWN: Applicability.REVIEW,
}


class Step(NamedTuple):
    """One correction: its edits, why, and how far it may be trusted."""

    changes: tuple[Change, ...]
    why: str
    trust: Applicability


Corrector = Callable[[Launch, Refused], Step | None]


def correct_arguments(ask: Request) -> Iterator[Proposal]:
    """Say what was meant in the words of this release; what means nothing here goes."""
    yield from _until_taken(ask, _corrected)


def drop_arguments(ask: Request) -> Iterator[Proposal]:
    """Take out what the parser refuses, and nothing else."""
    yield from _until_taken(ask, _dropped)


def _until_taken(ask: Request, correct: Corrector) -> Iterator[Proposal]:
    """Correct one fault after the other: the parser names only the first kind that it meets."""
    if ask.launch is None:
        return
    state, changes, reasons, trust = ask.launch, [], [], Applicability.SAFE  # type: ignore[var-annotated]
    for _ in range(MAX_ROUNDS):
        try:
            found = refused(state, reader(ask.models))
            step = correct(state, found) if found is not None and not found.in_file else None
            if found is None or step is None:
                break
            state = edit(state, step.changes, read_file=reader(ask.models), lenient=True)
        except LaunchError:
            return
        changes += step.changes
        reasons.append(step.why)
        trust = min(trust, step.trust)
    if changes and found is None:
        yield edited(ask.launch, tuple(changes), "; ".join(dict.fromkeys(reasons)), trust)


def _corrected(launch: Launch, found: Refused) -> Step | None:
    if found.kind in ("unrecognized", "ambiguous", "required", "no-model"):
        return _of_strays(launch, found)
    flag = found.flag
    if flag is not None and found.kind == "withdrawn":
        return _withdrawn(launch, flag.name, meaning(found.flags, flag.name))
    if flag is None or found.text is None:
        return None
    if found.kind == "explicit":
        return _switched(found, switch(flag, [found.text] if found.text else []))
    if found.kind == "choice":
        return _replaced(launch, flag.name, choices.nearest_choice(flag, found.text))
    if found.kind == "value":
        return _replaced(launch, flag.name, choices.nearest_value(flag, found.text)) or _unglued(launch, found)
    return None


def _withdrawn(launch: Launch, name: str, meant: Meaning) -> Step | None:
    if not meant.flags:
        return None
    sets = (_set(launch, flag, values) for flag, values in meant.flags)
    return Step(changes=(Change(op="remove", name=name), *sets), why=meant.why, trust=_TRUST[meant.certainty])


def _dropped(launch: Launch, found: Refused) -> Step | None:
    if found.kind in ("unrecognized", "ambiguous") and all(stray.option for stray in found.strays):
        names = [stray.option for stray in found.strays]
        changes = tuple(_gone(stray) for stray in found.strays)
        return Step(changes=changes, why=f"without {', '.join(names)}", trust=Applicability.REVIEW)
    flag = found.flag
    if flag is None or flag.required or found.kind not in ("choice", "no-value", "explicit", "withdrawn"):
        return None
    if flag.dest in _SPECULATION:
        if found.kind != "no-value":
            return None  # `drop-speculation` takes what hangs on it as well
        changes = removal(launch, "--speculative-")
        return Step(changes=changes, why="same model, same outputs, slower", trust=Applicability.REVIEW)
    change = Change(op="remove", name=flag.name, old=found.text)
    return Step(changes=(change,), why=f"without {flag.name}, SGLang's default holds", trust=Applicability.REVIEW)


def _of_strays(launch: Launch, found: Refused) -> Step | None:
    """All words that no flag takes at once, so that the text shows what became of each."""
    if found.kind in ("required", "no-model") and not any(_names_model(found, stray) for stray in found.strays):
        return _lone_model(launch, found)
    end = next((stray for stray in found.strays if stray.option == "--"), None)
    if end is not None:
        return Step(changes=(_gone(end),), why="nothing behind -- is read as a flag", trust=Applicability.REVIEW)
    changes: list[Change] = []
    reasons: list[str] = []
    trust = Applicability.SAFE
    for stray in found.strays:
        step = _of_stray(launch, found, stray)
        if step is None:
            return None
        changes += step.changes
        reasons.append(step.why)
        trust = min(trust, step.trust)
    return Step(changes=tuple(changes), why="; ".join(reasons), trust=trust) if changes else None


def _of_stray(launch: Launch, found: Refused, stray: Stray) -> Step | None:
    if not stray.option:
        if stray.after is None or not stray.after.bare:
            return None  # nothing tells what the words were meant for
        return _switched(found, switch(stray.after, stray.texts), stray)
    meant = _ambiguous(found, stray) if found.kind == "ambiguous" else meaning(found.flags, stray.option, stray.texts)
    if meant is None:
        return None
    sets = tuple(_set(launch, flag, values) for flag, values in meant.flags)
    return Step(changes=(_gone(stray), *sets), why=meant.why, trust=_TRUST[meant.certainty])


def _ambiguous(found: Refused, stray: Stray) -> Meaning | None:
    """What an ambiguous abbreviation was short for: in the release that last took it, or the only one that fits."""
    meant = meaning(found.flags, stray.option, stray.texts)
    names = candidates(found.flags, stray.option)
    foreign = stray.option in FOREIGN and any(flag in names for flag, _ in meant.flags)
    if meant.certainty is Certainty.CERTAIN or foreign:
        return meant  # but not a likeness: an abbreviation is like every flag that it begins
    flags = [flag for name in names if (flag := found.flags.exact(name)) is not None]
    able = [flag for flag in flags if flag.bare == (not stray.texts) and choices.takes(flag, stray.texts)]
    listed = [flag for flag in able if flag.choices is not None]  # a flag that lists the value, before one of free text
    fits = [flag.name for flag in listed or able]
    if len(fits) != 1:
        return None
    why = f"of the flags that begin with {stray.option}, only {fits[0]} takes {' '.join(stray.texts) or 'no value'}"
    return Meaning(certainty=Certainty.LIKELY, flags=((fits[0], stray.texts),), why=why)


def _names_model(found: Refused, stray: Stray) -> bool:
    return bool(stray.option) and any(
        flag in ("--model-path", "--model") for flag, _ in meaning(found.flags, stray.option, stray.texts).flags
    )


def _lone_model(launch: Launch, found: Refused) -> Step | None:
    """The only word that stands alone and looks like a path or a repository is the model."""
    alone = [stray for stray in found.strays if not stray.option]
    if len(alone) != 1 or len(alone[0].texts) != 1 or "/" not in alone[0].texts[0]:
        return None
    path = alone[0].texts[0]
    why = f"{path} stands alone; the model goes behind --model-path"
    return Step(changes=(_gone(alone[0]), setting(launch, "--model-path", path)), why=why, trust=Applicability.REVIEW)


def _switched(found: Refused, wanted: tuple[str, bool] | None, stray: Stray | None = None) -> Step | None:
    """A switch that got a value: give it bare, or take it away."""
    flag = stray.after if stray else found.flag
    text = " ".join(stray.texts) if stray else found.text or ""
    if wanted is None or flag is None:
        return None
    name, given = wanted
    trust = Applicability.SAFE if text else Applicability.REVIEW
    if given:
        change = Change(op="set", name=name, old=text, new="")
        return Step(changes=(change,), why=f"{flag.name} takes no value: it is on where it is given", trust=trust)
    change = Change(op="remove", name=flag.name, old=text)
    return Step(changes=(change,), why=f"{flag.name} takes no value: it is off where it is left out", trust=trust)


def _replaced(launch: Launch, name: str, found: choices.Choice | None) -> Step | None:
    if found is None:
        return None
    return Step(changes=(setting(launch, name, found.value),), why=found.why, trust=_TRUST[found.certainty])


def _unglued(launch: Launch, found: Refused) -> Step | None:
    """A value with the next flag glued to it, as in `--tp-size 2--port 30000`."""
    flag, text = found.flag, found.text or ""
    glued = re.fullmatch(r"(?P<value>[^-\s][^\s]{0,200}?)(?P<flag>--[a-z][a-z0-9-]{1,80})", text)
    if flag is None or glued is None or found.flags.exact(glued["flag"]) is None:
        return None
    behind = next((stray for stray in found.strays if stray.after and stray.after.name == flag.name), None)
    changes = [_gone(behind)] if behind else []
    changes.append(setting(launch, flag.name, glued["value"]))
    changes.append(_set(launch, glued["flag"], behind.texts if behind else ()))
    why = f"a space is missing in front of {glued['flag']}"
    return Step(changes=tuple(changes), why=why, trust=Applicability.SAFE)


def _gone(stray: Stray) -> Change:
    return Change(op="remove", name=stray.option or stray.texts[0], old=shlex.join(stray.texts) or None)


def _set(launch: Launch, flag: str, texts: tuple[str, ...]) -> Change:
    return setting(launch, flag, texts[0] if len(texts) == 1 else shlex.join(texts) if texts else "")
