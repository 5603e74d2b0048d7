"""Every flag of every known sglang release, and the resolution of spellings to flags exactly as argparse does it.

The table of the known releases is `data/flags.jsonl` (made by tools/make_flags.py); `table_from` reads the flags of
any other sglang from its source. A release between two known ones takes the older one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from specwatch.domain import Value
from specwatch.errors import LaunchError
from specwatch.launch.foreign import FOREIGN, RENAMED

if TYPE_CHECKING:
    from specwatch.launch.extract import Extracted

DATA = Path(__file__).parent / "data" / "flags.jsonl"
_NO_PROG = (0, 5, 10)
"""Since this release the parser calls itself `sglang serve` however it was started."""


class Flag(NamedTuple):
    """One flag of one release.

    `name` is its full current name, `names` every accepted full spelling, `dest` the argument of ServerArgs it sets.
    `action`: store, true, false, optional (`--x` / `--no-x`), const, lora, lora-dict, ignored (no longer does
    anything), refused and raises (stop with `message`), help. `nargs`: None (one value), "0", "?", "+", "*" or a
    number. `default_known` is False where only the running program knows the default.
    """

    name: str
    names: tuple[str, ...]
    dest: str
    action: str = "store"
    nargs: str | None = None
    type: str | None = "str"
    choices: tuple[Value, ...] | None = None
    default: Value = None
    default_known: bool = True
    const: Value = None
    required: bool = False
    deprecated: bool = False
    message: str = ""

    @property
    def label(self) -> str:
        """How argparse names the flag in an error."""
        return "/".join(self.names)

    @property
    def bare(self) -> bool:
        """Whether the flag takes no value."""
        return self.nargs == "0"

    @property
    def many(self) -> bool:
        """Whether the flag may take several values."""
        return self.nargs not in (None, "0", "?")


UNSTATED = "<unstated>"


class Ambiguous(Exception):  # noqa: N818 - a signal between two modules, never shown
    """An abbreviation fits several spellings; carries argparse's text."""


class FlagTable:
    """The flags of one release.

    `fields` holds every argument of ServerArgs with its default, UNSTATED where only the program knows it.
    For a version between two known releases `later` holds the flags of the newer one, which that version may have
    already. `certain` is False for a version beyond the known ones: a flag that is missing here may exist there.
    """

    def __init__(
        self,
        release: str,
        flags: Iterable[Flag],
        fields: Mapping[str, Value],
        *,
        later: FlagTable | None = None,
        certain: bool = True,
    ) -> None:
        self.release = release
        self.flags = tuple(flags)
        self.fields = fields
        self.later = later
        self.certain = certain
        self._by_dest: dict[str, Flag] = {}
        self._by_name = {name: flag for flag in self.flags for name in flag.names}

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def prog(self) -> str:
        """How the parser calls itself in its errors when started as `python -m sglang.launch_server`."""
        return "sglang serve" if version_key(self.release) >= _NO_PROG else "launch_server.py"

    @property
    def spellings(self) -> Iterable[str]:
        """All accepted full spellings in the order of registration."""
        return self._by_name.keys()

    def exact(self, name: str) -> Flag | None:
        """The flag with this full spelling, or None."""
        return self._by_name.get(name) or (self.later.exact(name) if self.later else None)

    def match(self, token: str) -> tuple[Flag, str] | None:
        """The flag and the full spelling that a typed option (without `=value`) stands for, None when unknown.

        Mirrors argparse._parse_optional and _get_option_tuples (3.11): exact first, then the only spelling that it
        begins. Raises Ambiguous.
        """
        flag = self.exact(token)
        if flag is not None:
            return flag, token
        if not token.startswith("--"):
            return None
        fits = [name for name in self._by_name if name.startswith(token)]
        if len(fits) > 1:
            raise Ambiguous(f"ambiguous option: {token} could match {', '.join(fits)}")
        if fits:
            return self._by_name[fits[0]], fits[0]
        return self.later.match(token) if self.later else None

    def resolve(self, token: str) -> Flag:
        """The flag that a typed option stands for in this release; `=value` is ignored.

        Raises LaunchError with argparse's refusal where the option is unknown or ambiguous.
        """
        option = token.split("=", 1)[0]
        try:
            found = self.match(option)
        except Ambiguous as error:
            raise LaunchError(f"{error} in sglang {self.release}", refusal=f"{self.prog}: error: {error}") from None
        if found is None:
            near = self.nearest(option)
            hint = f"; did you mean {near}?" if near else ""
            refusal = f"{self.prog}: error: unrecognized arguments: {token}" if self.certain else None
            raise LaunchError(f"sglang {self.release} has no flag {option}{hint}", refusal=refusal)
        return found[0]

    def by_dest(self, dest: str) -> Flag | None:
        """The flag that sets an argument, the current one before deprecated ones; None when it has no flag."""
        if not self._by_dest:
            self._by_dest |= {flag.dest: flag for flag in reversed(self.flags)}
            self._by_dest |= {flag.dest: flag for flag in reversed(self.flags) if not flag.deprecated}
        return self._by_dest.get(dest)

    def prefixed(self, prefix: str) -> tuple[Flag, ...]:
        """All flags one of whose spellings begins with `prefix`."""
        return tuple(flag for flag in self.flags if any(name.startswith(prefix) for name in flag.names))

    def nearest(self, name: str) -> str | None:
        """The flag that was probably meant by an unknown one, None when nothing is near.

        Two flags that were glued together come back with a space between them.
        """
        import difflib

        option = name.split("=", 1)[0].lower().replace("_", "-")
        if not option.startswith("--"):
            option = "--" + option.lstrip("-")
        if option in self._by_name:
            return self._by_name[option].name
        glued = option.find("--", 2)
        if glued > 0 and option[:glued] in self._by_name and option[glued:] in self._by_name:
            return f"{option[:glued]} {option[glued:]}"
        later = FOREIGN.get(option) or RENAMED.get(option)
        if later in self._by_name:
            return later
        current = [n for flag in self.flags if not flag.deprecated for n in flag.names if n.startswith("--")]
        close = difflib.get_close_matches(option, current, n=1, cutoff=0.8)
        return self._by_name[close[0]].name if close else None


HELP = Flag(name="--help", names=("-h", "--help"), dest="help", action="help", nargs="0", type=None)


def version_key(text: str) -> tuple[int, int, int, int]:
    """The numbers of a version in any wording, its post-release last: `0.5.17 (guess)`, `v0.4.3.post4-cu125`.

    Other suffixes do not count: a release candidate has the flags of its release. UNKNOWN where there is no version.
    """
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.?post(\d+))?", text)
    if not found:
        return UNKNOWN
    return (int(found[1]), int(found[2]), int(found[3] or 0), int(found[4] or 0))


UNKNOWN = (0, 0, 0, 0)


class _Data(NamedTuple):
    """The file of all releases. What is of a release stays text until it is asked for: one needs a fifth of it."""

    releases: Mapping[str, bytes]
    choices: list[list[Value]]
    records: list[bytes]

    def runs(self, release: str) -> list[tuple[int, int]]:
        """First and last numbers of the records of a release, in its order."""
        found: list[tuple[int, int]] = json.loads(self.releases[release])
        return found

    def rows(self, release: str) -> list[dict[str, Any]]:
        """The records of a release, in its order."""
        lines = [line for first, last in self.runs(release) for line in self.records[first : last + 1]]
        return _decoded(lines)


def _decoded(lines: list[bytes]) -> list[Any]:
    found: list[Any] = json.loads(b"[%b]" % b",".join(lines))
    return found


@lru_cache(maxsize=1)
def _data() -> _Data:
    head, *lines = DATA.read_bytes().rstrip(b"\n").split(b"\n")
    given = json.loads(head)
    first = len(given["releases"])
    then = first + given["choices"]
    return _Data(dict(zip(given["releases"], lines, strict=False)), _decoded(lines[first:then]), lines[then:])


def releases() -> tuple[str, ...]:
    """The releases with a table of their own, oldest first."""
    return tuple(_data().releases)


def releases_with(option: str) -> tuple[str, ...]:
    """The known releases with a flag that begins with `option`, oldest first; found without making their tables."""
    data = _data()
    spelt = json.dumps(option)[:-1].encode()
    fits = {number for number, line in enumerate(data.records) if spelt in line}
    return tuple(
        release
        for release in data.releases
        if any(not fits.isdisjoint(range(first, last + 1)) for first, last in data.runs(release))
    )


def __getattr__(name: str) -> tuple[str, ...]:
    if name == "RELEASES":  # read on first use, so that importing this module opens no file
        return releases()
    raise AttributeError(name)


def known_release(sglang: str) -> str:
    """The release whose table stands for a version: itself, else the nearest older one, else the oldest.

    An empty or unreadable version stands for the newest.
    """
    known = releases()
    key = version_key(sglang)
    if key == UNKNOWN:
        return known[-1]
    older = [release for release in known if version_key(release) <= key]
    return older[-1] if older else known[0]


def table(sglang: str = "") -> FlagTable:
    """The flags of a version of sglang. An empty version stands for the newest known release.

    A version without a table of its own has the flags of the known release before it (see `known_release`), and
    leave to have those of the known release behind it; people say 0.5.4 of 0.5.4.post3, so that has leave to have those
    of its last post-release.
    """
    release = known_release(sglang)
    if version_key(sglang) == UNKNOWN or (sglang.strip() == release == _last_post(release)):
        return _table(release)
    return _inexact(release, version_key(sglang))


def _last_post(release: str) -> str:
    """The last known post-release of a release; itself where it has none, or is one."""
    *base, post = version_key(release)
    return release if post else next(one for one in reversed(releases()) if [*version_key(one)][:3] == base)


@lru_cache(maxsize=4)
def _table(release: str) -> FlagTable:
    data = _data()
    return _build(release, data.rows(release), data.choices)


@lru_cache(maxsize=4)
def _inexact(release: str, key: tuple[int, int, int, int]) -> FlagTable:
    known = releases()
    own = _table(release)
    place = known.index(release)
    if key < version_key(known[0]):
        return FlagTable(release, [_not_yet_withdrawn(flag) for flag in own.flags], own.fields, certain=False)
    if place + 1 == len(known):
        return FlagTable(release, own.flags, own.fields, certain=key <= version_key(release))
    post = _last_post(release) if key == version_key(release) else release
    later = _table(post if post != release else known[place + 1])
    flags = [_widened(flag, later.exact(flag.name)) for flag in own.flags]
    return FlagTable(release, flags, own.fields, later=later)


def _not_yet_withdrawn(flag: Flag) -> Flag:
    """A flag that the oldest known release refuses, for an older one: it may well have taken it."""
    return flag._replace(action="ignored") if flag.action in ("refused", "raises") else flag


def _widened(flag: Flag, later: Flag | None) -> Flag:
    """A flag that also takes what the next known release takes: the version may be anywhere between the two."""
    if later is None or (flag.choices == later.choices and flag.type == later.type):
        return flag
    choices = flag.choices
    if choices is not None:
        new = later.choices
        choices = None if new is None else (*choices, *(value for value in new if value not in choices))
    human = later.type == "human_readable_int" and flag.type == "int"
    return flag._replace(choices=choices, type=later.type if human else flag.type)


@lru_cache(maxsize=32)
def field_names(release: str) -> frozenset[str]:
    """The names of the arguments of ServerArgs in a known release."""
    names = _names()
    return frozenset().union(*(names[first : last + 1] for first, last in _data().runs(release))) - {""}


@lru_cache(maxsize=1)
def _names() -> list[str]:
    """The name of the argument that each record is about, "" where it is about none; once for all releases."""
    return [record["d"] if _is_field(record) else "" for record in _decoded(_data().records)]


def _is_field(record: Mapping[str, Any]) -> bool:
    return record["d"] != "config" and record.get("a") not in ("ignored", "refused", "raises")


def table_from(path: str | Path) -> FlagTable:
    """The flags of the sglang at `path`, a wheel or an installed folder, read from its source without importing it.

    Raises ConfigError when there is none.
    """
    from specwatch.launch.extract import extract

    found = extract(Path(path))
    lists: list[list[Value]] = []
    return _build(found.release, [encode(entry, lists) for entry in _plain_entries(found)], lists)


def _build(release: str, records: Iterable[Mapping[str, Any]], lists: list[list[Value]]) -> FlagTable:
    flags: list[Flag] = [HELP]
    fields: dict[str, Value] = {}
    for record in records:
        if _is_field(record):
            fields.setdefault(record["d"], UNSTATED if record.get("u") else record.get("v"))
        if "n" in record:
            flags.append(_flag(record, lists))
    return FlagTable(release, flags, MappingProxyType(fields))


def _flag(record: Mapping[str, Any], lists: list[list[Value]]) -> Flag:
    names = tuple(record["n"])
    action = record.get("a", "store")
    takes = action in ("store", "lora", "lora-dict")
    plain = "--" + record["d"].replace("_", "-")
    return Flag(
        name=plain if plain in names else names[0],
        names=names,
        dest=record["d"],
        action=action,
        nargs=record.get("g", None if takes else "0") if action != "const" else record.get("g", "0"),
        type=record.get("t", "str" if takes else None),
        choices=tuple(lists[record["c"]]) if "c" in record else None,
        default=record.get("v"),
        default_known=not record.get("u"),
        const=record.get("k", {"true": True, "false": False}.get(action)),
        required=bool(record.get("r")),
        deprecated=bool(record.get("o")),
        message=record.get("m", ""),
    )


def _plain_entries(found: Extracted) -> Iterable[dict[str, Any]]:
    """The entries as plain dictionaries, unknown defaults marked by `unknown`."""
    from specwatch.launch.constants import UNKNOWN

    for entry in found.entries:
        row = {name: getattr(entry, name) for name in entry.__slots__}
        row["unknown"] = row["default"] is UNKNOWN
        yield row


def encode(row: Mapping[str, Any], lists: list[list[Value]]) -> dict[str, Any]:
    """One entry as the table stores it: single letters, defaults left out, choices by their place in `lists`."""
    out: dict[str, Any] = {"d": row["dest"]}
    takes = row["action"] in ("store", "lora", "lora-dict")
    if row["names"]:
        out["n"] = row["names"]
        if row["action"] != "store":
            out["a"] = row["action"]
        if row["nargs"] is not None and not (row["nargs"] == "0" and not takes):
            out["g"] = row["nargs"]
        if row["action"] == "const" and row["nargs"] is None:
            out["g"] = None
        if takes and row["type"] != "str":
            out["t"] = row["type"]
    if row["choices"] is not None:
        if row["choices"] not in lists:
            lists.append(row["choices"])
        out["c"] = lists.index(row["choices"])
    if row["unknown"]:
        out["u"] = 1
    elif row["default"] is not None:
        out["v"] = row["default"]
    if row["const"] is not None:
        out["k"] = row["const"]
    for letter, key in (("r", "required"), ("o", "deprecated"), ("m", "message")):
        if row[key]:
            out[letter] = row[key]
    return out
