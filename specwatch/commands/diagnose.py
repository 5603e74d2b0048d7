"""`specwatch diagnose`: read logs, print findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from specwatch.commands.common import path_maps, print_lines, rulebook, say, width
from specwatch.commands.contract import Exit, Format
from specwatch.commands.reading import Outcome, outcomes
from specwatch.domain import Finding, Launch, Severity
from specwatch.errors import ConfigError, LaunchError, SourceError
from specwatch.log.anchors import engine
from specwatch.log.prefilter import incidents
from specwatch.pipeline import Passed, conclusions, fold, merge
from specwatch.report.as_json import SourceRead
from specwatch.rulebook.book import Rulebook
from specwatch.sources.blocks import name_of
from specwatch.sources.once import Stats, expand

if TYPE_CHECKING:
    from specwatch.launch.targets import Targeted
    from specwatch.models.files import LocalModels


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Options:
    """The arguments of the command."""

    logs: Sequence[str]
    launch: str | None = None
    target: str | None = None
    path_map: Sequence[str] = ()
    models_dir: Sequence[Path] = ()
    format: Format = Format.TEXT
    show_all: bool = False
    sglang: str = ""
    gpu: str = ""
    online: bool = False
    rules: Sequence[Path] = ()
    jobs: int | None = None

    @cached_property
    def models(self) -> LocalModels:
        """The models of this host, made when the first of them is asked for."""
        from specwatch.models.files import LocalModels

        folders = tuple(str(folder) for folder in self.models_dir)
        maps = (*path_maps(self.path_map), *(self.targeted.path_maps if self.targeted else ()))
        return LocalModels(path_maps=maps, models_dirs=folders, online=self.online)

    @cached_property
    def targeted(self) -> Targeted | None:
        """The launch that `--target` names. Raises ConfigError where it holds none, or several."""
        if self.target is None:
            return None
        from specwatch.launch.targets import read

        if self.launch is not None:
            raise ConfigError("--launch and --target both name a launch: give one of them")
        found = read(self.target)
        if len(found) > 1:
            raise ConfigError(
                f"{self.target}: holds {len(found)} launches; name one of {', '.join(t.name for t in found)}"
            )
        return found[0]


def run(options: Options) -> Exit:
    """Diagnose the logs and print what was found; returns the exit code."""
    book = rulebook(options.rules)
    path_maps(options.path_map)  # a wrong one is said even where no model is needed
    launch = _launch(options)
    paths, complete = _expanded(options)
    folded: list[tuple[Finding, ...]] = []
    sources: list[SourceRead] = []
    cores = 2 if len(paths) == 1 and options.jobs != 1 else 1
    for got in outcomes(paths, lambda path: _read(path, options, book, launch, cores), options.jobs):
        if got.failed:
            say(got.failed)
            complete = False
        folded.append(got.findings)
        sources.append(
            SourceRead(path=name_of(got.path), bytes=got.bytes, lines=got.lines, runs=got.runs, passed=got.passed)
        )
    findings = merge(folded)
    shown = findings if options.show_all else tuple(f for f in findings if _worth_showing(f))
    _print(options.format, findings, shown, sources, complete)
    if not complete:
        return Exit.UNREADABLE
    return Exit.FINDINGS if any(_worth_showing(finding) for finding in findings) else Exit.CLEAN


def _launch(options: Options) -> Launch | None:
    """The command that was given or named; one that SGLang's own parser refuses is kept, so that it can be mended."""
    target = options.targeted
    command = target.command if target else options.launch
    if command is None:
        return None
    from specwatch.checks.parsing import reader
    from specwatch.launch.command import parse

    given = "--target" if target else "--launch"
    try:
        launch = parse(command, options.sglang, read_file=reader(options.models))
    except LaunchError as error:
        try:
            launch = parse(command, options.sglang, read_file=reader(options.models), lenient=True)
        except LaunchError:
            if not (_is_launch(command, options.sglang) or _embeds_sglang(command)):
                raise error from None
            say(f"{given}: {error}; the log's own record is used instead")
            return None
        say(f"{given}: {error}")
    return replace(launch, env={**target.env, **launch.env}, container=target.container) if target else launch


def _is_launch(command: str | tuple[str, ...], release: str) -> bool:
    """Whether a command is a launch of SGLang whose `--config` file only cannot be read from here."""
    from specwatch.launch.command import parse

    try:
        parse(command, release, read_file=lambda _: "{}", lenient=True)
    except LaunchError:
        return False
    return True


def _embeds_sglang(command: str | tuple[str, ...]) -> bool:
    """Whether a command starts a program of others with SGLang inside, as `python -m dynamo.sglang`; not the router."""
    text = command if isinstance(command, str) else " ".join(command)
    return re.search(r"\b(?:\w+\.sglang|sgl_jax)\b", text) is not None and "router" not in text


def _expanded(options: Options) -> tuple[list[str], bool]:
    """The files to read, and whether all that was named could be found."""
    paths: list[str] = []
    complete = True
    for given in options.logs or ["-"]:
        try:
            paths += expand([given])
        except SourceError as error:
            say(str(error))
            complete = False
    return paths, complete


def _read(path: str, options: Options, book: Rulebook, launch: Launch | None, cores: int) -> Outcome:
    stats, passed = Stats(), Passed()
    failed = ""

    def findings() -> Iterator[Finding]:
        nonlocal failed
        try:
            found = incidents(path, stats, book.role_of, cores=cores, search=partial(engine, book.anchors))
            yield from conclusions(found, book, lambda: options.models, launch, options.sglang, passed, options.gpu)
        except SourceError as error:
            failed = str(error)

    folded = fold(findings())
    return Outcome(
        path=path,
        findings=folded,
        bytes=stats.bytes,
        lines=stats.lines,
        runs=stats.runs,
        passed=passed.count,
        failed=failed,
    )


def _worth_showing(finding: Finding) -> bool:
    """Everything but notices; a log of echoes alone is shown, as the server did die."""
    if finding.severity > Severity.NOTICE:
        return True
    return finding.rule is None and finding.verdict.status != "refuted"


def _print(
    kind: Format,
    findings: tuple[Finding, ...],
    shown: tuple[Finding, ...],
    sources: Sequence[SourceRead],
    complete: bool,
) -> None:
    if kind is Format.JSON:
        from specwatch.report.as_json import document, dumps

        print(dumps(document(sources, shown)))
    elif kind is Format.MARKDOWN:
        from specwatch.report import markdown

        for line in markdown.lines(shown):
            print(line)
    else:
        from specwatch.report import text

        print_lines(text.lines(shown, width()))
        if shown:
            print()
        if any(source.lines for source in sources) or complete:
            say(text.summary(findings, len(shown), sources))
