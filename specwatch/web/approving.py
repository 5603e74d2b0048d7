"""Lets a person who knows the token approve one fix from the page: leaves a sealed proposal for the one that may act.

Nothing is changed from here. The service that applies reads log, models and launch again, asks the policy, and may
still say no; what it did stands in the audit log.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque

from specwatch import __version__
from specwatch.acting import approval
from specwatch.acting.proposals import Proposal, leave, occurrence_of
from specwatch.errors import ConfigError, SpecwatchError
from specwatch.storage.history import opened
from specwatch.storage.store import Kept
from specwatch.web import pages, views
from specwatch.web.foreseeing import barred, offers
from specwatch.web.site import Site

MOST_WRONG = 5
"""Wrong tokens within `WITHIN` seconds, from anybody, after which nobody is heard for that long."""
WITHIN = 60.0


class RefusedError(SpecwatchError):
    """An approval is not taken; `status` is that of HTTP, the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Approving:
    """What may be approved, and by whom."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._wrong: deque[float] = deque()
        self._lock = threading.Lock()

    def page(self, server: str, finding: str, because: str = "") -> str | None:
        """The form, None where there is no such finding. `because` says what was wrong with the last try."""
        row = self._row(server, finding)
        if row is None:
            return None
        values = {
            "one": views.finding_view(row),
            "offers": offers(self._site, row),
            "barred": barred(self._site, row),
            "because": because,
            "target": next((one.target for one in self._site.settings().servers if one.name == server), ""),
        }
        return pages.page("approve.html", values, self._site.wall())

    def approve(self, server: str, finding: str, fix: str, token: str) -> None:
        """Leave the approved proposal. Raises RefusedError, or OSError where the disk does not take it."""
        row = self._row(server, finding)
        if row is None:
            raise RefusedError(404, f"{server} has no finding {finding}.")
        if not self._site.settings().web.token_file:
            raise RefusedError(403, barred(self._site, row))
        self._known(token)
        because = barred(self._site, row)
        if because:
            raise RefusedError(409, because)
        refused = {one.fix.id: one.refused for one in reversed(offers(self._site, row))}
        if fix not in refused:
            raise RefusedError(409, f"The finding has no fix {fix[:100]} that a program could apply.")
        if refused[fix]:
            raise RefusedError(409, f"It would be refused. {refused[fix]}")
        created = self._site.wall()
        occurrence = occurrence_of(f"approval {secrets.token_hex(16)}")
        sealed = approval.seal(token, server, finding, fix, occurrence, created)
        leave(
            self._site.state,
            Proposal(
                server=server, finding=finding, fix=fix, occurrence=occurrence, created=created,
                specwatch=__version__, approval=sealed,
            ),
        )  # fmt: skip

    def _known(self, token: str) -> None:
        now = self._site.now()
        with self._lock:
            while self._wrong and self._wrong[0] < now - WITHIN:
                self._wrong.popleft()
            if len(self._wrong) >= MOST_WRONG:
                raise RefusedError(429, f"Too many wrong tokens: nobody is heard for {WITHIN:.0f} s.")
            try:
                digest = approval.digest_of(self._site.settings().web.token_file)
            except ConfigError as error:
                raise RefusedError(503, str(error)) from None
            if not approval.is_right(token, digest):
                self._wrong.append(now)
                raise RefusedError(401, "That is not the token.")

    def _row(self, server: str, finding: str) -> Kept | None:
        with opened(self._site.state) as history:
            return history.finding(server, finding)
