"""The subcommands and their options. Each body imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from specwatch import __version__
from specwatch.commands.common import Exit, Format
from specwatch.errors import SourceError, SpecwatchError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Read an SGLang crash log, prove the cause on the model files, and propose a launch that passes the check.",
    epilog="Exit codes: 0 nothing wrong, 1 findings, 2 bad usage or rules, 3 an input could not be read.",
)
rules_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, prove and import rules.")
app.add_typer(rules_app, name="rules")

RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="More rules; repeatable. Later ones replace earlier."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.", case_sensitive=False)]


def _version(asked: bool) -> None:
    if asked:
        print(f"specwatch {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def _finish(run: Callable[[], int]) -> NoReturn:
    """Run a command, turn what it raises into the contract's exit codes, and end."""
    try:
        code = int(run())
        sys.stdout.flush()
    except SpecwatchError as error:
        for line in str(error).split("\n"):
            print(f"specwatch: {line}", file=sys.stderr)
        code = Exit.UNREADABLE if isinstance(error, SourceError) else Exit.USAGE
    except BrokenPipeError:
        # the reader of our output went away; keep the interpreter from complaining when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    raise typer.Exit(code)


@app.command()
def diagnose(
    logs: Annotated[
        list[str] | None, typer.Argument(metavar="[LOG …|-]", help="Logs: plain, .gz, .zst, a directory, - for stdin.")
    ] = None,
    launch: Annotated[
        str | None, typer.Option(metavar="CMD", help="The launch command, for an exact edit or where the log has none.")
    ] = None,
    path_map: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM=TO", help="A path of the container and where it lies here; repeatable."),
    ] = None,
    models_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Where a fitting draft may be; repeatable. The Hugging Face cache is searched."
        ),
    ] = None,
    format: FormatOption = Format.TEXT,
    show_all: Annotated[bool, typer.Option("--all", help="Show echoes and notices too.")] = False,
    sglang: Annotated[str, typer.Option(metavar="VERSION", help="SGLang's version, where the log does not tell.")] = "",
    online: Annotated[
        bool, typer.Option("--online", help="May ask the Hugging Face Hub for configuration files.")
    ] = False,
    rules: RulesOption = None,
) -> None:
    """Read logs and print the first cause of each crash, its proof, and fixed commands."""
    from specwatch.commands.diagnose import Options, run

    options = Options(
        logs=logs or [],
        launch=launch,
        path_map=path_map or [],
        models_dir=models_dir or [],
        format=format,
        show_all=show_all,
        sglang=sglang,
        online=online,
        rules=rules or [],
    )
    _finish(lambda: run(options))


@app.command()
def explain(
    rule: Annotated[str | None, typer.Argument(help="A rule's id; none lists them.")] = None,
    rules: RulesOption = None,
) -> None:
    """Say what a rule means, why, where it is wrong, and what helps."""
    from specwatch.commands import rules as command

    _finish(lambda: command.explain(rule, rules or []))


@rules_app.command("list")
def rules_list(format: FormatOption = Format.TEXT, rules: RulesOption = None) -> None:
    """List the rules."""
    from specwatch.commands import rules as command

    _finish(lambda: command.list_rules(format, rules or []))


@rules_app.command("test")
def rules_test(
    names: Annotated[list[str] | None, typer.Argument(metavar="[RULE …]", help="Rules by id; none means all.")] = None,
    rules: RulesOption = None,
) -> None:
    """Prove rules by their own examples and counter-examples."""
    from specwatch.commands import rules as command

    _finish(lambda: command.test_rules(names or [], rules or []))


@rules_app.command("import")
def rules_import(
    records: Annotated[list[Path], typer.Argument(metavar="RECORD …", help="Files of documented error records.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="Where the draft rules are written.")] = Path("rules.d"),
) -> None:
    """Turn documented error records into draft rules, marked experimental."""
    from specwatch.commands import rules as command

    _finish(lambda: command.import_records(records, into))
