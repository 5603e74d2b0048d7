"""The text of unit files: settings, words, specifiers, variables, as systemd 252 reads them.

Mirrors systemd.syntax(7), systemd.service(5) "COMMAND LINES" and systemd.exec(5) "EnvironmentFile="; in the source
conf-parser.c: config_parse, extract-word.c: extract_first_word, env-util.c: replace_env_argv, env-file.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from specwatch.errors import ConfigError
from specwatch.launch.layers import Layer, Part
from specwatch.launch.words import Placed
from specwatch.lazy import compiled

_ESCAPE = compiled(r"\\(x[0-9A-Fa-f]{2}|[0-7]{3}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[abfnrtvs\\\"'])")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_VARIABLE = re.compile(r"\$\$|\$\{([^}]*)\}")
_BARE = compiled(r"[\w./:@=+,-]+", re.ASCII)
_BLANKS = " \t\n\r"
PREFIXES = compiled(r"[-@:+!|]*")


def settings(text: str, section: str = "[Service]") -> Iterator[tuple[str, str]]:
    """The settings of a section, continued lines joined by a blank, comments between them left out."""
    now, pending, continued = "", "", False
    for raw in re.split(r"[\n\r]", text.removeprefix("\ufeff")):
        line = raw.lstrip(" \t")
        if line.startswith(("#", ";")):
            continue
        if len(line) - len(line.rstrip("\\")) & 1:
            pending, continued = f"{pending}{line[:-1]} ", True
            continue
        whole, pending = pending + line, ""
        was, continued = continued, False
        if not was and whole.strip().startswith("[") and whole.strip().endswith("]"):
            now = whole.strip()
            continue
        key, equals, value = whole.partition("=")
        if equals and now == section:
            yield key.strip(), value.strip(" \t")


def words(value: str, specifiers: Mapping[str, str]) -> list[Placed]:
    """The words of a setting, quotes and escapes taken off, specifiers filled in. Raises ConfigError."""
    out: list[Placed] = []
    at = 0
    while True:
        while at < len(value) and value[at] in _BLANKS:
            at += 1
        if at >= len(value):
            return out
        word = _word(value, at, specifiers)
        out.append(word)
        at = word.end


def _word(text: str, start: int, specifiers: Mapping[str, str]) -> Placed:
    parts: list[Part] = []
    mark = ""
    at = begin = start

    def flush(end: int) -> None:
        if begin < end:
            parts.append(Part(begin, end, text[begin:end]))

    while at < len(text) and (mark or text[at] not in _BLANKS):
        letter = text[at]
        escape = _ESCAPE.match(text, at) if letter == "\\" else None
        if letter == mark or (not mark and letter in "'\""):
            flush(at)
            mark = "" if mark else letter
            at = begin = at + 1
        elif escape:
            flush(at)
            parts.append(Part(at, escape.end(), _meant(escape[1]), whole=True))
            at = begin = escape.end()
        elif letter == "%" and at + 1 < len(text) and text[at + 1] in specifiers:
            flush(at)
            parts.append(Part(at, at + 2, specifiers[text[at + 1]], whole=True))
            at = begin = at + 2
        else:
            at += 1
    if mark:
        raise ConfigError(f"a quote is never closed in {text[start : start + 80]!r}")
    flush(at)
    return Placed(start, at, Layer(tuple(parts), lambda new, _: _escaped(new.replace("%", "%%"), "\"'\\")))


def _meant(escape: str) -> str:
    if escape[0] in "xuU":
        return chr(int(escape[1:], 16))
    return chr(int(escape, 8)) if escape[0] in "0123" and len(escape) == 3 else _LETTERS.get(escape, escape)


def quoted(value: str, *, variables: bool = True) -> str:
    """A value as one word of a setting, nothing in it a specifier or (`variables`) a reference."""
    doubled = value.replace("%", "%%")
    doubled = doubled.replace("$", "$$") if variables else doubled
    if _BARE.fullmatch(doubled):
        return doubled
    inside = _escaped(doubled, '"\\')
    return f'"{inside}"'


def _escaped(text: str, special: str) -> str:
    out = []
    for letter in text:
        if letter in special:
            out.append(f"\\{letter}")
        elif letter < " " or letter == "\x7f":
            out.append({"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(letter, f"\\x{ord(letter):02x}"))
        else:
            out.append(letter)
    return "".join(out)


# Variables


def expanded(word: str, env: Mapping[str, str]) -> Layer:
    """`${NAME}` filled in and `$$` made a dollar; a variable that is not known stays as it is written.

    There are no defaults: systemd takes `${NAME:-x}` for a variable of that whole name, which nothing can set.
    """
    parts: list[Part] = []
    at = 0
    for found in _VARIABLE.finditer(word):
        if found.start() > at:
            parts.append(Part(at, found.start(), word[at : found.start()]))
        unknown = found[0] if settable(found[1] or "") else ""
        value = "$" if found[0] == "$$" else env.get(found[1], unknown)
        parts.append(Part(found.start(), found.end(), value, whole=True))
        at = found.end()
    if at < len(word):
        parts.append(Part(at, len(word), word[at:]))
    return Layer(tuple(parts), lambda new, _: new.replace("$", "$$"))


def open_variables(word: str, env: Mapping[str, str]) -> list[str]:
    """The variables of a word that nothing known sets."""
    names = [found[1] for found in _VARIABLE.finditer(word) if found[1] is not None]
    return [name for name in names if settable(name) and name not in env]


def listed(word: str) -> str | None:
    """The variable that a word `$NAME` stands for, which is split into words; None for any other word.

    Whatever follows the dollar is the name, so that `$A$B` is no variable that can be set, and gives nothing.
    """
    return word[1:] if word.startswith("$") and word[1:2] not in ("{", "$") else None


def settable(name: str) -> bool:
    """Whether a name can be that of a variable."""
    return _VALID.fullmatch(name) is not None


def assigned(value: str, specifiers: Mapping[str, str]) -> dict[str, str]:
    """The variables of one `Environment=`."""
    try:
        pairs = [word.layer.value.partition("=") for word in words(value, specifiers)]
    except ConfigError as error:
        raise ConfigError(f"Environment={value}: {error}") from error
    return {name: given for name, equals, given in pairs if equals}


_LINE = compiled(r"[ \t]*(?P<name>[^\s#;][^=\n]*?)[ \t]*=[ \t]*")
_COMMENT = compiled(r"[ \t]*[#;](?:\\[\s\S]|[^\n\\])*")
_VALID = compiled(r"[A-Za-z_]\w*", re.ASCII)


def of_file(text: str) -> Iterator[tuple[str, int, int, str]]:
    """The variables of an environment file: name, span of the value as it is written, and what it means."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        found = _LINE.match(text, at, end)
        if not found:
            comment = _COMMENT.match(text, at)
            at = (comment.end() if comment else end) + 1
            continue
        value, stop = _value(text, found.end())
        if _VALID.fullmatch(found["name"]):  # systemd ignores others, but takes their quotes for quotes
            yield found["name"], found.end(), stop, value
        end = text.find("\n", stop)
        at = len(text) if end < 0 else end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    out: list[str] = []
    kept = 0  # what a blank at the end must not take with it
    quotes = True  # only where a value begins, or right behind another quote
    stop = at
    while at < len(text) and text[at] != "\n":
        letter = text[at]
        if quotes and letter in "'\"":
            inner, at = _in_quotes(text, at)
            out += inner
            kept, stop = len(out), at
        elif letter == "\\":
            if text[at + 1 : at + 2] != "\n":
                out.append(text[at + 1 : at + 2])
            at += 2
            kept, stop, quotes = len(out), at, False
        else:
            at += 1
            if letter in " \t\r":
                out += [] if quotes else [letter]
            else:
                out.append(letter)
                kept, stop, quotes = len(out), at, False
    return "".join(out[:kept]), min(stop, len(text))


def _in_quotes(text: str, at: int) -> tuple[list[str], int]:
    mark = text[at]
    out: list[str] = []
    at += 1
    while at < len(text) and text[at] != mark:
        if mark == '"' and text[at] == "\\" and at + 1 < len(text):
            follows = text[at + 1]
            out.append("" if follows == "\n" else follows if follows in '"\\`$' else f"\\{follows}")
            at += 2
        else:
            out.append(text[at])
            at += 1
    return out, min(at + 1, len(text))


def in_file(value: str) -> str:
    """A value as an environment file holds it."""
    if _BARE.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'


# Specifiers


def specifiers(unit: str) -> dict[str, str]:
    """The specifiers of a system unit that hang on its name or on nothing (systemd.unit(5), "SPECIFIERS")."""
    stem = unit.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    plain = unescaped(instance)
    last = prefix.rpartition("-")[2]
    own = {"n": unit, "N": stem, "p": prefix, "P": unescaped(prefix), "i": instance, "I": plain, "j": last}
    fixed = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "h": "/root"}
    path = {"f": f"/{(plain or unescaped(prefix)).lstrip('/')}", "J": unescaped(last)}
    return {**own, **path, **fixed, "u": "root", "U": "0", "g": "root", "G": "0", "%": "%"}


def unescaped(name: str) -> str:
    """A name without systemd's escapes: `-` is a slash, `\\x2d` a dash."""
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), name.replace("-", "/"))


def laid_out(raw: str, placed: Sequence[Placed]) -> str:
    """A command line with each flag on a line of its own; its words as they are written."""
    out: list[str] = []
    for word in placed:
        text = raw[word.start : word.end]
        flag = out and text.lstrip("\"'").startswith("--")
        out.append(f"{' ' + chr(92) + chr(10) + '    ' if flag else ' ' if out else ''}{text}")
    return "".join(out)
