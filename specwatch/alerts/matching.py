"""Which server an alert is about. Pure; a wrong server is worse than none.

Every label says yes (it names the server), no (it names something else), or nothing. An alert is about a server when a
label says yes and none says no; when that is so for two servers it is about neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from specwatch.settings import LABELS, Server

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - names, nothing is bound


def servers_of(
    labels: Mapping[str, str], servers: Iterable[Server], believed: Sequence[str], hosts: frozenset[str] = frozenset()
) -> list[str]:
    """The names of the servers that an alert may be about; it is known only where there is exactly one.

    `believed` are the labels that may name a server without being configured for it; `hosts` are the names of this
    machine, in lower case.
    """
    return [server.name for server in servers if _is_about(labels, server, believed, hosts)]


def _is_about(labels: Mapping[str, str], server: Server, believed: Sequence[str], hosts: frozenset[str]) -> bool:
    answers: list[bool | None] = []
    own = dict(server.labels)
    for name, glob in own.items():
        if name in labels:
            answers.append(fnmatchcase(labels[name], glob))
    free = {name: labels[name] for name in believed if labels.get(name) and name not in own}
    for name, value in free.items():
        if value == server.name and name != "namespace":
            answers.append(True)
        elif name == "instance":
            answers.append(_instance(value, server, hosts))
        elif name == "unit":
            answers.append(_unit(value, server))
        elif name not in LABELS:  # `name` of node_exporter's units and of cAdvisor's containers, or whatever it is
            answers.append(True if _unit(value, server) or f"docker:{value}" in server.logs else None)
    answers += _container(free, server)
    return any(answers) and False not in answers


def _instance(value: str, server: Server, hosts: frozenset[str]) -> bool | None:
    """HOST:PORT of the health endpoint says yes; another one says nothing, it may be an exporter on the same node."""
    try:
        url = urlsplit(server.health)
        port = url.port or 80
        asked = urlsplit(value if "://" in value else f"//{value}")
        host, asked_port = (asked.hostname or "").lower(), asked.port
    except ValueError:
        return None
    if not server.health or not host or asked_port != port:
        return None
    own = (url.hostname or "").lower()
    here = _LOOPBACK | hosts
    return True if host == own or (host in here and own in here) else None


def _unit(value: str, server: Server) -> bool | None:
    units = {log.partition(":")[2] for log in server.logs if log.startswith("journal:")}
    if server.target.startswith("systemd:") and "/" not in server.target:
        units.add(server.target.partition(":")[2])
    return _whole(value) in map(_whole, units) if units else None


def _whole(unit: str) -> str:
    return unit if "." in unit else f"{unit}.service"


def _container(labels: Mapping[str, str], server: Server) -> Iterator[bool | None]:
    """What pod, container and namespace say; several logs of one server are alternatives."""
    answers: list[bool | None] = []
    for log in server.logs:
        kind, _, rest = log.partition(":")
        if kind == "docker" and labels.get("container") and labels["container"] != server.name:
            answers.append(fnmatchcase(labels["container"], rest))
        elif kind == "pods":
            answers.append(_pod(labels, dict(zip(("namespace", "pod", "container"), rest.split("/"), strict=True))))
    if answers:
        yield True if True in answers else False if False in answers else None


def _pod(labels: Mapping[str, str], globs: Mapping[str, str]) -> bool | None:
    """No where a label contradicts; yes where the part that tells the server from others is there."""
    if any(name in labels and not fnmatchcase(labels[name], glob) for name, glob in globs.items()):
        return False
    telling = next((name for name in ("pod", "container", "namespace") if globs[name].strip("*")), None)
    return True if telling in labels else None
