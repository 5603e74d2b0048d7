"""Write specwatch/checks/data/capture_hooks.json: which target classes let a draft listen to their layers.

    python tools/make_capture_hooks.py DIR        (DIR holds arch-support-VERSION.json: {"archs": {NAME: {hook: bool}}})
    python tools/make_capture_hooks.py --add sglang-0.5.24-….whl

Each architecture gets one string a hook, a character a release: 1 has the hook, 0 has not, - the release does not know
the architecture. A wheel or an unpacked sglang folder is read by `ast`, nothing of it is imported.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "specwatch" / "checks" / "data" / "capture_hooks.json"
HOOKS = ("eagle3", "dflash", "dspark")

Archs = dict[str, dict[str, bool]]


def sources(path: Path) -> Iterator[str]:
    """The model files of a wheel or of a folder that holds `sglang/`."""
    if path.is_file():
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if re.fullmatch(r"sglang/srt/models/\w+\.py", name):
                    yield wheel.read(name).decode()
    else:
        for file in sorted((path / "sglang" / "srt" / "models").glob("*.py")):
            yield file.read_text()


def read(path: Path) -> Archs:
    """The entry classes of a release with the hooks that they or their bases define."""
    classes: dict[str, tuple[set[str], list[str]]] = {}
    entries: set[str] = set()
    for text in sources(path):
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                bases = [base.id if isinstance(base, ast.Name) else "" for base in node.bases]
                classes[node.name] = (methods, bases)
            elif isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "EntryClass" for target in node.targets
            ):
                entries |= {item.id for item in ast.walk(node.value) if isinstance(item, ast.Name)}

    def has(name: str, method: str, seen: frozenset[str] = frozenset()) -> bool:
        if name not in classes or name in seen:
            return False
        methods, bases = classes[name]
        return method in methods or any(has(base, method, seen | {name}) for base in bases)

    return {name: {hook: has(name, f"set_{hook}_layers_to_capture") for hook in HOOKS} for name in sorted(entries)}


def key(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="WHEEL")
    args = parser.parse_args()
    releases: dict[str, Archs] = {}
    if OUT.exists():
        table = json.loads(OUT.read_text())
        for at, release in enumerate(table["releases"]):
            releases[release] = {
                name: {hook: marks[at] == "1" for hook, marks in zip(HOOKS, row, strict=True)}
                for name, row in table["architectures"].items()
                if row[0][at] != "-"
            }
    for file in sorted(args.folder.glob("arch-support-*.json")) if args.folder else []:
        releases[file.stem.removeprefix("arch-support-")] = json.loads(file.read_text())["archs"]
    for wheel in args.add:
        found = re.search(r"sglang-([\d.]+(?:\.?post\d+)?)", wheel.name)
        if not found:
            sys.exit(f"{wheel}: the name tells no release")
        releases[found[1]] = read(wheel)
    order = sorted(releases, key=key)
    names = sorted({name for archs in releases.values() for name in archs})

    def mark(release: str, name: str, hook: str) -> str:
        return "-" if name not in releases[release] else "1" if releases[release][name].get(hook) else "0"

    rows = {name: ["".join(mark(release, name, hook) for release in order) for hook in HOOKS] for name in names}
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    head = f'{{"releases": {json.dumps(order)}, "hooks": {json.dumps(HOOKS)},\n "architectures": {{\n'
    OUT.write_text(head + body + "\n}}\n")


if __name__ == "__main__":
    main()
