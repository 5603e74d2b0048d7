"""`specwatch watch`: run the daemon, or check and show its configuration."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specwatch.commands.common import SITE_RULES
from specwatch.commands.contract import Exit
from specwatch.config import DEFAULT_FILE, Server, Settings, load, refuse_writable, show, state_directory
from specwatch.daemon import Daemon
from specwatch.errors import ConfigError, RuleError, SpecwatchError
from specwatch.notify import notify, reloading, watchdog_seconds
from specwatch.report.text import clean
from specwatch.rulebook.book import Rulebook
from specwatch.sending.start import Alerting, shown
from specwatch.sources.base import Source
from specwatch.storage.store import Store
from specwatch.watching.casework import Say
from specwatch.watching.proposing import Proposer


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of the command."""

    config: Path | None = None
    once: bool = False
    check_config: bool = False
    print_config: bool = False
    insecure: bool = False
    state: Path | None = None
    logs: Sequence[str] = ()
    command: Sequence[str] = ()


class _Time:
    """The real time."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


def run(options: Options) -> int:
    """Watch until told to stop; gives the exit code, with `-- CMD` that of the command."""
    settings = _settings(options)
    if options.print_config:
        print(show(shown(settings)))
        return Exit.CLEAN
    book, refused = _rulebook(settings, options)
    if options.check_config:
        if refused:
            raise RuleError("\n".join(refused))
        print(f"{settings.path or 'defaults'}: {len(settings.servers)} servers, {len(book.rules)} rules: fine")
        return Exit.CLEAN
    say = logger()
    for text in refused:
        say("error", "rule_refused", because=text, says="the other rules go on")
    state = state_directory(settings)
    if settings.path is None:  # beside the configuration: each has logs of its own and tells nobody
        return _stored(options, settings, book, state, say)
    with _alone(state):
        return _stored(options, settings, book, state, say)


def _stored(options: Options, settings: Settings, book: Rulebook, state: Path, say: Say) -> int:
    watch = settings.watch
    store = Store(
        state,
        lambda text: say("warning", "store_set_aside", says=text),
        loop_starts=watch.loop_starts,
        loop_within=watch.loop_within,
    )
    try:
        return _watch(options, settings, book, store, say)
    finally:
        store.close()


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Nobody else watches with this state meanwhile: two would tell everything twice. Raises ConfigError.

    The lock goes with the process, however it ends, and no child of it keeps it (fcntl(2): record locks).
    """
    path = state / "lock"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o750)
        file = path.open("a")
    except OSError:  # the store says better what is wrong with the place
        yield
        return
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"{state}: another specwatch watches with this state; stop it, or name another one with --state DIR"
            ) from None
        yield


def _settings(options: Options) -> Settings:
    given = options.config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    own = bool(options.logs or options.command)
    if own and options.config is None:
        given = None
    settings = load(given, allow_insecure=options.insecure) if given else Settings()
    if options.logs:
        logs = tuple(log if log == "-" or ":" in log else str(Path(log).absolute()) for log in options.logs)
        settings = replace(settings, servers=(*settings.servers, Server(name="server", logs=logs)))
    if options.state:
        settings = replace(settings, state=replace(settings.state, dir=str(options.state)))
    if not settings.servers and not options.command and not options.print_config:
        raise ConfigError(f"nothing to watch: write {DEFAULT_FILE} (docs/daemon.md), name a log, or give -- CMD")
    return settings


def _rulebook(settings: Settings, options: Options) -> tuple[Rulebook, tuple[str, ...]]:
    """The rules that hold, and what is wrong with those that do not: one bad rule must not blind the rest."""
    from specwatch.rulebook.book import load_directories

    folders = [Path(folder) for folder in settings.watch.rules]
    if SITE_RULES.is_dir():
        folders.insert(0, SITE_RULES)
    for folder in folders:
        if not options.insecure and folder.is_dir():
            for path in (folder, *sorted(folder.glob("*.toml"))):
                refuse_writable(path)
    loaded = load_directories(folders)
    refused = list(loaded.refused)
    if not loaded.book.rules:
        raise RuleError("\n".join((*refused, "no rule could be loaded")))
    book = loaded.book
    if folders:
        from specwatch.proof import unproved
        from specwatch.rulebook.book import bundled_directory

        foreign = [rule for rule in loaded.book.rules.values() if rule.path.parent != bundled_directory()]
        broken = unproved(foreign, loaded.book, None)
        refused += [line for complaints in broken.values() for line in complaints]
        if broken:
            book = Rulebook(rule for rule in book.rules.values() if rule.id not in broken)
    return book, tuple(refused)


def logger() -> Say:
    """Our own log on stderr: for people on a terminal, else one JSON object a line."""
    try:
        import structlog
    except ImportError:
        raise ConfigError("the daemon needs structlog: pip install 'specwatch[daemon]'") from None
    terminal = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            renderer,
        ],
    )

    def say(level: str, event: str, **fields: object) -> None:
        # no secret and no control character of a watched log may reach ours
        shown = {name: clean(value) if isinstance(value, str) else value for name, value in fields.items()}
        try:
            getattr(log, level)(event, **shown)
        except OSError:  # nobody reads our log: the store has everything
            return

    return say


def _watch(options: Options, settings: Settings, book: Rulebook, store: Store, say: Say) -> int:
    from specwatch.sources.child import FORWARDED, Wrapped
    from specwatch.sources.stream import Pipes

    sources: list[tuple[Server, Source]] = []
    for server in settings.servers:
        if "-" in server.logs:
            sources.append((server, Pipes(f"{server.name}|-", "<stdin>", (0,))))
    wrapped = None
    if options.command:
        name = settings.servers[0].name if settings.servers else "server"
        server = settings.servers[0] if settings.servers else Server(name=name, logs=("-",))
        wrapped = Wrapped(options.command, f"{name}|child {os.getpid()}")
        sources.append((server, wrapped.pipes))
    with _signals() as caught, ExitStack() as ends:
        clock = _Time()
        proposer = Proposer(store.path.parent, say)
        alerting = Alerting(store, say)
        alerting.configure(settings)
        daemon = Daemon(settings, store, book, say, clock, sources, wake=caught.fd, proposer=proposer)
        try:
            say("info", "watch_started", servers=len(settings.servers), rules=len(book.rules), store=str(store.path))
            if options.once:
                return _once(daemon, store)
            if settings.web.listen:
                from specwatch.web.start import start

                serving = start(
                    lambda: daemon.settings, store.path, daemon.tally, clock.now, clock.wall, say, daemon.status_of
                )
                ends.callback(serving)
            notify("READY=1")
            while True:
                daemon.turn(watchdog_or(60.0))
                notify("WATCHDOG=1")
                for number in caught.take():
                    if wrapped is not None and number in FORWARDED:
                        wrapped.signal(number)
                    elif number == signal.SIGHUP:
                        _reload(options, daemon, alerting, say)
                    elif number in (signal.SIGTERM, signal.SIGINT):
                        return Exit.CLEAN
                if daemon.all_ended and (wrapped is None or wrapped.exit_code() is not None):
                    daemon.finish()
                    return wrapped.exit_code() or 0 if wrapped is not None else _answer(store)
        finally:
            notify("STOPPING=1")
            daemon.close()
            alerting.close(finished=options.once or daemon.all_ended)
            say("info", "watch_ended")
            if wrapped is not None:
                wrapped.close()


def watchdog_or(most: float) -> float:
    """How long a turn may wait at most: a third of what systemd's watchdog allows."""
    wanted = watchdog_seconds()
    return min(most, wanted / 3) if wanted else most


def _once(daemon: Daemon, store: Store) -> Exit:
    daemon.turn(0.0)
    while daemon.reading:
        daemon.turn(0.0)
    daemon.finish()
    return _answer(store)


def _answer(store: Store) -> Exit:
    return Exit.FINDINGS if store.findings(state="firing") else Exit.CLEAN


def _reload(options: Options, daemon: Daemon, alerting: Alerting, say: Say) -> None:
    """Take the new configuration and rules; the old ones stay where the new ones fail."""
    reloading()
    try:
        settings = _settings(options)
        book, refused = _rulebook(settings, options)
        if refused:
            raise RuleError("\n".join(refused))
        alerting.configure(settings)
        before = daemon.settings.web.listen
        daemon.configure(settings, book)
        if settings.web.listen != before:
            say("warning", "web_unmoved", listen=before, says="another [web] listen needs a restart")
        say("info", "configuration_reloaded", servers=len(settings.servers))
    except SpecwatchError as error:
        say("error", "configuration_refused", because=str(error), says="the old one stays")
    notify("READY=1")


class _Caught:
    """Signals that came; `fd` wakes the loop."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._numbers: list[int] = []

    def catch(self, number: int, _frame: object) -> None:
        self._numbers.append(number)

    def take(self) -> list[int]:
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        numbers, self._numbers = self._numbers, []
        return numbers


@contextmanager
def _signals() -> Iterator[_Caught]:
    from specwatch.sources.child import FORWARDED

    end, start = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    caught = _Caught(end)
    before_fd = signal.set_wakeup_fd(start)
    before = {number: signal.signal(number, caught.catch) for number in (*FORWARDED, signal.SIGCHLD)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(end)
        os.close(start)
