"""What can be configured, table by table, with the defaults. `specwatch.config` reads it from a file and shows it.

Times are in seconds and sizes in MiB wherever nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LABELS = ("instance", "node", "pod", "container", "unit", "job", "namespace")
"""The labels of an alert that may name a server, in the order in which they are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One SGLang server: where its log is, and what helps to diagnose it.

    `logs` are paths, globs, `journal:UNIT`, `docker:NAME` or `pods:NAMESPACE/POD/CONTAINER`. `launch` is the command
    that starts it, where the log does not hold it or to get an exact edit. `target` is where the launch stands and is
    changed. `health` is a plain HTTP URL. `apply` says which fixes may be applied without a person: `none` (propose
    them), `safe`, or `review` (those and the ones that change what is served). `restart` is a command (words, no shell)
    that restarts a server whose target is a script. `gpu` is its kind of GPU, as H100. `labels` are those of its
    alerts, each a glob.
    """

    name: str
    logs: tuple[str, ...]
    launch: str = ""
    sglang: str = ""
    gpu: str = ""
    target: str = ""
    health: str = ""
    models: tuple[str, ...] = ()
    path_map: tuple[tuple[str, str], ...] = ()
    apply: str = "none"
    restart: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How the daemon watches.

    `silence`: without a line for this long, and without an answer of the health endpoint, a server counts as hung.
    `inspect_time` and `inspect_memory` bound the child process that reads model folders. `rules` are directories of
    further rules.
    """

    silence: float = 300.0
    health_every: float = 10.0
    inspect_time: float = 30.0
    inspect_memory: int = 4096
    loop_starts: int = 3
    loop_within: float = 3600.0
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where the daemon remembers, and for how many days after a finding is resolved.

    `actions` is the directory of what was changed, with its audit log: of root where the daemon is not root.
    """

    dir: str = ""
    keep_days: int = 90
    actions: str = "/var/lib/specwatch-apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a fix may be applied.

    `mode` is the most that any server gets, whatever its own `apply` says: `observe` (findings only), `propose`,
    `approve` (only what a person runs with `specwatch apply`), `safe` or `review`. `cooldown`: between two attempts on
    one server. `attempts` within `window`: on one server. `breaker`: attempts in a row that did not help, after which
    only a person goes on (`specwatch reset`). `fleet`: servers that may be under change at the same time. `quiet_hours`
    are times of day, local, as in `22:00-06:00`, in which nothing is applied by itself. `health_within`: how long a
    restarted server may take until it is healthy. `proposal_age`: after which a proposal is stale.
    """

    mode: str = "review"
    cooldown: float = 900.0
    attempts: int = 3
    window: float = 86400.0
    breaker: int = 2
    fleet: int = 1
    quiet_hours: tuple[str, ...] = ()
    health_within: float = 1800.0
    proposal_age: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A maintenance window: servers whose name matches the glob `server` are left alone, and raise no alert of ours.

    `start` and `until` are seconds since 1970.
    """

    server: str
    until: float
    start: float = 0.0
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The HTTP side. `listen` is HOST:PORT, empty for none; `url` is how others reach it, for links.

    `token_file` holds the token that requests which change something need; without it there are none.
    """

    listen: str = ""
    url: str = ""
    token_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One receiver of what is found. `kind` is one of config.ALERT_KINDS.

    `token_file` holds its secret: the bearer token, the routing key of PagerDuty, the key that signs a webhook's body;
    Slack's URL is a secret itself and may stand in `token_file` instead of `url`. `command` are words, no shell.
    `severity` is the least that is sent. `labels` are added to Alertmanager's. `deadline` is for one attempt.
    """

    kind: str
    name: str = ""
    url: str = ""
    command: tuple[str, ...] = ()
    token_file: str = ""
    severity: str = "degraded"
    labels: tuple[tuple[str, str], ...] = ()
    deadline: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrich:
    """How alerts of others are matched to findings, and where `POST /alertmanager` sends them on.

    `labels` are those that may name a server. `window`: a finding explains an alert that began within this time of it.
    `deadline`: after which an alert passes unchanged. `forward` are the names of webhook receivers or URLs.
    """

    labels: tuple[str, ...] = LABELS
    window: float = 1800.0
    deadline: float = 2.0
    forward: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Otel:
    """Findings as OpenTelemetry log records: the OTLP/HTTP endpoint, empty for none (extra `otel`)."""

    endpoint: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of a configuration file."""

    servers: tuple[Server, ...] = ()
    watch: Watch = field(default_factory=Watch)
    state: State = field(default_factory=State)
    policy: Policy = field(default_factory=Policy)
    silences: tuple[Silence, ...] = ()
    web: Web = field(default_factory=Web)
    alerts: tuple[Alert, ...] = ()
    enrich: Enrich = field(default_factory=Enrich)
    otel: Otel = field(default_factory=Otel)
    path: Path | None = None
