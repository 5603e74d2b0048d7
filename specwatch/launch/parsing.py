"""From a launch command as somebody typed it to the values that are in force."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple

from specwatch.domain import Launch, Value
from specwatch.errors import LaunchError
from specwatch.launch.argparser import Given, Parsed, parse_args
from specwatch.launch.convert import Refusal
from specwatch.launch.flags import Ambiguous, Flag, FlagTable, table, version_key
from specwatch.launch.locate import Arg, Located, locate
from specwatch.launch.yamlconfig import config_arguments, config_path

ReadFile = Callable[[str], str]
MAX_ARGUMENTS = 10_000
OF_NO_MATTER = frozenset({"base_gpu_id", "nccl_port", "node_rank", "port", "random_seed"})
"""Numbers that no check reads: a launch template may leave them to a variable."""


class Reading(NamedTuple):
    """A launch taken apart. `tokens` is what the parser gets; `places` tells for each token its argument, or None.

    None stands for a token that comes from a configuration file or that `sglang serve MODEL` adds.
    """

    located: Located
    table: FlagTable
    tokens: tuple[str, ...]
    places: tuple[int | None, ...]
    parsed: Parsed

    def args(self, given: Given) -> tuple[Arg, ...]:
        """The arguments of the command that one flag and its values come from, empty for one from a file."""
        span = range(given.at, given.at + given.taken + 1)
        places = [place for i in span if (place := self.places[i]) is not None]
        return tuple(self.located.arguments[place] for place in places)

    def typed(self, given: Given) -> bool:
        """Whether a flag stands on the command line itself."""
        return bool(self.args(given))


def parse(
    text: str | Sequence[str], sglang: str = "", *, read_file: ReadFile | None = None, lenient: bool = False
) -> Launch:
    """Read a launch command, shell text or argv, as that release of sglang would read it.

    Handles wrappers, environment assignments, scripts, bare lists of flags, and `--config FILE`, which `read_file`
    reads. Raises LaunchError with `refusal` where sglang's own parser refuses the arguments, and without where the
    text is no launch, or cannot be understood without running a shell. With `lenient` refused arguments are left out
    of `values` and the launch comes back all the same, so that it can be edited.
    """
    if isinstance(text, str):
        return build(text, sglang, text=text, read_file=read_file, lenient=lenient)
    for number, token in enumerate(text):
        if "\0" in token:
            raise LaunchError(f"argument {number} of the launch holds a NUL character, which no command can pass on")
    return build(shlex.join(text), sglang, text="", read_file=read_file, lenient=lenient)


def build(source: str, sglang: str, *, text: str, read_file: ReadFile | None, lenient: bool = False) -> Launch:
    """The launch that `source` makes, with `text` as what somebody typed."""
    located = locate(source)
    flags = table(sglang)
    try:
        values = dict(read(located, flags, read_file).parsed.values())
    except LaunchError:
        if not lenient:
            raise
        values = _bearable(located, flags, read_file)
    return Launch(
        sglang=sglang,
        argv=argv(located),
        env=MappingProxyType({name: spot.value for name, (_, spot) in located.environment().items()}),
        text=text,
        values=MappingProxyType(values),
    )


def read(located: Located, flags: FlagTable, read_file: ReadFile | None, *, strict: bool = True) -> Reading:
    """Take a located launch apart. With `strict=False` nothing is refused and no file is read."""
    if len(located.arguments) > MAX_ARGUMENTS:
        raise LaunchError(f"the launch has {len(located.arguments)} arguments, more than {MAX_ARGUMENTS}")
    left: frozenset[int] = needs_no_shell(located, flags) if strict else frozenset()
    try:
        handed, places = _handed_on(located, flags, strict=strict)
        handed = [_closed(token) if place in left else token for token, place in zip(handed, places, strict=True)]
        tokens = handed
        if strict and flags.exact("--config") is not None and (path := config_path(tokens)) is not None:
            extra = config_arguments(flags, path, read_file)
            at = tokens.index("--config")
            tokens = [*extra, *tokens[:at], *tokens[at + 2 :]]
            places = [*([None] * len(extra)), *places[:at], *places[at + 2 :]]
        parsed = parse_args(flags, tokens, strict=strict)
        if strict and located.kind == "serve" and not _names_model(handed, flags):
            # `sglang serve` looks for the model before the parser does, and only in the plain spellings.
            raise Refusal("Exception: Error: --model-path is required. Please provide the path to the model.")
    except Refusal as refused:
        raise _refused(located, flags, str(refused)) from None
    if strict and any(given.flag.action == "help" for given in parsed.given):
        raise LaunchError("the command only prints the help of sglang; it starts no server")
    if left:
        # The number put in for a variable is no value that anybody gave.
        kept = tuple(
            given
            for given in parsed.given
            if given.flag.dest not in OF_NO_MATTER or not _stands_in(given, places, left)
        )
        parsed = parsed._replace(given=kept)
    return Reading(located=located, table=flags, tokens=tuple(tokens), places=tuple(places), parsed=parsed)


def _closed(token: str) -> str:
    """A number in the place of a variable, so that the parser can go on."""
    option, equals, _ = token.partition("=")
    return f"{option}=0" if equals and option.startswith("--") else "0"


def _stands_in(given: Given, places: Sequence[int | None], left: frozenset[int]) -> bool:
    return any(places[i] in left for i in range(given.at, given.at + given.taken + 1))


def typed_names(located: Located, flags: FlagTable) -> frozenset[str]:
    """The arguments that the command line alone types, whether the parser would take them or not."""
    try:
        return frozenset(one.flag.dest for one in parse_args(flags, _typed(located, flags), strict=False).given)
    except Refusal as refused:
        raise _refused(located, flags, str(refused)) from None


def _typed(located: Located, flags: FlagTable) -> list[str]:
    tokens, _ = _handed_on(located, flags, strict=False)
    if flags.exact("--config") is not None and "--config" in tokens:
        at = tokens.index("--config")
        return [*tokens[:at], *tokens[at + 2 :]]
    return tokens


def typed_values(located: Located, flags: FlagTable) -> dict[str, Value]:
    """What the command line alone types, a configuration file left aside."""
    try:
        tokens = _typed(located, flags)
        given = {one.flag.dest for one in parse_args(flags, tokens, strict=False).given}
        values = parse_args(flags, tokens if "model_path" in given else ["--model-path", "", *tokens]).values()
    except Refusal as refused:
        raise _refused(located, flags, str(refused)) from None
    return {dest: value for dest, value in values.items() if dest in given}


def argv(located: Located) -> tuple[str, ...]:
    """The tokens of the process as it is started: wrappers stay, assignments before the command go to the environment.

    Assignments before a wrapper that starts another environment (docker, ssh) stay, behind `env`: they are the
    wrapper's own.
    """
    outer = located.levels[0]
    values = [arg.value for arg in outer.command.args]
    if outer.fresh and outer.command.assignments:
        return ("env", *(word.value for word in outer.command.assignments), *values)
    skip = 0
    if values and posixpath.basename(values[0]) == "env" and not outer.fresh:
        skip = 1
        while skip < len(values) and any(spot.word is outer.command.args[skip].word for spot in outer.env):
            skip += 1
        if values[skip : skip + 1] and values[skip].startswith("-"):
            skip = 0  # options of env change more than variables
    return tuple(values[skip:])


def _handed_on(located: Located, flags: FlagTable, *, strict: bool) -> tuple[list[str], list[int | None]]:
    """The tokens that sglang's parser gets, `sglang serve`'s own words taken out.

    Mirrors sglang/cli/serve.py: _extract_model_type_override and _normalize_positional_model_path.
    """
    tokens = [arg.value for arg in located.arguments]
    places: list[int | None] = list(range(len(tokens)))
    if located.kind != "serve":
        return tokens, places
    key = version_key(flags.release)
    if key >= (0, 5, 10):
        tokens, places = _without_model_type(tokens, places, strict=strict)
    if key >= (0, 5, 16) and tokens and not tokens[0].startswith("-"):
        tokens, places = ["--model-path", *tokens], [None, *places]
    return tokens, places


def _names_model(tokens: Sequence[str], flags: FlagTable) -> bool:
    """Mirrors sglang/cli/utils.py: get_model_path."""
    names = ("--model-path", "--model") if version_key(flags.release) >= (0, 5, 11) else ("--model-path",)
    return any(t in (*names, "-h", "--help") or t.startswith(tuple(f"{n}=" for n in names)) for t in tokens)


def _without_model_type(
    tokens: list[str], places: list[int | None], *, strict: bool
) -> tuple[list[str], list[int | None]]:
    kept: list[int] = []
    i = 0
    while i < len(tokens):
        kind: str | None = None
        if tokens[i] == "--model-type":
            if i + 1 >= len(tokens):
                raise Refusal("ValueError: Error: --model-type requires a value.")
            kind, i = tokens[i + 1], i + 1
        elif tokens[i].startswith("--model-type="):
            kind = tokens[i].split("=", 1)[1]
        else:
            kept.append(i)
        if kind == "diffusion" and strict:
            raise LaunchError(
                "a diffusion model (--model-type diffusion) has other arguments, which are not known here"
            )
        i += 1
    return [tokens[i] for i in kept], [places[i] for i in kept]


def _refused(located: Located, flags: FlagTable, said: str) -> LaunchError:
    head = said.split(":", 1)[0]
    if head.rsplit(".", 1)[-1].endswith(("Error", "Exception")) and " " not in head:
        return LaunchError(f"sglang {flags.release} refuses the launch: {said}", refusal=said)
    if not flags.certain:
        return LaunchError(
            f"whether sglang takes the launch is not known; {flags.release}, the nearest known, says: {said}"
        )
    prog = flags.prog
    if located.kind == "serve" and prog != "sglang serve":
        prog = "sglang"
    return LaunchError(f"sglang {flags.release} refuses the launch: {said}", refusal=f"{prog}: error: {said}")


def needs_no_shell(located: Located, flags: FlagTable) -> frozenset[int]:
    """Refuse to guess where a variable that is not set in the text decides what the arguments are.

    Returns the arguments whose value stays open because no check depends on it.
    """
    left: set[int] = set()
    for i, arg in enumerate(located.arguments):
        if not arg.open:
            continue
        option, equals, _ = arg.value.partition("=")
        inside = equals and not any(name in option for name in arg.open)
        owner = option if inside else (located.arguments[i - 1].value if i else "")
        flag = _flag_or_none(flags, owner)
        if flag is not None and not flag.bare and not flag.many:
            if flag.type in ("str", "nullable_str") and flag.choices is None:
                continue  # a text: it stays as it is written
            if flag.dest in OF_NO_MATTER:
                left.add(i)
                continue
            where = f"the value of {owner}"
        else:
            where = f"argument {i + 1} ({arg.value})"
        names = ", ".join(arg.open)
        raise LaunchError(f"{where} depends on {names}, which the text does not set; give the command with its values")
    return frozenset(left)


def _flag_or_none(flags: FlagTable, token: str) -> Flag | None:
    try:
        found = flags.match(token)
    except Ambiguous:
        return None
    return found[0] if found else None


def _bearable(located: Located, flags: FlagTable, read_file: ReadFile | None) -> dict[str, Value]:
    """The values of those flags that the parser would take one by one; those of a `--config` file come first."""
    reading = read(located, flags, None, strict=False)
    out = _of_file(reading.tokens, flags, read_file)
    for given in reading.parsed.given:
        out.update(_alone(flags, reading.tokens, given))
    out.pop("config", None)
    return out


def _of_file(tokens: Sequence[str], flags: FlagTable, read_file: ReadFile | None) -> dict[str, Value]:
    out: dict[str, Value] = {}
    try:
        path = config_path(tokens) if flags.exact("--config") is not None else None
        extra = config_arguments(flags, path, read_file) if path is not None else []
    except (Refusal, LaunchError):
        return out
    for given in parse_args(flags, extra, strict=False).given:
        out.update(_alone(flags, extra, given))
    return out


def _alone(flags: FlagTable, tokens: Sequence[str], given: Given) -> dict[str, Value]:
    words = tokens[given.at : given.at + given.taken + 1]
    try:
        values = parse_args(flags, ["--model-path", "x", *words]).values()
    except Refusal:
        return {}
    return {name: value for name, value in values.items() if name == given.flag.dest}
