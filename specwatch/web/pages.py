"""Pages as HTML: Jinja2 templates that escape everything, and take control characters of logs out of every text.

The same templates give the pages of the daemon and the one file of `findings show ID --html`, which refers to nothing
outside itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from specwatch import __version__
from specwatch.report.text import inert
from specwatch.report.times import iso
from specwatch.storage.history import Moment
from specwatch.storage.store import Kept
from specwatch.web import views
from specwatch.web.deeds import Attempt
from specwatch.web.runs import WORDS, runs

HERE = Path(__file__).resolve().parent
STATIC = {"specwatch.css": "text/css; charset=utf-8", "specwatch.js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """What a page holds in itself when it is one file."""

    css: Markup
    policy: str


def page(name: str, values: Mapping[str, object], now: float, inline: Inline | None = None) -> str:
    """One page. `values` are those of its template; `now` is seconds since 1970."""
    common = {"now": now, "version": __version__, "inline": inline, "here": "", "fresh": False}
    return _environment().get_template(name).render({**common, **values})


def finding_values(
    row: Kept, excerpt: dict[str, object] | None, moments: list[Moment], tried: list[Attempt], now: float
) -> dict[str, object]:
    """What the page of a finding shows."""
    return {
        "one": views.finding_view(row),
        "folds": views.folds(excerpt),
        "cut": bool((excerpt or {}).get("cut")),
        "runs": runs(moments, now) if moments else None,
        "words": WORDS,
        "tried": tried,
        "approval": False,
        "barred": "",
    }


def one_file(
    row: Kept, excerpt: dict[str, object] | None, moments: list[Moment], tried: list[Attempt], now: float
) -> str:
    """The page of a finding as one file that needs nothing else, neither script nor network."""
    return page("finding.html", finding_values(row, excerpt, moments, tried, now), now, _inline())


def static(name: str) -> bytes | None:
    """A file that the pages refer to, None for any other name."""
    return _static(name) if name in STATIC else None


@cache
def _static(name: str) -> bytes:
    return (HERE / "static" / name).read_bytes()


@cache
def _inline() -> Inline:
    css = _static("specwatch.css").decode()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    # a file of ours: it is no text of a log
    return Inline(css=Markup(css), policy=f"default-src 'none'; style-src 'sha256-{digest}'")  # noqa: S704


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals.update(iso=iso, clock=views.clock, ago=views.ago, lasting=views.lasting)
    environment.globals.update(moment=views.moment, words_of=views.words_of)
    return environment


def _shown(value: object) -> object:
    """What stands in a page: nothing that a terminal, or the order of writing, would act upon once it is copied."""
    return inert(value) if isinstance(value, str) and not isinstance(value, Markup) else value
