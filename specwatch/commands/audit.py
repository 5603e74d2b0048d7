"""`specwatch audit verify|list`: what was done, and whether the record of it can be trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from specwatch.commands.common import say
from specwatch.commands.contract import Exit, Format
from specwatch.config import DEFAULT_FILE, load
from specwatch.errors import ApplyError, SourceError
from specwatch.report.text import clean
from specwatch.report.times import iso
from specwatch.settings import Settings
from specwatch.storage import audit
from specwatch.storage.actions import Actions


def verify(kind: Format, config: Path | None) -> Exit:
    """Hold the audit log against itself and against the store; exit 1 where it was tampered with."""
    folder = _folder(config)
    try:
        if (folder / "actions.db").is_file():
            store = Actions(folder, read_only=True)
            try:
                found = store.verify()
            finally:
                store.close()
        elif (folder / "audit.jsonl").exists():
            found = audit.verify(folder / "audit.jsonl", None)
        else:
            raise ApplyError(f"{folder}: nothing was ever changed from here ([state] actions names the directory)")
    except (ApplyError, OSError) as error:
        raise SourceError(str(error)) from None
    if kind is Format.JSON:
        answer = {"entries": found.entries, "problems": list(found.problems), "notes": list(found.notes)}
        print(json.dumps({"schema": 1, "path": str(folder / "audit.jsonl"), **answer}, indent=1))
    else:
        for text in found.problems:
            print(clean(text))
        for text in found.notes:
            say(text)
        count = len(found.problems)
        word = f"{count} thing{' is' if count == 1 else 's are'} wrong" if count else "the chain is whole"
        say(f"{folder / 'audit.jsonl'}: {found.entries} entries, {word}")
    return Exit.FINDINGS if found.problems else Exit.CLEAN


def list_entries(kind: Format, config: Path | None, server: str) -> Exit:
    """Print the entries, oldest first."""
    folder = _folder(config)
    try:
        entries = [one for one in audit.read(folder / "audit.jsonl") if server in ("", one.get("server"))]
    except ApplyError as error:
        raise SourceError(str(error)) from None
    if kind is Format.JSON:
        print(json.dumps({"schema": 1, "entries": entries}, indent=1))
        return Exit.CLEAN
    for one in entries:
        print(clean(_line(one)))
    return Exit.CLEAN


def _line(entry: Mapping[str, object]) -> str:
    actor, body = (_object(entry.get(name)) for name in ("actor", "body"))
    when = "?"
    with suppress(TypeError, ValueError, OverflowError, OSError):  # `verify` is what says that it was tampered with
        when = iso(cast("float", entry.get("at")))
    who = str(actor.get("sudo_user") or actor.get("user") or "?")
    action = f" {entry['action']}" if entry.get("action") else ""
    told = [f"{name}={body[name]}" for name in ("fix", "fingerprint", "finding", "asked_by") if body.get(name)]
    because = f": {body['because']}" if body.get("because") else ""
    what = f"{entry.get('server') or '-'} {entry.get('event')}{action}"
    return f"{entry.get('seq'):>5} {when} {who} {what} {' '.join(told)}".rstrip() + because


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _folder(config: Path | None) -> Path:
    given = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    settings = load(given, allow_insecure=True) if given else Settings()
    return Path(settings.state.actions)
