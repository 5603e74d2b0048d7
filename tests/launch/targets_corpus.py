"""Launches as people keep them, laid out in a directory, and what a change of one must come to."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from specwatch.domain import Change
from specwatch.launch.command import edit, parse
from specwatch.launch.targets import DISK, Edit, Files, Rewrite, Targeted, read

DATA = Path(__file__).resolve().parents[1] / "data" / "targets"
RELEASE = "0.5.23"


def laid_out(folder: Path) -> dict[str, tuple[str, Files]]:
    """The corpus under a folder: for each launch its target, and the files to read it with."""
    shutil.copytree(DATA, folder, dirs_exist_ok=True)
    for name, real in {"dotenv.env": ".env", "dotenv.sglang.env": ".env.sglang"}.items():
        (folder / "compose" / name).rename(folder / "compose" / real)
    units = folder / "systemd"
    for path in [*units.glob("*.service"), *(folder / "script").glob("*.sh")]:
        text = path.read_text().replace("/etc/sglang/", f"{units}/")
        text = text.replace("@WRAPPER@", str(folder / "script" / "exec.sh"))
        path.write_text(text.replace("@CONFIG@", str(folder / "config" / "spec.yaml")))
    where = Files(units=(str(folder / "etc"), str(units)))
    found = {}
    for path in sorted(units.glob("*.service")):
        name = path.name.replace("@.", "@llama.")
        found[f"systemd/{name}"] = (f"systemd:{name}", where)
    for kind, prefix in {"compose": "compose", "kubernetes": "k8s", "script": "script"}.items():
        for path in sorted((folder / kind).iterdir()):
            if path.suffix in (".yaml", ".yml", ".sh"):
                for target in read(f"{prefix}:{path}"):
                    found[target.name.replace(f"{prefix}:{folder}/", "")] = (target.name, DISK)
    return found


def one(target: str, files: Files = DISK) -> Targeted:
    """The only launch of a target."""
    (found,) = read(target, files)
    return found


def asked(target: Targeted, changes: Sequence[Change]) -> tuple[tuple[str, ...], dict[str, str]]:
    """What `edit` makes of a launch: its tokens, and its environment."""
    before = parse(target.command, RELEASE, lenient=True, read_file=lambda name: Path(name).read_text())
    inside = dict(before.env)
    mine = [c for c in changes if not c.op.endswith("_env") or c.name in inside]
    after = edit(before, mine, lenient=True, read_file=lambda name: Path(name).read_text())
    env = {**target.env, **after.env}
    for change in changes:
        if change.op == "set_env":
            env[change.name] = change.new or ""
        elif change.op == "unset_env":
            env.pop(change.name, None)
    return after.argv, env


def got(target: Targeted) -> tuple[tuple[str, ...], dict[str, str]]:
    """What a target starts now."""
    launch = parse(target.command, RELEASE, lenient=True, read_file=lambda name: Path(name).read_text())
    return launch.argv, {**target.env, **launch.env}


def applied(files: Files, edits: Sequence[Edit]) -> Files:
    """The files as they would be once the edits are made."""
    for change in edits:
        assert isinstance(change, Rewrite)
        assert (files.text(change.path).encode() if files.is_file(change.path) else None) == change.before
        assert change.before != change.after
    return files.after(tuple(change for change in edits if isinstance(change, Rewrite)))


def written(edits: Sequence[Edit]) -> None:
    """Make the edits, as `apply` does it."""
    for change in edits:
        assert isinstance(change, Rewrite)
        assert (change.path.read_bytes() if change.path.exists() else None) == change.before
        assert change.before != change.after
        if change.after is None:
            change.path.unlink()
        else:
            change.path.parent.mkdir(parents=True, exist_ok=True)
            change.path.write_bytes(change.after)
