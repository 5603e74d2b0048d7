"""The edit that a rule spells out itself: flags and variables to set or to take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specwatch.domain import Applicability, Change, Launch
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting, setting_env
from specwatch.launch.flags import table
from specwatch.lazy import compiled
from specwatch.releases import covers

_NUMBER = compiled(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_RENAMED = (("SGL_ENABLE_JIT_DEEPGEMM", "SGLANG_ENABLE_JIT_DEEPGEMM", ">=0.5.4"),)
"""Variables under older and newer name, and which releases read the newer one (deep_gemm_wrapper/configurer.py)."""

_OVERRIDING = ("--enable-flashinfer-mla", "--enable-flashmla")
"""Switches of releases before 0.4.6 that chose the backend whatever `--attention-backend` said."""


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
    if "--attention-backend" in set_flags:
        changes += removal(launch, _OVERRIDING)
    ceiling = Applicability.SAFE
    for names, value in set_flags.items():
        name = spelled(launch, names)
        if name is None:
            name, release = _spelled_later(launch, names)
            if not name:
                return  # this release has no such flag
            ceiling = Applicability.REVIEW
            why = f"{why} ({name} is known of sglang {release}, not of every {launch.sglang})"
        changes.append(setting(launch, name, value))
    changes += [setting_env(launch, variable(launch, name), value) for name, value in set_env.items()]
    changes += [
        Change(op="unset_env", name=name, old=launch.env[name]) for name in ask.edit.unset_env if name in launch.env
    ]
    changes = [one for one in changes if one.op in ("remove", "unset_env") or one.old != one.new]
    if changes:
        yield edited(launch, tuple(changes), why, ceiling)


def values_of(ask: Request) -> Mapping[str, object]:
    """What an edit may quote: facts of the check, and of the log only plain numbers."""
    numbers = {name: value for name, value in ask.captures.items() if _NUMBER.fullmatch(value)}
    return {**numbers, **{name: value for name, value in ask.verdict.facts.items() if value is not None}}


def variable(launch: Launch, name: str) -> str:
    """A variable by the name that the launch's release reads; as given where the release is not known."""
    for older, newer, since in _RENAMED:
        if name in (older, newer) and launch.sglang:
            return newer if covers(since, launch.sglang) else older
    return name


def spelled(launch: Launch, names: str) -> str | None:
    """The first of some alternative flags that the launch's release has."""
    known = {spelling for flag in table(launch.sglang).flags for spelling in flag.names}
    return next((name for name in names.split("|") if name in known), None)


def _spelled_later(launch: Launch, names: str) -> tuple[str, str]:
    """The same of the release that the launch's version may be nearer to, as a post-release is; with that release."""
    later = table(launch.sglang).later
    if later is None:
        return "", ""
    return next((name for name in names.split("|") if later.exact(name)), ""), later.release


def _removals(launch: Launch, names: tuple[str, ...]) -> Iterator[Change]:
    for name in names:
        if name.endswith("*"):
            yield from removal(launch, name[:-1])
        else:
            yield from removal(launch, tuple(name.split("|")))
