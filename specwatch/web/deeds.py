"""What specwatch changed, read for people: attempts on a server, and the latest entries of the audit log.

It belongs to root and may not be there, or not be readable: then there is nothing to show, and a reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specwatch.errors import SpecwatchError
from specwatch.storage.actions import Action, Actions

TAIL = 512 * 1024
"""Bytes of the end of an audit log that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One change of a launch. `result` is its state: applied, rolled_back, failed, or how far it has come."""

    id: str
    server: str
    fingerprint: str
    at: float
    what: str
    result: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the audit log."""

    number: int
    at: float
    server: str
    what: str
    result: str
    because: str
    actor: str


def attempts(folder: Path, server: str = "", limit: int = 100) -> list[Attempt]:
    """The latest changes, of one server if named; the newest first. Empty where nothing was, or can be read."""
    try:
        store = Actions(folder, read_only=True)
        try:
            found = store.actions(server=server or None)
        finally:
            store.close()
    except (SpecwatchError, OSError):
        return []
    return [_attempt(one) for one in reversed(found[-limit:])]


def _attempt(one: Action) -> Attempt:
    what = f"{one.kind} {one.fix}".strip() + (f" to {one.target}" if one.target else "")
    return Attempt(
        id=one.id,
        server=one.server,
        fingerprint=one.fingerprint,
        at=one.began,
        what=f"{what}, asked by {one.asked_by}" if one.asked_by else what,
        result=one.state.replace("_", " "),
        because=one.because,
    )


def entries(folder: Path, limit: int = 200) -> tuple[list[Entry], str]:
    """The end of the audit log, the newest first, and why there is nothing."""
    path = folder / "audit.jsonl"
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            size = file.tell()
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return [], "Nothing was ever changed."
    except OSError as error:
        return [], f"{path} cannot be read: {error.strerror}."
    if size > TAIL:
        del lines[0]
    found = []
    for line in reversed(lines):
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict):
            found.append(_entry(content))
        if len(found) >= limit:
            break
    return found, ""


def _entry(content: dict[str, object]) -> Entry:
    body = content.get("body")
    body = body if isinstance(body, dict) else {}
    at, number = content.get("at"), content.get("seq")
    actor = content.get("actor")
    who = actor.get("user", "") if isinstance(actor, dict) else actor
    fix = f" {body['fix']}" if isinstance(body.get("fix"), str) and body["fix"] else ""
    return Entry(
        number=number if isinstance(number, int) else 0,
        at=float(at) if isinstance(at, (int, float)) else 0.0,
        server=str(content.get("server") or ""),
        what=str(content.get("event") or "").replace("_", " ") + fix,
        result=str(body.get("state") or "").replace("_", " "),
        because=str(body.get("because") or ""),
        actor=str(who or ""),
    )
