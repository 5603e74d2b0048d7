"""Launch commands of SGLang: read them, change them without loss, write them. The one module that others import."""

from __future__ import annotations

import shlex

from specwatch.domain import Launch
from specwatch.errors import LaunchError
from specwatch.launch.container import container_setting
from specwatch.launch.editing import command_text, edit, removal, setting, setting_env, typed_flags
from specwatch.launch.flags import Flag
from specwatch.launch.locate import Located, locate
from specwatch.launch.meaning import Certainty, Meaning, meaning, switch
from specwatch.launch.parsing import parse
from specwatch.launch.refusals import Refused, Stray, candidates, refused, takes
from specwatch.launch.shell import quote

__all__ = [
    "Certainty",
    "Flag",
    "Meaning",
    "Refused",
    "Stray",
    "candidates",
    "container_setting",
    "edit",
    "meaning",
    "parse",
    "refused",
    "removal",
    "render",
    "setting",
    "setting_env",
    "switch",
    "takes",
    "typed_flags",
]


def render(launch: Launch, width: int | None = None) -> str:
    """The launch as shell text that can be pasted: environment first, every token quoted where it has to be.

    One line; with `width` it is broken with ` \\` between flags, so that no line is longer than that where tokens
    allow. Words that hold variables which only a shell knows are written as they were typed.
    """
    groups = _groups(launch)
    line = " ".join(" ".join(group) for group in groups)
    if width is None or len(line) <= width:
        return line
    lines: list[str] = []
    current = ""
    for group in groups:
        piece = " ".join(group)
        indent = "  " if lines else ""
        if current and len(indent) + len(current) + len(piece) + 3 > width:
            lines.append(indent + current)
            current = piece
        else:
            current = f"{current} {piece}" if current else piece
    lines.append(("  " if lines else "") + current)
    return " \\\n".join(lines)


def _groups(launch: Launch) -> list[list[str]]:
    """Words that belong together: the assignments and the program, then each flag with its values."""
    words = _words(launch)
    out: list[list[str]] = [[]]
    for raw, starts in words:
        if starts:
            out.append([])
        out[-1].append(raw)
    return [group for group in out if group]


def _words(launch: Launch) -> list[tuple[str, bool]]:
    plain = command_text(launch)
    try:
        located = locate(launch.text) if launch.text else None
    except LaunchError:
        located = None
    raw = _open_words(located) if located else {}
    out: list[tuple[str, bool]] = []
    begun = False
    for value in shlex.split(plain):
        word = raw.get(value) or _shell_word(value)
        flag = value.startswith("-") and begun
        begun = begun or value in ("sglang.launch_server", "serve", "run") or value.endswith("launch_server.py")
        out.append((word, flag))
    return out


def _shell_word(value: str) -> str:
    name, equals, rest = value.partition("=")
    # An assignment is one only while its name stands outside of quotes.
    return f"{name}={quote(rest)}" if equals and name.isidentifier() else quote(value)


def _open_words(located: Located) -> dict[str, str]:
    command = located.levels[0].command
    return {arg.value: command.text[arg.word.start : arg.word.end] for arg in command.args if arg.open and arg.whole}
