"""Where container runtimes keep logs: Docker's json-file driver, and the CRI layout under /var/log/pods.

Both are files, followed like any other; `log.framing` takes their envelopes off. A container that is started again goes
on in the same file (Docker) or in a file of the next number (CRI), which is a log of its own.
"""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path

from specwatch.sources.files import Pattern

DOCKER = Path("/var/lib/docker/containers")
PODS = Path("/var/log/pods")


def docker(server: str, name: str, root: Path = DOCKER) -> Pattern:
    """The logs of the containers called `name` (a glob, or the beginning of an id), also of those to come."""

    def wants(path: str) -> bool:
        identity = Path(path).parent.name
        return (len(name) >= 6 and identity.startswith(name)) or fnmatch.fnmatchcase(_called(Path(path).parent), name)

    return Pattern(server, f"{root}/*/*-json.log", wants)


def pods(server: str, spec: str, root: Path = PODS) -> Pattern:
    """The logs of `NAMESPACE/POD/CONTAINER`, each of which may be a glob."""
    namespace, pod, container = spec.split("/")
    return Pattern(server, f"{root}/{namespace}_{pod}_*/{container}/*.log")


def _called(folder: Path) -> str:
    """The name of a container by Docker's own record of it; empty where that cannot be read."""
    try:
        record = json.loads((folder / "config.v2.json").read_text(encoding="utf-8"))
        return str(record["Name"]).removeprefix("/")
    except (OSError, ValueError, KeyError, TypeError):
        return ""
