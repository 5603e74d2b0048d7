"""The subcommands and their options. Each body imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from specwatch import __version__
from specwatch.commands.contract import Exit, Format
from specwatch.errors import ApplyError, ModelError, SourceError, SpecwatchError

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


def _known_gpu(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    if name:
        from specwatch.launch.gpus import GPUS, kind

        if kind(name) is None:
            raise click.BadParameter(f"{name!r} is not known; expected one of {', '.join(GPUS)}, or sm_90")
    return name


gpu_option = click.option(
    "--gpu",
    metavar="NAME",
    default="",
    callback=_known_gpu,
    help="The kind of GPU, as H100, B200, A100, L40S, MI300X or sm_90: some of SGLang's defaults hang on it.",
)


target_option = click.option(
    "--target",
    "targets",
    metavar="T",
    multiple=True,
    help="systemd:UNIT, compose:FILE#SERVICE, k8s:FILE#CONTAINER, k8s://NAMESPACE/KIND/NAME#CONTAINER, script:FILE, "
    "pid:N, a file or a folder; repeatable.",
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
        code = Exit.FINDINGS if isinstance(error, ApplyError) else code
    except BrokenPipeError:
        import signal  # here and below, as it takes 3 ms of a start that ends well

        # the reader of our output went away; keep the interpreter from complaining when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        import signal

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
@gpu_option
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
    gpu: str,
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
            gpu=gpu,
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
@gpu_option
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
    gpu: str,
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
            gpu=gpu,
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


yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
insecure_option = click.option(
    "--allow-insecure-permissions", "insecure", is_flag=True, help="Accept a configuration that others may change."
)


@app.command()
@click.argument("finding", required=False, default="")
@click.option("--fix", metavar="ID", help="Which fix; without it the most trusted one that may be applied.")
@click.option("--target", metavar="T", help="Where the launch stands, where the configuration does not say.")
@click.option("--log", "logs", metavar="LOG", multiple=True, help="The server's log, where no configuration says.")
@click.option("--health", metavar="URL", default="", help="The server's health endpoint, where no configuration says.")
@path_map_option
@dry_run_option
@yes_option
@click.option("--even-if-up", is_flag=True, help="Although the server is not down: it will be restarted.")
@click.option("--proposals", is_flag=True, help="Answer what the watcher proposed: for specwatch-apply.service.")
@config_option
@state_option
@insecure_option
def apply(
    finding: str,
    fix: str | None,
    target: str | None,
    logs: tuple[str, ...],
    health: str,
    path_map: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    even_if_up: bool,
    proposals: bool,
    config: Path | None,
    state: Path | None,
    insecure: bool,
) -> None:
    """Change the launch of FINDING's server, restart it, and wait until it is healthy; else take the change back.

    FINDING is the id of a finding, or the beginning of it. What fails is found out anew from the log, the launch and
    the models. Exit 0: it helped; 1: refused, or rolled back.
    """

    def run() -> int:
        if proposals:
            from specwatch.commands import apply_proposals

            return apply_proposals.run(apply_proposals.Options(config=config, state=state, insecure=insecure))
        if not finding:
            raise click.UsageError("Missing argument 'FINDING'.")
        from specwatch.commands import apply as command

        options = command.Options(
            finding=finding,
            config=config,
            state=state,
            fix=fix,
            target=target,
            logs=logs,
            health=health,
            path_map=path_map,
            dry_run=dry_run,
            yes=yes,
            even_if_up=even_if_up,
            insecure=insecure,
        )
        return command.run(options)

    _finish(run)


@app.command()
@click.argument("action")
@dry_run_option
@yes_option
@config_option
@insecure_option
def rollback(action: str, dry_run: bool, yes: bool, config: Path | None, insecure: bool) -> None:
    """Put the launch back that ACTION replaced, and restart the server."""

    def run() -> int:
        from specwatch.commands import apply as command

        return command.rollback(action, command.Options(config=config, dry_run=dry_run, yes=yes, insecure=insecure))

    _finish(run)


@app.command()
@click.argument("server")
@config_option
@insecure_option
def reset(server: str, config: Path | None, insecure: bool) -> None:
    """Close the breaker of SERVER and let its attempts count anew."""

    def run() -> int:
        from specwatch.commands import apply as command

        return command.reset(server, command.Options(config=config, insecure=insecure))

    _finish(run)


@app.group("audit", context_settings=HELP)
def audit_group() -> None:
    """Verify and list the audit log of what was changed."""


@audit_group.command("verify")
@config_option
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
def audit_verify(config: Path | None, kind: str) -> None:
    """Find any entry that was changed, removed or moved; exit 1 where there is one."""

    def run() -> int:
        from specwatch.commands import audit as command

        return command.verify(Format(kind), config)

    _finish(run)


@audit_group.command("list")
@config_option
@click.option("--server", metavar="NAME", default="", help="Only entries of one server.")
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
def audit_list(config: Path | None, server: str, kind: str) -> None:
    """List what was done and refused, oldest first."""

    def run() -> int:
        from specwatch.commands import audit as command

        return command.list_entries(Format(kind), config, server)

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
@click.option("--html", metavar="FILE", help="Write it as one page to attach to a ticket; - for standard output.")
def findings_show(finding: str, config: Path | None, state: Path | None, kind: str, html: str | None) -> None:
    """Show one finding with its evidence and commands."""

    def run() -> int:
        if html is not None:
            from specwatch.commands import findings_html

            return findings_html.write(finding, html, config, state)
        from specwatch.commands import findings as command

        return command.show_finding(finding, Format(kind), config, state)

    _finish(run)


@findings_group.command("export")
@config_option
@state_option
def findings_export(config: Path | None, state: Path | None) -> None:
    """Print every finding as one JSON object a line."""
    from specwatch.commands import findings as command

    _finish(lambda: command.export(config, state))


@app.command()
@config_option
@state_option
def enrich(config: Path | None, state: Path | None) -> None:
    """Add what was found to alerts: JSON on stdin (Alertmanager's webhook payload, an array, one alert), to stdout."""
    from specwatch.commands import enrich as command

    _finish(lambda: command.run(config, state))


@app.group("alerts", context_settings=HELP)
def alerts_group() -> None:
    """List what the daemon still has to send, and send again what it gave up."""


@alerts_group.command("list")
@config_option
@state_option
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
def alerts_list(config: Path | None, state: Path | None, kind: str) -> None:
    """List what waits and what was given up; exit 1 where something was given up."""
    from specwatch.commands import alerts as command

    _finish(lambda: command.list_alerts(Format(kind), config, state))


@alerts_group.command("retry")
@click.argument("receiver", required=False, default="")
@config_option
@state_option
def alerts_retry(receiver: str, config: Path | None, state: Path | None) -> None:
    """Send again, to RECEIVER or to all, what was given up or waits for its next try."""
    from specwatch.commands import alerts as command

    _finish(lambda: command.retry(receiver, config, state))


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
