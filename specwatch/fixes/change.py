"""The edit that a rule spells out itself: flags and variables to set or to take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specwatch.domain import Change, Launch
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting, setting_env
from specwatch.launch.flags import table
from specwatch.lazy import compiled

_NUMBER = compiled(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


def change(ask: Request) -> Iterator[Proposal]:
    """Make the edit that the rule spells out, with the values that the check found."""
    values = values_of(ask)
    try:
        set_flags = {flag: value.format_map(values) for flag, value in ask.edit.set.items()}
        set_env = {name: value.format_map(values) for name, value in ask.edit.set_env.items()}
        why = ask.why.format_map(values)
    except (KeyError, IndexError, ValueError):
        return  # a value that the edit needs is not known
    launch = ask.launch
    if launch is None:
        changes = [Change(op="remove", name=name.split("|")[0]) for name in ask.edit.remove]
        changes += [Change(op="set", name=name.split("|")[0], new=value) for name, value in set_flags.items()]
        changes += [Change(op="set_env", name=name, new=value) for name, value in set_env.items()]
        changes += [Change(op="unset_env", name=name) for name in ask.edit.unset_env]
        yield Proposal(changes=tuple(changes), why=why)
        return
    changes = [*_removals(launch, ask.edit.remove)]
    for names, value in set_flags.items():
        name = spelled(launch, names)
        if name is None:
            return  # this release has no such flag
        changes.append(setting(launch, name, value))
    changes += [setting_env(launch, name, value) for name, value in set_env.items()]
    changes += [
        Change(op="unset_env", name=name, old=launch.env[name]) for name in ask.edit.unset_env if name in launch.env
    ]
    changes = [one for one in changes if one.op in ("remove", "unset_env") or one.old != one.new]
    if changes:
        yield edited(launch, tuple(changes), why)


def values_of(ask: Request) -> Mapping[str, object]:
    """What an edit may quote: facts of the check, and of the log only plain numbers."""
    numbers = {name: value for name, value in ask.captures.items() if _NUMBER.fullmatch(value)}
    return {**numbers, **{name: value for name, value in ask.verdict.facts.items() if value is not None}}


def spelled(launch: Launch, names: str) -> str | None:
    """The first of some alternative flags that the launch's release has."""
    known = {spelling for flag in table(launch.sglang).flags for spelling in flag.names}
    return next((name for name in names.split("|") if name in known), None)


def _removals(launch: Launch, names: tuple[str, ...]) -> Iterator[Change]:
    for name in names:
        if name.endswith("*"):
            yield from removal(launch, name[:-1])
        else:
            yield from removal(launch, tuple(name.split("|")))
