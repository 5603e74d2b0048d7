"""Changes a launch command token by token: everything that is not changed stays byte for byte."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from specwatch.domain import Change, Launch, Value
from specwatch.errors import LaunchError
from specwatch.launch import container
from specwatch.launch.argparser import Given
from specwatch.launch.convert import Refusal
from specwatch.launch.environment import set_env, unset_env
from specwatch.launch.flags import Flag, FlagTable, table
from specwatch.launch.locate import Arg, Located, locate
from specwatch.launch.parsing import ReadFile, Reading, argv, build, read, typed_names, typed_values
from specwatch.launch.patches import Patch, cut, outermost, patched
from specwatch.launch.shell import Word, quote
from specwatch.launch.yamlconfig import config_path

MAX_VALUE = 1_000_000


def edit(
    launch: Launch, changes: Sequence[Change], *, read_file: ReadFile | None = None, lenient: bool = False
) -> Launch:
    """The launch with changes made, in their order, its values read again and `recorded` dropped.

    `set` replaces the value where the flag stands (several occurrences become the last one) or appends the flag;
    `new` is one value, or for flags that take several the values as shell words; `""` is a bare flag. `remove`,
    `set_env` and `unset_env` take out what the command itself holds. Raises LaunchError where a change cannot be made
    on the command (it comes from a configuration file or a variable, or is not there), and with `refusal` where sglang
    would refuse the result. Without `read_file` the values of a `--config` file are taken over from `launch`. With
    `lenient` a result that sglang would still refuse comes back as `parse` reads it.
    """
    text, around = launch.text or command_text(launch), launch.container
    for change in changes:
        if change.around:
            around = container.set_key(around, change)
        else:
            text = _apply(text, launch.sglang, change, launch)
    return replace(_rebuilt(launch, text, read_file, lenient=lenient), container=around)


def command_text(launch: Launch) -> str:
    """The launch as one line of shell: environment first, every token quoted where it has to be."""
    given = _inside(launch.argv) if launch.argv else {}
    before = [f"{name}={quote(value)}" for name, value in launch.env.items() if given.get(name) != value]
    return " ".join([*before, *(quote(token) for token in launch.argv)])


def _inside(tokens: Sequence[str]) -> dict[str, str]:
    """The variables that the tokens set themselves, such as `-e K=V` of docker."""
    return {name: spot.value for name, (_, spot) in locate(shlex.join(tokens)).environment().items()}


def _rebuilt(launch: Launch, text: str, read_file: ReadFile | None, *, lenient: bool) -> Launch:
    shown = text if launch.text else ""
    located = locate(text)
    flags = table(launch.sglang)
    lost = read(located, flags, None, strict=False)
    path = _config(lost)
    if path is None or read_file is not None or lenient:
        built = build(text, launch.sglang, text=shown, read_file=read_file, lenient=lenient)
        return replace(built, origin=launch.origin, gpu=launch.gpu)
    # The file is not at hand: its values are those that the launch had and the command does not set.
    values = _taken_over(launch, located, flags)
    return Launch(
        sglang=launch.sglang,
        argv=argv(located),
        env=MappingProxyType({name: spot.value for name, (_, spot) in located.environment().items()}),
        text=shown,
        values=MappingProxyType(values),
        origin=launch.origin,
        gpu=launch.gpu,
    )


def _config(reading: Reading) -> str | None:
    if reading.table.exact("--config") is None:
        return None
    try:
        return config_path(reading.tokens)
    except Refusal:
        return None


def _taken_over(launch: Launch, located: Located, flags: FlagTable) -> dict[str, Value]:
    """The values of a command whose configuration file is not at hand, by those that the launch had."""
    before = typed_names(locate(launch.text or command_text(launch)), flags)
    after = typed_values(located, flags)
    gone = [dest for dest in before if dest not in after]
    if gone:
        raise LaunchError(f"{', '.join(gone)}: the file of --config may set it too, and it was not read; edit both")
    return {**launch.values, **after}


# One change


def _apply(text: str, sglang: str, change: Change, launch: Launch) -> str:
    for value in (change.name, change.new or ""):
        if "\0" in value:
            raise LaunchError(f"{change.name[:80]!r}: a value holds a NUL character, which no command can pass on")
        if len(value) > MAX_VALUE:
            raise LaunchError(f"{change.name[:80]}: a value of {len(value)} characters, more than {MAX_VALUE}")
    located = locate(text)
    if change.op in ("set_env", "unset_env"):
        return set_env(located, change) if change.op == "set_env" else unset_env(located, change)
    if change.op == "set" and change.name in container.OPTIONS:
        return container.set_option(located, change)
    reading = read(located, table(sglang), None, strict=False)
    if change.op == "set":
        return _set(reading, change)
    if change.op == "remove":
        return _remove(reading, change, launch)
    raise LaunchError(f"unknown change {change.op!r}; expected set, remove, set_env or unset_env")


def _set(reading: Reading, change: Change) -> str:
    flag = reading.table.resolve(change.name)
    name, values = _option(flag, reading.table, change)
    same = _given(reading, flag.dest)
    fixed = [one for one in same if not _editable(reading, one)]
    if not same or fixed:
        # What a variable holds cannot be edited here, but the last of several flags wins.
        return patched(reading.located, [_append(reading.located, _written(name, flag, values))])
    reading = _dropped(reading, flag.dest, keep=1)
    last = _given(reading, flag.dest)[-1]
    return patched(reading.located, [_replace_value(reading, last, name, flag, values)])


def _given(reading: Reading, dest: str) -> list[Given]:
    """Every place on the command line that sets an argument."""
    return [one for one in reading.parsed.given if one.flag.dest == dest and reading.typed(one)]


def _dropped(reading: Reading, dest: str, *, keep: int) -> Reading:
    """The command with all but the last `keep` flags of an argument taken out, one after the other."""
    while len(found := _given(reading, dest)) > keep:
        words = [arg.word for arg in (*reading.args(found[0]), *_behind(reading, found[0]))]
        text = patched(reading.located, [cut(reading.located, words)])
        reading = read(locate(text), reading.table, None, strict=False)
    return reading


def _behind(reading: Reading, given: Given) -> tuple[Arg, ...]:
    """The words behind a flag that takes no value, which nothing else takes either: they were meant for it."""
    out: list[Arg] = []
    at = given.at + given.taken + 1
    while given.flag.bare and at in reading.parsed.extras and not reading.tokens[at].startswith("-"):
        place = reading.places[at]
        if place is None:
            break
        out.append(reading.located.arguments[place])
        at += 1
    return tuple(out)


def _option(flag: Flag, flags: FlagTable, change: Change) -> tuple[str, list[str]]:
    """The spelling to write, and the values behind it."""
    found = flags.match(change.name.split("=", 1)[0])
    name = found[1] if found else flag.name
    new = change.new if change.new is not None else ""
    if flag.bare or flag.action == "optional":
        if new != "":
            raise LaunchError(f"{name} takes no value, and {new[:80]!r} was to be set")
        return name, []
    if flag.many:
        try:
            return name, shlex.split(new)
        except ValueError as error:
            raise LaunchError(f"{name}: expected values as shell words, got {new[:80]!r}: {error}") from None
    if new == "" and flag.nargs is None and change.new is None:
        raise LaunchError(f"{name} needs a value")
    if new == "":
        if flag.nargs == "?":
            return name, []
        raise LaunchError(f"{name} needs a value; an empty one means a flag without value")
    return name, [new]


def _written(name: str, flag: Flag, values: list[str]) -> str:
    """A flag and its values as shell text."""
    if len(values) == 1 and _like_option(values[0]):
        return f"{name}={quote(values[0])}" if not flag.many else _many_refused(name, values[0])
    if any(_like_option(value) for value in values):
        return _many_refused(name, next(value for value in values if _like_option(value)))
    return " ".join([name, *map(quote, values)])


def _many_refused(name: str, value: str) -> str:
    raise LaunchError(f"{name}: a value that begins with `-` ({value[:80]!r}) cannot stand among several")


def _like_option(value: str) -> bool:
    """Whether the parser might take a value for an option, so that it must be written behind `=`."""
    return value.startswith("-") and len(value) > 1


def _editable(reading: Reading, given: Given) -> bool:
    return all(arg.whole and not _from_variable(arg, given, reading) for arg in reading.args(given))


def _from_variable(arg: Arg, given: Given, reading: Reading) -> bool:
    """Whether the option itself (not only its value) is spelled by a variable."""
    place = reading.places[given.at]
    is_option = place is not None and reading.located.arguments[place] is arg
    return is_option and any(piece.expanded for piece in arg.word.pieces) and not arg.value.startswith("--")


def _replace_value(reading: Reading, given: Given, name: str, flag: Flag, values: list[str]) -> Patch:
    level = len(reading.located.levels) - 1
    args = reading.args(given)
    option = args[0].word
    positional = reading.places[given.at] is None  # `sglang serve MODEL`
    if positional:
        if _like_option(values[0]):
            return Patch(level, option.start, args[-1].word.end, _written(name, flag, values))
        return Patch(level, args[0].word.start, args[-1].word.end, quote(values[0]))
    if given.flag.name != flag.name or given.flag.bare or not values:
        end = (args + _behind(reading, given))[-1].word.end
        return Patch(level, option.start, end, _written(name, flag, values))
    if len(values) == 1 and given.explicit is not None and not flag.many:
        head = option.value.split("=", 1)[0]
        return Patch(level, option.start, option.end, f"{head}={quote(values[0])}")
    if given.explicit is not None or any(_like_option(value) for value in values) or not given.taken:
        return Patch(level, option.start, args[-1].word.end, _written(name, flag, values))
    return Patch(level, args[1].word.start, args[-1].word.end, " ".join(map(quote, values)))


def _append(located: Located, written: str) -> Patch:
    """Add a flag behind the last argument, on a line of its own where the last flag has one."""
    text = located.command.text
    args = located.command.args
    last = args[-1].word
    line = text.rfind("\n", 0, last.start) + 1
    options = [arg.word for arg in located.arguments if arg.word.start >= line and arg.value.startswith("--")]
    own_line = options and not text[line : options[0].start].strip()
    rest = text[last.end : _line_end(text, last.end)].strip()
    if own_line and line and rest in ("", "\\"):
        indent = text[line : options[0].start]
        continued = text[:line].rstrip("\r\n").endswith("\\")
        broken = " \\\n" if continued else "\n"
        return Patch(len(located.levels) - 1, last.end, last.end, f"{broken}{indent}{written}")
    return Patch(len(located.levels) - 1, last.end, last.end, f" {written}")


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _remove(reading: Reading, change: Change, launch: Launch) -> str:
    flag = _known(reading.table, change.name)
    found = _given(reading, flag.dest) if flag is not None else []
    if not found:
        stray = _stray(reading, change.name)
        if stray:
            return patched(reading.located, [cut(reading.located, stray)])
        if flag is not None and flag.dest in launch.values:
            path = _config(reading)
            where = f"the file {path} of --config: edit that file" if path else "elsewhere than the command"
            raise LaunchError(f"{change.name} comes from {where}")
        raise LaunchError(f"{change.name} is not in the launch command")
    for one in found:
        if not _editable(reading, one):
            word = next(arg.word for arg in reading.args(one) if any(piece.expanded for piece in arg.word.pieces))
            raw = reading.located.command.text[word.start : word.end]
            raise LaunchError(f"{change.name} comes from {raw}; change it where that is set")
    return outermost(_dropped(reading, found[0].flag.dest, keep=0).located)


def _stray(reading: Reading, name: str) -> list[Word]:
    """The words of an option that the parser does not know, with the values behind it."""
    extras = list(reading.parsed.extras)
    for place, index in enumerate(extras):
        if reading.tokens[index].split("=", 1)[0] == name:
            taken = [index]
            while (
                place + 1 < len(extras)
                and extras[place + 1] == taken[-1] + 1
                and not reading.tokens[extras[place + 1]].startswith("-")
            ):
                place += 1
                taken.append(extras[place])
            places = [p for i in taken if (p := reading.places[i]) is not None]
            return [reading.located.arguments[p].word for p in places]
    return []


# For authors of fixes


def typed_flags(launch: Launch, prefix: str = "--") -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The flags on the command line itself whose name begins with `prefix`: full name, and its tokens as typed."""
    reading = _reading(launch)
    return tuple(
        (one.flag.name, tuple(arg.value for arg in reading.args(one)))
        for one in reading.parsed.given
        if one.flag.name.startswith(prefix) and reading.typed(one)
    )


def removal(launch: Launch, names: str | Sequence[str]) -> tuple[Change, ...]:
    """One `remove` for each flag that is typed and begins with a prefix, or is one of some names."""
    reading = _reading(launch)
    wanted: set[str] | None = None
    if not isinstance(names, str):
        wanted = {flag.dest for name in names if (flag := _known(reading.table, name)) is not None}
    out: dict[str, Change] = {}
    for one in reading.parsed.given:
        takes = one.flag.name.startswith(names) if isinstance(names, str) else one.flag.dest in (wanted or ())
        if takes and reading.typed(one):
            out[one.flag.dest] = Change(op="remove", name=one.flag.name, old=_old(one))
    return tuple(out.values())


def setting(launch: Launch, flag: str, value: Value = "") -> Change:
    """A `set` of one flag, its present value filled in. True is a bare flag; a list gives several values."""
    reading = _reading(launch)
    found = reading.table.resolve(flag)
    old = [_old(one) for one in reading.parsed.given if one.flag.dest == found.dest]
    if not old and found.dest in launch.values:
        old = [value_text(launch.values[found.dest])]
    name = flag if flag.startswith("--no-") and flag in found.names else found.name
    return Change(op="set", name=name, old=old[-1] if old else None, new=value_text(value))


def setting_env(launch: Launch, name: str, value: str) -> Change:
    """A `set_env` of one variable, its present value filled in."""
    return Change(op="set_env", name=name, old=launch.env.get(name), new=value)


def value_text(value: Value) -> str:
    """A value as it is written behind its flag: nothing for True, JSON for an object, words for a list."""
    if value is True or value is None:
        return ""
    if isinstance(value, list):
        return shlex.join(value_text(item) for item in value)
    if isinstance(value, dict):
        import json

        return json.dumps(value)
    return str(value)


def _reading(launch: Launch) -> Reading:
    return read(locate(launch.text or command_text(launch)), table(launch.sglang), None, strict=False)


def _known(flags: FlagTable, name: str) -> Flag | None:
    try:
        return flags.resolve(name)
    except LaunchError:
        return None


def _old(given: Given) -> str:
    return given.texts[0] if len(given.texts) == 1 else shlex.join(given.texts)
