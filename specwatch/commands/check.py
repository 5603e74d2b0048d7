"""`specwatch check`: every problem of a launch, before it happens."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specwatch.checks.parsing import reader
from specwatch.commands.common import path_maps, print_lines, rulebook, say, width
from specwatch.commands.contract import Exit
from specwatch.domain import Finding, Launch, Severity, Verdict
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.command import parse
from specwatch.launch.targets import Targeted
from specwatch.launch.targets import read as read_target
from specwatch.models.files import LocalModels
from specwatch.pipeline import Preflight, preflight
from specwatch.report import text
from specwatch.rulebook.book import Rulebook

SEVERITY_OF_GITHUB = {Severity.FATAL: "error", Severity.DEGRADED: "warning", Severity.NOTICE: "notice"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of the command."""

    command: Sequence[str] = ()
    targets: Sequence[str] = ()
    path_map: Sequence[str] = ()
    models_dir: Sequence[Path] = ()
    format: str = "text"
    sglang: str = ""
    gpu: str = ""
    strict: bool = False
    online: bool = False
    rules: Sequence[Path] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One launch and what came of checking it."""

    name: str
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Verdict, ...] = ()
    passed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether SGLang would not start."""
        return any(finding.severity is Severity.FATAL for finding in self.findings)


def run(options: Options) -> Exit:
    """Check the launches and print what was found; returns the exit code: 1 where one would fail."""
    wanted = [target for given in options.targets for target in read_target(given)]
    if options.command:
        wanted.append(Targeted(name="command", command=_command(options.command)))
    if not wanted:
        raise ConfigError(
            "nothing to check: give a launch behind --, as in `specwatch check -- sglang serve …`, or --target"
        )
    book = rulebook(options.rules)
    checked = [_check(target, options, book) for target in wanted]
    _print(options.format, checked)
    bad = any(one.refused or (options.strict and one.findings) for one in checked)
    return Exit.FINDINGS if bad else Exit.CLEAN


def _command(words: Sequence[str]) -> str | tuple[str, ...]:
    """One word is a whole command line, as a script hands it over; several are its tokens."""
    return words[0] if len(words) == 1 else tuple(words)


def _check(target: Targeted, options: Options, book: Rulebook) -> Checked:
    maps = (*path_maps(options.path_map), *target.path_maps)
    models = LocalModels(
        path_maps=maps, models_dirs=tuple(str(folder) for folder in options.models_dir), online=options.online
    )
    result = preflight(_launch(target, options, models), book, models)
    return _checked(target.name, result)


def _checked(name: str, result: Preflight) -> Checked:
    return Checked(name=name, findings=result.findings, unknown=result.unknown, passed=result.passed)


def _launch(target: Targeted, options: Options, models: LocalModels) -> Launch:
    """The launch of a target; one that SGLang's own parser refuses is kept, it is the first thing to be told."""
    release = options.sglang or installed(target)
    try:
        launch = parse(target.command, release, read_file=reader(models), lenient=True)
    except LaunchError as error:
        raise ConfigError(f"{target.name}: {error}") from error
    return replace(launch, env={**target.env, **launch.env}, gpu=options.gpu, container=target.container)


def installed(target: Targeted) -> str:
    """The sglang that the launch would run, found without importing it: beside its Python, else beside ours."""
    tokens = target.command.split() if isinstance(target.command, str) else target.command
    for word in tokens:
        if word.startswith("/") and Path(word).name.startswith(("python", "sglang")):
            for info in sorted(Path(word).parent.parent.glob("lib/python3*/site-packages/sglang-*.dist-info")):
                return info.name.removeprefix("sglang-").removesuffix(".dist-info")
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _print(kind: str, checked: Sequence[Checked]) -> None:
    if kind == "json":
        from specwatch.report.as_json import check_document, dumps

        print(dumps(check_document([(one.name, one.findings, one.unknown) for one in checked])))
    elif kind == "markdown":
        from specwatch.report import markdown

        for one in checked:
            print(f"# {text.clean(one.name)}\n")
            for line in markdown.lines(one.findings):
                print(line)
    elif kind == "github":
        for line in _annotations(checked):
            print(line)
    else:
        _print_text(checked)


def _print_text(checked: Sequence[Checked]) -> None:
    if len(checked) > 1:
        print_lines(_table(checked))
    for one in checked:
        if len(checked) > 1 and not (one.findings or one.unknown):
            continue  # the table has said it
        if len(checked) > 1:
            print_lines([(text.Piece(f"{text.clean(one.name)}: {_word(one)}", "strong"),)])
        print_lines(text.lines(one.findings, width()))
        for verdict in one.unknown:
            print_lines(text.could_not_tell(verdict, width()))
        if one.findings:
            print()
    if len(checked) == 1:
        say(f"{_word(checked[0])}: {checked[0].passed} checks passed, {len(checked[0].unknown)} could not be made")
    else:
        failing = sum(one.refused for one in checked)
        say(f"{len(checked)} launches, {failing} would fail")


def _table(checked: Sequence[Checked]) -> Iterator[text.Line]:
    """One row a launch, those that would fail first: what comes of it, how many problems, what could not be told."""
    yield (text.Piece(f"{'launch would':22} {'problems':>8} {'untold':>6}  where", "quiet"),)
    for one in sorted(checked, key=lambda one: (not one.refused, not one.findings)):
        style = "error" if one.refused else "warning" if one.findings else "safe"
        counts = f" {len(one.findings):>8} {len(one.unknown):>6}  "
        yield text.Piece(f"{_word(one):22}", style), text.Piece(counts + text.clean(one.name))
    yield ()


def _word(one: Checked) -> str:
    if one.refused:
        return "would fail"
    return "starts, with warnings" if one.findings else "nothing wrong found"


def _annotations(checked: Sequence[Checked]) -> Iterator[str]:
    """GitHub's workflow commands: one line a problem, on the file that holds the launch."""

    from specwatch.report import redact

    def escaped(value: str) -> str:
        return redact.text(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    for one in checked:
        file = one.name.partition(":")[2].partition("#")[0] or one.name
        if one.name.startswith("compose:") and not Path(file).is_file():
            file = file.partition(":")[0]  # of several files the first
        file = escaped(file).replace(",", "%2C").replace(":", "%3A")
        for finding in one.findings:
            title = escaped(f"{finding.rule or 'specwatch'}: {finding.title}").replace(",", "%2C").replace(":", "%3A")
            level = SEVERITY_OF_GITHUB[finding.severity]
            yield f"::{level} file={file},title={title}::{escaped(finding.says)}"
