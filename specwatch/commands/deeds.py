"""What was done to servers, for people: the actions of `findings show` and `audit list`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from specwatch.errors import ApplyError
from specwatch.report.times import iso
from specwatch.settings import Settings
from specwatch.storage.actions import Action, Actions

WORDS = {
    "applied": "helped", "rolled_back": "did not help, taken back", "failed": "FAILED, a person has to look",
}  # fmt: skip


class Deeds:
    """What can be seen of the actions; nothing where nothing was ever done, or it is not ours to read."""

    def __init__(self, settings: Settings) -> None:
        self.actions: Sequence[Action] = ()
        self.breakers: dict[str, str] = {}
        self.unseen = ""
        folder = Path(settings.state.actions)
        try:
            if not (folder / "actions.db").is_file():
                return
            store = Actions(folder, read_only=True)
            try:
                self.actions, self.breakers = store.actions(), store.breakers()
            finally:
                store.close()
        except (ApplyError, OSError) as error:
            self.unseen = str(error)

    def of(self, server: str) -> list[Action]:
        """All actions of one server, oldest first."""
        return [one for one in self.actions if one.server == server]

    def lines(self, server: str, finding: str) -> Iterator[str]:
        """The story of one server; the actions on `finding` are marked."""
        for one in self.of(server):
            own = "this finding" if one.fingerprint == finding else f"finding {one.fingerprint}"
            what = f"{one.fix} for {own}" if one.kind == "apply" else f"put back what {one.details.get('of')} replaced"
            yield f"  {iso(one.began)} action {one.id}: {what}, asked for by a {one.asked_by}"
            word = WORDS.get(one.state, f"not finished (at {one.state})")
            if one.kind == "rollback":
                word = "done" if one.state == "applied" else word
            yield f"      {word} after {one.changed - one.began:.0f} s: {one.because}"
            notes = one.details.get("neighbourhood")
            for note in notes if isinstance(notes, list) else []:
                yield f"      then around it: {note}"
        if server in self.breakers:
            yield f"  the breaker is open: {self.breakers[server]}"
            yield f"      `specwatch reset {server}` closes it"
        if self.unseen:
            yield f"  what was done about it could not be read: {self.unseen}"


def action_object(one: Action) -> dict[str, object]:
    """One action as JSON."""
    return {
        "id": one.id, "kind": one.kind, "server": one.server, "finding": one.fingerprint, "fix": one.fix,
        "target": one.target, "asked_by": one.asked_by, "state": one.state, "because": one.because,
        "began": iso(one.began), "changed": iso(one.changed), "took": round(one.changed - one.began, 1),
        "resumes": one.resumes, "details": dict(one.details),
    }  # fmt: skip
