"""The subcommands and their options. Each body imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from specwatch import __version__
from specwatch.commands.contract import Exit, Format
from specwatch.errors import ModelError, SourceError, SpecwatchError

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DIRECTORY = click.Path(path_type=Path)

rules_option = click.option(
    "--rules",
    type=DIRECTORY,
    metavar="DIR",
    multiple=True,
    help="More rules; repeatable. A later rule of the same id replaces an earlier one.",
)
format_option = click.option(
    "--format",
    "kind",
    type=click.Choice([member.value for member in Format]),
    default=Format.TEXT.value,
    show_default=True,
    help="How to print.",
)


path_map_option = click.option(
    "--path-map",
    metavar="FROM=TO",
    multiple=True,
    help="A path of the server and where it lies on this host; repeatable. /=DIR/ maps everything.",
)
models_dir_option = click.option(
    "--models-dir",
    type=DIRECTORY,
    metavar="DIR",
    multiple=True,
    help="Where a fitting draft may be; repeatable. The Hugging Face cache is always searched.",
)


target_option = click.option(
    "--target",
    "targets",
    metavar="T",
    multiple=True,
    help="systemd:UNIT, compose:FILE#SERVICE, k8s:FILE#CONTAINER, script:FILE, pid:N, a file or a folder; repeatable.",
)


def _install_completion(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from specwatch.commands.completion import install

        _finish(install)


@click.group(
    context_settings=HELP,
    epilog="Exit codes: 0 nothing wrong, 1 findings, 2 bad usage or rules, 3 an input could not be read.",
)
@click.version_option(__version__, message="specwatch %(version)s")
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Set up completion for the shell in $SHELL, and exit.",
)
def app() -> None:
    """Read an SGLang crash log, prove the cause on the model files, and propose a launch that passes the check."""


def _finish(run: Callable[[], int]) -> NoReturn:
    """Run a command, turn what it raises into the contract's exit codes, and end."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - lives as long as we do
    try:
        code = int(run())
        sys.stdout.flush()
    except SpecwatchError as error:
        # nothing is ever half printed: what was found before is out already
        from specwatch.commands.common import say

        say(str(error))
        code = Exit.UNREADABLE if isinstance(error, (SourceError, ModelError)) else Exit.USAGE
    except BrokenPipeError:
        # the reader of our output went away; keep the interpreter from complaining when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            raise
        print(f"specwatch: the answer could not be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.UNREADABLE
    sys.exit(code)


@app.command()
@click.argument("logs", nargs=-1, metavar="[LOG …|-]")
@click.option("--launch", metavar="CMD", help="The launch command, for an exact edit or where the log has none.")
@click.option("--target", metavar="T", help="Where the launch stands: as for check, one launch.")
@path_map_option
@models_dir_option
@format_option
@click.option("--all", "show_all", is_flag=True, help="Show echoes and notices too.")
@click.option("--sglang", metavar="VERSION", default="", help="SGLang's version, where the log does not tell.")
@click.option("--online", is_flag=True, help="May ask the Hugging Face Hub for configuration and tokenizer files.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many logs are read side by side. Default: as many as there are cores, once the logs are large.",
)
@rules_option
def diagnose(
    logs: tuple[str, ...],
    launch: str | None,
    target: str | None,
    path_map: tuple[str, ...],
    models_dir: tuple[Path, ...],
    kind: str,
    show_all: bool,
    sglang: str,
    online: bool,
    jobs: int | None,
    rules: tuple[Path, ...],
) -> None:
    """Read logs and print the first cause of each crash, its proof, and fixed commands.

    LOG is a file (plain, .gz, .zst), a directory, or - for standard input.
    """

    def run() -> int:
        from specwatch.commands import diagnose as command

        options = command.Options(
            logs=logs,
            launch=launch,
            target=target,
            path_map=path_map,
            models_dir=models_dir,
            format=Format(kind),
            show_all=show_all,
            sglang=sglang,
            online=online,
            rules=rules,
            jobs=jobs,
        )
        return command.run(options)

    _finish(run)


@app.command()
@target_option
@path_map_option
@models_dir_option
@click.option(
    "--format",
    "kind",
    type=click.Choice([*(member.value for member in Format), "github"]),
    default=Format.TEXT.value,
    show_default=True,
    help="How to print; github annotates a workflow run.",
)
@click.option("--sglang", metavar="VERSION", default="", help="SGLang's version; else the installed one is looked for.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings too.")
@click.option("--online", is_flag=True, help="May ask the Hugging Face Hub for configuration and tokenizer files.")
@rules_option
@click.argument("command", nargs=-1, metavar="[-- CMD …]", type=click.UNPROCESSED)
def check(
    targets: tuple[str, ...],
    path_map: tuple[str, ...],
    models_dir: tuple[Path, ...],
    kind: str,
    sglang: str,
    strict: bool,
    online: bool,
    rules: tuple[Path, ...],
    command: tuple[str, ...],
) -> None:
    """Check a launch before it happens: every problem at once, and what could not be told. Exit 1 if it would fail."""

    def run() -> int:
        from specwatch.commands import check as check_command

        options = check_command.Options(
            command=command,
            targets=targets,
            path_map=path_map,
            models_dir=models_dir,
            format=kind,
            sglang=sglang,
            strict=strict,
            online=online,
            rules=rules,
        )
        return check_command.run(options)

    _finish(run)


@app.command()
@click.argument("target")
@path_map_option
@models_dir_option
@click.option("--algorithm", metavar="NAME", default="", help="Only drafts for this algorithm.")
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--sglang", metavar="VERSION", default="", help="SGLang's version; the newest known is taken without it.")
@click.option("--online", is_flag=True, help="May ask the Hugging Face Hub for configuration and tokenizer files.")
def drafts(
    target: str,
    path_map: tuple[str, ...],
    models_dir: tuple[Path, ...],
    algorithm: str,
    kind: str,
    sglang: str,
    online: bool,
) -> None:
    """List the models on this machine that can draft for TARGET, with the flags, and why the others cannot."""

    def run() -> int:
        from specwatch.commands import drafts as command

        options = command.Options(
            target=target,
            path_map=path_map,
            models_dir=models_dir,
            algorithm=algorithm,
            json=kind == "json",
            sglang=sglang,
            online=online,
        )
        return command.run(options)

    _finish(run)


config_option = click.option(
    "--config", type=DIRECTORY, metavar="FILE", help="The configuration; /etc/specwatch/specwatch.toml where it exists."
)
state_option = click.option("--state", type=DIRECTORY, metavar="DIR", help="Where the daemon remembers.")


@app.command()
@config_option
@state_option
@click.option("--log", "logs", metavar="LOG", multiple=True, help="A log to watch: path, glob, journal:UNIT, -.")
@click.option("--once", is_flag=True, help="Read to the end and exit; exit 1 where something fires.")
@click.option("--check-config", is_flag=True, help="Check the configuration, rules included, and exit.")
@click.option("--print-config", is_flag=True, help="Print the configuration with its defaults and exit.")
@click.option("--allow-insecure-permissions", "insecure", is_flag=True, help="Accept files that others may change.")
@click.argument("command", nargs=-1, metavar="[-- CMD …]", type=click.UNPROCESSED)
def watch(
    config: Path | None,
    state: Path | None,
    logs: tuple[str, ...],
    once: bool,
    check_config: bool,
    print_config: bool,
    insecure: bool,
    command: tuple[str, ...],
) -> None:
    """Watch live logs and remember what is found: the daemon. With -- CMD: run a server and watch its output."""

    def run() -> int:
        from specwatch.commands import watch as watch_command

        options = watch_command.Options(
            config=config,
            state=state,
            logs=logs,
            once=once,
            check_config=check_config,
            print_config=print_config,
            insecure=insecure,
            command=command,
        )
        return watch_command.run(options)

    _finish(run)


@app.group("findings", context_settings=HELP)
def findings_group() -> None:
    """List, show and export what the daemon found."""


@findings_group.command("list")
@config_option
@state_option
@click.option("--all", "show_all", is_flag=True, help="Resolved ones too.")
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
def findings_list(config: Path | None, state: Path | None, show_all: bool, kind: str) -> None:
    """List the findings that fire; exit 1 where there is one."""
    from specwatch.commands import findings as command

    _finish(lambda: command.list_findings(Format(kind), config, state, show_all))


@findings_group.command("show")
@click.argument("finding", metavar="ID")
@config_option
@state_option
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
def findings_show(finding: str, config: Path | None, state: Path | None, kind: str) -> None:
    """Show one finding with its evidence and commands."""
    from specwatch.commands import findings as command

    _finish(lambda: command.show_finding(finding, Format(kind), config, state))


@findings_group.command("export")
@config_option
@state_option
def findings_export(config: Path | None, state: Path | None) -> None:
    """Print every finding as one JSON object a line."""
    from specwatch.commands import findings as command

    _finish(lambda: command.export(config, state))


@app.command()
@click.argument("rule", required=False)
@rules_option
def explain(rule: str | None, rules: tuple[Path, ...]) -> None:
    """Say what a rule means, why, where it is wrong, and what helps. Without RULE: list them."""
    from specwatch.commands import rules as command

    _finish(lambda: command.explain(rule, rules))


@app.group("rules", context_settings=HELP)
def rules_group() -> None:
    """List, prove and import rules."""


@rules_group.command("list")
@format_option
@rules_option
def rules_list(kind: str, rules: tuple[Path, ...]) -> None:
    """List the rules."""
    from specwatch.commands import rules as command

    _finish(lambda: command.list_rules(Format(kind), rules))


@rules_group.command("test")
@click.argument("names", nargs=-1, metavar="[RULE …]")
@rules_option
def rules_test(names: tuple[str, ...], rules: tuple[Path, ...]) -> None:
    """Prove rules by their own examples and counter-examples; none named means all."""
    from specwatch.commands import rules as command

    _finish(lambda: command.test_rules(names, rules))


@rules_group.command("new")
@click.argument("name", metavar="ID")
@click.option("--from", "log", required=True, metavar="LOG", help="A log with the crash; - for standard input.")
@click.option(
    "--into", type=DIRECTORY, metavar="DIR", default=Path("rules.d"), show_default=True, help="Where to write."
)
@rules_option
def rules_new(name: str, log: str, into: Path, rules: tuple[Path, ...]) -> None:
    """Draft the rule ID of the first crash in LOG that no rule knows, marked experimental."""
    from specwatch.commands import rules as command

    _finish(lambda: command.new_rule(name, log, into, rules))


@rules_group.command("coverage")
@click.option(
    "--sglang", type=DIRECTORY, metavar="PATH", help="A wheel of SGLang or its folder; else the installed one."
)
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
@rules_option
def rules_coverage(sglang: Path | None, kind: str, rules: tuple[Path, ...]) -> None:
    """List the messages of SGLang's speculative decoding that no rule knows; exit 1 where there is one."""
    from specwatch.commands import rules as command

    _finish(lambda: command.coverage(sglang, Format(kind), rules))


@rules_group.command("import")
@click.argument("records", nargs=-1, required=True, type=DIRECTORY, metavar="RECORD …")
@click.option(
    "--into", type=DIRECTORY, metavar="DIR", default=Path("rules.d"), show_default=True, help="Where to write."
)
def rules_import(records: tuple[Path, ...], into: Path) -> None:
    """Turn documented error records into draft rules, marked experimental."""
    from specwatch.commands import rules as command

    _finish(lambda: command.import_records(records, into))
