"""Makes specwatch/launch/data/flags.jsonl from sglang wheels or installed sglang folders.

    pip download --no-deps sglang==0.5.23 -d wheels
    python tools/make_flags.py wheels/*.whl

Releases that are already in the table stay unless a given path has the same version. Nothing is imported from sglang.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from specwatch.launch import flags
from specwatch.launch.extract import extract

DATA = flags.DATA


def stored(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every release in a table, as they would come from source."""
    if not path.exists():
        return {}
    head, *lines = map(json.loads, path.read_text().rstrip("\n").split("\n"))
    first = len(head["releases"])
    then = first + head["choices"]
    choices, records = lines[first:then], lines[then:]
    out: dict[str, list[dict[str, Any]]] = {}
    for release, runs in zip(head["releases"], lines, strict=False):
        rows = [dict(records[i]) for begin, end in runs for i in range(begin, end + 1)]
        for row in rows:
            if "c" in row:
                row["c"] = choices[row["c"]]
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


class Packed(NamedTuple):
    """All releases: every distinct record once, a release as runs of record numbers."""

    releases: dict[str, list[list[int]]]
    choices: list[Any]
    records: list[str]


def pack(releases: dict[str, list[dict[str, Any]]]) -> Packed:
    """Put all releases together."""
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
    return Packed({release: runs[release] for release in oldest_first}, choices, records)


def write(packed: Packed, path: Path) -> None:
    """The names of the releases, then the runs of one, a list of choices or a record a line: a readable diff."""
    head = {"format": 2, "releases": list(packed.releases), "choices": len(packed.choices)}
    rows = [*packed.releases.values(), *packed.choices]
    lines = [json.dumps(row, separators=(",", ":")) for row in (head, *rows)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*lines, *packed.records]) + "\n")


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
