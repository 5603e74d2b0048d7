"""What fails now, found out anew: the logs, the launch where it stands, the models, the rules. Nothing is believed.

Of the logs only the last run that crashed counts, and only if the server was not ready afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from specwatch import domain
from specwatch.acting.base import Edges
from specwatch.acting.following import journal, lines, newest, units
from specwatch.domain import Applicability, Evidence, Finding, Fix, Incident, Severity, Status, Verdict
from specwatch.errors import ApplyError, ConfigError, LaunchError
from specwatch.launch.shell import quote
from specwatch.launch.targets import Targeted
from specwatch.report.redact import HIDDEN
from specwatch.rulebook.book import Rulebook
from specwatch.settings import Server, Settings
from specwatch.sources.once import Raw
from specwatch.watching.inspection import Ask, Document, Limits, without_models
from specwatch.watching.live import Began, Change, Dropped, Live, Ready, Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A finding that fires now. `id` is the one by which it was asked for, or its own; `document` is its JSON."""

    finding: Finding
    id: str
    document: Document
    sglang: str
    target: Targeted | None
    tail: tuple[str, ...] = ()


def revalidate(
    server: Server, settings: Settings, book: Rulebook, fingerprint: str | None = None, edges: Edges | None = None
) -> Firing:
    """The finding that fires now on a server; `fingerprint` is a finding's id or the beginning of one.

    An id is that of the launch in the target, or the watcher's, which may see the log alone. Raises ApplyError where
    nothing fires, or something else does, or neither can be told.
    """
    edges = edges or Edges()
    found = firing(server, book)
    targeted = _targeted(server, edges)
    others = []
    for incident, tail in found:
        ask = _ask(incident, server, settings, targeted)
        document = _diagnosed(ask, settings, book, edges)
        if document["severity"] == "notice":
            continue
        ids = [str(document["id"])]
        if fingerprint and not ids[0].startswith(fingerprint):
            plain = replace(ask, launch=server.launch, target=server.target, container=None)
            ids += [str(_diagnosed(one, settings, book, edges)["id"]) for one in (plain, replace(plain, target=""))]
        named = next((one for one in ids if not fingerprint or one.startswith(fingerprint)), "")
        if named:
            launch = cast("Mapping[str, object]", document.get("launch") or {})
            release = server.sglang or str(launch.get("sglang") or "")
            finding = finding_of(document, incident)
            return Firing(finding=finding, id=named, document=document, sglang=release, target=targeted, tail=tail)
        others.append(f"{ids[0]} ({document['rule'] or 'no rule knows it'})")
    if others:
        raise ApplyError(f"{server.name}: {fingerprint} does not fire now; what fires is {', '.join(others)}")
    raise ApplyError(f"{server.name}: its log shows no crash after which it was not ready again")


def firing(server: Server, book: Rulebook) -> list[tuple[Incident, tuple[str, ...]]]:
    """The incidents of the last run that crashed, of each log, the latest first; with the last lines of that log.

    Raises ApplyError where there is no log.
    """
    found: list[tuple[float, Incident, tuple[str, ...]]] = []
    problems: list[str] = []
    empty = True
    streams: list[tuple[str, Iterable[tuple[bool, Raw]]]] = [
        *((str(path), ((False, raw) for raw in lines(path))) for path in newest(server)),
        *((f"journal:{unit}", journal(unit)) for unit in units(server)),
    ]
    for name, entries in streams:
        try:
            incidents, tail = _last_run(name, entries, book)
        except ApplyError as error:
            problems.append(str(error))
            continue
        empty = empty and not tail
        found += [(_moment(one), one, tail) for one in incidents]
    if not streams:
        raise ApplyError(f"{server.name}: none of its logs is there: {', '.join(server.logs) or 'none is configured'}")
    if problems and not found:
        raise ApplyError("; ".join(problems))
    if empty:
        raise ApplyError(f"{server.name}: nothing is written in {', '.join(name for name, _ in streams)}")
    return [(incident, tail) for _, incident, tail in sorted(found, key=lambda one: -one[0])]


def _last_run(name: str, entries: Iterable[tuple[bool, Raw]], book: Rulebook) -> tuple[list[Incident], tuple[str, ...]]:
    live = Live(name, book.role_of)
    standing: dict[str, Told] = {}
    starts: list[int] = [-1]
    ready = -1
    tail: list[str] = []

    def take(changes: Iterable[Change]) -> None:
        nonlocal ready
        for change in changes:
            if isinstance(change, Ready):
                ready = max(ready, change.place)
            elif isinstance(change, Began):
                starts.append(change.place)
            elif isinstance(change, Dropped):
                standing.pop(change.key, None)
            else:
                standing[change.key] = change

    for began, raw in entries:
        if began:
            take(live.restart(0.0))
            starts.append(raw.offset)
        live.feed(raw, 0.0)
        tail.append(_message(raw))
        if len(tail) > 400:
            del tail[:200]
    take(live.finish(0.0))
    told = [
        one.incident
        for one in standing.values()
        if not one.incident.outlived and not one.before_ready and one.incident.root.offset > ready
    ]
    if not told:
        return [], tuple(tail)
    last = max(told, key=lambda one: one.root.offset)
    began_at = max(start for start in starts if start <= last.root.offset)
    run = [one for one in told if one.root.offset >= began_at]
    return sorted(run, key=lambda one: -one.root.offset), tuple(tail)


def _message(raw: Raw) -> str:
    """A line as the server wrote it, where the journal wrapped it."""
    if raw.source.startswith("journal:"):
        found = json.loads(raw.text).get("MESSAGE")
        return found if isinstance(found, str) else raw.text
    return raw.text


def _moment(incident: Incident) -> float:
    try:
        return datetime.fromisoformat(incident.root.at or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _targeted(server: Server, edges: Edges) -> Targeted | None:
    """The launch where it stands, None where the server has no target. Raises ApplyError where it cannot be read."""
    if not server.target:
        return None
    try:
        found = edges.read(server.target)
    except (ConfigError, LaunchError) as error:
        raise ApplyError(str(error)) from None
    if len(found) != 1:
        names = ", ".join(one.name for one in found)
        raise ApplyError(f"{server.target}: holds {len(found)} launches; name one of {names}")
    return found[0]


def _ask(incident: Incident, server: Server, settings: Settings, targeted: Targeted | None) -> Ask:
    return Ask(
        incident=incident,
        path_maps=(*server.path_map, *(targeted.path_maps if targeted else ())),
        models_dirs=server.models,
        launch=command_of(targeted) if targeted else server.launch,
        container=targeted.container if targeted else None,
        sglang=server.sglang,
        rules=settings.watch.rules,
    )


def command_of(targeted: Targeted) -> str:
    """A launch with its environment, as one text of shell."""
    env = [f"{name}={quote(value)}" for name, value in targeted.env.items()]
    if isinstance(targeted.command, str):
        # a script of several lines sets its variables itself
        return " ".join((*env, targeted.command)) if "\n" not in targeted.command.strip() else targeted.command
    return " ".join((*env, *(quote(word) for word in targeted.command)))


def _diagnosed(ask: Ask, settings: Settings, book: Rulebook, edges: Edges) -> Document:
    """The finding of an incident, the models read by a child with limits."""
    document, needed = without_models(ask, book, "the model files were not read")
    if not needed:
        return document
    limits = Limits(memory=settings.watch.inspect_memory, time=settings.watch.inspect_time)
    found, why = edges.inspect(ask, limits, edges.clock)
    return found if found is not None else without_models(ask, book, why)[0]


def finding_of(document: Document, incident: Incident | None = None) -> Finding:
    """A finding from its JSON, as a child answers it. Changes that hold a secret cannot be had from it: no such fix."""
    verdict = cast("Mapping[str, object]", document["verdict"])
    evidence = cast("list[Mapping[str, object]]", verdict.get("evidence") or [])
    fixes = cast("list[Mapping[str, object]]", document.get("fixes") or [])
    try:
        return Finding(
            rule=None if document["rule"] is None else str(document["rule"]),
            title=str(document["title"]),
            severity=Severity[str(document["severity"]).upper()],
            cause=str(document["cause"] or ""),
            says=str(document["says"]),
            verdict=Verdict(
                check=str(evidence[0]["check"]) if evidence else "",
                status=Status(str(verdict["status"])),
                because=str(verdict.get("because") or ""),
                evidence=tuple(
                    Evidence(
                        check=str(one["check"]),
                        fact=str(one["fact"]),
                        value=one["value"],  # type: ignore[arg-type]
                        source=str(one["source"]),
                    )
                    for one in evidence
                ),
            ),
            incident=incident,
            fixes=tuple(fix for one in fixes if (fix := _fix(one)) is not None),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ApplyError(f"the diagnosis cannot be understood: {error}") from None


def _fix(entry: Mapping[str, object]) -> Fix | None:
    changes = []
    for one in cast("list[Mapping[str, object]]", entry["changes"]):
        name, old, new = one.get("flag", one.get("name")), one.get("old"), one.get("new")
        if not isinstance(name, str) or not all(value is None or isinstance(value, str) for value in (old, new)):
            return None
        if HIDDEN in (new or ""):  # type: ignore[operator]
            return None
        changes.append(domain.Change(op=str(one["op"]), name=name, old=cast("str", old), new=cast("str", new)))
    return Fix(
        id=str(entry["id"]),
        applicability=Applicability[str(entry["applicability"]).upper()],
        why=str(entry["why"]),
        changes=tuple(changes),
        rechecked=entry.get("rechecked") is True,
        because=str(entry.get("because") or ""),
    )


__all__ = ["Firing", "command_of", "finding_of", "firing", "revalidate"]
