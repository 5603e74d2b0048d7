"""Sets and unsets environment variables in a launch command, where its wrappers pass them on to the server."""

from __future__ import annotations

from specwatch.domain import Change
from specwatch.errors import LaunchError
from specwatch.launch.locate import Command, Located
from specwatch.launch.patches import Patch, cut, patched
from specwatch.launch.shell import quote


def set_env(located: Located, change: Change) -> str:
    """The text with a variable set: where it stands, as `-e` of a container program, else before the command."""
    if change.new is None:
        raise LaunchError(f"{change.name}: no value to set")
    if not change.name.isidentifier() or not change.name.isascii():
        raise LaunchError(f"{change.name[:80]!r} is no name of an environment variable")
    pair = f"{change.name}={quote(change.new)}"
    held = located.environment().get(change.name)
    if held is not None:
        level, spot = held
        if sum(arg.word is spot.word for arg in located.levels[level].command.args) <= 1:
            return patched(located, [Patch(level, spot.word.start, spot.word.end, spot.head + pair)])
    return patched(located, [_env_patch(located, pair)])


def _env_patch(located: Located, pair: str) -> Patch:
    number, level = len(located.levels) - 1, located.levels[-1]
    containers = [i for i, one in enumerate(located.levels) if one.container is not None]
    later_remote = containers and any(one.remote for one in located.levels[containers[-1] + 1 :])
    if containers and not later_remote:
        host = located.levels[containers[-1]]
        place = host.command.args[host.container or 0].word.end
        return Patch(containers[-1], place, place, f" -e {pair}")
    args = level.command.args
    words = [spot for spot in level.env if not spot.head and any(spot.word is arg.word for arg in args)]
    if words:
        return Patch(number, words[-1].word.end, words[-1].word.end, f" {pair}")
    wrappers = {arg.value.rsplit("/", 1)[-1] for arg in args[: located.program]}
    if level.remote or level.fresh or wrappers & {"sudo", "doas"}:
        place = args[located.program].word.start
        return Patch(number, place, place, f"env {pair} ")
    place = args[0].word.start
    return Patch(number, place, place, f"{pair} ")


def unset_env(located: Located, change: Change) -> str:
    """The text without a variable; LaunchError where the text does not set it, or not alone."""
    held = located.environment().get(change.name)
    if held is None:
        raise LaunchError(f"{change.name} is not set in the launch command; unset it where the server gets it from")
    level, spot = held
    command = located.levels[level].command
    if spot.statement is not None:
        start, end = spot.statement
        if command.text.startswith("\n", end) and (start == 0 or command.text[start - 1] == "\n"):
            end += 1
        elif command.text.startswith(("; ", " &&"), end):
            end += len("; ") if command.text.startswith("; ", end) else len(" && ")
        return patched(located, [Patch(level, start, end, "")])
    if spot.word.start not in command.edges:
        raise LaunchError(f"{change.name} is set together with others; change that line by hand")
    words = [spot.word]
    arg = next((i for i, one in enumerate(command.args) if one.word is spot.word), None)
    if arg is not None and not spot.head and arg and command.args[arg - 1].value in ("-e", "--env"):
        words.insert(0, command.args[arg - 1].word)
    elif arg and command.args[arg - 1].value == "env" and not _more(command, arg):
        words.insert(0, command.args[arg - 1].word)  # an `env` that has nothing left to set
    return patched(located, [cut(located, words, level)])


def _more(command: Command, arg: int) -> bool:
    """Whether `env` has something to do besides the assignment at `arg`."""
    follows = command.args[arg + 1].value if arg + 1 < len(command.args) else ""
    return follows.startswith("-") or "=" in follows
