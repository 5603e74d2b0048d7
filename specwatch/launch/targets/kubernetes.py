"""A container of a Kubernetes manifest: command, args, env and hostPath mounts of every pod template in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specwatch.errors import ConfigError
from specwatch.launch.targets.base import Targeted, is_server, yaml_documents


def read(spec: str) -> Iterator[Targeted]:
    """The containers of a manifest that start SGLang, or the one named after `#`."""
    file, _, wanted = spec.partition("#")
    found = False
    for document in yaml_documents(Path(file)):
        for pod in _pod_specs(document):
            for container in [*_list(pod, "initContainers"), *_list(pod, "containers")]:
                name = str(container.get("name", ""))
                if wanted in ("", name):
                    found = True
                    yield from _container(file, name, container, pod)
    if wanted and not found:
        raise ConfigError(f"{file}: no container '{wanted}'")


def _pod_specs(value: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Every pod specification, however deep the kind nests it (Deployment, CronJob, LeaderWorkerSet, List)."""
    if depth > 12:
        return
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
            return
        for inner in value.values():
            yield from _pod_specs(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _pod_specs(inner, depth + 1)


def _list(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = table.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _container(file: str, name: str, container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[Targeted]:
    env = {str(e.get("name")): str(e["value"]) for e in _list(container, "env") if e.get("value") is not None}
    words = [str(word) for key in ("command", "args") for word in container.get(key) or []]
    # $(NAME) is filled in by the kubelet from the container's own variables
    tokens = tuple(re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), word) for word in words)
    if is_server(" ".join(tokens)):
        yield Targeted(name=f"k8s:{file}#{name}", command=tokens, env=env, path_maps=tuple(_mounts(container, pod)))


def _mounts(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hosts = {
        v.get("name"): v["hostPath"].get("path") for v in _list(pod, "volumes") if isinstance(v.get("hostPath"), dict)
    }
    for mount in _list(container, "volumeMounts"):
        host = hosts.get(mount.get("name"))
        if host and str(mount.get("mountPath", "")).startswith("/"):
            yield str(mount["mountPath"]), f"{host}/{mount.get('subPath', '')}".rstrip("/")
