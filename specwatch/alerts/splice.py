"""Annotations put into the JSON of alerts without writing it anew: every byte that was there stays where it was.

Numbers keep their form, keys their order, unknown fields their place; an alert of which nothing is known comes out as
it came in. Known shapes: Alertmanager's webhook payload (version 4, `alerts`), an array of alerts, one alert.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

LARGEST = 16 * 1024 * 1024
"""Bytes of alerts that are looked into; more pass unchanged."""
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False)
_SPACE = " \t\n\r\ufeff"


class NotAlertsError(ValueError):
    """These bytes are no alerts; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What of an alert tells which server it is about, and when it began (RFC 3339)."""

    labels: Mapping[str, str]
    starts_at: str


Look = Callable[[Alert], Mapping[str, str]]
"""The annotations that an alert shall get; empty for none."""
_Edit = tuple[int, int, str]


def enrich(body: bytes, look: Look) -> bytes:
    """The same bytes with the annotations that `look` gives. Raises NotAlertsError."""
    if len(body) > LARGEST:
        raise NotAlertsError(f"larger than {LARGEST // 1024 // 1024} MiB")
    text = body.decode("utf-8", "surrogateescape")
    try:
        edits = list(_edits(text, look))
    except RecursionError:
        raise NotAlertsError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotAlertsError(f"not JSON: {error}") from None
    out: list[str] = []
    done = 0
    for start, end, new in sorted(edits):
        out += [text[done:start], new]
        done = end
    return "".join((*out, text[done:])).encode("utf-8", "surrogateescape") if out else body


def _edits(text: str, look: Look) -> Iterator[_Edit]:
    start = _skip(text, 0)
    whole, end = _DECODER.raw_decode(text, start)
    if _skip(text, end) != len(text):
        raise NotAlertsError("more than one JSON value")
    if isinstance(whole, list):
        for at, one in zip(_elements(text, start), whole, strict=True):
            yield from _alert(text, at, one, look)[0]
        return
    if isinstance(whole, dict) and isinstance(whole.get("alerts"), list):
        yield from _payload(text, start, whole, look)
    elif isinstance(whole, dict) and isinstance(whole.get("labels"), dict):
        yield from _alert(text, start, whole, look)[0]
    else:
        raise NotAlertsError("no alerts: expected Alertmanager's webhook payload, an array of alerts, or one alert")


def _payload(text: str, start: int, whole: dict[str, Any], look: Look) -> Iterator[_Edit]:
    members = _members(text, start)
    shared: dict[str, str] | None = None
    for at, one in zip(_elements(text, members["alerts"][0]), whole["alerts"], strict=True):
        edits, final = _alert(text, at, one, look)
        yield from edits
        ours = {name: value for name, value in final.items() if name.startswith("specwatch_")}
        shared = ours if shared is None else dict(shared.items() & ours.items())
    common = whole.get("commonAnnotations")
    if shared and isinstance(common, dict):  # what all alerts of the payload say, as Alertmanager defines it
        yield from _added(text, members["commonAnnotations"], common, shared)


def _alert(text: str, start: int, one: object, look: Look) -> tuple[list[_Edit], dict[str, str]]:
    """How one alert changes, and the annotations that it has then."""
    if not isinstance(one, dict) or not isinstance(one.get("labels"), dict):
        return [], {}
    had = one.get("annotations")
    if had is not None and not isinstance(had, dict):
        return [], {}
    labels = {name: value for name, value in one["labels"].items() if isinstance(value, str)}
    starts = one.get("startsAt")
    new = look(Alert(labels=labels, starts_at=starts if isinstance(starts, str) else ""))
    final = {**new, **{name: value for name, value in (had or {}).items() if isinstance(value, str)}}
    if not new:
        return [], final
    members = _members(text, start)
    if "annotations" not in members:
        body = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in new.items())
        return [(start + 1, start + 1, f'"annotations":{{{body}}}' + ("," if members else ""))], final
    return list(_added(text, members["annotations"], had, new)), final


def _added(text: str, span: tuple[int, int], had: dict[str, Any] | None, new: Mapping[str, str]) -> Iterator[_Edit]:
    """New members at the end of the object that stands there; names that it has are left alone."""
    missing = {name: value for name, value in new.items() if had is None or name not in had}
    if not missing:
        return
    body = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in missing.items())
    if had is None:  # null
        yield span[0], span[1], f"{{{body}}}"
        return
    inside = _members(text, span[0])
    at = max((end for _, end in inside.values()), default=span[0] + 1)
    yield at, at, f",{body}" if inside else body


def _members(text: str, start: int) -> dict[str, tuple[int, int]]:
    """Where the values of an object stand; of a name that comes twice, the last, which is the one that counts."""
    found: dict[str, tuple[int, int]] = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, at = scanstring(text, at + 1, False)
        value = _skip(text, _skip(text, at) + 1)
        _, at = _DECODER.raw_decode(text, value)
        found[name] = (value, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _elements(text: str, start: int) -> Iterator[int]:
    """Where the elements of an array begin."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        yield at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
