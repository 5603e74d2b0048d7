"""The configuration of the daemon, `/etc/specwatch/specwatch.toml`: read, checked, and shown with its defaults.

A key that is not known is refused with the nearest name that is, the file and the line, so that a typing mistake never
silently means "default".
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from specwatch.errors import ConfigError

DEFAULT_FILE = Path("/etc/specwatch/specwatch.toml")
KINDS = ("journal", "docker", "pods")
"""What may stand before the colon of a log that is not a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One SGLang server: where its log is, and what helps to diagnose it.

    `logs` are paths, globs, `journal:UNIT`, `docker:NAME` or `pods:NAMESPACE/POD/CONTAINER`. `launch` is the command
    that starts it, where the log does not hold it or to get an exact edit. `health` is a plain HTTP URL.
    """

    name: str
    logs: tuple[str, ...]
    launch: str = ""
    sglang: str = ""
    target: str = ""
    health: str = ""
    models: tuple[str, ...] = ()
    path_map: tuple[tuple[str, str], ...] = ()
    apply: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How the daemon watches. Times are in seconds, sizes in MiB.

    `silence`: without a line for this long, and without an answer of the health endpoint, a server counts as hung.
    `inspect_time` and `inspect_memory` bound the child process that reads model folders. `rules` are directories of
    further rules.
    """

    silence: float = 300.0
    health_every: float = 10.0
    inspect_time: float = 30.0
    inspect_memory: int = 4096
    loop_starts: int = 3
    loop_within: float = 3600.0
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where the daemon remembers, and for how many days after a finding is resolved."""

    dir: str = ""
    keep_days: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of a configuration file. `unused` names the tables that are accepted and do nothing in this version."""

    servers: tuple[Server, ...] = ()
    watch: Watch = field(default_factory=Watch)
    state: State = field(default_factory=State)
    unused: tuple[str, ...] = ()
    path: Path | None = None


def load(path: Path, *, allow_insecure: bool = False) -> Settings:
    """Read a configuration file. Raises ConfigError, naming file, line, key and what was expected."""
    try:
        if not allow_insecure:
            refuse_writable(path)
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; examples are in docs/daemon.md") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    return _Reader(path, text).settings(tables)


def refuse_writable(path: Path) -> None:
    """Raises ConfigError where somebody else than its owner may change a file or take its place in the directory."""
    for part in (path, path.resolve().parent):
        mode = part.stat()
        sticky = part.is_dir() and mode.st_mode & stat.S_ISVTX
        if mode.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not sticky:
            raise ConfigError(
                f"{part}: may be changed by others (mode {stat.S_IMODE(mode.st_mode):o}); "
                f"run chmod go-w {part}, or give --allow-insecure-permissions"
            )
        if mode.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"{part}: belongs to user {mode.st_uid}, neither root nor the user of the daemon; "
                "run chown, or give --allow-insecure-permissions"
            )


def state_directory(settings: Settings, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the store lies: configured, else what systemd gives, else the XDG state directory."""
    if settings.state.dir:
        return Path(settings.state.dir)
    for name in ("STATE_DIRECTORY", "STATE_DIR"):
        if environ.get(name):
            return Path(environ[name].split(":")[0])
    base = environ.get("XDG_STATE_HOME", "")
    home = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "/nonexistent") / ".local/state"
    if not home.is_absolute() or str(home).startswith("/nonexistent"):
        raise ConfigError("no place for the state: set [state] dir, $STATE_DIRECTORY or $HOME")
    return home / "specwatch"


def show(settings: Settings) -> str:
    """The settings in force as TOML, defaults included."""
    out = []
    for server in settings.servers:
        out += ["[[server]]", *_assignments(server), ""]
    out += ["[watch]", *_assignments(settings.watch), "", "[state]", *_assignments(settings.state)]
    return "\n".join(out)


def _assignments(table: Server | Watch | State) -> list[str]:
    return [f"{one.name} = {_toml(getattr(table, one.name))}" for one in fields(table)]


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return "{ " + ", ".join(f"{_toml(key)} = {_toml(to)}" for key, to in value) + " }"
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04X}" for c in escaped) + '"'
    return str(value)


_OTHER: Mapping[str, Sequence[str]] = {
    "policy": ("mode", "cooldown", "attempts", "window", "quiet_hours"),
    "web": ("listen", "token_file"),
    "alert": ("kind", "url", "command", "token_file"),
}
"""Tables of the contract that a later part of specwatch uses: their keys are checked, their values are not."""


class _Reader:
    """Turns the tables of one file into settings; knows where in the text a key stands."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.split("\n")

    def settings(self, tables: dict[str, Any]) -> Settings:
        self._known(tables, ("server", "watch", "state", *_OTHER), "")
        servers = tuple(self._server(table, n) for n, table in enumerate(self._tables(tables, "server")))
        names = [server.name for server in servers]
        for name in names:
            if names.count(name) > 1:
                self._fail("server", 0, "name", f"two servers are called {name!r}; expected a name for each")
        for table, keys in _OTHER.items():
            for one in self._tables(tables, table):
                self._known(one, keys, table)
        return Settings(
            servers=servers,
            watch=Watch(**self._plain(tables, "watch", Watch)),
            state=State(**self._plain(tables, "state", State)),
            unused=tuple(table for table in _OTHER if table in tables),
            path=self._path,
        )

    def _server(self, table: dict[str, Any], n: int) -> Server:
        self._known(table, [one.name for one in fields(Server)], "server", n)
        values = dict(table)
        for key in ("name", "launch", "sglang", "target", "health", "apply"):
            if key in values and not isinstance(values[key], str):
                self._fail("server", n, key, "expected a text")
        for key in ("logs", "models"):
            if key in values:
                values[key] = self._texts(values[key], "server", n, key)
        if not re.fullmatch(r"[\w.@:-]{1,100}", values.get("name", "")):
            self._fail("server", n, "name", "expected a name of letters, digits and . _ @ : -")
        if not values.get("logs"):
            self._fail("server", n, "logs", 'expected a list, as in logs = ["/var/log/sglang/*.log"]')
        for log in values["logs"]:
            self._log(log, n)
        maps = values.get("path_map", {})
        if not isinstance(maps, dict) or not all(isinstance(to, str) and at[:1] == "/" for at, to in maps.items()):
            self._fail("server", n, "path_map", 'expected paths, as in { "/models" = "/data/models" }')
        values["path_map"] = tuple(maps.items())
        if values.get("health", "http://")[:7] != "http://":
            self._fail("server", n, "health", "expected a URL that begins with http://")
        if values.get("apply", "none") not in ("none", "safe", "review"):
            self._fail("server", n, "apply", "expected none, safe or review")
        return Server(**values)

    def _log(self, log: str, n: int) -> None:
        kind, colon, rest = log.partition(":")
        if log.startswith("/") or log == "-":
            return
        if colon and kind in KINDS and rest and (kind != "pods" or rest.count("/") == 2):
            return
        self._fail(
            "server", n, "logs", f"{log!r}: expected an absolute path or glob, journal:UNIT, docker:NAME or "
            "pods:NAMESPACE/POD/CONTAINER",
        )  # fmt: skip

    def _plain(self, tables: dict[str, Any], name: str, kind: type[Watch | State]) -> dict[str, Any]:
        table = tables.get(name, {})
        if not isinstance(table, dict):
            self._fail(name, 0, name, f"expected a table, [{name}]")
        self._known(table, [one.name for one in fields(kind)], name)
        values: dict[str, Any] = {}
        for key, value in table.items():
            default = getattr(kind(), key)
            if isinstance(default, tuple):
                values[key] = self._texts(value, name, 0, key)
            elif isinstance(default, str):
                values[key] = value if isinstance(value, str) else self._fail(name, 0, key, "expected a text")
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                self._fail(name, 0, key, "expected a number above 0")
            else:
                values[key] = type(default)(value)
        return values

    def _texts(self, value: object, table: str, n: int, key: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            self._fail(table, n, key, "expected a list of texts")
        return tuple(value)

    def _tables(self, tables: dict[str, Any], name: str) -> list[dict[str, Any]]:
        found = tables.get(name, [])
        found = [found] if isinstance(found, dict) and name != "server" else found
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self._fail(name, 0, name, f"expected tables, [[{name}]]")
        return list(found)

    def _known(self, table: dict[str, Any], names: Sequence[str], where: str, n: int = 0) -> None:
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
                self._fail(where, n, key, f"is not known; {hint}")

    def _fail(self, table: str, n: int, key: str, says: str) -> NoReturn:
        place = f"[{table}] {key}" if table and table != key else key
        raise ConfigError(f"{self._path}:{self._line(table, n, key)}: {place}: {says}")

    def _line(self, table: str, n: int, key: str) -> int:
        """The line on which a key stands, else that of its table; 1 where neither can be found."""
        within: Callable[[str], re.Match[str] | None] = re.compile(rf"\s*\[+\s*{re.escape(table)}\s*\]").match
        start = 0
        if table:
            heads = [number for number, line in enumerate(self._lines) if within(line)]
            start = heads[min(n, len(heads) - 1)] if heads else 0
        at_key = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[\]=.]").match
        for number in range(start, len(self._lines)):
            if number > start and table and re.match(r"\s*\[", self._lines[number]):
                break
            if at_key(self._lines[number]):
                return number + 1
        return start + 1
