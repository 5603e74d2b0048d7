"""When the watcher leaves a proposal: the server's own trust and the policy's mode allow it, and the proof is complete.

Once for each crash, and again where the server then stays down: what the policy refused may be allowed later (a
cooldown ends, quiet hours do). Neither goes at its own pace: the first proposal comes at once, the others less and less
often, as each makes the actor read everything again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specwatch import __version__
from specwatch.acting.proposals import Proposal, leave, occurrence_of
from specwatch.domain import Applicability
from specwatch.settings import Policy, Server, Settings
from specwatch.storage.store import Fact, Recovered, Seen, Withdrawn
from specwatch.watching.casework import Say

FIRST_PAUSE = 60.0
LONGEST_PAUSE = 900.0
AGAIN = 900.0
"""Seconds after which a server that stays down, with no new crash, is proposed again; each next time twice as many."""
TIMES_AGAIN = 7
REMEMBERED = 1000
"""How many crashes that were proposed are remembered over a restart."""

_MODES = {"safe": Applicability.SAFE, "review": Applicability.REVIEW}


def trusted(server: Server, policy: Policy) -> Applicability | None:
    """The least applicability that may be applied to a server without a person, None where nothing may."""
    allowed = [_MODES[mode] for mode in (policy.mode, server.apply) if mode in _MODES]
    return max(allowed) if len(allowed) == 2 and server.target else None


def proposed_fix(document: dict[str, Any], least: Applicability) -> str:
    """The first fix of a finding that may be proposed, empty where none may.

    The cause has to be proved on the model files, and the fixed launch to have passed the check that condemned it.
    """
    if document["severity"] != "fatal" or document["verdict"]["status"] != "broken" or document["rule"] is None:
        return ""
    for fix in document["fixes"]:
        if fix["rechecked"] and fix["changes"] and Applicability[str(fix["applicability"]).upper()] >= least:
            return str(fix["id"])
    return ""


@dataclass(slots=True)
class _Waiting:
    key: str
    fix: str
    due: float
    again: int = 0


class Proposer:
    """Takes the facts that were stored, leaves proposals in `state`. Times in seconds; `now` never goes back."""

    def __init__(self, state: Path, say: Say) -> None:
        self._state, self._say = state, say
        self._memory = state / "proposed.json"
        self._known = self._remembered()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._pauses: dict[str, tuple[float, float]] = {}  # of a server: until when, how long the next one

    def consider(self, facts: Iterable[Fact], settings: Settings, now: float, wall: float) -> None:
        """Follow what the store took in, and leave what is due."""
        servers = {server.name: server for server in settings.servers}
        for fact in facts:
            if isinstance(fact, Seen):
                self._seen(fact, servers.get(fact.server), settings.policy, now)
            elif isinstance(fact, Withdrawn):
                self._waiting = {about: one for about, one in self._waiting.items() if one.key != fact.key}
            elif isinstance(fact, Recovered):
                self._waiting = {about: one for about, one in self._waiting.items() if about[0] != fact.server}
                if not fact.only:
                    self._pauses.pop(fact.server, None)
        self.work(now, wall)

    def due(self, now: float) -> float | None:
        """Seconds until `work` has something to do, None where it has nothing."""
        return min((max(0.0, one.due - now) for one in self._waiting.values()), default=None)

    def work(self, now: float, wall: float) -> None:
        """Leave the proposals whose time has come."""
        for about, one in list(self._waiting.items()):
            if now < one.due:
                continue
            del self._waiting[about]
            server, finding = about
            proposal = Proposal(
                server=server,
                finding=finding,
                fix=one.fix,
                occurrence=occurrence_of(f"{one.key} again {one.again}" if one.again else one.key),
                created=wall,
                specwatch=__version__,
            )
            try:
                leave(self._state, proposal)
            except OSError as error:
                one.due = now + FIRST_PAUSE
                self._waiting[about] = one
                self._say("error", "proposal_unwritable", server=server, finding=finding, because=str(error))
                continue
            pause = self._pauses.get(server, (0.0, FIRST_PAUSE))[1]
            self._pauses[server] = (now + pause, min(LONGEST_PAUSE, pause * 2))
            self._remember(proposal.occurrence)
            if one.again < TIMES_AGAIN:
                self._waiting[about] = _Waiting(one.key, one.fix, now + AGAIN * 2**one.again, one.again + 1)
            self._say("info", "fix_proposed", server=server, finding=finding, fix=one.fix)

    def _seen(self, fact: Seen, server: Server | None, policy: Policy, now: float) -> None:
        about = (fact.server, fact.fingerprint)
        least = trusted(server, policy) if server is not None else None
        if fact.state != "firing" or least is None or occurrence_of(fact.key) in self._known:
            return
        fix = proposed_fix(json.loads(fact.document), least)
        if fix:
            due = max(now, self._pauses.get(fact.server, (0.0, 0.0))[0])
            self._waiting[about] = _Waiting(fact.key, fix, due)

    # over a restart: whatever is lost here the actor refuses as a replay

    def _remembered(self) -> dict[str, None]:
        try:
            held = json.loads(self._memory.read_bytes())
        except (OSError, ValueError):
            return {}
        return dict.fromkeys(one for one in held if isinstance(one, str)) if isinstance(held, list) else {}

    def _remember(self, occurrence: str) -> None:
        self._known[occurrence] = None
        while len(self._known) > REMEMBERED:
            self._known.pop(next(iter(self._known)))
        whole = self._memory.with_suffix(".tmp")
        try:
            whole.write_text(json.dumps(list(self._known)))
            whole.replace(self._memory)
        except OSError as error:
            self._say("error", "state_unwritable", because=str(error))
