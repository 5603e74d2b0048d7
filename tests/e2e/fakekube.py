"""Enough of a Kubernetes for kubectl and one Deployment: an API server on loopback, and a controller that runs its pod.

What a client sees is as of a real cluster: discovery, resourceVersion, JSON patches that fail as a whole, a new pod for
a changed template, CrashLoopBackOff, readiness by probe, logs in the CRI layout (NAMESPACE_POD_UID/CONTAINER/N.log).
The containers are processes of this machine.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_RESOURCES = {
    "/api/v1": ("v1", [("pods", "Pod", ["po"])]),
    "/apis/apps/v1": ("apps/v1", [("deployments", "Deployment", ["deploy"])]),
}
_DEPLOYMENT = re.compile(r"/apis/apps/v1/namespaces/([\w-]+)/deployments/([\w-]+)")
_PODS = re.compile(r"/api/v1/namespaces/([\w-]+)/pods")


class PatchError(Exception):
    """An operation of a JSON patch does not hold."""


def patched(document: Json, operations: list[Json]) -> Json:
    """A document after a JSON patch (RFC 6902: test, add, replace, remove)."""
    made = copy.deepcopy(document)
    for one in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
        parent: Any = made
        for part in parts[:-1]:
            parent = parent[int(part)] if isinstance(parent, list) else parent.get(part)
            if parent is None:
                raise PatchError(f"{one['path']}: missing")
        _apply(parent, parts[-1], one)
    return made


def _apply(parent: Any, last: str, one: Json) -> None:
    key: Any = last
    if isinstance(parent, list):
        key = len(parent) if last == "-" else int(last)
    there = (isinstance(parent, list) and key < len(parent)) or (isinstance(parent, dict) and key in parent)
    if one["op"] == "add" and isinstance(parent, list):
        parent.insert(key, one["value"])
    elif one["op"] == "add":
        parent[key] = one["value"]
    elif not there:
        raise PatchError(f"{one['path']}: missing")
    elif one["op"] == "test" and parent[key] != one["value"]:
        raise PatchError(f"testing value {one['path']} failed: test failed")
    elif one["op"] == "replace":
        parent[key] = one["value"]
    elif one["op"] == "remove":
        del parent[key]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Pod:
    """One pod with one container: a process that is started again whenever it ends."""

    def __init__(self, deployment: Json, logs: Path, port: int) -> None:
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        self._spec = template["spec"]["containers"][0]
        self._port = port
        digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
        self.uid = str(uuid.uuid4())
        self.name = f"{meta['name']}-{digest}-{self.uid[:5]}"
        self.namespace = meta["namespace"]
        self._logs = logs / f"{self.namespace}_{self.name}_{self.uid}" / self._spec["name"]
        self._logs.mkdir(parents=True)
        self._labels = {**template["metadata"]["labels"], "pod-template-hash": digest}
        self._created = now()
        self.restarts, self.code, self.ready = 0, 0, False
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._gone.set()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._thread.join(20)

    def document(self) -> Json:
        running = self._process is not None and self._process.poll() is None
        state: Json = {"running": {"startedAt": now()}}
        if not running:
            state = {"waiting": {"reason": "CrashLoopBackOff" if self.restarts else "Error"}}
        status: Json = {
            "name": self._spec["name"], "ready": self.ready and running, "restartCount": self.restarts, "state": state,
        }  # fmt: skip
        if self.restarts:
            status["lastState"] = {"terminated": {"exitCode": self.code, "reason": "Error"}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": self.namespace, "uid": self.uid, "labels": self._labels,
                "creationTimestamp": self._created,
            },
            "status": {"phase": "Running", "containerStatuses": [status]},
        }  # fmt: skip

    def _live(self) -> None:
        pause = 0.5
        while not self._gone.is_set():
            with (self._logs / f"{self.restarts}.log").open("wb") as log:
                self._run(log.write, log.flush)
            self.ready = False
            self.restarts += 1
            if self._gone.wait(pause):
                return
            pause = min(8.0, pause * 2)

    def _run(self, write: Callable[[bytes], int], flush: Callable[[], None]) -> None:
        words = [*self._spec.get("command", ()), *self._spec.get("args", ())]
        standin = Path(__file__).with_name("standin")
        env = {one["name"]: one["value"] for one in self._spec.get("env", ())}
        env |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(standin), "PYTHONDONTWRITEBYTECODE": "1"}
        if words[0] in ("python", "python3"):
            words[0] = sys.executable
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as process:
            self._process = process
            probe = threading.Thread(target=self._probe, args=(process,), daemon=True)
            probe.start()
            assert process.stdout is not None
            for line in process.stdout:
                stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
                write(f"{stamp} stderr F ".encode() + line.rstrip(b"\n") + b"\n")
                flush()
            self.code = process.wait() % 256
            probe.join()

    def _probe(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
            try:
                connection.request("GET", "/health")
                self.ready = connection.getresponse().status == 200
            except OSError:
                self.ready = False
            finally:
                connection.close()
            time.sleep(0.2)


class Cluster:
    """The API server and the controller of one Deployment. `kubeconfig` is what kubectl is to be given."""

    def __init__(self, folder: Path, deployment: Json, port: int) -> None:
        self.logs = folder / "log" / "pods"
        self.logs.mkdir(parents=True)
        self.port = port
        self._lock = threading.Lock()
        self._version, self._closed = 100, False
        self._deployment = deployment
        self._bump()
        self._pod: Pod | None = None
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": at}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

    def roll_out(self) -> None:
        """Let the pod be that of the template as it is now."""
        with self._lock:
            if self._closed:
                return
            if self._pod is not None:
                self._pod.end()
            self._pod = Pod(self._deployment, self.logs, self.port)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._server.shutdown()
        self._server.server_close()
        if self._pod is not None:
            self._pod.end()

    @property
    def deployment(self) -> Json:
        return copy.deepcopy(self._deployment)

    @property
    def pods(self) -> list[Json]:
        return [self._pod.document()] if self._pod is not None else []

    def change(self, operations: list[Json], *, dry: bool = False) -> Json:
        """Patch the Deployment, as a client does; the pods follow a little later. Raises PatchError."""
        with self._lock:
            made = patched(self._deployment, operations)
            if dry:
                return made
            template = self._deployment["spec"]["template"]
            self._deployment = made
            self._bump()
            if made["spec"]["template"] != template:
                threading.Timer(0.5, self.roll_out).start()
            return self.deployment

    def _bump(self) -> None:
        self._version += 1
        self._deployment["metadata"]["resourceVersion"] = str(self._version)


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/api":
            self._answer({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            version = {"groupVersion": "apps/v1", "version": "v1"}
            groups = [{"name": "apps", "versions": [version], "preferredVersion": version}]
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        elif path in _RESOURCES:
            self._answer(_resources(*_RESOURCES[path]))
        elif self._named(path):
            self._answer(self.cluster.deployment)
        elif _PODS.fullmatch(path):
            self._answer({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.cluster.pods})
        else:
            self._refuse(404, "NotFound", f"{path} not found")

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path, kind = self.path.partition("?")[0], self.headers["Content-Type"]
        if not self._named(path) or kind != "application/json-patch+json":
            self._refuse(415, "UnsupportedMediaType", f"{path}: {kind}")
            return
        try:
            self._answer(self.cluster.change(json.loads(body), dry="dryRun=All" in self.path))
        except PatchError as error:
            self._refuse(422, "Invalid", str(error))

    def _named(self, path: str) -> bool:
        found, meta = _DEPLOYMENT.fullmatch(path), self.cluster.deployment["metadata"]
        return found is not None and found.groups() == (meta["namespace"], meta["name"])

    def _refuse(self, code: int, reason: str, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
        self._answer({**status, "code": code}, code)

    def _answer(self, document: Json, code: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _resources(version: str, kinds: list[tuple[str, str, list[str]]]) -> Json:
    verbs = ["get", "list", "patch"]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": [
            {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs,
             "shortNames": short}
            for name, kind, short in kinds
        ],
    }  # fmt: skip
