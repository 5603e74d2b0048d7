"""A server that Kubernetes runs, asked and changed with `kubectl`, which reads its own configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from specwatch.errors import ApplyError
from specwatch.runtime.base import Life, State
from specwatch.runtime.running import Run, run, well

Json = Mapping[str, object]
_WAITING_BADLY = (
    "CrashLoopBackOff",
    "RunContainerError",
    "CreateContainerError",
    "CreateContainerConfigError",
    "Error",
)


def kubectl() -> str:
    """The program: `$KUBECTL`, or kubectl from the PATH."""
    return os.environ.get("KUBECTL") or "kubectl"


class Kubernetes:
    """One container of a workload of the API. Changing the object is what restarts it."""

    def __init__(self, namespace: str, kind: str, name: str, container: str, runs: Run = run) -> None:
        self._namespace, self._kind, self._name, self._container = namespace, kind, name, container
        self._runs = runs

    def state(self) -> State:
        """Ready where a pod's container is; down where all died and wait to be started again."""
        try:
            workload = self._get(self._kind, self._name)
            pods = self._get("pods", "--selector", ",".join(_labels(workload)))
        except ApplyError as error:
            return State(life=Life.UNKNOWN, because=str(error))
        found = list(_statuses(pods, self._container))
        if not found:
            return State(life=Life.UNKNOWN, because=f"{self._kind}/{self._name} has no pod with {self._container}")
        newest = {pod for pod, _, _ in found}
        others = [pod for pod, one, _ in _statuses(pods, self._container, newest=False) if one.get("ready") is True]
        return replace(_judged(found), serving=" ".join(pod for pod in others if pod not in newest))

    def prepare(self) -> None:
        """Nothing: the patch was that already."""

    def restart(self) -> None:
        """A changed pod template is a new rollout; only a StatefulSet waits for pods that never get ready.

        (kubernetes.io, StatefulSets, Forced rollback: such pods have to be deleted.)
        """
        for words in self.commands():
            well(words, self._runs)

    def commands(self) -> Sequence[Sequence[str]]:
        """None beside the patch itself, or the deletion of the pods that are not ready."""
        if self._kind.lower() not in ("statefulset", "statefulsets", "sts"):
            return ()
        try:
            pods = self._get("pods", "--selector", ",".join(_labels(self._get(self._kind, self._name))))
        except ApplyError:
            return ()
        names = [pod for pod, one, _ in _statuses(pods, self._container) if one.get("ready") is not True]
        if not names:
            return ()
        return ((kubectl(), "delete", "pods", "--namespace", self._namespace, "--wait=false", *names),)

    def _get(self, *what: str) -> Json:
        said = well((kubectl(), "get", *what, "--namespace", self._namespace, "--output", "json"), self._runs)
        try:
            return cast("Json", json.loads(said))
        except ValueError:
            raise ApplyError(f"kubectl get {what[0]}: the answer is not JSON") from None


class Manifest:
    """A workload by its manifest: `kubectl apply` is what restarts it."""

    def __init__(self, file: str, container: str, runs: Run = run) -> None:
        self._file, self._container, self._runs = file, container, runs

    def state(self) -> State:
        """That of the workload in the file that has the container."""
        try:
            said = well((kubectl(), "get", "-f", self._file, "--output", "json"), self._runs)
            found = json.loads(said)
        except (ApplyError, ValueError) as error:
            return State(life=Life.UNKNOWN, because=str(error))
        objects = cast("list[Json]", found["items"]) if found.get("kind") == "List" else [found]
        for one in objects:
            if self._container in _containers(one):
                namespace = str(_at(one, "metadata", "namespace") or "default")
                name, kind = str(_at(one, "metadata", "name")), str(one.get("kind", ""))
                return Kubernetes(namespace, kind, name, self._container, self._runs).state()
        return State(life=Life.UNKNOWN, because=f"{self._file}: no object in the cluster has {self._container}")

    def prepare(self) -> None:
        """Nothing: `kubectl apply` is both at once."""

    def restart(self) -> None:
        """Hand the file to the cluster."""
        for words in self.commands():
            well(words, self._runs)

    def commands(self) -> Sequence[Sequence[str]]:
        """One command."""
        return ((kubectl(), "apply", "-f", self._file),)


def _at(value: object, *path: str) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _labels(workload: Json) -> list[str]:
    labels = _at(workload, "spec", "selector", "matchLabels")
    if isinstance(labels, dict) and labels:
        return [f"{name}={value}" for name, value in labels.items()]
    if str(workload.get("kind")) == "LeaderWorkerSet":  # its controller labels the pods
        return [f"leaderworkerset.sigs.k8s.io/name={_at(workload, 'metadata', 'name')}"]
    raise ApplyError(f"{workload.get('kind')}: has no selector; its pods cannot be found")


def _containers(workload: Json) -> list[str]:
    specs = (
        ("spec", "template", "spec", "containers"),
        ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec", "containers"),
        ("spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers"),
    )
    found = []
    for path in specs:
        names = [str(_at(one, "name")) for one in cast("list[object]", _at(workload, *path) or [])]
        role = path[2].removesuffix("Template") if "leaderWorkerTemplate" in path else ""
        found += [*names, *(f"{role}/{name}" for name in names if role)]
    return found


def _statuses(pods: Json, container: str, *, newest: bool = True) -> Iterator[tuple[str, Json, str]]:
    """Of the newest revision's pods, or of all: name, status of the container, uid; none that is being deleted."""
    living = [
        pod for pod in cast("list[Json]", pods.get("items") or []) if not _at(pod, "metadata", "deletionTimestamp")
    ]
    last = max(living, key=lambda pod: str(_at(pod, "metadata", "creationTimestamp") or ""), default=None)
    for pod in living:
        if newest and _revision(pod) != _revision(last):
            continue
        role, _, name = container.rpartition("/")
        if role not in ("", _role(pod)):
            continue
        for one in cast("list[Json]", _at(pod, "status", "containerStatuses") or []):
            if name in ("", one.get("name")):
                yield str(_at(pod, "metadata", "name")), one, str(_at(pod, "metadata", "uid") or "")


def _role(pod: Json) -> str:
    """What a pod is in its group (lws.sigs.k8s.io, Labels: the leader has the worker index 0)."""
    return "leader" if _at(pod, "metadata", "labels", "leaderworkerset.sigs.k8s.io/worker-index") == "0" else "worker"


def _revision(pod: object) -> object:
    labels = ("pod-template-hash", "controller-revision-hash", "leaderworkerset.sigs.k8s.io/template-revision-hash")
    return next((found for label in labels if (found := _at(pod, "metadata", "labels", label))), None)


def _judged(found: Sequence[tuple[str, Json, str]]) -> State:
    starts = sum(count for _, one, _ in found if isinstance(count := one.get("restartCount"), int))
    identity = " ".join(sorted(uid or pod for pod, _, uid in found))
    ready = [pod for pod, one, _ in found if one.get("ready") is True]
    if ready:
        says = f"{len(ready)} of {len(found)} pods are ready"
        return State(life=Life.UP, because=says, identity=identity, starts=starts, ready=len(ready) == len(found))
    told = [_died(one) for _, one, _ in found]
    pod, one, _ = found[0]
    if all(told):
        says = f"pod {pod}: {told[0]}, restarted {starts} times"
        return State(life=Life.DOWN, because=says, identity=identity, starts=starts, ready=False)
    doing = next(iter(cast("dict[str, object]", one.get("state") or {})), "unknown")
    says = f"pod {pod} is {doing} and not ready yet"
    return State(life=Life.UP, because=says, identity=identity, starts=starts, ready=False)


def _died(status: Json) -> str:
    """How a container died, empty for one that did not."""
    reason = str(_at(status, "state", "waiting", "reason") or "")
    if reason in _WAITING_BADLY:
        return reason
    for path in (("state", "terminated"), ("lastState", "terminated")):
        code = _at(status, *path, "exitCode")
        if isinstance(code, int) and code != 0:
            return f"ended with exit code {code} ({_at(status, *path, 'reason') or 'Error'})"
    return ""
