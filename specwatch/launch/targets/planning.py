"""From changes to edits, and the proof that the edits make just those changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from specwatch.domain import Change, Container, Launch
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.container import KEYS
from specwatch.launch.editing import command_text, edit
from specwatch.launch.flags import table
from specwatch.launch.parsing import parse
from specwatch.launch.rewriting import Wanted, wanted
from specwatch.launch.targets import compose, configfile, dropin, kubectl, kubernetes, script, systemd
from specwatch.launch.targets.base import Edit, Files, Rewrite, Targeted

Ask = Callable[[Targeted], Wanted]
_FILES: Mapping[str, Callable[[str, Ask, Files], tuple[Rewrite, ...]]] = {
    "systemd": dropin.plan,
    "compose": compose.plan,
    "k8s": kubernetes.plan,
    "script": script.plan,
}


def edits(
    kind: str, spec: str, target: Targeted, changes: Sequence[Change], sglang: str, files: Files
) -> tuple[Edit, ...]:
    """The edits of one target that make changes. Raises LaunchError."""
    path = _config(target, sglang)
    read_file = _reader(target, files)

    def ask(found: Targeted) -> Wanted:
        return wanted(
            found.command,
            found.env,
            changes,
            sglang,
            around=kind != "script",
            read_file=read_file,
            config=lambda launch: configfile.held(configfile.path_of(launch, found), sglang, files),
        )

    want = ask(target)
    mine = configfile.plan(path, want.keys, sglang, files) if path and want.keys else ()
    if kind == "k8s" and spec.startswith("//"):
        return (*kubectl.plan(spec, ask), *mine)
    made = (*_FILES[kind](spec, ask, files), *mine)
    _prove(kind, spec, target, want, sglang, files, made)
    return made


def _config(target: Targeted, sglang: str) -> Path | None:
    text = target.command if isinstance(target.command, str) else None
    launch = parse(target.command, sglang, read_file=lambda _: "{}", lenient=True)
    return configfile.path_of(replace(launch, text=text or command_text(launch)), target)


def _reader(target: Targeted, files: Files) -> Callable[[str], str]:
    """Reads a `--config` file that is named as the server sees it."""

    def read_file(name: str) -> str:
        path = Path(name) if Path(name).is_absolute() else Path(target.folder or "?") / name
        for inside, outside in sorted(target.path_maps, reverse=True):
            if path.is_relative_to(inside):
                path = Path(outside) / path.relative_to(inside)
                break
        if not files.is_file(path):
            raise FileNotFoundError(str(path))
        try:
            return files.text(path)
        except ConfigError as error:
            raise OSError(str(error)) from error

    return read_file


def _prove(
    kind: str, spec: str, target: Targeted, want: Wanted, sglang: str, files: Files, made: tuple[Rewrite, ...]
) -> None:
    """Read the target as it would be, and compare. Raises LaunchError where it would start anything else."""
    from specwatch.launch.targets import KINDS

    after = files.after(made)
    try:
        found = [one for one in KINDS[kind](spec, after) if one.name == target.name]
        before = parse(target.command if want.command is None else want.command, sglang, lenient=True,
                       read_file=_reader(target, after))  # fmt: skip
        launch = parse(found[0].command, sglang, lenient=True, read_file=_reader(found[0], after)) if found else None
    except (ConfigError, LaunchError) as error:
        raise LaunchError(f"{target.name}: it could not be read any more after the change: {error}") from error
    if launch is None or len(found) != 1:
        raise LaunchError(f"{target.name}: the change would leave no launch there; change it by hand")
    for change in want.keys:
        _prove_key(change, launch, sglang, target.name)
    env = _expected_env(target, want, found[0])
    if not _same(launch, before) or dict(found[0].env) != env or found[0].container != _around(target, want):
        raise LaunchError(f"{target.name}: {_because(kind, spec, after)}; nothing was changed")


def _around(target: Targeted, want: Wanted) -> Container | None:
    """The container around the command as it shall be."""
    keys = {key: value for key, name in KEYS.items() if (value := want.options.get(name)) is not None}
    return target.container._replace(options={**target.container.options, **keys}) if target.container else None


def _same(one: Launch, other: Launch) -> bool:
    return (one.argv, dict(one.env), dict(one.values)) == (other.argv, dict(other.env), dict(other.values))


def _prove_key(change: Change, launch: Launch, sglang: str, name: str) -> None:
    """Compare what a changed key of `--config` gives with what the flag itself would give. Raises LaunchError."""
    dest = table(sglang).resolve(change.name).dest
    plain = parse(["python", "-m", "sglang.launch_server", "--model-path", "x"], sglang)
    asked = edit(plain, [change]).values[dest] if change.op == "set" else None
    if launch.values.get(dest) != asked:
        raise LaunchError(f"{name}: {change.name} cannot be changed in the file of --config; change it by hand")


def _expected_env(target: Targeted, want: Wanted, found: Targeted) -> dict[str, str]:
    """The environment as it shall be; a variable that holds words of the command changes with them."""
    env = {**target.env}
    for name, value in want.variables.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    if want.command is not None:
        carriers = [n for n, v in env.items() if n not in want.variables and found.env.get(n) != v]
        env |= {name: found.env[name] for name in carriers if name in found.env and _carries(name, target)}
    return env


def _carries(name: str, target: Targeted) -> bool:
    """Whether a variable holds words of the command itself."""
    value = target.env[name].split()
    words = target.command if isinstance(target.command, tuple) else tuple(target.command.split())
    return bool(value) and all(any(part in word for word in words) for part in value)


def _because(kind: str, spec: str, files: Files) -> str:
    if kind == "systemd":
        unit = systemd.load(spec, files)
        later = [path for path, _ in unit.texts if path is not None and path.name > f"{dropin.NAME}.conf"]
        if later and later[-1].parent != unit.texts[0][0]:
            names = ", ".join(str(path) for path in later if path != unit.texts[0][0])
            if names:
                return f"{names} comes after {dropin.NAME}.conf and wins; change the launch there"
    return "the launch would not be the one that was asked for; change it by hand"


__all__ = ["edits"]
