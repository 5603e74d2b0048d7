"""From rows of the store to what a page shows: plain values, nothing of HTML. Pure; `now` is an argument.

Documents come from our own store, yet every key may be missing: an older version wrote them, or one that knew more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specwatch.report.times import utc
from specwatch.storage.history import Standing
from specwatch.storage.store import Kept

Document = dict[str, object]
QUIET_BEFORE = 8
"""Lines right before the crash that are not folded away."""
HUES = 8
LONGEST_COMMAND = 20_000
"""Characters of a command up to which its words are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixView:
    """One fix: what goes, what comes, and the command whole (empty where none is known)."""

    id: str
    applicability: str
    why: str
    because: str
    rechecked: bool
    gone: tuple[str, ...]
    come: tuple[str, ...]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """One line of the log. `hue` is 0 for no rank, else 1 to HUES, the same for the same rank."""

    number: int
    kind: str
    ranks: str
    hue: int
    time: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Lines that stand together; `label` says what is folded away, empty for what is shown."""

    label: str
    lines: tuple[LineView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding as a page shows it."""

    row: Kept
    name: str
    title: str
    says: str
    source: str
    line: int
    time: str
    text: str
    ranks: tuple[str, ...]
    status: str
    because: str
    evidence: tuple[tuple[str, str, str], ...]
    fixes: tuple[FixView, ...]
    launch: str
    sglang: str
    echoes: int

    @property
    def proof(self) -> str:
        """What the proof is worth, in words."""
        return {
            "broken": "proved on the model files",
            "unknown": "not proved",
            "sound": "not confirmed by the model files",
            "refuted": "refuted",
        }.get(self.status, self.status or "not proved")

    @property
    def best(self) -> FixView | None:
        """The first fix that has a command and no blanks to fill in."""
        ready = [fix for fix in self.fixes if fix.command and fix.applicability != "manual"]
        return ready[0] if ready else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One server at a glance. `state`: broken, degraded, fine, or unknown (no line was read yet).

    `firing` are the ids of what fires, the worst first; `findings` the first of them, as far as they are shown.
    """

    name: str
    state: str
    since: float
    last_line: float
    up: bool | None
    firing: tuple[str, ...]
    findings: tuple[FindingView, ...] = ()

    @property
    def words(self) -> str:
        """The state in words."""
        return {
            "broken": "broken",
            "degraded": "degraded",
            "fine": "nothing fires",
            "unknown": "no line read yet",
        }[self.state]


def finding_view(row: Kept) -> FindingView:
    """A row of the store to be shown."""
    document = row.document
    root, verdict, launch = (_table(document, key) for key in ("root", "verdict", "launch"))
    words = [str(one) for one in _list(launch, "argv")]
    env = " ".join(f"{name}={value}" for name, value in _table(launch, "env").items())
    return FindingView(
        row=row,
        name=_text(document, "rule") or _text(document, "cause") or "unknown crash",
        title=_text(document, "title"),
        says=_text(document, "says") or _text(document, "title"),
        source=_text(root, "source"),
        line=_number(root, "line"),
        time=_text(root, "time"),
        text=_text(root, "text"),
        ranks=tuple(str(one) for one in _list(root, "ranks")),
        status=_text(verdict, "status"),
        because=_text(verdict, "because"),
        evidence=tuple(_evidence(one) for one in _list(verdict, "evidence") if isinstance(one, dict)),
        fixes=tuple(_fix(one) for one in _list(document, "fixes") if isinstance(one, dict)),
        launch=" ".join(filter(None, (env, *words))),
        sglang=_text(launch, "sglang"),
        echoes=_number(document, "echoes"),
    )


def server_view(name: str, standing: Standing | None, last_line: float, up: bool | None, *, known: bool) -> ServerView:
    """A server with what fires of it; `known` says that an earlier daemon has read of it."""
    if standing is None:
        state = "fine" if last_line or known else "unknown"
        return ServerView(name=name, state=state, since=0.0, last_line=last_line, up=up, firing=())
    return ServerView(
        name=name,
        state="broken" if standing.fatal else "degraded",
        since=standing.since,
        last_line=last_line,
        up=up,
        firing=standing.fingerprints,
    )


def folds(excerpt: Document | None) -> tuple[Fold, ...]:
    """The lines of an excerpt, with the echoes and what lies further before the crash folded away."""
    lines = [_line(one) for one in _list(excerpt or {}, "lines") if isinstance(one, dict)]
    crash = next((n for n, one in enumerate(lines) if one.kind != "context"), len(lines))
    out: list[Fold] = []
    far = lines[: max(0, crash - QUIET_BEFORE)]
    if far:
        out.append(Fold(label=f"{_lines(len(far))} before", lines=tuple(far)))
    for echo, group in _groups(lines[len(far) :]):
        ranks = sorted({one.ranks for one in group if one.ranks})
        label = f"{_lines(len(group))} of echoes" + (f" ({', '.join(ranks[:6])})" if ranks else "") if echo else ""
        out.append(Fold(label=label, lines=tuple(group)))
    return tuple(out)


def clock(at: float) -> str:
    """A time for people, in UTC."""
    return utc(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(at: float, now: float) -> str:
    """A time for people, in UTC, without the date where that is today's."""
    same = utc(at).date() == utc(now).date()
    return utc(at).strftime("%H:%M UTC" if same else "%Y-%m-%d %H:%M UTC")


def words_of(text: str) -> list[str]:
    """A command as its words and what stands between them, so that a line breaks between words, not inside them."""
    return [text] if len(text) > LONGEST_COMMAND else re.findall(r"\s+|\S+", text)


def ago(at: float, now: float) -> str:
    """How long ago, in one unit: "3 min ago"."""
    return "just now" if 0 <= now - at < 2 else f"{lasting(now - at)} ago" if now >= at else f"in {lasting(at - now)}"


def lasting(seconds: float) -> str:
    """A duration in one unit that is not misleading: 90 s, 45 min, 30 h, 12 days."""
    for size, unit, until in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172800)):
        if seconds < until:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def _groups(lines: Sequence[LineView]) -> Iterator[tuple[bool, list[LineView]]]:
    group: list[LineView] = []
    for line in lines:
        if group and (line.kind == "echo") != (group[0].kind == "echo"):
            yield group[0].kind == "echo", group
            group = []
        group.append(line)
    if group:
        yield group[0].kind == "echo", group


def _lines(count: int) -> str:
    return f"{count} line" + ("s" if count != 1 else "")


def _line(one: Document) -> LineView:
    ranks = " ".join(str(rank) for rank in _list(one, "ranks"))
    digits = "".join(c for c in ranks if c.isdigit())
    return LineView(
        number=_number(one, "line"),
        kind=_text(one, "kind"),
        ranks=ranks,
        hue=int(digits[-4:] or 0) % HUES + 1 if ranks else 0,
        time=_text(one, "time").partition("T")[2],
        text=_text(one, "text").strip("\r").replace("\r", "\n"),  # progress bars: one below the other
    )


def _evidence(one: Document) -> tuple[str, str, str]:
    return _text(one, "fact"), str(one.get("value")), _text(one, "source")


def _fix(one: Document) -> FixView:
    gone, come = [], []
    for change in _list(one, "changes"):
        if not isinstance(change, dict):
            continue
        name, variable = _text(change, "flag") or _text(change, "name"), "name" in change
        old, new = change.get("old"), change.get("new")
        sign = "=" if variable else " " if name.startswith("-") else ": "
        if old is not None or _text(change, "op").startswith(("remove", "unset")):
            gone.append(_spelled(name, old, sign))
        if new is not None:
            come.append(_spelled(name, new, sign))
    return FixView(
        id=_text(one, "id"),
        applicability=_text(one, "applicability"),
        why=_text(one, "why"),
        because=_text(one, "because"),
        rechecked=bool(one.get("rechecked")),
        gone=tuple(gone),
        come=tuple(come),
        command=_text(one, "command"),
    )


def _spelled(name: str, value: object, sign: str) -> str:
    """A flag, a variable (`=`), or a key of the container around the command (`:`)."""
    return f"{name}{sign}{value or ''}" if value or sign == "=" else name


def _text(table: Document, key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _number(table: Document, key: str) -> int:
    value = table.get(key)
    return value if isinstance(value, int) else 0


def _list(table: Document, key: str) -> list[object]:
    value = table.get(key)
    return value if isinstance(value, list) else []


def _table(table: Document, key: str) -> Document:
    value = table.get(key)
    return value if isinstance(value, dict) else {}
