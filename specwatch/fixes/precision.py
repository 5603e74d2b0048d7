"""The data type that target and draft run in."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.subject import Subject, Unreadable
from specwatch.errors import ModelError
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import setting

TYPES = ("bfloat16", "float16", "float32")


def target_dtype(ask: Request) -> Iterator[Proposal]:
    """Name the target's own type, so that the draft is cast to it as well."""
    launch = ask.launch
    if launch is None or launch.value("dtype", "auto") != "auto":
        return
    try:
        text = Subject(launch, ask.models).target().text
        named = text.get("torch_dtype") or text.get("dtype")
    except (ModelError, Unreadable):
        return
    if named in TYPES:
        why = f"{named} is the target's own type; the draft is cast to it, so the outputs stay the target's"
        yield edited(launch, (setting(launch, "--dtype", named),), why)
