"""Changes a systemd unit by one drop-in, `UNIT.d/specwatch.conf`: the unit's own files stay as they are.

An earlier drop-in of ours is the starting point, so that changes add up; it is replaced as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from specwatch.errors import ConfigError, LaunchError
from specwatch.launch import words as shell_words
from specwatch.launch.layers import Splice, spliced, word_edits
from specwatch.launch.rewriting import Wanted
from specwatch.launch.targets import script, unitfile
from specwatch.launch.targets.base import Files, Rewrite, Targeted, is_server
from specwatch.launch.targets.systemd import Command, Unit, load, merged, read, wrapper
from specwatch.launch.words import Placed

NAME = "specwatch"
_HEADER = """\
# Written by specwatch: it changes how {unit} starts its server.
# To take it out: delete {what}, then run
#   systemctl daemon-reload && systemctl restart {unit}
"""
_RESET = """\
# ExecStart= below replaces that of the unit: what is changed there has no effect while this file is here.
"""


def plan(spec: str, ask: Callable[[Targeted], Wanted], files: Files) -> tuple[Rewrite, ...]:
    """The edits of a unit: a drop-in, and the script or environment file that holds words of the launch."""
    unit = load(spec, files)
    target = next(read(spec, files))
    want = ask(target)
    if want.options:
        raise LaunchError(f"{target.name}: {', '.join(want.options)} is an option of a container, and it starts none")
    if unit.dropins is None:
        raise LaunchError(f"{target.name}: no directory for a drop-in is known")
    variables = dict(want.variables)
    lines = list(unit.lines)
    edits: tuple[Rewrite, ...] = ()
    command = next((one for one in unit.commands() if is_server(" ".join(one.values))), None)
    if command is None:
        path = next(path for one in unit.commands() if (path := wrapper(one, files)) and is_server(files.text(path)))
        edits = files.rewrite(path, script.edited(files.text(path), want, str(path)))
    elif want.command is not None:
        new = want.command
        tokens = tuple(w.layer.value for w in shell_words.split(new)) if isinstance(new, str) else new
        lines[command.line], held = _line(unit, command, tokens)
        for name, value in held.items():
            source = unit.held.get(name)
            if source is None or source.parent == unit.dropins:
                variables[name] = value
            else:
                edits += files.rewrite(source, _in_file(files.text(source), source, name, value))
    return (*_written(unit, unit.dropins.absolute(), lines, variables, files), *edits)


# The command line


def _line(unit: Unit, command: Command, tokens: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The line of a command with other words, and the variables `$NAME` whose words are others now."""
    values: list[list[str]] = [[] for _ in command.words]
    for value, index in command.tokens:
        values[index].append(value)
    added: dict[int, list[str]] = {}
    gone: set[int] = set()
    lists: dict[int, list[str]] = {i: v for i, v in enumerate(values) if _is_list(unit, command, i)}
    counts = _positions(command)
    new: dict[int, str] = {}
    for edit in reversed(word_edits(command.values, tokens)):
        if edit.start == edit.end:
            index, inner = counts[edit.start - 1] if edit.start else (0, -1)
            if index in lists and edit.start < len(counts) and counts[edit.start][0] == index:
                lists[index] = [*lists[index][: inner + 1], *edit.new, *lists[index][inner + 1 :]]
            else:
                added[index] = [*edit.new, *added.get(index, [])]
            continue
        for place in reversed(range(edit.start, edit.end)):
            index, inner = counts[place]
            if index in lists:
                lists[index] = [*lists[index][:inner], *edit.new, *lists[index][inner + 1 :]]
            elif edit.new:
                new[index] = edit.new[0]
            else:
                gone.add(index)
    held = {_name(command, index): _joined(unit, command, index, got) for index, got in _changed(lists, values)}
    gone |= {index for index, got in _changed(lists, values) if not got}
    splices = []
    for index, word in enumerate(command.words):
        if index in gone:
            splices.append(Splice(word.start, word.end, ""))
        elif index in new:
            splices.append(Splice(word.start, word.end, _word(unit, command, word, new[index])))
        if index in added:
            text = "".join(f" {unitfile.quoted(one, variables=':' not in command.prefix)}" for one in added[index])
            splices.append(Splice(word.end, word.end, text))
    return spliced(command.raw, splices), held


def _positions(command: Command) -> list[tuple[int, int]]:
    """For each token the word that it comes from, and which of that word's tokens it is."""
    out: list[tuple[int, int]] = []
    for _, index in command.tokens:
        inner = out[-1][1] + 1 if out and out[-1][0] == index else 0
        out.append((index, inner))
    return out


def _is_list(unit: Unit, command: Command, index: int) -> bool:
    name = unitfile.listed(command.words[index].layer.value)
    return name is not None and name in unit.env and index > 0 and ":" not in command.prefix


def _name(command: Command, index: int) -> str:
    return unitfile.listed(command.words[index].layer.value) or ""


def _changed(lists: Mapping[int, list[str]], values: Sequence[list[str]]) -> Iterator[tuple[int, list[str]]]:
    yield from ((index, got) for index, got in lists.items() if got != values[index])


def _joined(unit: Unit, command: Command, index: int, tokens: Sequence[str]) -> str:
    """The value of a variable `$NAME` that gives other words."""
    name = _name(command, index)
    uses = re.findall(rf"\$\{{?{name}\b", "\n".join((*unit.lines, *unit.others)))
    if len(uses) != 1:
        raise LaunchError(f"{unit.where}: ${name} is used {len(uses)} times in the unit; change it by hand")
    if any(letter in token for token in tokens for letter in "\\\n'\""):
        raise LaunchError(f"{unit.where}: ${name} cannot hold a value with quotes or line ends; change it by hand")
    text = unit.env[name]
    old = shell_words.split(text)
    edits = word_edits([word.layer.value for word in old], list(tokens))
    return spliced(text, shell_words.splices(text, old, edits)) if tokens else ""


def _word(unit: Unit, command: Command, word: Placed, new: str) -> str:
    """A word as it is written once it means another value: quotes, specifiers and variables stay where they can."""
    raw = command.raw[word.start : word.end]
    filled = ":" not in command.prefix
    layer = unitfile.expanded(word.layer.value, unit.env) if filled else None
    value = spliced(word.layer.value, layer.changed(new)) if layer else new
    inside = [Splice(s.start - word.start, s.end - word.start, s.new) for s in word.layer.changed(value)]
    bare = raw[len(command.prefix) :] if word.start == 0 and command.prefix else raw
    again = spliced(bare, inside)
    try:
        same = [one.layer.value for one in unitfile.words(again, unit.specifiers)] == [value]
    except ConfigError:
        same = False
    if same and again != ";":
        return again
    return unitfile.quoted(value, variables=False) if layer else unitfile.quoted(new, variables=False)


def _in_file(text: str, path: Path, name: str, value: str) -> str:
    """An environment file with another value of a variable, in the quotes that it had where they can hold it."""
    found = [one for one in unitfile.of_file(text) if one[0] == name]
    if len(found) != 1:
        raise LaunchError(f"{path}: sets {name} {len(found)} times; change it by hand")
    _, start, end, old = found[0]
    raw = text[start:end]
    simple = re.fullmatch(r"[\w ./:=@%,+-]*", value, re.ASCII) and value == value.strip()
    if simple and raw in (old, f"'{old}'", f'"{old}"'):
        return text[:start] + raw.replace(old, value) + text[end:]
    return text[:start] + unitfile.in_file(value) + text[end:]


# The drop-in


def _written(
    unit: Unit, folder: Path, lines: Sequence[str], variables: Mapping[str, str | None], files: Files
) -> tuple[Rewrite, ...]:
    conf, env_file = folder / f"{NAME}.conf", folder / f"{NAME}.env"
    base = merged(
        [one for one in unit.texts if one[0] is None or one[0].absolute() != conf],
        unit.name,
        unit.where,
        unit.dropins,
        files,
    )
    own, own_file, unset = _own(unit, conf, env_file, files)
    for name, value in variables.items():
        own.pop(name, None)
        own_file.pop(name, None)
        unset = [one for one in unset if one != name]
        if value is None:
            unset += [name] if name in base.env else []
        elif name in base.held or not value.isprintable():
            own_file[name] = value  # EnvironmentFile= wins over Environment=, the last file over earlier ones
        else:
            own[name] = value
    text = _text(unit, base, own, {env_file: tuple(own_file)} if own_file else {}, unset, lines)
    listing = "".join(f"{name}={unitfile.in_file(value)}\n" for name, value in own_file.items())
    what = "this file" if not own_file else f"this file and {env_file.name} beside it"
    header = _HEADER.format(unit=unit.name, what=what)
    listed = f"# Written by specwatch, for {conf.name} beside it.\n{listing}" if listing else None
    mode = _mode(unit)
    return (
        *files.rewrite(conf, f"{header}{text}" if text else None, mode),
        *files.rewrite(env_file, listed, mode),
    )


def _mode(unit: Unit) -> int:
    """No more may read what is copied from the unit's files than may read those: a key may stand there."""
    mode = 0o644
    for path in (*(one for one, _ in unit.texts if one is not None), *unit.held.values()):
        with suppress(OSError):
            mode &= path.stat().st_mode
    return mode | 0o600


def _own(unit: Unit, conf: Path, env_file: Path, files: Files) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What an earlier drop-in of ours sets and unsets."""
    own: dict[str, str] = {}
    unset: list[str] = []
    text = files.text(conf) if files.is_file(conf) else ""
    for key, value in unitfile.settings(text):
        if key == "Environment":
            own |= unitfile.assigned(value, unit.specifiers)
        elif key == "UnsetEnvironment":
            unset += value.split()
    listing = files.text(env_file) if files.is_file(env_file) else ""
    return own, {name: value for name, _, _, value in unitfile.of_file(listing)}, unset


def _text(
    unit: Unit,
    base: Unit,
    own: Mapping[str, str],
    env_file: Mapping[Path, Sequence[str]],
    unset: Sequence[str],
    lines: Sequence[str],
) -> str:
    """The drop-in without its header; empty where it would change nothing. `env_file`: its file, what that sets."""
    out = [f"Environment={_assignment(name, value)}\n" for name, value in own.items()]
    given = {*own}
    for path, names in env_file.items():
        out.append(f"EnvironmentFile={str(path).replace('%', '%%')}\n")
        given |= {*names}
    if set(base.unset) & given:  # what the unit takes out is set here
        out.append("UnsetEnvironment=\n")
        unset = [*(name for name in base.unset if name not in given), *unset]
    out += [f"UnsetEnvironment={name}\n" for name in dict.fromkeys(unset)]
    if [_raw_words(line, unit) for line in lines] != [_raw_words(line, unit) for line in base.lines]:
        out += [_RESET, "ExecStart=\n", *(f"ExecStart={_laid_out(line, unit, base)}\n" for line in lines)]
    return f"[Service]\n{''.join(out)}" if out else ""


def _raw_words(line: str, unit: Unit) -> list[str]:
    """A line as its words are written, whatever stands between them."""
    return [line[word.start : word.end] for word in unitfile.words(line, unit.specifiers)]


def _laid_out(line: str, unit: Unit, base: Unit) -> str:
    """A line that is another one than the unit's, each flag on a line of its own."""
    return line if line in base.lines else unitfile.laid_out(line, unitfile.words(line, unit.specifiers))


def _assignment(name: str, value: str) -> str:
    return unitfile.quoted(f"{name}={value}", variables=False)
