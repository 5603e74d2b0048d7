"""Whether SGLang's own parser takes a launch, and if not, what it refuses: which kind of fault, which words.

The text is that of argparse (see `argparser`); here it is taken apart, so that a fix can be made of it.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from specwatch.domain import Launch
from specwatch.errors import LaunchError
from specwatch.launch.convert import Refusal, stored
from specwatch.launch.editing import command_text
from specwatch.launch.flags import Ambiguous, Flag, FlagTable, table
from specwatch.launch.locate import locate
from specwatch.launch.parsing import ReadFile, Reading, parse, read
from specwatch.lazy import compiled

_ARGUMENT = compiled(r"argument (?P<label>[^:\n]{1,200}): (?P<rest>[\s\S]{1,20000})")
_CHOICE = compiled(r"invalid choice: (?P<value>[\s\S]{1,2000}?) \(choose from ")
_VALUE = compiled(r"invalid (?P<type>\w{1,60}) value: (?P<value>[\s\S]{1,2000})")
_EXPLICIT = compiled(r"ignored explicit argument (?P<value>[\s\S]{1,2000})")
_CONFIG = compiled(
    r"ValueError: (?:Config file must |Multiple config files |No config file |Unsupported config option )|yaml\.|"
    r"AttributeError: '\w{1,60}' object has no attribute 'replace'"
)


class Stray(NamedTuple):
    """An option that the parser does not know, with the values behind it; `option` is "" for values without one.

    `after` is the flag just before values that stand alone, `words` all of it as it was typed.
    """

    option: str
    texts: tuple[str, ...] = ()
    after: Flag | None = None
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.words)


class Refused(NamedTuple):
    """What the parser refuses.

    `kind`: unrecognized, ambiguous, choice, value, no-value, explicit, required, no-model, withdrawn, config or other.
    `said` is the whole text, `message` the part behind `error: ` or behind the exception's name. `flag` is the flag
    that it names; `option` and `text` are the words as they were typed, where one flag is at fault; `strays` the words
    that no flag takes. `in_file` tells that the fault is not on the command line, but in the file of `--config`.
    """

    kind: str
    said: str
    exception: str
    message: str
    flags: FlagTable
    flag: Flag | None = None
    option: str = ""
    text: str | None = None
    strays: tuple[Stray, ...] = ()
    in_file: bool = False


def refused(launch: Launch, read_file: ReadFile | None = None) -> Refused | None:
    """What SGLang's parser refuses in a launch, None where it takes it.

    Raises LaunchError where that cannot be told: a `--config` file that is not at hand, a release beyond the known
    ones, a variable that only a shell knows.
    """
    source = launch.text or command_text(launch)
    try:
        parse(source, launch.sglang, read_file=read_file)
    except LaunchError as error:
        if error.refusal is None:
            raise
        reading = read(locate(source), table(launch.sglang), None, strict=False)
        return _taken_apart(error.refusal, reading)
    return None


def _taken_apart(said: str, reading: Reading) -> Refused:
    flags = reading.table
    head, colon, message = said.partition(": error: ")
    if not colon:
        exception, _, message = said.partition(": ")
        kind = "config" if _CONFIG.match(said) else "no-model" if "--model-path is required" in said else "other"
        exception = exception.rsplit(".", 1)[-1]
        strays = _strays(reading)
        plain = Refused(kind=kind, said=said, exception=exception, message=message, flags=flags, strays=strays)
        return _withdrawn(plain, message, reading) or plain
    del head
    base = Refused(kind="other", said=said, exception="SystemExit", message=message, flags=flags)
    return _of_option(base, message, reading)


def _of_option(base: Refused, message: str, reading: Reading) -> Refused:
    flags, strays = reading.table, _strays(reading)
    if message.startswith("unrecognized arguments: "):
        missing = message.removeprefix("unrecognized arguments: ") != " ".join(map(str, strays))
        return base._replace(kind="unrecognized", strays=strays, in_file=missing)
    if message.startswith("the following arguments are required: "):
        return base._replace(kind="required", strays=strays)
    if message.startswith("ambiguous option: "):
        typed = message.removeprefix("ambiguous option: ").split(" could match ")[0]
        option, equals, text = typed.partition("=")
        stray = next((one for one in strays if one.option == option), None)
        values = (text,) if equals else stray.texts if stray else ()
        return base._replace(
            kind="ambiguous",
            option=option,
            text=" ".join(values) or None,
            strays=(Stray(option=option, texts=values, words=stray.words if stray else (typed,)),),
            in_file=stray is None,
        )
    found = _ARGUMENT.match(message)
    if found is None:
        return _withdrawn(base, message, reading) or base
    flag = next((one for one in flags.flags if one.label == found["label"]), None)
    kind, value = _kind(found["rest"])
    if kind == "value" and value is None:
        value = next((" ".join(one.texts) for one in reading.parsed.given if one.flag is flag), None)
    return base._replace(kind=kind, flag=flag, text=value, strays=strays, in_file=not _typed(reading, flag))


def _withdrawn(base: Refused, message: str, reading: Reading) -> Refused | None:
    """A flag that the release keeps only in order to refuse it."""
    for flag in reading.table.flags:
        if flag.action in ("refused", "raises") and flag.message == message:
            return base._replace(kind="withdrawn", flag=flag, in_file=not _typed(reading, flag))
    return None


def _kind(rest: str) -> tuple[str, str | None]:
    if choice := _CHOICE.match(rest):
        return "choice", _unquoted(choice["value"])
    if value := _VALUE.match(rest):
        return "value", _unquoted(value["value"])
    if explicit := _EXPLICIT.match(rest):
        return "explicit", _unquoted(explicit["value"])
    if rest.startswith("expected "):
        return "no-value", None
    invalid = re.match(r"Invalid integer value: '([^']{0,2000})'", rest)
    return "value", invalid[1] if invalid else None


def _unquoted(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str) else str(value)


def _typed(reading: Reading, flag: Flag | None) -> bool:
    return flag is not None and any(one.flag.name == flag.name for one in reading.parsed.given)


def _strays(reading: Reading) -> tuple[Stray, ...]:
    """The words that no flag takes, each option with the values behind it."""
    out: list[Stray] = []
    ends = {one.at + one.taken + 1: one.flag for one in reading.parsed.given}
    extras = list(reading.parsed.extras)
    while extras:
        first = extras.pop(0)
        word = reading.tokens[first]
        is_option = _looks_like_option(word)
        texts = [] if is_option else [word]
        at = first
        while extras and extras[0] == at + 1 and not _looks_like_option(reading.tokens[extras[0]]):
            at = extras.pop(0)
            texts.append(reading.tokens[at])
        option, equals, value = word.partition("=") if is_option else ("", "", "")
        values = (value, *texts) if equals else tuple(texts)
        after = None if is_option else ends.get(first)
        out.append(Stray(option=option, texts=values, after=after, words=(word, *texts[0 if is_option else 1 :])))
    return tuple(out)


def _looks_like_option(word: str) -> bool:
    # Documents turn `--` into one long dash, which the parser takes for a value.
    return len(word) > 1 and word[0] in "-\u2013\u2014\u2212" and not word[1:2].isdigit()


def candidates(flags: FlagTable, option: str) -> tuple[str, ...]:
    """The full spellings that an ambiguous option may stand for."""
    try:
        flags.match(option)
    except Ambiguous as error:
        return tuple(str(error).partition(" could match ")[2].split(", "))
    return ()


def takes(flag: Flag, texts: tuple[str, ...]) -> bool:
    """Whether a flag takes these values."""
    try:
        stored(flag, flag.name, list(texts))
    except (Refusal, IndexError):
        return False
    return True
