"""Sorts the changes of a launch by where they belong, and makes those of the command itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specwatch.domain import Change, Launch
from specwatch.errors import LaunchError
from specwatch.launch import container
from specwatch.launch.editing import edit
from specwatch.launch.flags import table
from specwatch.launch.locate import Located, locate
from specwatch.launch.parsing import ReadFile, needs_no_shell, parse

LONGEST = 131_071
"""The bytes of one argument that Linux starts a program with (execve(2): MAX_ARG_STRLEN), the final NUL left out."""


# Changes, by where they belong


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What changes ask of a target: its new words, variables around them, keys of `--config`, the container's options.

    `command` is the new text where the target's is text, else the new tokens; None where it stays as it is.
    """

    command: str | tuple[str, ...] | None = None
    variables: Mapping[str, str | None] = field(default_factory=dict)
    keys: tuple[Change, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def wanted(
    command: str | tuple[str, ...],
    env: Mapping[str, str],
    changes: Sequence[Change],
    sglang: str,
    *,
    around: bool = True,
    read_file: ReadFile | None = None,
    config: Callable[[Launch], frozenset[str]] = lambda _: frozenset(),
) -> Wanted:
    """Sort changes by where they belong, and make those of the command itself.

    `around` tells that the target can hold variables beside the command; `config` gives the arguments that a launch
    takes from its `--config` file. Raises LaunchError where a value does
    not fit its flag, what is to be changed is nowhere, or a variable that is not known decides what the launch is.
    """
    text = command if isinstance(command, str) else shlex.join(command)
    launch = parse(text, sglang, read_file=read_file, lenient=True)
    ours: list[Change] = []
    variables: dict[str, str | None] = {}
    keys: list[Change] = []
    options: dict[str, str] = {}
    located = locate(text)
    needs_no_shell(located, table(sglang))
    for change in changes:
        _fits(change, sglang)
        if change.op in ("set_env", "unset_env"):
            inside = change.name in located.environment()
            if inside or not around or (change.op == "set_env" and not _inherits(located)):
                ours.append(change)
            elif change.op == "unset_env" and change.name not in env:
                raise LaunchError(f"{change.name} is not set where the launch stands; unset it where it comes from")
            else:
                variables[change.name] = change.new if change.op == "set_env" else None
        elif change.around:
            options[container.KEYS[change.name]] = change.new or ""
        elif change.op == "set" and change.name in container.OPTIONS:
            if _creates(located):
                ours.append(change)
            else:
                options[change.name] = change.new or ""
        else:
            here, there = _by_file(launch, change, sglang, config(launch))
            ours += here
            keys += there
    after = edit(launch, ours, read_file=read_file, lenient=True).text if ours else text
    new = after if isinstance(command, str) else tuple(shlex.split(after))
    for word in new if isinstance(new, tuple) else ():
        if len(word.encode("utf-8", "surrogatepass")) > LONGEST:
            raise LaunchError(f"a word of the command would have more than {LONGEST} bytes, which Linux cannot start")
    return Wanted(command=None if new == command else new, variables=variables, keys=tuple(keys), options=options)


def _by_file(
    launch: Launch, change: Change, sglang: str, held: frozenset[str]
) -> tuple[Sequence[Change], Sequence[Change]]:
    """A change of a flag as changes of the command and of the file of `--config`, which sets the arguments `held`."""
    flags = table(sglang)
    try:
        dest = flags.resolve(change.name).dest
    except LaunchError:
        if change.op == "remove":
            return (change,), ()  # a word that no flag knows
        raise
    if dest not in held:
        return (change,), ()
    from specwatch.launch.parsing import typed_names

    typed = dest in typed_names(locate(launch.text), flags)
    if change.op == "remove":
        return ((change,) if typed else ()), (change,)
    return ((change,), ()) if typed else ((), (change,))


def _fits(change: Change, sglang: str) -> None:
    """Refuse a value that its flag cannot take, by the flag's own type and choices, and one that nothing can hold."""
    for text in (change.name, change.new or ""):
        if "\0" in text:
            raise LaunchError(f"{change.name[:80]!r}: a value holds a NUL character, which no program can be given")
        if len(text.encode("utf-8", "surrogatepass")) > LONGEST:
            raise LaunchError(f"{change.name[:80]}: a value of more than {LONGEST} bytes, which Linux cannot start")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise LaunchError(f"{change.name[:80]!r}: a value that is no Unicode text")
    if change.op == "set_env":
        if change.new is None:
            raise LaunchError(f"{change.name}: no value to set")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", change.name):
            raise LaunchError(f"{change.name[:80]!r} is no name of an environment variable")
    elif change.around and change.name not in container.KEYS:
        raise LaunchError(f"{change.name[:80]!r} is neither a flag nor a key of a container that can be set")
    elif change.op == "set" and change.name not in container.OPTIONS and not change.around:
        edit(parse(["python", "-m", "sglang.launch_server", "--model-path", "x"], sglang), [change])
    elif change.op == "set" and not re.fullmatch(r"[A-Za-z0-9.:_/-]+", change.new or ""):
        raise LaunchError(f"{change.name}: {(change.new or '')[:80]!r} is no value of an option of a container")


def _inherits(located: Located) -> bool:
    """Whether a variable that the whole command gets reaches the server: no container, ssh or sudo between."""
    for number, level in enumerate(located.levels):
        if level.remote or level.fresh:
            return False
        end = level.inner if level.inner is not None else located.program
        words = {arg.value.rsplit("/", 1)[-1] for arg in level.command.args[:end]}
        if words & {"sudo", "doas"} or number > len(located.levels):
            return False
    return True


def _creates(located: Located) -> bool:
    """Whether the command itself creates the container that the server runs in."""
    return any(level.container is not None for level in located.levels)
