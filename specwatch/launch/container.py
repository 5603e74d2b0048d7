"""What a server's crash can hang on in the container around it: options of `docker run`, keys of a Compose service."""

from __future__ import annotations

from specwatch.domain import Change, Container, Launch
from specwatch.errors import LaunchError
from specwatch.launch.locate import Arg, Level, Located, locate
from specwatch.launch.patches import Patch, patched
from specwatch.launch.shell import quote

OPTIONS = frozenset({"--shm-size", "--ipc"})
"""The options of `docker run`, `podman run` and `nerdctl run` that can be set; none of them is one of SGLang's."""

KEYS = {"shm_size": "--shm-size", "ipc": "--ipc"}
"""The keys of a Compose service that are the same as an option of `docker run`."""

_CREATES = ("run", "create")


def container_setting(launch: Launch, option: str, value: str) -> Change | None:
    """A `set` of an option of the container, its present value filled in; None where there is none that can be set.

    It is spelled as where it stands: `--shm-size` of `docker run`, `shm_size` of a Compose service.
    """
    found = _container_of(launch)
    if found is not None:
        return Change(op="set", name=option, old=_value(_given(found, option)), new=value)
    around = launch.container
    if around is None or around.kind != "compose":
        return None
    key = next(key for key, name in KEYS.items() if name == option)
    return Change(op="set", name=key, old=around.options.get(key), new=value)


def _container_of(launch: Launch) -> Level | None:
    """The `docker run` in a launch's own text."""
    if not launch.text:
        return None
    try:
        found = _container(locate(launch.text))
    except LaunchError:
        return None
    return found[1] if found else None


def set_key(around: Container | None, change: Change) -> Container:
    """The container with a key of its service set. Raises LaunchError where there is no service around the launch."""
    if around is None or change.name not in KEYS:
        raise LaunchError(f"{change.name[:80]} is a key of a Compose service, and the launch is started by none")
    return around._replace(options={**around.options, change.name: change.new or ""})


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
