"""`specwatch apply|rollback|reset`: change a launch, put an earlier one back, close a breaker."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from specwatch import act
from specwatch.acting.base import Hooks, Outcome, Request
from specwatch.acting.revalidating import revalidate
from specwatch.commands.common import path_maps, rulebook, say, width
from specwatch.commands.contract import Exit
from specwatch.config import DEFAULT_FILE, Server, Settings, load, state_directory
from specwatch.errors import ApplyError, ConfigError
from specwatch.report.text import clean, inert
from specwatch.rulebook.book import Rulebook
from specwatch.storage.store import Store

STEPS = {
    "planned": "recorded",
    "bundled": "the evidence is kept",
    "kept": "the old launch is kept",
    "written": "the new launch is written",
    "restarted": "restarting the server",
    "waiting": "waiting until it is healthy; Ctrl-C leaves that to the next `specwatch apply`",
    "restoring": "putting the old launch back",
}
RESULTS = {
    "applied": "applied",
    "rolled_back": "rolled back",
    "failed": "FAILED, a person has to look",
    "refused": "refused",
    "planned": "would be done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of the commands."""

    finding: str = ""
    config: Path | None = None
    state: Path | None = None
    fix: str | None = None
    target: str | None = None
    logs: Sequence[str] = ()
    health: str = ""
    path_map: Sequence[str] = ()
    dry_run: bool = False
    yes: bool = False
    even_if_up: bool = False
    insecure: bool = False


def run(options: Options) -> Exit:
    """Apply a fix of a finding; exit 0 where it helped, or would be done."""
    settings = _settings(options)
    book = rulebook([Path(folder) for folder in settings.watch.rules])
    hooks = Hooks(confirm=lambda outcome: _confirm(outcome, yes=options.yes), step=_step)
    try:
        if not options.dry_run:
            for outcome in act.resume(settings, book, hooks=hooks):
                say(f"an interrupted action on {outcome.server} was ended: {_ended(outcome)}")
        server = _server(options, settings, book)
        request = Request(
            server=server, fingerprint=options.finding, fix=options.fix, dry_run=options.dry_run,
            even_if_up=options.even_if_up,
        )  # fmt: skip
        outcome = act.apply(request, settings, book, hooks=hooks)
    except ApplyError as error:
        say(str(error))
        return Exit.FINDINGS
    except KeyboardInterrupt:
        say("interrupted: run `specwatch apply` again to finish what was begun, or take it back")
        raise
    if options.dry_run or (outcome.result == "refused" and outcome.decision and outcome.decision.fix is None):
        _print(outcome)  # everything else was shown before it was done
    say(f"{outcome.server}: {_ended(outcome)}")
    return Exit.CLEAN if outcome.result in ("applied", "planned") else Exit.FINDINGS


def rollback(name: str, options: Options) -> Exit:
    """Put back what an action replaced."""
    settings = _settings(options)
    book = rulebook([Path(folder) for folder in settings.watch.rules])
    hooks = Hooks(confirm=lambda outcome: _confirm(outcome, yes=options.yes), step=_step)
    try:
        outcome = act.rollback(name, settings, book, hooks=hooks, dry_run=options.dry_run)
    except ApplyError as error:
        say(str(error))
        return Exit.FINDINGS
    if options.dry_run:
        _print(outcome)
    say(f"{outcome.server}: {_ended(outcome)}")
    return Exit.CLEAN if outcome.result in ("applied", "planned") else Exit.FINDINGS


def reset(server: str, options: Options) -> Exit:
    """Close the breaker of a server."""
    settings = _settings(options)
    known = {one.name for one in settings.servers}
    if known and server not in known:
        raise ConfigError(f"{settings.path}: names no server {server}; there are {', '.join(sorted(known))}")
    try:
        was = act.reset(server, settings)
    except ApplyError as error:
        say(str(error))
        return Exit.FINDINGS
    state = f"the breaker is closed again; it was open: {was}" if was else "the breaker was not open"
    say(f"{server}: {state}; attempts count anew from now on")
    return Exit.CLEAN


def _settings(options: Options) -> Settings:
    given = options.config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    settings = load(given, allow_insecure=options.insecure) if given else Settings()
    if options.state:
        settings = replace(settings, state=replace(settings.state, dir=str(options.state)))
    return settings


def _server(options: Options, settings: Settings, book: Rulebook) -> Server:
    """The server that a finding is about. Raises ConfigError or ApplyError where that cannot be told."""
    if not re.fullmatch(r"[0-9a-f]{4,12}", options.finding):
        raise ConfigError(f"{options.finding}: expected a finding's id, or at least four digits of it")
    if options.target:
        known = [one for one in settings.servers if one.target == options.target]
        server = known[0] if known else _ad_hoc(options.target)
        return _with(server, options)
    named = [one for one in settings.servers if one.name in _servers_of(options.finding, settings)]
    if not named:
        named = _firing(options.finding, settings, book)
    if len(named) > 1:
        places = ", ".join(one.target or one.name for one in named)
        raise ConfigError(f"{options.finding} fires on {len(named)} servers; name one with --target: {places}")
    if not named[0].target:
        raise ConfigError(f"{named[0].name}: has no target to change; give it one in the configuration, or --target T")
    return _with(named[0], options)


def _servers_of(finding: str, settings: Settings) -> set[str]:
    """The servers on which the watcher's store knows a finding; none where there is no store to read."""
    with suppress(ConfigError):
        folder = state_directory(settings)
        if (folder / "specwatch.db").is_file():
            store = Store(folder, say, read_only=True)
            try:
                return {one.server for one in store.findings() if one.fingerprint.startswith(finding)}
            finally:
                store.close()
    return set()


def _firing(finding: str, settings: Settings, book: Rulebook) -> list[Server]:
    """The configured servers on which a finding fires by their own logs. Raises ApplyError where there is none."""
    candidates = [one for one in settings.servers if one.target]
    if not candidates:
        where = settings.path or DEFAULT_FILE
        raise ConfigError(f"{where}: names no server with a target; give --target T, and --log LOG for a script")
    if len(candidates) == 1:
        return candidates
    found, problems = [], []
    for server in candidates:
        try:
            revalidate(server, settings, book, finding)
            found.append(server)
        except ApplyError as error:
            problems.append(str(error))
    if not found:
        raise ApplyError("\n".join(problems))
    return found


def _ad_hoc(target: str) -> Server:
    """A server that no configuration names: its logs are where its target's usually are."""
    kind, _, rest = target.partition(":")
    name = re.sub(r"[^\w.@-]+", "-", rest.rpartition("/")[2] if kind != "k8s" else rest).strip("-")[:100] or "server"
    logs: tuple[str, ...] = ()
    if kind == "systemd":
        logs = (f"journal:{name if '.' in name else name + '.service'}",)
    elif kind == "compose" and "#" in rest:
        from specwatch.launch.targets import compose_files

        file, _, service = rest.rpartition("#")
        project = re.sub(r"[^a-z0-9_-]", "", Path(compose_files(file)[0]).resolve().parent.name.lower())
        logs = (f"docker:{project}-{service}-*",)
    return Server(name=name, logs=logs, target=target)


def _with(server: Server, options: Options) -> Server:
    logs = tuple(log if ":" in log else str(Path(log).absolute()) for log in options.logs)
    return replace(
        server,
        logs=logs or server.logs,
        health=options.health or server.health,
        path_map=(*server.path_map, *path_maps(options.path_map)),
    )


def _step(name: str) -> None:
    if name in STEPS:
        say(STEPS[name])


def _confirm(outcome: Outcome, *, yes: bool) -> bool:
    """Show what would be done, and ask."""
    _print(outcome)
    if yes:
        return True
    if not (sys.stdin and sys.stdin.isatty()):
        raise ConfigError("nothing was changed: no terminal to ask on; give --yes, or --dry-run to look only")
    sys.stdout.flush()
    print(f"Do this to {outcome.server} now? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _ended(outcome: Outcome) -> str:
    word = RESULTS.get(outcome.result, outcome.result)
    action = f" (action {outcome.action}, {outcome.took:.0f} s)" if outcome.action else ""
    after = ""
    if outcome.result == "applied" and outcome.fix and outcome.decision:
        after = f"; `specwatch rollback {outcome.action}` takes it back"
    return f"{word}{action}: {outcome.because}{after}"


def _print(outcome: Outcome) -> None:
    for line in page(outcome, width()):
        print(line)


def page(outcome: Outcome, columns: int = 80) -> Iterator[str]:
    """What is, or would be, done, for a person; nothing in it that a terminal would act upon."""
    if outcome.title:
        yield from _wrapped(f"{outcome.server}: {outcome.title}", columns, "  ")
    if outcome.says and outcome.says != outcome.title:
        yield from _wrapped(f"  {outcome.says}", columns, "  ")
    if outcome.fix:
        yield from _wrapped(f"  finding {outcome.fingerprint}, fix {outcome.fix} {outcome.why}", columns, "    ")
    if outcome.decision is not None:
        yield "may it be applied?"
        for one in outcome.decision.walked:
            yield from _wrapped(f"  {'yes' if one.yes else 'NO '}  {one.question} {one.because}", columns, " " * 7)
    if outcome.diff:
        yield "what changes"
        yield from (f"  {inert(line)}" for line in outcome.diff)
    if outcome.commands:
        yield "what is run"
        yield from (f"  {inert(line)}" for line in outcome.commands)
    if outcome.neighbourhood:
        yield "around the server, for a person (specwatch does nothing about it)"
        for text in outcome.neighbourhood:
            yield from _wrapped(f"  - {text}", columns, "    ")


def _wrapped(text: str, columns: int, indent: str) -> list[str]:
    return textwrap.wrap(
        clean(text), max(40, columns), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True,
    )  # fmt: skip
