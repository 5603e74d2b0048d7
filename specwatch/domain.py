"""The data of specwatch, in the order in which it flows: log line, incident, match, verdict, fix, finding.

Everything here is frozen and does no input or output, so that each stage can be tested with values alone.
"""

# without `from __future__ import annotations`: of texts a NamedTuple compiles each, which doubles what it costs a start
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple, Never

from specwatch.lazy import compiled

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
"""A value of JSON, or of a Python literal in `server_args=`."""

_SECRETS = compiled(r" --(?:(?:admin-)?api-key|ssl-keyfile-password)[ =]\S*")
NOTHING: Mapping[str, Never] = MappingProxyType({})


class Severity(IntEnum):
    """How bad it is: FATAL, no server; DEGRADED, it serves but wrong, slow or hung; NOTICE, worth knowing."""

    NOTICE = 1
    DEGRADED = 2
    FATAL = 3


class Applicability(IntEnum):
    """How far a fix may be trusted. It can only ever be lowered.

    SAFE: same model, same outputs, nothing outside the launch. REVIEW: complete, but changes what is served or rests
    on a guess. MANUAL: a person has to fill something in or act outside the launch.
    """

    MANUAL = 1
    REVIEW = 2
    SAFE = 3


class Status(StrEnum):
    """What a check says of a launch: BROKEN and SOUND are proved, UNKNOWN says why not, REFUTED denies the log."""

    BROKEN = "broken"
    SOUND = "sound"
    UNKNOWN = "unknown"
    REFUTED = "refuted"


class Role(StrEnum):
    """What a message is: a CAUSE, an ECHO (consequence of another failure) or ADVICE (a hint the server prints)."""

    CAUSE = "cause"
    ECHO = "echo"
    ADVICE = "advice"


class Phase(StrEnum):
    """When in a start SGLang makes a check, in this order."""

    ARGUMENTS = "arguments"
    TARGET = "target"
    DRAFT = "draft"
    WORKER = "worker"
    SERVING = "serving"


class LogLine(NamedTuple):
    """One line of a log, its outer prefixes and SGLang's header taken off.

    `at` is the clock of the innermost header as ISO 8601 text (no zone unless the log has one), None where the line
    has none of its own. `ranks` holds the rank labels of the header, as in ("DP0", "TP1"). `number` counts from 1,
    `offset` is in bytes of the decompressed source. `headed` tells a line that starts a record from a continuation.
    """

    source: str
    number: int
    offset: int
    text: str
    at: str | None = None
    ranks: tuple[str, ...] = ()
    headed: bool = False

    @property
    def rank(self) -> str:
        """The header's rank as one label, such as "DP0 TP1"; empty for the main process."""
        return " ".join(self.ranks)


class Container(NamedTuple):
    """The container that a target makes around the command of a launch, as far as a fix has to know it.

    `kind` is `compose` or `kubernetes`. `options` are by the target's own names, as far as they are set: `shm_size` and
    `ipc` of a service, `hostIPC` of a pod and the `sizeLimit` of a memory volume at /dev/shm. `mounted`: some volume
    stands at /dev/shm. `host_network`: it shares the network of its host.
    """

    kind: str
    options: Mapping[str, str] = NOTHING
    mounted: bool = False
    host_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What starts one server, with the values that are in force.

    `text` is the command byte for byte as somebody typed it (empty when only `server_args=` is known); `argv` and
    `env` are what the process gets from it. `values` maps an argument's name (`speculative_algorithm`) to the value
    that was given; an argument that was not given is absent. `recorded` holds the log's own `server_args=` (resolved
    values), or None. `origin` says where the command comes from: `typed`, or `reconstructed` from the record alone.
    `guessed`: nobody and nothing in the log tells the release, `sglang` is the one that it may be.
    `gpu` is the kind of GPU that it runs on, such as `H100`, as far as somebody or the log says so. `container` is the
    one that its target makes around it, None where it is none, or not known.
    """

    sglang: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    text: str = ""
    values: Mapping[str, Value] = field(default_factory=lambda: NOTHING)
    recorded: Mapping[str, Value] | None = None
    origin: str = "typed"
    guessed: bool = False
    gpu: str = ""
    container: Container | None = None

    def value(self, name: str, default: Value = None) -> Value:
        """The value in force for an argument: what the server recorded, else what was typed, else `default`.

        The record wins: it is what really ran. An edited launch has none any more.
        """
        if self.recorded is not None and name in self.recorded:
            return self.recorded[name]
        return self.values.get(name, default)

    def text_value(self, name: str) -> str | None:
        """The value of an argument if it is a non-empty string, else None."""
        got = self.value(name)
        return got if isinstance(got, str) and got else None

    def is_set(self, name: str) -> bool:
        """Whether an argument holds a true value."""
        return bool(self.value(name))


class Frame(NamedTuple):
    """One `File "…", line N, in function` of a traceback, with the source line that the log shows below it."""

    file: str
    line: int
    function: str
    source: str = ""


class Incident(NamedTuple):
    """One failure of one run, all its ranks merged and its echoes counted.

    `error` is the message that started it, lines joined by newlines; `root` the log line on which it begins.
    `frames` is the traceback of that first exception, outermost first; `chain` the errors that followed from it in
    the same traceback, `callers` their frames. `launches` are the launches that it may belong to, likeliest first: more
    than one only where several servers write into one log. `outlived` says how the log itself shows that the server
    went on, and so that the block was not a crash of it; empty otherwise. `run` counts the start-ups of the source from
    1.
    """

    error: str
    root: LogLine
    lines: tuple[LogLine, ...] = ()
    frames: tuple[Frame, ...] = ()
    chain: tuple[str, ...] = ()
    callers: tuple[Frame, ...] = ()
    ranks: tuple[str, ...] = ()
    run: int = 1
    launches: tuple[Launch, ...] = ()
    role: Role = Role.CAUSE
    echoes: int = 0
    outlived: str = ""

    @property
    def launch(self) -> Launch | None:
        """The likeliest launch, None when the log does not tell."""
        return self.launches[0] if self.launches else None


class Evidence(NamedTuple):
    """One fact that a check read: what, its value, and the file or argument that says so."""

    check: str
    fact: str
    value: Value
    source: str


class Verdict(NamedTuple):
    """What one check says of one launch.

    `cause` names the case within the check, as in `[cause.X]` of a rule. `facts` are the values by name that rules
    quote in their texts and that fixes need. `because` says why nothing could be proved, or what refutes the log.
    `exception` and `message` are what SGLang raises for it, None for what starts but is wrong.
    """

    check: str
    status: Status
    cause: str = ""
    facts: Mapping[str, Value] = NOTHING
    evidence: tuple[Evidence, ...] = ()
    because: str = ""
    phase: Phase = Phase.ARGUMENTS
    exception: str | None = None
    message: str | None = None


class Change(NamedTuple):
    """One edit of a launch. `op` is set, remove, set_env or unset_env; `name` a full flag or a variable's name.

    The `name` of a `set` may also be a key of the service around the command, as Compose's `shm_size`.
    """

    op: str
    name: str
    old: str | None = None
    new: str | None = None

    @property
    def around(self) -> bool:
        """Whether it changes the container around the command, and no word of the command itself."""
        return self.op == "set" and not self.name.startswith("-")


class Fix(NamedTuple):
    """A changed launch that passed all checks, or (MANUAL) what a person has to do.

    `launch` is None when no command is known to edit; `changes` is there all the same. `because` says what lowered
    the applicability below what the rule states.
    """

    id: str
    applicability: Applicability
    why: str
    changes: tuple[Change, ...] = ()
    launch: Launch | None = None
    rechecked: bool = False
    because: str = ""

    @property
    def around(self) -> bool:
        """Whether it changes the container around the command alone: the command stays what it is."""
        return bool(self.changes) and all(change.around for change in self.changes)


class Match(NamedTuple):
    """Which rule knows an incident, by which of its patterns, and the values that the message holds."""

    rule: str
    pattern: str
    captures: Mapping[str, str]
    incident: Incident


class Finding(NamedTuple):
    """What a person is told: one cause, its proof, and what to do. `rule` is None for a crash that no rule knows."""

    rule: str | None
    title: str
    severity: Severity
    cause: str
    says: str
    verdict: Verdict
    incident: Incident | None
    launch: Launch | None = None
    captures: Mapping[str, str] = NOTHING
    fixes: tuple[Fix, ...] = ()
    occurrences: int = 1
    starts: int = 1
    first_seen: str | None = None
    last_seen: str | None = None
    echoes: int = 0

    @property
    def identity(self) -> str:
        """What stays the same when the same failure of the same launch comes again.

        Secrets of the launch take no part, so that they need not be kept anywhere to recognise it. Failures of a rule
        that knows only where they come from (its capture is `message`) are told apart by what they say.
        """
        launch = _SECRETS.sub("", " ".join(self.launch.argv)) if self.launch else ""
        text = self.captures.get("message") or (self.incident.error if self.incident else self.title)
        what = self.rule or ""
        if not what or "message" in self.captures:
            what += re.sub(r"0x[0-9a-f]+|\d+", "#", text)
        return "\0".join((what, self.cause, launch))

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits of the identity, by which people and the daemon call it."""
        import hashlib  # slow, and needed only where it is shown or kept

        return hashlib.sha256(self.identity.encode()).hexdigest()[:12]
