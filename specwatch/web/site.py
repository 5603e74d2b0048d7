"""What the pages and the API show of one daemon: gathers it from the store, the tally and what was changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specwatch.commands.findings import document
from specwatch.errors import SpecwatchError
from specwatch.report.times import iso
from specwatch.settings import Settings
from specwatch.storage.history import History, Moment, opened
from specwatch.storage.store import Kept
from specwatch.watching.tally import Tally
from specwatch.web import deeds, foreseeing, pages, views
from specwatch.web.runs import WORDS, runs

ALIVE_WITHIN = 180.0
"""Seconds after the last turn of the loop from which on it counts as dead; a turn may wait 60 s."""

MOST_BEHIND = 5.0
"""Seconds for which a log may have been read and not be at its end before the overview says so."""
MOST_SHOWN = 40
"""Broken servers that the overview shows with their findings; of more it names the rest."""

Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One daemon as the HTTP side sees it. `settings` gives those in force; `now` never goes back, `wall` is 1970's.

    `status_of` gives the status of a rule by its name, None where that is not known.
    """

    settings: Callable[[], Settings]
    state: Path
    tally: Tally
    now: Callable[[], float]
    wall: Callable[[], float]
    status_of: Callable[[str], str | None] = lambda _rule: None

    @property
    def actions(self) -> Path:
        """Where what was changed is recorded."""
        return Path(self.settings().state.actions)

    def alive(self) -> str:
        """Why the loop counts as dead, empty while it lives."""
        turned = self.tally.turned
        if turned < 0:
            return "the loop has not finished its first turn"
        late = self.now() - turned
        return f"the loop finished its last turn {late:.0f} s ago" if late > ALIVE_WITHIN else ""

    def unready(self) -> str:
        """Why nothing can be shown or kept, empty where all is well."""
        if not self.tally.storing:
            return "the store cannot be written"
        try:
            with opened(self.state) as history:
                history.findings(limit=1)
        except (sqlite3.Error, SpecwatchError) as error:
            return f"the store cannot be read: {error}"
        return ""

    def servers(self, history: History) -> list[views.ServerView]:
        """All servers: those on which something fires, the worst first, then the others of the configuration."""
        standing = {one.server: one for one in history.standings()}
        known = set(history.servers())
        named = [server.name for server in self.settings().servers] or sorted(known)
        return [
            views.server_view(
                name, standing.get(name), self.tally.last_line.get(name, 0.0), self.tally.up.get(name),
                known=name in known,
            )
            for name in dict.fromkeys([*standing, *named])
        ]  # fmt: skip

    @staticmethod
    def _with_findings(history: History, one: views.ServerView, most: int) -> views.ServerView:
        rows = (history.finding(one.name, fingerprint) for fingerprint in one.firing[:most])
        return replace(one, findings=tuple(views.finding_view(row) for row in rows if row))

    def _doubts(self, servers: Sequence[views.ServerView] = ()) -> list[str]:
        """Why what the overview shows may not be all."""
        found = []
        if dead := self.alive():
            found.append(f"specwatch itself does not go on: {dead}. What this page shows may be old.")
        if not self.tally.storing:
            found.append(
                "The store cannot be written: what has happened since stands in the log of specwatch, not here."
            )
        for server, since in sorted(self.tally.behind_since.items()):
            if (late := self.wall() - since) >= MOST_BEHIND:
                found.append(f"The log of {server} is still being read; behind for {views.lasting(late)}.")
        for one in servers:
            if one.up is False and not one.firing:
                found.append(
                    f"The health endpoint of {one.name} fails, and its log does not say why; it may be starting."
                )
        return found

    # pages

    def home(self) -> str:
        """What is broken now."""
        with opened(self.state) as history:
            servers = self.servers(history)
            shown = [self._with_findings(history, one, 5) for one in servers[:MOST_SHOWN] if one.firing]
            past = history.over(8)
        values = {
            "servers": servers,
            "shown": shown,
            "past": [views.finding_view(row) for row in past],
            "last_line": max((one.last_line for one in servers), default=0.0),
            "doubts": self._doubts(servers),  # with any, what is not shown may be broken all the same
            "here": "now",
            "fresh": True,
        }
        return pages.page("home.html", values, self.wall())

    def finding(self, server: str, fingerprint: str) -> str | None:
        """The page of one finding, None where there is none."""
        with opened(self.state) as history:
            row = history.finding(server, fingerprint)
            if row is None:
                return None
            excerpt, moments = history.excerpt(server, fingerprint), history.moments(server)
        tried = deeds.attempts(self.actions, server)
        values = pages.finding_values(row, excerpt, moments, tried, self.wall())
        asked = bool(self.settings().web.token_file) and row.state == "firing"
        return pages.page(
            "finding.html", {**values, "approval": asked, "barred": self._barred(row, asked)}, self.wall()
        )

    def _barred(self, row: Kept, asked: bool) -> str:
        return foreseeing.barred(self, row) if asked else ""

    def server(self, name: str) -> str | None:
        """The page of one server, None where it is not known."""
        with opened(self.state) as history:
            rows, moments = history.findings(server=name, limit=200), history.moments(name)
            found = [one for one in self.servers(history) if one.name == name]
        if not found and not rows and not moments:
            return None
        if not found:  # the configuration names it no longer
            found = [views.server_view(name, None, 0.0, None, known=True)]
        values = {
            "server": found[0],
            "findings": [views.finding_view(row) for row in rows],
            "runs": runs(moments, self.wall()),
            "words": WORDS,
            "tried": deeds.attempts(self.actions, name),
        }
        return pages.page("server.html", values, self.wall())

    def audit(self) -> str:
        """What was done."""
        entries, because = deeds.entries(self.actions)
        return pages.page("audit.html", {"entries": entries, "because": because, "here": "audit"}, self.wall())

    def message(self, heading: str, text: str, *, bad: bool = True) -> str:
        """A page that says one thing."""
        return pages.page("message.html", {"heading": heading, "text": text, "bad": bad}, self.wall())

    # the same as JSON

    def api_findings(self, server: str, state: str, limit: int, offset: int) -> Json:
        """A page of findings."""
        with opened(self.state) as history:
            rows = history.findings(server=server, state=state, limit=limit + 1, offset=offset)
        following = offset + limit if len(rows) > limit else None
        return {"schema": 1, "findings": [finding_object(row) for row in rows[:limit]], "next": following}

    def api_finding(self, server: str, fingerprint: str) -> Json | None:
        """One finding with the log around it and the history of its server."""
        with opened(self.state) as history:
            row = history.finding(server, fingerprint)
            if row is None:
                return None
            excerpt, moments = history.excerpt(server, fingerprint), history.moments(server)
        tried = [action_object(one) for one in deeds.attempts(self.actions, server)]
        found = {**finding_object(row), "excerpt": excerpt}
        return {"schema": 1, "finding": found, "moments": [moment_object(one) for one in moments], "actions": tried}

    def api_servers(self) -> Json:
        """All servers at a glance."""
        with opened(self.state) as history:
            servers = self.servers(history)
        return {"schema": 1, "servers": [server_object(one) for one in servers]}

    def api_actions(self, server: str, limit: int) -> Json:
        """What was changed."""
        return {
            "schema": 1,
            "actions": [action_object(one) for one in deeds.attempts(self.actions, server, limit)],
        }


def finding_object(row: Kept) -> Json:
    """A finding as in `diagnose --format json`, with its server and history."""
    return {
        **document(row),
        "id": row.fingerprint,
        "severity": row.severity,
        "firing_since": iso(row.began) if row.state == "firing" else None,
    }


def server_object(one: views.ServerView) -> Json:
    """One server."""
    return {
        "name": one.name,
        "state": one.state,
        "since": iso(one.since) if one.since else None,
        "last_line": iso(one.last_line) if one.last_line else None,
        "up": one.up,
        "firing": list(one.firing),
    }


def moment_object(one: Moment) -> Json:
    """Something that happened to a server."""
    return {"time": iso(one.at), "kind": one.kind, "finding": one.fingerprint or None}


def action_object(one: deeds.Attempt) -> Json:
    """One change of a launch."""
    return {**{name: value for name, value in asdict(one).items() if name != "at"}, "time": iso(one.at)}
