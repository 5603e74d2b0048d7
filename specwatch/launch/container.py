"""Options of `docker run` that a server's crash can hang on: read and set them where a launch is started that way."""

from __future__ import annotations

from specwatch.domain import Change, Launch
from specwatch.errors import LaunchError
from specwatch.launch.locate import Arg, Level, Located, locate
from specwatch.launch.patches import Patch, patched
from specwatch.launch.shell import quote

OPTIONS = frozenset({"--shm-size", "--ipc"})
"""The options of `docker run`, `podman run` and `nerdctl run` that can be set; none of them is one of SGLang's."""

_CREATES = ("run", "create")


def container_setting(launch: Launch, option: str, value: str) -> Change | None:
    """A `set` of an option of the container, its present value filled in; None where there is no container."""
    if not launch.text:
        return None
    try:
        located = locate(launch.text)
    except LaunchError:
        return None
    found = _container(located)
    if found is None:
        return None
    return Change(op="set", name=option, old=_value(_given(found[1], option)), new=value)


def set_option(located: Located, change: Change) -> str:
    """The text with an option of the container set: where it stands, else right behind `run`."""
    found = _container(located)
    if found is None:
        raise LaunchError(f"{change.name} is an option of `docker run`, and the launch creates no container")
    number, level = found
    given = _given(level, change.name)
    written = quote(change.new or "")
    if given:
        last = given[-1]
        attached = given[0].value.startswith(f"{change.name}=")
        new = f"{change.name}={written}" if attached else written
        return patched(located, [Patch(number, last.word.start, last.word.end, new)])
    place = level.command.args[level.container or 0].word.end
    return patched(located, [Patch(number, place, place, f" {change.name} {written}")])


def _container(located: Located) -> tuple[int, Level] | None:
    for number, level in enumerate(located.levels):
        if level.container is not None and level.command.args[level.container].value in _CREATES:
            return number, level
    return None


def _given(level: Level, option: str) -> tuple[Arg, ...]:
    """The words that give an option before the server's own command begins: one (`--x=y`) or two (`--x y`)."""
    args = level.command.args
    for place in range((level.container or 0) + 1, len(args)):
        value = args[place].value
        if value.startswith(f"{option}="):
            return (args[place],)
        if value == option and place + 1 < len(args):
            return (args[place], args[place + 1])
        if value in ("-m", "serve") or args[place].value.startswith(("python", "bash", "sh ")):
            break
    return ()


def _value(given: tuple[Arg, ...]) -> str | None:
    if not given:
        return None
    return given[-1].value if len(given) == 2 else given[0].value.partition("=")[2]
