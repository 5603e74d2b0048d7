"""argparse, as far as sglang's parser uses it: which tokens belong to which flag, and what it refuses in which words.

Mirrors Lib/argparse.py of Python 3.11 (_parse_known_args, _parse_optional, _match_argument) for a parser that has only
optional arguments, so that the answer does not depend on the Python that runs specwatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specwatch.domain import Value
from specwatch.launch.convert import Refusal, stored
from specwatch.launch.flags import Ambiguous, Flag, FlagTable
from specwatch.lazy import compiled

_NEGATIVE = compiled(r"^-\d+$|^-\d*\.\d+$")


class Given(NamedTuple):
    """One flag as it was given: the option at `at`, then `taken` tokens of values.

    `option` is the full spelling; `explicit` is the value of `--flag=value`, None in the other form.
    """

    flag: Flag
    option: str
    at: int
    taken: int = 0
    explicit: str | None = None
    texts: tuple[str, ...] = ()
    value: Value = None


class Parsed(NamedTuple):
    """All flags in order, and the places of tokens that no flag takes."""

    given: tuple[Given, ...]
    extras: tuple[int, ...] = ()

    def values(self) -> dict[str, Value]:
        """What is in force: the last of each argument."""
        return {one.flag.dest: one.value for one in self.given if one.flag.action not in ("ignored", "help")}


class _Reader:
    def __init__(self, table: FlagTable, tokens: Sequence[str], strict: bool) -> None:
        self.table = table
        self.tokens = tokens
        self.strict = strict
        self.options: dict[int, tuple[Flag | None, str, str | None]] = {}
        self.stop = 0
        """Where `--` ends the options."""

    def classify(self) -> None:
        """Tell options from values, for all tokens before anything is taken: ambiguity wins over other faults."""
        self.stop = len(self.tokens)
        for index, word in enumerate(self.tokens):
            if word == "--":
                self.stop = index
                return
            found = self._optional(word)
            if found is not None:
                self.options[index] = found

    def _optional(self, token: str) -> tuple[Flag | None, str, str | None] | None:
        if not token.startswith("-") or len(token) == 1:
            return None
        exact = self.table.exact(token)
        if exact is not None:
            return exact, token, None
        name, equals, value = token.partition("=")
        explicit = value if equals else None
        try:
            found = self.table.match(name)
        except Ambiguous as error:
            if self.strict:
                text = str(error).replace(f"ambiguous option: {name} ", f"ambiguous option: {token} ", 1)
                raise Refusal(text) from None
            return None, token, None
        if found is not None:
            return found[0], found[1], explicit
        if token.startswith("-h") and not token.startswith("--"):
            flag = self.table.exact("-h")
            return flag, "-h", token[2:]
        if _NEGATIVE.match(token) or " " in token:
            return None
        return None, token, None

    def read(self) -> Parsed:
        given: list[Given] = []
        extras: list[int] = []
        index = 0
        last = max(self.options, default=-1)
        while index <= last:
            if index not in self.options:
                extras.append(index)
                index += 1
                continue
            flag, option, explicit = self.options[index]
            if flag is None:
                extras.append(index)
                index += 1
                continue
            one = self._take(flag, option, explicit, index)
            given.append(one)
            index += 1 + one.taken
        extras.extend(range(index, len(self.tokens)))
        return Parsed(given=tuple(given), extras=tuple(extras))

    def _take(self, flag: Flag, option: str, explicit: str | None, index: int) -> Given:
        if explicit is not None:
            count, texts = 0, [explicit]
            if flag.bare or flag.action == "help":
                if self.strict:
                    raise Refusal(f"argument {flag.label}: ignored explicit argument {explicit!r}")
                texts = []
        else:
            count = self._values_after(flag, index)
            texts = list(self.tokens[index + 1 : index + 1 + count])
        value: Value = None
        if self.strict:
            if flag.action in ("refused", "raises") and flag.message:
                raise Refusal(flag.message if flag.action == "refused" else f"ValueError: {flag.message}")
            value = stored(flag, option, texts)
        return Given(
            flag=flag, option=option, at=index, taken=count, explicit=explicit, texts=tuple(texts), value=value
        )

    def _values_after(self, flag: Flag, index: int) -> int:
        """How many of the tokens behind an option it takes, by its nargs."""
        room = 0
        while index + 1 + room < self.stop and index + 1 + room not in self.options:
            room += 1
        if flag.nargs == "0":
            return 0
        if flag.nargs == "?":
            return min(room, 1)
        if flag.nargs == "*":
            return room
        if flag.nargs == "+":
            if room or not self.strict:
                return room
            raise Refusal(f"argument {flag.label}: expected at least one argument")
        need = 1 if flag.nargs is None else int(flag.nargs)
        if room < need and self.strict:
            words = "one argument" if flag.nargs is None else f"{need} argument{'s' if need > 1 else ''}"
            raise Refusal(f"argument {flag.label}: expected {words}")
        return min(room, need)


def parse_args(table: FlagTable, tokens: Sequence[str], *, strict: bool = True) -> Parsed:
    """Read the arguments behind the program as sglang's parser of that release does.

    Raises Refusal with argparse's text. With `strict=False` nothing is refused or converted: only which token belongs
    to which flag is told, and what cannot be understood is left in `extras`.
    """
    reader = _Reader(table, tokens, strict)
    reader.classify()
    parsed = reader.read()
    if not strict or any(one.flag.action == "help" for one in parsed.given):
        return parsed
    seen = {one.flag.name for one in parsed.given}
    missing = [flag.label for flag in table.flags if flag.required and flag.name not in seen]
    if missing:
        raise Refusal(f"the following arguments are required: {', '.join(missing)}")
    if parsed.extras:
        raise Refusal(f"unrecognized arguments: {' '.join(tokens[i] for i in parsed.extras)}")
    return parsed
