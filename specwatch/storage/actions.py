"""What was changed, one SQLite file and one audit log in a directory that only root may write.

    actions.db      every action with the state it is in, breakers, resets, proposals taken; journal mode DELETE, so
                    that others may read it without writing beside it
    audit.jsonl     the hash chain (`storage.audit`)
    ACTION/kept/    the files as they were, byte for byte: of root only, they may hold keys
    ACTION/evidence/  what was seen before anything was changed, secrets taken out
    locks/          one file a server, locked while it is being changed

**The one promise**: a state is on the disk, together with its audit entry, before the step after it begins.

Everything that comes in here for others to read has had its secrets taken out by the caller.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from specwatch.domain import Value
from specwatch.errors import ApplyError
from specwatch.storage import audit

FINAL = frozenset({"applied", "rolled_back", "failed"})
"""The states in which nothing is left to do."""

_SCHEMA = 1
_TABLES = """
    CREATE TABLE action (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL, kind TEXT NOT NULL, server TEXT NOT NULL,
        fingerprint TEXT NOT NULL, fix TEXT NOT NULL, target TEXT NOT NULL, asked_by TEXT NOT NULL,
        state TEXT NOT NULL, because TEXT NOT NULL, began REAL NOT NULL, changed REAL NOT NULL,
        deadline REAL NOT NULL, resumes INTEGER NOT NULL, details TEXT NOT NULL) STRICT;
    CREATE INDEX action_server ON action (server, number);
    CREATE TABLE breaker (server TEXT PRIMARY KEY, at REAL NOT NULL, because TEXT NOT NULL) STRICT;
    CREATE TABLE reset (server TEXT PRIMARY KEY, at REAL NOT NULL, number INTEGER NOT NULL) STRICT;
    CREATE TABLE proposal (key TEXT PRIMARY KEY, at REAL NOT NULL) STRICT;
    CREATE TABLE chain (seq INTEGER PRIMARY KEY, hash TEXT NOT NULL) STRICT;
    CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), count INTEGER NOT NULL, hash TEXT NOT NULL,
        line TEXT NOT NULL, written INTEGER NOT NULL) STRICT;
"""
_COLUMNS = (
    "id, number, kind, server, fingerprint, fix, target, asked_by, state, because, began, changed, deadline,"
    " resumes, details"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One change of a server's launch, or the way back. Times are seconds since 1970.

    `kind` is `apply` or `rollback`. `state` is one of planned, bundled, kept, written, restarted, restoring, applied,
    rolled_back, failed. `details` are JSON values for people and for the way back: files with digests, title, notes.
    """

    id: str
    number: int
    kind: str
    server: str
    fingerprint: str
    fix: str
    target: str
    asked_by: str
    state: str
    because: str
    began: float
    changed: float
    deadline: float
    resumes: int
    details: Mapping[str, Value]

    @property
    def open(self) -> bool:
        """Whether it is neither finished nor taken back."""
        return self.state not in FINAL


class Actions:
    """The open directory. Not for several threads; other processes may work on it at the same time.

    `read_only` is for looking; everything that changes then raises. `say` is told what had to be mended. Raises
    ApplyError where the directory cannot be made, read or trusted.
    """

    def __init__(
        self, directory: Path, say: Callable[[str], None] = lambda _text: None, *, read_only: bool = False
    ) -> None:
        self.directory = directory
        self._say = say
        self.log = directory / "audit.jsonl"
        path = directory / "actions.db"
        try:
            if read_only:
                if not path.is_file():
                    raise ApplyError(f"{path}: nothing was ever changed from here, or it is not yours to read")
                self._db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10.0)
                self._version(path)
                return
            _make(directory)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30.0)
            path.chmod(0o644)
            self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.execute("PRAGMA synchronous = EXTRA")
            if not self._version(path):
                self._db.executescript(f"BEGIN EXCLUSIVE; {_TABLES} PRAGMA user_version = {_SCHEMA}; COMMIT;")
            with self._writing():
                pass  # mends what was interrupted
        except BaseException as error:
            if hasattr(self, "_db"):
                self._db.close()
            if not isinstance(error, (OSError, sqlite3.Error)):
                raise
            hint = "; run it as root" if os.geteuid() else ""
            raise ApplyError(f"{directory}: what was changed cannot be read or recorded: {error}{hint}") from None

    def close(self) -> None:
        """Give the file free."""
        self._db.close()

    # looking

    def actions(self, *, server: str | None = None) -> list[Action]:
        """All actions, oldest first."""
        asked = f"SELECT {_COLUMNS} FROM action WHERE ?1 IS NULL OR server = ?1 ORDER BY number"  # noqa: S608
        return [_action(row) for row in self._rows(asked, server)]

    def action(self, name: str) -> Action:
        """One action by its id or the beginning of it. Raises ApplyError where there is none, or several."""
        found = [one for one in self.actions() if one.id == name] or [
            one for one in self.actions() if name and one.id.startswith(name)
        ]
        if len(found) != 1:
            says = "no action has" if not found else f"{len(found)} actions have"
            raise ApplyError(f"{says} the id {name}; `specwatch audit list` shows them")
        return found[0]

    def since_reset(self, server: str) -> list[Action]:
        """The attempts that count: those after the last reset."""
        last = next((int(row[0]) for row in self._rows("SELECT number FROM reset WHERE server = ?", server)), 0)
        return [one for one in self.actions(server=server) if one.kind == "apply" and one.number > last]

    def breaker(self, server: str) -> str:
        """Why the breaker is open, empty while it is closed."""
        return self.breakers().get(server, "")

    def breakers(self) -> dict[str, str]:
        """All open breakers, by server."""
        rows = self._rows("SELECT server, because FROM breaker ORDER BY server")
        return {str(server): str(because) for server, because in rows}

    def was_proposed(self, key: str) -> bool:
        """Whether a proposal for that occurrence was taken before."""
        return bool(self._rows("SELECT 1 FROM proposal WHERE key = ?", key))

    def head(self) -> audit.Head:
        """The end of the audit log as the store knows it."""
        for count, digest, line, written in self._rows("SELECT count, hash, line, written FROM head"):
            return audit.Head(count=count, hash=digest, line=line, written=bool(written))
        return audit.Head()

    def verify(self) -> audit.Verified:
        """Hold the audit log against itself and against the store."""
        while True:
            head = self.head()
            hashes = [str(row[0]) for row in self._rows("SELECT hash FROM chain ORDER BY seq")]
            found = audit.verify(self.log, head, hashes)
            told = () if found.problems else tuple(self._untold())
            if self.head() == head:  # else somebody wrote on meanwhile, and the two do not belong together
                return replace(found, problems=found.problems + told)

    def _untold(self) -> Iterator[str]:
        """What the store says otherwise than the last entries of the log, where those are whole: it was changed."""
        states: dict[str, object] = {}
        tripped: dict[str, bool] = {}
        head = self.head()
        entries = [*audit.read(self.log)] if self.log.exists() else []
        if not head.written and len(entries) < head.count:
            entries.append(json.loads(head.line))
        for one in entries:
            event, body = str(one.get("event")), one.get("body")
            if event.startswith("action_") and isinstance(body, dict):
                states[str(one.get("action"))] = body.get("state")
            elif event.startswith("breaker_"):
                tripped[str(one.get("server"))] = event == "breaker_tripped"
        held: dict[str, object] = {one.id: one.state for one in self.actions()}
        for name in sorted({*states, *held}):
            if states.get(name) != held.get(name):
                says = f"{held.get(name, 'gone')} in actions.db, and {states.get(name, 'not there')} in the log"
                yield f"action {name} is {says}: one of them was changed"
        open_ = set(self.breakers())
        for server in sorted({*tripped, *open_}):
            if tripped.get(server, False) != (server in open_):
                yield f"the breaker of {server} was {'opened' if server in open_ else 'closed'} by hand in actions.db"

    def _rows(self, asked: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(asked, values).fetchall()
        except sqlite3.Error as error:
            raise ApplyError(f"{self.directory}: what was done cannot be read: {error}", retry=True) from None

    # changing

    def begin(self, action: Action, fleet: int, now: float) -> Action:
        """Record a new action, with an id of its own. Raises ApplyError where too many servers are under change."""
        with self._writing():
            busy = [one for one in self.actions() if one.open]
            others = sorted({one.server for one in busy} - {action.server})
            if len(others) >= fleet:
                raise ApplyError(f"{', '.join(others)} is under change, and {fleet} may be at once", retry=True)
            if any(one.server == action.server for one in busy):
                raise ApplyError(f"{action.server}: an action is not finished; run `specwatch apply` again", retry=True)
            (last,) = self._db.execute("SELECT coalesce(max(number), 0) FROM action").fetchone()
            made = _with(action, id=secrets.token_hex(4), number=last + 1, began=now, changed=now)
            marks = ", ".join("?" * 15)
            self._db.execute(f"INSERT INTO action ({_COLUMNS}) VALUES ({marks})", _row(made))  # noqa: S608
            self._record("action_planned", made.server, made.id, _body(made), now)
        return made

    def advance(
        self, action: Action, state: str, now: float, *, because: str = "", event: str = "", **changes: Any
    ) -> Action:
        """Put an action into its next state, durably, with its audit entry (`action_STATE`, or `event`)."""
        made = _with(action, state=state, changed=now, because=because or action.because, **changes)
        with self._writing():
            self._db.execute(
                "UPDATE action SET state = ?, because = ?, changed = ?, deadline = ?, resumes = ?, details = ?"
                " WHERE id = ?",
                (made.state, made.because, now, made.deadline, made.resumes, json.dumps(dict(made.details)), made.id),
            )
            body: dict[str, object] = {"state": state}
            if because:
                body["because"] = because
            self._record(event or f"action_{state}", made.server, made.id, body, now)
        return made

    def trip(self, server: str, because: str, now: float) -> None:
        """Open the breaker: only `reset` closes it."""
        with self._writing():
            if not self.breaker(server):
                self._db.execute("INSERT INTO breaker VALUES (?, ?, ?)", (server, now, because))
                self._record("breaker_tripped", server, "", {"because": because}, now)

    def reset(self, server: str, now: float) -> str:
        """Close the breaker and let attempts count anew; gives why it was open."""
        with self._writing():
            was = self.breaker(server)
            (last,) = self._db.execute("SELECT coalesce(max(number), 0) FROM action").fetchone()
            self._db.execute("DELETE FROM breaker WHERE server = ?", (server,))
            self._db.execute("INSERT OR REPLACE INTO reset VALUES (?, ?, ?)", (server, now, last))
            self._record("breaker_reset", server, "", {"was": was or "closed"}, now)
        return was

    def take_proposal(self, key: str, server: str, now: float, keep: float = 30 * 86400.0) -> bool:
        """Remember a proposal's occurrence; False where it was there already. Old ones are forgotten after `keep`."""
        with self._writing():
            if self.was_proposed(key):
                return False
            self._db.execute("DELETE FROM proposal WHERE at < ?", (now - keep,))
            self._db.execute("INSERT INTO proposal VALUES (?, ?)", (key, now))
            self._record("proposal_taken", server, "", {"key": key}, now)
        return True

    def note(self, event: str, server: str, now: float, *, action: str = "", **body: object) -> None:
        """An audit entry of something that changes no state: what was refused, who looked."""
        with self._writing():
            self._record(event, server, action, body, now)

    # the disk

    def folder(self, action: Action) -> Path:
        """The directory of an action, made where it is not there yet."""
        folder = self.directory / action.id
        try:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        except OSError as error:
            raise ApplyError(f"{folder}: cannot be made: {error.strerror or error}", retry=True) from None
        audit.sync_folder(self.directory)
        return folder

    @contextlib.contextmanager
    def alone(self, server: str) -> Iterator[None]:
        """Nobody else changes this server (or file, by the digest of its path) meanwhile. Raises ApplyError."""
        folder = self.directory / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)  # whoever may open a file may lock it
        fd = os.open(folder / f"{server}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise ApplyError(f"{server}: is being changed by another specwatch right now", retry=True) from None
            yield
        finally:
            os.close(fd)

    # inside

    def _version(self, path: Path) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA:
            raise ApplyError(f"{path}: was written by a later specwatch (schema {version}, this one has {_SCHEMA})")
        return int(version)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction with at most one audit entry, which is on the disk before anything else happens.

        The entry is committed with what it tells of, then written to its file, then marked as written: whatever stops
        us in between, the next one writes it (`_mend`).
        """
        try:
            with self._chain_locked():
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    self._mend()
                    yield
                    self._db.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        self._db.execute("ROLLBACK")
                    raise
                self._write_out()
        except (OSError, sqlite3.Error) as error:
            raise ApplyError(f"{self.directory}: what is done cannot be recorded: {error}") from None

    @contextlib.contextmanager
    def _chain_locked(self) -> Iterator[None]:
        fd = os.open(self.directory / "audit.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _record(self, event: str, server: str, action: str, body: Mapping[str, object], now: float) -> None:
        """Put an entry into the chain; `_write_out` writes it to its file."""
        said = {"at": round(now, 3), "actor": actor(), "event": event, "server": server, "action": action}
        head = audit.entry(self.head(), {**said, "body": dict(body)})
        self._db.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, 0)", (head.count, head.hash, head.line))
        self._db.execute("INSERT INTO chain VALUES (?, ?)", (head.count, head.hash))

    def _write_out(self) -> None:
        head = self.head()
        if not head.written:
            audit.append(self.log, head.line)
            self._db.execute("UPDATE head SET written = 1")

    def _mend(self) -> None:
        """Write out what an interrupted process committed and did not write."""
        head = self.head()
        if not head.written:
            mended = audit.repair(self.log, head)
            self._db.execute("UPDATE head SET written = 1")
            if mended:
                self._say(mended)


def _make(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    found = directory.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise ApplyError(
            f"{directory}: may be changed by others (owner {found.st_uid}, mode {found.st_mode & 0o7777:o}); "
            f"run chown root {directory} and chmod 755 {directory}"
        )


def actor() -> dict[str, object]:
    """Who acts: the user, the one behind sudo, the process."""
    import getpass

    try:
        user = getpass.getuser() if os.geteuid() == os.getuid() else str(os.geteuid())
    except (KeyError, OSError):
        user = str(os.geteuid())
    found: dict[str, object] = {"uid": os.geteuid(), "user": user, "pid": os.getpid()}
    if os.environ.get("SUDO_USER"):
        found["sudo_user"] = os.environ["SUDO_USER"]
    return found


def new(
    *, server: str, fix: str, target: str, asked_by: str, fingerprint: str = "", kind: str = "apply",
    because: str = "", details: Mapping[str, Value] | None = None,
) -> Action:  # fmt: skip
    """An action that is about to begin."""
    return Action(
        id="", number=0, kind=kind, server=server, fingerprint=fingerprint, fix=fix, target=target, asked_by=asked_by,
        state="planned", because=because, began=0.0, changed=0.0, deadline=0.0, resumes=0, details=details or {},
    )  # fmt: skip


def _with(action: Action, **changes: Any) -> Action:
    return replace(action, **changes)


def _body(action: Action) -> dict[str, object]:
    return {
        "state": action.state, "kind": action.kind, "fingerprint": action.fingerprint, "fix": action.fix,
        "target": action.target, "asked_by": action.asked_by, **dict(action.details),
    }  # fmt: skip


def _row(action: Action) -> Sequence[object]:
    return (
        action.id, action.number, action.kind, action.server, action.fingerprint, action.fix, action.target,
        action.asked_by, action.state, action.because, action.began, action.changed, action.deadline, action.resumes,
        json.dumps(dict(action.details)),
    )  # fmt: skip


def _action(row: Sequence[object]) -> Action:
    names = [name.strip() for name in _COLUMNS.split(",")]
    values = dict(zip(names, row, strict=True))
    return Action(**{**values, "details": json.loads(cast("str", values["details"]))})
