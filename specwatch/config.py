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
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from specwatch.errors import ConfigError
from specwatch.settings import (
    Alert,
    Enrich,
    Otel,
    Policy,
    Server,
    Settings,
    Silence,
    State,
    Watch,
    Web,
)

__all__ = [
    "ALERT_KINDS",
    "DEFAULT_FILE",
    "LISTEN",
    "Alert",
    "Enrich",
    "Otel",
    "Policy",
    "Server",
    "Settings",
    "Silence",
    "State",
    "Watch",
    "Web",
    "load",
    "refuse_writable",
    "secret",
    "show",
    "state_directory",
]

T = TypeVar("T", Server, Watch, State, Policy, Silence, Web, Alert, Enrich, Otel)

DEFAULT_FILE = Path("/etc/specwatch/specwatch.toml")
KINDS = ("journal", "docker", "pods")
"""What may stand before the colon of a log that is not a path."""


LISTEN = "127.0.0.1:9117"
"""Where `[web]` listens when it does not say."""
ALERT_KINDS = ("alertmanager", "slack", "pagerduty", "webhook", "command")
MODES = ("observe", "propose", "approve", "safe", "review")
_TABLES = ("server", "watch", "state", "policy", "silence", "web", "alert", "enrich", "otel")
_SINGLE = {"watch": Watch, "state": State, "policy": Policy, "web": Web, "enrich": Enrich, "otel": Otel}
_PAIRS = ("tuple[tuple[str, str], ...]", "Mapping[str, str]")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")


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
    """Raises ConfigError where somebody else than its owner may change a file, or put another in its place.

    That is whoever may write in any directory above it, unless that is mounted read-only, as a ConfigMap is.
    """
    for part in dict.fromkeys((path, *path.absolute().parents, *path.resolve().parents)):
        mode = part.stat()
        if part != path and os.statvfs(part).f_flag & os.ST_RDONLY:
            continue
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


def secret(path: str) -> str:
    """The secret that a file holds, without the white space around it. Raises ConfigError.

    The file may be read by its owner and group only, and belongs to root or to us.
    """
    file = Path(path)
    try:
        found = file.stat()
        if stat.S_IMODE(found.st_mode) & 0o137:
            raise ConfigError(
                f"{file}: holds a secret and has mode {stat.S_IMODE(found.st_mode):o}; run chmod 640 {file}"
            )
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"{file}: holds a secret and belongs to user {found.st_uid}, neither root nor the daemon's"
            )
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the secret cannot be read: {error}") from None
    if not text:
        raise ConfigError(f"{file}: holds no secret; expected one line")
    return text


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
    for name in _SINGLE:
        out += [f"[{name}]", *_assignments(getattr(settings, name)), ""]
    for silence in settings.silences:
        out += ["[[silence]]", *_assignments(silence), ""]
    for alert in settings.alerts:
        out += ["[[alert]]", *_assignments(alert), ""]
    return "\n".join(out).rstrip("\n")


def _assignments(table: object) -> list[str]:
    out = []
    for one in fields(table):  # type: ignore[arg-type]
        value = getattr(table, one.name)
        if one.type in _PAIRS:
            value = dict(value)
        out.append(f"{one.name} = {_toml(value)}")
    return out


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(to)}" for key, to in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04X}" for c in escaped) + '"'
    return str(value)


class _Reader:
    """Turns the tables of one file into settings; knows where in the text a key stands."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.split("\n")

    def settings(self, tables: dict[str, Any]) -> Settings:
        self._known(tables, _TABLES, "")
        singles: dict[str, Any] = {name: self._single(tables, name, kind) for name, kind in _SINGLE.items()}
        servers = [self._server(one, n) for n, one in enumerate(self._tables(tables, "server"))]
        alerts = [self._alert(one, n) for n, one in enumerate(self._tables(tables, "alert"))]
        silences = [self._silence(one, n) for n, one in enumerate(self._tables(tables, "silence"))]
        self._unique("server", [one.name for one in servers], "two servers are called")
        self._unique("alert", [one.name for one in alerts], "two receivers are called")
        webhooks = [one.name for one in alerts if one.kind == "webhook"]
        for entry in singles["enrich"].forward:
            if entry not in webhooks and not (urlsplit(entry).scheme in ("http", "https") and urlsplit(entry).hostname):
                self._fail(
                    "enrich", 0, "forward", f"{entry!r}: expected a URL or the name of an [[alert]] of kind webhook"
                )
            goes_to = next((one.url for one in alerts if one.name == entry), entry)
            if singles["web"].listen and urlsplit(goes_to).netloc == singles["web"].listen:
                self._fail("enrich", 0, "forward", f"{entry!r}: is our own address; alerts would go round for ever")
        if (otel := singles["otel"].endpoint) and urlsplit(otel).scheme not in ("http", "https"):
            self._fail("otel", 0, "endpoint", "expected a URL that begins with http:// or https://")
        return Settings(
            servers=tuple(servers), alerts=tuple(alerts), silences=tuple(silences), path=self._path, **singles
        )

    def _unique(self, table: str, names: list[str], says: str) -> None:
        for name in names:
            if names.count(name) > 1:
                self._fail(table, 0, "name", f"{says} {name!r}; expected a name for each")

    def _single(self, tables: dict[str, Any], name: str, kind: type[T]) -> T:
        given = tables.get(name, {})
        if not isinstance(given, dict):
            self._fail(name, 0, name, f"expected a table, [{name}]")
        table = self._table(given, name, 0, kind)
        if isinstance(table, Web):
            if name in tables and "listen" not in given:
                return replace(table, listen=LISTEN)
            if table.listen and not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", table.listen):
                self._fail(name, 0, "listen", 'expected HOST:PORT, as in "127.0.0.1:9117"')
        if isinstance(table, Policy):
            if table.mode not in MODES:
                self._fail(name, 0, "mode", f"expected one of {', '.join(MODES)}")
            if not all(map(_HOURS.fullmatch, table.quiet_hours)):
                self._fail(name, 0, "quiet_hours", 'expected times of day, as in ["22:00-06:00"]')
        return table

    def _server(self, given: dict[str, Any], n: int) -> Server:
        self._known(given, [one.name for one in fields(Server)], "server", n)
        name = str(given.get("name", ""))
        if not re.fullmatch(r"[\w.@:-]{1,100}", name, re.ASCII) or not name.strip("."):
            self._fail("server", n, "name", "expected a name of ASCII letters, digits and . _ @ : -, not of dots alone")
        if not given.get("logs"):
            self._fail("server", n, "logs", 'expected a list, as in logs = ["/var/log/sglang/*.log"]')
        server = self._table(given, "server", n, Server)
        for log in server.logs:
            self._log(log, n)
        if any(at[:1] != "/" for at, _ in server.path_map):
            self._fail("server", n, "path_map", 'expected paths, as in { "/models" = "/data/models" }')
        if server.health and server.health[:7] != "http://":
            self._fail("server", n, "health", "expected a URL that begins with http://")
        if server.gpu:
            from specwatch.launch.gpus import kind

            if kind(server.gpu) is None:
                self._fail("server", n, "gpu", "expected a kind of GPU, as H100, B200, MI300X or sm_90")
        if server.apply not in ("none", "safe", "review"):
            self._fail("server", n, "apply", "expected none, safe or review")
        if server.apply != "none" and not server.target:
            self._fail("server", n, "apply", 'needs a target to change, as in target = "systemd:sglang.service"')
        if server.target and not re.match(
            r"systemd:.|compose:.+#.|k8s:.+#.|k8s://[^/]+/[^/]+/.|script:/|/", server.target
        ):
            expected = "systemd:UNIT, compose:FILE#SERVICE, k8s:FILE#CONTAINER, k8s://NAMESPACE/KIND/NAME#CONTAINER"
            self._fail("server", n, "target", f"expected {expected} or script:/PATH")
        return server

    def _alert(self, given: dict[str, Any], n: int) -> Alert:
        if given.get("kind") not in ALERT_KINDS:
            self._fail("alert", n, "kind", f"expected one of {', '.join(ALERT_KINDS)}")
        alert = self._table(given, "alert", n, Alert)
        if alert.severity not in ("notice", "degraded", "fatal"):
            self._fail("alert", n, "severity", "expected notice, degraded or fatal")
        if alert.kind == "command":
            if not alert.command:
                self._fail("alert", n, "kind", 'a command needs its words, as in command = ["/usr/bin/page", "-"]')
        elif not alert.url and not (alert.kind in ("slack", "pagerduty") and alert.token_file):
            self._fail("alert", n, "kind", f'{alert.kind} needs a url, as in url = "http://127.0.0.1:9093"')
        elif alert.url and (urlsplit(alert.url).scheme not in ("http", "https") or not urlsplit(alert.url).hostname):
            self._fail("alert", n, "url", "expected a URL that begins with http:// or https://")
        wrong = [label for label, _ in alert.labels if not _LABEL.fullmatch(label)]
        if wrong:
            self._fail("alert", n, "labels", f"{wrong[0]!r}: expected letters, digits and _, no digit first")
        return replace(alert, name=alert.name or f"{alert.kind}-{n + 1}")

    def _silence(self, given: dict[str, Any], n: int) -> Silence:
        values = dict(given)
        for key in ("start", "until"):
            if key in values:
                if not isinstance(values[key], datetime):
                    self._fail("silence", n, key, "expected a date and time, as in 2026-12-24T18:00:00Z")
                values[key] = values[key].timestamp()
        for key in ("server", "until"):
            if key not in values:
                self._fail(
                    "silence", n, "silence", f'needs {key}, as in server = "llama-*", until = 2026-12-24T18:00:00Z'
                )
        return self._table(values, "silence", n, Silence)

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

    def _table(self, given: dict[str, Any], name: str, n: int, kind: type[T]) -> T:
        """The values of one table, each of the kind that its field's default (or the field) has."""
        self._known(given, [one.name for one in fields(kind)], name, n)
        values: dict[str, Any] = {}
        for one in fields(kind):
            if one.name not in given:
                continue
            value, wanted = given[one.name], str(one.type)
            if wanted in _PAIRS:
                if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
                    self._fail(name, n, one.name, 'expected texts by name, as in { "/models" = "/data/models" }')
                values[one.name] = tuple(value.items()) if wanted.startswith("tuple") else dict(value)
            elif wanted == "tuple[str, ...]":
                values[one.name] = self._texts(value, name, n, one.name)
            elif wanted == "str":
                values[one.name] = value if isinstance(value, str) else self._fail(name, n, one.name, "expected a text")
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                self._fail(name, n, one.name, "expected a number above 0")
            else:
                values[one.name] = int(value) if wanted == "int" else float(value)
        return kind(**values)

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
