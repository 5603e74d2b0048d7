"""Finds the one sglang launch in shell text: which words start it, which are its arguments, what environment it gets.

Looks through wrappers (docker, env, sudo, numactl, torchrun, nohup, ssh, kubectl …) and into quoted command strings
such as `bash -c "…"`. Wrappers need no grammar of their own: whatever stands before the program is theirs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from specwatch.errors import LaunchError
from specwatch.launch.shell import Lexer, Operator, Token, Word
from specwatch.lazy import compiled

MAX_BYTES = 1_000_000
MAX_TOKENS = 50_000
MAX_DEPTH = 4

_ASSIGNMENT = compiled(r"([A-Za-z_][A-Za-z0-9_]*)=")
_FLAG_AHEAD = compiled(r"\s*-")
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_CONTAINER_VERBS = frozenset({"run", "exec", "create"})
_REMOTE = frozenset({"ssh", "kubectl", "oc"})
_NO_LAUNCH = frozenset(
    {"cat", "curl", "echo", "grep", "kill", "killall", "logger", "pgrep", "pip", "pip3", "pkill", "printf", "ps", "sed"}
)
_RESERVED = frozenset(
    {"!", "{", "}", "do", "done", "elif", "else", "esac", "fi", "if", "then", "time", "until", "while"}
)
_OPENS = frozenset({"case", "for", "if", "select", "until", "while", "{"})
_CLOSES = frozenset({"done", "esac", "fi", "}"})
_MODULES = frozenset({"sglang.launch_server"})
_SERVE_MODULES = frozenset({"sglang", "sglang.cli.main"})


class Arg(NamedTuple):
    """One argument of a command and the word it comes from; `whole` tells that the word gives nothing else."""

    value: str
    word: Word
    whole: bool = True
    open: tuple[str, ...] = ()


class EnvSpot(NamedTuple):
    """A word that sets a variable: `head` is what stands before the name in it, such as `--env=`."""

    name: str
    value: str
    word: Word
    head: str = ""
    statement: tuple[int, int] | None = None
    """The whole `export NAME=value` where the word is the only one in it."""


class Command(NamedTuple):
    """One simple command of a text, redirections left out."""

    text: str
    assignments: tuple[Word, ...]
    args: tuple[Arg, ...]
    edges: Mapping[int, tuple[int, int | None]]
    """By the start of a word: where the token before it ends, and where the token behind it starts (None: nothing)."""
    exported: tuple[EnvSpot, ...] = ()


class Level(NamedTuple):
    """A command on the way to the launch; `inner` is the argument that holds the text of the next level."""

    command: Command
    inner: int | None
    env: tuple[EnvSpot, ...]
    container: int | None = None
    """The argument `run` or `exec` of a container program."""
    remote: bool = False
    fresh: bool = False
    """The environment before this command does not reach the server (containers, ssh, `env -i`)."""


class Located(NamedTuple):
    """A launch in its text.

    `program` and `first` number arguments of the innermost command: the program, and the first that it gets.
    """

    levels: tuple[Level, ...]
    program: int
    first: int
    kind: str
    """module (`python -m sglang.launch_server`), script, serve (`sglang serve`) or bare (flags only)."""

    @property
    def command(self) -> Command:
        """The innermost command: the one that starts sglang."""
        return self.levels[-1].command

    @property
    def arguments(self) -> tuple[Arg, ...]:
        """The arguments that sglang gets."""
        return self.command.args[self.first :]

    def environment(self) -> dict[str, tuple[int, EnvSpot]]:
        """Every variable that the text gives to the server, with the level that sets it."""
        out: dict[str, tuple[int, EnvSpot]] = {}
        for number, level in enumerate(self.levels):
            if level.fresh:
                passed = {n: s for n, s in out.items() if any(e.name == n and e.value == "\0" for e in level.env)}
                out = passed
            for spot in level.env:
                if spot.value != "\0":
                    out[spot.name] = (number, spot)
        return out


def locate(text: str) -> Located:
    """The launch in a text. Raises LaunchError when there is none, more than one, or the text is no shell text."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise LaunchError(f"the launch command has {size} bytes, more than {MAX_BYTES}; give the command alone")
    if "\0" in text:
        raise LaunchError(f"launch command: a NUL character at offset {text.index(chr(0))}; a command cannot hold one")
    commands = list(_commands(text, {}))
    found = [got for command in commands if (got := _launch(command, 0)) is not None]
    if len(found) > 1:
        lines = ", ".join(str(_line(text, got)) for got in found)
        raise LaunchError(f"the text holds {len(found)} launches of sglang (lines {lines}); give one of them")
    if found:
        return found[0]
    plain = [command for command in commands if command.args]
    if len(plain) == 1:
        first = plain[0].args[0].value
        if first.startswith("--") or (first == "serve" and len(plain[0].args) > 1):
            start = 1 if first == "serve" else 0
            level = Level(plain[0], None, _prefix_spots(plain[0]))
            return Located((level,), 0, start, "serve" if start else "bare")
    if any("sglang_router" in arg.value or arg.value == "smg" for c in commands for arg in c.args):
        raise LaunchError("that starts the SGLang router, not a server; give the command of one of its workers")
    raise LaunchError("no `python -m sglang.launch_server` or `sglang serve` in the launch command")


def _line(text: str, located: Located) -> int:
    return text.count("\n", 0, located.levels[0].command.args[0].word.start) + 1


def is_folded(text: str) -> bool:
    """Whether the text is a folded YAML string: flags at the start of lines, and no continuation anywhere."""
    lines = text.strip().split("\n")
    if len(lines) < 2 or any(line.rstrip("\r").endswith("\\") for line in lines):
        return False
    return any(line.lstrip().startswith("-") for line in lines[1:])


class _Reader:
    """Collects the simple commands of a text, and the variables that they leave behind."""

    def __init__(self, text: str, variables: dict[str, str]) -> None:
        self.text = text
        self.variables = variables
        self.depth = 0
        self.exported: dict[str, EnvSpot] = {}

    def finish(self, tokens: list[Token], redirected: set[int]) -> Command | None:
        """One command from its tokens; assignments alone change the variables and give None."""
        words = [t for i, t in enumerate(tokens) if isinstance(t, Word) and i not in redirected]
        edges = self._edges(tokens)
        while words and words[0].value in _RESERVED | _OPENS and not words[0].quoted:
            self._count(words[0].value)
            words = words[1:]
        assignments: list[Word] = []
        while words and _is_assignment(self.text, words[0]):
            assignments.append(words[0])
            words = words[1:]
        if not words:
            for word in assignments:
                self._assign(word, export=False)
            return None
        if words[0].value in ("export", "readonly", "declare", "local", "unset"):
            self._declare(words)
            return None
        args = tuple(arg for word in words for arg in split_word(word))
        ours = any("sglang" in arg.value for arg in args) or (args and args[0].value.startswith("--"))
        exported = tuple(self.exported.values()) if ours else ()  # other commands do not need a copy
        return Command(self.text, tuple(assignments), args, edges, exported)

    def _count(self, word: str) -> None:
        self.depth += (word in _OPENS) - (word in _CLOSES)

    def _edges(self, tokens: list[Token]) -> dict[int, tuple[int, int | None]]:
        out: dict[int, tuple[int, int | None]] = {}
        for i, token in enumerate(tokens):
            before = tokens[i - 1].end if i else token.start
            out[token.start] = (before, tokens[i + 1].start if i + 1 < len(tokens) else None)
        return out

    def _declare(self, words: list[Word]) -> None:
        given = [word for word in words[1:] if not word.value.startswith("-")]
        if words[0].value == "unset":
            for word in given:
                self._forget(word.value)
            return
        exports = words[0].value == "export" or any(word.value == "-x" for word in words)
        span = (words[0].start, words[-1].end) if len(given) == 1 else None
        for word in given:
            if _is_assignment(self.text, word):
                self._assign(word, export=exports, statement=span)
            elif exports and word.value in self.variables:
                self.exported[word.value] = EnvSpot(word.value, self.variables[word.value], word)

    def _forget(self, name: str) -> None:
        self.variables.pop(name, None)
        self.exported.pop(name, None)

    def _assign(self, word: Word, *, export: bool, statement: tuple[int, int] | None = None) -> None:
        name, value = word.value.split("=", 1)
        was_exported = name in self.exported
        self._forget(name)
        if word.open or self.depth > 0 or self.text.startswith("(", word.end):
            return  # set by what only a shell could tell
        self.variables[name] = value
        if export or was_exported:
            self.exported[name] = EnvSpot(name, value, word, statement=statement)


def _is_assignment(text: str, word: Word) -> bool:
    return _ASSIGNMENT.match(text, word.start, word.end) is not None


def _commands(text: str, variables: dict[str, str]) -> Iterator[Command]:
    reader = _Reader(text, variables)
    lexer = Lexer(text, variables)
    folded = is_folded(text)
    tokens: list[Token] = []
    redirected: set[int] = set()
    count = 0
    while (token := lexer.next()) is not None:
        count += 1
        if count > MAX_TOKENS:
            raise LaunchError(f"the launch command has more than {MAX_TOKENS} words; give the command alone")
        if isinstance(token, Operator) and not token.redirects:
            if folded and token.text == "\n" and tokens and continues(text, token, tokens[-1]):
                continue
            if tokens and (command := reader.finish(tokens, redirected)) is not None:
                yield command
            tokens, redirected = [], set()
            continue
        if tokens and isinstance(tokens[-1], Operator) and isinstance(token, Word):
            redirected.add(len(tokens))
        tokens.append(token)
    if tokens and (command := reader.finish(tokens, redirected)) is not None:
        yield command


def continues(text: str, newline: Operator, before: Token) -> bool:
    """Whether a folded YAML string goes on behind a newline: with a flag, or with the value of one."""
    return _FLAG_AHEAD.match(text, newline.end) is not None or (
        isinstance(before, Word) and before.value.startswith("-")
    )


def split_word(word: Word) -> list[Arg]:
    """The arguments that a word gives: one, or as many as a known variable without quotes holds."""
    if not any(p.expanded and not p.quote and p.value not in word.open for p in word.pieces):
        return [Arg(word.value, word, True, word.open)]
    out: list[str] = []
    current: str | None = None
    for piece in word.pieces:
        if piece.quote or not piece.expanded or piece.value in word.open:
            current = (current or "") + piece.value
            continue
        parts = re.split(r"[ \t\n]+", piece.value)
        for place, part in enumerate(parts):
            if place and current is not None:
                out.append(current)
                current = None
            if part:
                current = (current or "") + part
    if current is not None:
        out.append(current)
    return [Arg(value, word, len(out) == 1, word.open) for value in out]


def _launch(command: Command, depth: int) -> Located | None:
    """The launch that a command makes, itself or in one of its quoted arguments; None when it makes none."""
    if not command.args or posixpath.basename(command.args[0].value) in _NO_LAUNCH:
        return None
    values = [arg.value for arg in command.args]
    found = _program(values)
    if found is not None:
        program, first, kind = found
        return Located((_level(command, None, program),), program, first, kind)
    if depth >= MAX_DEPTH:
        return None
    for index, arg in enumerate(command.args):
        if not arg.word.quoted or "sglang" not in arg.value or not re.search(r"\s", arg.value):
            continue
        variables = {spot.name: spot.value for spot in command.exported}
        inner = [got for c in _commands(arg.value, variables) if (got := _launch(c, depth + 1)) is not None]
        if len(inner) > 1:
            raise LaunchError(f"the command string holds {len(inner)} launches of sglang; give one of them")
        if inner:
            return inner[0]._replace(levels=(_level(command, index, index), *inner[0].levels))
    return None


def _program(values: list[str]) -> tuple[int, int, str] | None:
    """Where the program starts, where its arguments start, and how it is called."""
    for i, value in enumerate(values):
        follows = values[i + 1] if i + 1 < len(values) else ""
        base = posixpath.basename(value)
        if value == "-m" and follows in _MODULES:
            return _interpreter(values, i), i + 2, "module"
        if value.startswith("-m") and value[2:] in _MODULES:
            return _interpreter(values, i), i + 1, "module"
        if value == "-m" and follows in _SERVE_MODULES and values[i + 2 : i + 3] == ["serve"]:
            return _interpreter(values, i), i + 3, "serve"
        if base == "launch_server.py" and "router" not in value:
            return _interpreter(values, i), i + 1, "script"
        if base == "sglang" and follows == "serve":
            return i, i + 2, "serve"
    return None


def _interpreter(values: list[str], end: int) -> int:
    for i in range(end - 1, max(end - 8, -1), -1):
        if re.fullmatch(r"(?:python|pypy)[\d.]*|torchrun", posixpath.basename(values[i])):
            return i
    return end


def _prefix_spots(command: Command) -> tuple[EnvSpot, ...]:
    own = tuple(
        EnvSpot(name, value, word)
        for word in command.assignments
        for name, value in [word.value.split("=", 1)]
        if not word.open
    )
    return (*command.exported, *own)


def _level(command: Command, inner: int | None, end: int) -> Level:
    """What the wrappers before argument `end` do to the environment."""
    spots = list(_prefix_spots(command))
    container: int | None = None
    remote = fresh = False
    values = [arg.value for arg in command.args[:end]]
    for i, value in enumerate(values):
        base = posixpath.basename(value)
        if base in _CONTAINERS and container is None:
            verbs = (j for j in range(i + 1, end) if values[j] in _CONTAINER_VERBS)
            container = next(verbs, None)
            remote = fresh = True
            spots = list(_container_env(command, values, container, end)) if container is not None else []
        elif base in _REMOTE:
            remote = fresh = True
            spots = [spot for spot in _container_env(command, values, i, end) if spot.head == "--env="]
        elif base in ("env", "sudo", "doas"):
            got, cleared = _env_words(command, values, i + 1)
            if cleared:
                fresh, spots = True, []
            spots += got
    return Level(command, inner, tuple(spots), container, remote, fresh)


def _container_env(command: Command, values: list[str], verb: int, end: int) -> Iterator[EnvSpot]:
    """`-e K=V`, `--env K=V`, `--env=K=V`, `-eK=V`. A bare name passes the outer value on: its value is NUL here."""
    i = verb + 1
    while i < end:
        value, head, arg = values[i], "", command.args[i]
        pair = ""
        if value in ("-e", "--env") and i + 1 < end:
            i += 1
            pair, arg = values[i], command.args[i]
        elif value.startswith("--env="):
            head, pair = "--env=", value[6:]
        elif re.match(r"-e[A-Za-z_]\w*(=|$)", value):
            head, pair = "-e", value[2:]
        if re.match(r"[A-Za-z_]\w*(=|$)", pair) and not arg.open:
            name, equals, text = pair.partition("=")
            yield EnvSpot(name, text if equals else "\0", arg.word, head)
        i += 1


def _env_words(command: Command, values: list[str], i: int) -> tuple[list[EnvSpot], bool]:
    out: list[EnvSpot] = []
    cleared = False
    while i < len(values):
        value = values[i]
        if value in ("-u", "--unset", "-C", "--chdir", "-g", "--group", "--user"):
            i += 1
        elif value in ("-i", "--ignore-environment", "-"):
            cleared = True
        elif not value.startswith("-"):
            if not _ASSIGNMENT.match(value):
                break
            name, text = value.split("=", 1)
            if not command.args[i].open:
                out.append(EnvSpot(name, text, command.args[i].word))
        i += 1
    return out, cleared
