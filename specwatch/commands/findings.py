"""`specwatch findings list|show|export`: what the daemon found, from its store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from specwatch.commands.contract import Exit, Format
from specwatch.commands.deeds import Deeds, action_object
from specwatch.config import DEFAULT_FILE, Settings, load, state_directory
from specwatch.errors import ConfigError
from specwatch.report.times import iso
from specwatch.storage.store import Kept, Store


def _settings(config: Path | None, state: Path | None) -> Settings:
    given = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    settings = load(given, allow_insecure=True) if given else Settings()
    return replace(settings, state=replace(settings.state, dir=str(state))) if state else settings


def _kept(config: Path | None, state: Path | None) -> list[Kept]:
    """All findings of the store that the configuration, or `--state`, names. Raises ConfigError where there is none."""
    settings = _settings(config, state)
    folder = state_directory(settings)
    if not (folder / "specwatch.db").is_file():
        raise ConfigError(f"{folder}: holds no store; name the daemon's with --config FILE or --state DIR")
    store = Store(folder, lambda text: print(f"specwatch: {text}", file=sys.stderr), read_only=True)
    try:
        return store.findings()
    finally:
        store.close()


def document(one: Kept) -> dict[str, object]:
    """A finding as in `diagnose --format json`, with its server and history."""
    return {
        **one.document,
        "server": one.server,
        "state": one.state,
        "state_because": one.because,
        "occurrences": one.occurrences,
        "first_seen": iso(one.first_seen),
        "last_seen": iso(one.last_seen),
        "crash_loop": one.looping,
    }


def list_findings(kind: Format, config: Path | None, state: Path | None, show_all: bool) -> Exit:
    """Print the findings, firing ones only unless `show_all`; exit 1 where one is firing."""
    found = _kept(config, state)
    shown = [one for one in found if show_all or one.state == "firing"]
    if kind is Format.JSON:
        print(json.dumps({"schema": 1, "findings": [document(one) for one in shown]}, indent=1))
    else:
        for one in shown:
            loop = ", crash loop" if one.looping else ""
            times = f"{one.occurrences} times, " if one.occurrences != 1 else ""
            name = str(one.document.get("rule") or one.document.get("cause") or "unknown crash")
            print(f"{one.fingerprint}  {one.state:10} {one.severity:8} {one.server}  {name}")
            print(f"              {times}last {iso(one.last_seen)}{loop}: {_plain(str(one.document.get('says', '')))}")
    return Exit.FINDINGS if any(one.state == "firing" for one in found) else Exit.CLEAN


def show_finding(name: str, kind: Format, config: Path | None, state: Path | None) -> Exit:
    """Print one finding whole: its evidence and its commands. `name` may be the beginning of an id."""
    found = [one for one in _kept(config, state) if one.fingerprint.startswith(name)]
    if not found:
        raise ConfigError(f"no finding has the id {name} (specwatch findings list --all)")
    deeds = Deeds(_settings(config, state))
    if kind is Format.JSON:
        shown = [
            {
                **document(one),
                "actions": [action_object(action) for action in deeds.of(one.server)],
                "breaker": deeds.breakers.get(one.server, ""),
            }
            for one in found
        ]
        print(json.dumps({"schema": 1, "findings": shown}, indent=1))
        return Exit.CLEAN
    for one in found:
        print("\n".join(_page(one)))
        for line in deeds.lines(one.server, one.fingerprint):
            print(_plain(line))
    return Exit.CLEAN


def export(config: Path | None, state: Path | None) -> Exit:
    """Print every finding as one JSON object a line."""
    for one in _kept(config, state):
        print(json.dumps(document(one)))
    return Exit.CLEAN


def _page(one: Kept) -> list[str]:
    content = document(one)
    root = cast("dict[str, object]", content.get("root") or {})
    verdict = cast("dict[str, object]", content.get("verdict") or {})
    lines = [
        f"{content['severity']}[{content.get('rule') or content.get('cause') or 'unknown'}]: {content.get('title')}",
        f"  {one.fingerprint} on {one.server}: {one.state} {one.because}".rstrip(),
        f"  {one.occurrences} times, from {content['first_seen']} to {content['last_seen']}",
        f"  {content.get('says')}",
    ]
    if root:
        lines += [f"  --> {root.get('source')}:{root.get('line')}   {root.get('time') or ''}".rstrip()]
        lines += [f"   |  {line}" for line in str(root.get("text", "")).split("\n")]
    proved = "proved" if verdict.get("status") == "broken" else f"not proved: {verdict.get('because')}"
    lines.append(f"   = {proved}")
    for fact in cast("list[dict[str, object]]", verdict.get("evidence") or []):
        lines.append(f"      {fact.get('fact')} = {fact.get('value')} ({fact.get('source')})")
    for number, fix in enumerate(cast("list[dict[str, object]]", content.get("fixes") or []), 1):
        lines.append(f"  fix {number} [{fix.get('applicability')}] {fix.get('id')}: {fix.get('why')}")
        if fix.get("command"):
            lines.append(f"      {fix['command']}")
    return [_plain(line) for line in lines]


def _plain(text: str, safe: Callable[[str], bool] = str.isprintable) -> str:
    """Text of a log, with nothing in it that a terminal would act upon."""
    return "".join(c if safe(c) or c == " " else f"\\x{ord(c):02x}" for c in text)
