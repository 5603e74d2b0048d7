"""`specwatch apply --proposals`: what specwatch-apply.service runs, the one that acts upon what the watcher proposed.

Finish or take back what was interrupted - take the proposals, the oldest first - refuse what is forged, replayed, stale
or names what the configuration does not - leave the rest to `specwatch.act`, which finds everything out anew - remove
them, whatever the answer was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from specwatch import act
from specwatch.acting import approval
from specwatch.acting.base import Hooks, Outcome, Request
from specwatch.acting.proposals import MOST, Inbox, Proposal, Taken, untimely
from specwatch.commands.common import SITE_RULES, rulebook
from specwatch.commands.contract import Exit
from specwatch.commands.watch import logger
from specwatch.config import DEFAULT_FILE, Server, Settings, load, refuse_writable, state_directory
from specwatch.errors import SpecwatchError
from specwatch.report.text import clean
from specwatch.rulebook.book import Rulebook
from specwatch.storage.actions import Actions
from specwatch.watching.casework import Say

FLOOD = 256
"""More entries than this are no proposals of a watcher that works: they are removed unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of the command. `state` is the directory of the watcher's state."""

    config: Path | None = None
    state: Path | None = None
    insecure: bool = False


def run(options: Options) -> int:
    """Act upon the proposals that there are; gives the exit code: 0 whatever became of each of them."""
    say = logger()
    try:
        settings = load(options.config or DEFAULT_FILE, allow_insecure=options.insecure)
        book = _rulebook(settings, insecure=options.insecure)
    except SpecwatchError as error:
        # they would start us again and again; the watcher proposes anew when the server crashes the next time
        if options.state:
            with Inbox(options.state) as inbox:
                say("error", "proposals_dropped", entries=inbox.drop_rest(set()), because=str(error))
        raise
    actions = Actions(Path(settings.state.actions), lambda text: say("warning", "audit_mended", says=text))
    try:
        hooks = Hooks(say=say)
        for outcome in act.resume(settings, book, hooks=hooks):
            _tell(say, "action_resumed", outcome)
        with Inbox(options.state or state_directory(settings)) as inbox:
            _Actor(settings, book, actions, hooks).work(inbox)
    finally:
        actions.close()
    return Exit.CLEAN


def _rulebook(settings: Settings, *, insecure: bool) -> Rulebook:
    """The rules, from where nobody but root may put one."""
    folders = [Path(folder) for folder in settings.watch.rules]
    for folder in (SITE_RULES, *folders) if not insecure else ():
        if folder.is_dir():
            for path in (folder, *sorted(folder.glob("*.toml"))):
                refuse_writable(path)
    return rulebook(folders)


def _tell(say: Say, event: str, outcome: Outcome) -> None:
    fields = {
        "result": outcome.result, "because": outcome.because, "server": outcome.server, "fix": outcome.fix,
        "finding": outcome.fingerprint, "action": outcome.action, "took": round(outcome.took, 1),
    }  # fmt: skip
    say("info" if outcome.helped else "warning", event, **{name: value for name, value in fields.items() if value})


class _Actor:
    """Answers one batch of proposals."""

    def __init__(self, settings: Settings, book: Rulebook, actions: Actions, hooks: Hooks) -> None:
        self._settings, self._book, self._actions, self._hooks = settings, book, actions, hooks
        self._servers = {server.name: server for server in settings.servers}
        self._began = time.time()

    def work(self, inbox: Inbox) -> None:
        """Answer and remove the oldest entries; what is left starts us again."""
        entries, more = inbox.entries()
        for taken in entries:
            self._answer(taken)
            inbox.drop(taken.name)
        if more > FLOOD:
            gone = inbox.drop_rest(set())
            because = f"{gone} more entries lay there than a watcher leaves: removed unread"
            self._refuse("", because, entries=str(gone))
        elif more:
            self._hooks.say("info", "proposals_left", entries=more, because=f"{MOST} are taken at a time")

    def _answer(self, taken: Taken) -> None:
        proposal = taken.proposal
        if proposal is None:
            self._refuse("", taken.because)
            return
        server = self._servers.get(proposal.server)
        because = self._unfit(proposal, server)
        if because or server is None:
            self._refuse(proposal.server if server else "", because, finding=proposal.finding, fix=proposal.fix)
            return
        if not self._actions.take_proposal(proposal.occurrence, server.name, time.time()):
            because = "this crash was proposed and answered before: a replay"
            self._refuse(server.name, because, finding=proposal.finding, fix=proposal.fix)
            return
        # names only, and without a person's approval the fix is not even one of them: which one helps is found out anew
        request = Request(
            server=server,
            fingerprint=proposal.finding,
            fix=proposal.fix if proposal.approval else None,
            asked_by="person" if proposal.approval else "proposal",
            confirmed=True,
            key=proposal.occurrence,
        )
        try:
            outcome = act.apply(request, self._settings, self._book, hooks=self._hooks)
        except SpecwatchError as error:
            self._refuse(proposal.server, str(error), finding=proposal.finding, fix=proposal.fix)
            return
        _tell(self._hooks.say, "proposal_answered", outcome)

    def _unfit(self, proposal: Proposal, server: Server | None) -> str:
        if server is None:
            return f"{self._settings.path} names no server {proposal.server}"
        if proposal.approval and (because := self._forged(proposal)):
            return because
        return untimely(proposal, self._began, self._settings.policy.proposal_age)

    def _forged(self, proposal: Proposal) -> str:
        """Why an approval is none of a person who knows the token, empty where it is."""
        file = self._settings.web.token_file
        if not file:
            return "it is said to be approved, and [web] names no token_file"
        p = proposal
        try:
            token = approval.token_of(file)
        except SpecwatchError as error:
            return f"its approval cannot be checked: {error}"
        if not approval.is_sealed(p.approval, token, p.server, p.finding, p.fix, p.occurrence, p.created):
            return "its approval was not made with the token for this: it was forged or changed"
        return ""

    def _refuse(self, server: str, because: str, **fields: str) -> None:
        because = clean(because)
        self._actions.note("proposal_refused", server, time.time(), because=because, **fields)
        self._hooks.say(
            "warning", "proposal_refused", because=because, **({"server": server} if server else {}), **fields
        )
