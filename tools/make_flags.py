"""Makes specwatch/launch/data/flags.json from sglang wheels or installed sglang folders.

    pip download --no-deps sglang==0.5.23 -d wheels
    python tools/make_flags.py wheels/*.whl

Releases that are already in the table stay unless a given path has the same version. Nothing is imported from sglang.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specwatch.launch import flags
from specwatch.launch.extract import extract

DATA = flags.DATA


def stored(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every release in a table, as they would come from source."""
    if not path.exists():
        return {}
    data = json.loads(path.read_text())
    out: dict[str, list[dict[str, Any]]] = {}
    for release, runs in data["releases"].items():
        rows = [dict(data["records"][i]) for first, last in runs for i in range(first, last + 1)]
        for row in rows:
            if "c" in row:
                row["c"] = data["choices"][row["c"]]
        out[release] = rows
    return out


def read(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The release and the rows of one wheel or folder."""
    found = extract(path)
    lists: list[list[Any]] = []
    rows = [flags.encode(row, lists) for row in flags._plain_entries(found)]
    for row in rows:
        if "c" in row:
            row["c"] = lists[row["c"]]
    return found.release, rows


def pack(releases: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """All releases in one object: every distinct record once, a release as runs of record numbers."""
    records: list[str] = []
    place: dict[str, int] = {}
    choices: list[Any] = []
    runs: dict[str, list[list[int]]] = {}
    for release in sorted(releases, key=flags.version_key, reverse=True):  # newest first: its runs stay whole
        mine: list[list[int]] = []
        for row in releases[release]:
            row = dict(row)
            if "c" in row:
                if row["c"] not in choices:
                    choices.append(row["c"])
                row["c"] = choices.index(row["c"])
            text = json.dumps(row, sort_keys=True, separators=(",", ":"))
            if text not in place:
                place[text] = len(records)
                records.append(text)
            number = place[text]
            if mine and mine[-1][1] == number - 1:
                mine[-1][1] = number
            else:
                mine.append([number, number])
        runs[release] = mine
    oldest_first = sorted(runs, key=flags.version_key)
    return {
        "format": 1,
        "releases": {release: runs[release] for release in oldest_first},
        "choices": choices,
        "records": [json.loads(text) for text in records],
    }


def write(packed: dict[str, Any], path: Path) -> None:
    """One record a line, so that a new release is a readable diff."""
    compact = {"separators": (",", ":"), "ensure_ascii": True}
    lines = [f'{{"format":{packed["format"]},', '"releases":{']
    rows = [f"{json.dumps(k)}:{json.dumps(v, **compact)}" for k, v in packed["releases"].items()]  # type: ignore[arg-type]
    lines += [",\n".join(rows), "},", '"choices":[']
    lines += [",\n".join(json.dumps(v, **compact) for v in packed["choices"]), "],", '"records":[']  # type: ignore[arg-type]
    lines += [",\n".join(json.dumps(v, **compact) for v in packed["records"]), "]}"]  # type: ignore[arg-type]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("paths", nargs="+", type=Path, help="wheels, or folders named sglang")
    parser.add_argument("--out", type=Path, default=DATA)
    given = parser.parse_args()
    releases = stored(given.out)
    for path in given.paths:
        release, rows = read(path)
        if not release:
            raise SystemExit(f"{path}: its version is not to be found; give the wheel")
        releases[release] = rows
        print(f"{release}: {sum('n' in row for row in rows)} flags, {len(rows)} arguments")
    write(pack(releases), given.out)
    print(f"{given.out}: {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
