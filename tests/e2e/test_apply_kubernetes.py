"""The same with kubectl against an API server: a Deployment that crashes in a loop ends healthy, or as it was."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from boxes import ROOT, Pair, audit
from fakekube import Cluster

MODELS = ROOT / "tests" / "data" / "oracle" / "models"
ENDS = ("action_applied", "action_rolled_back", "action_failed")
MISMATCH = ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", f"{MODELS}/c_draft_bad")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def deployment(port: int, *wrong: str) -> dict[str, Any]:
    args = ["--model-path", f"{MODELS}/c_target", "--load-format", "dummy", "--port", str(port), *wrong]
    container = {
        "name": "sglang",
        "image": "lmsysorg/sglang:v0.5.23",
        "command": ["python", "-m", "sglang.launch_server"],
        "args": args,
        "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llama", "namespace": "ml"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "llama"}},
            "template": {"metadata": {"labels": {"app": "llama"}}, "spec": {"containers": [container]}},
        },
    }


class Deployed:
    """A cluster with one Deployment, and specwatch that sees its logs under /var/log/pods."""

    def __init__(self, folder: Path, port: int, *wrong: str) -> None:
        self.port, self._folder = port, folder
        self.cluster = Cluster(folder, deployment(port, *wrong), port)
        self.before = self.cluster.deployment["spec"]
        self.actions, config = folder / "actions", folder / "specwatch.toml"
        config.write_text(
            f"[policy]\ncooldown = 1\nbreaker = 1\nhealth_within = 60\n[state]\nactions = '{self.actions}'\n"
            "[[server]]\nname = 'llama'\nlogs = ['pods:ml/llama-*/sglang']\nsglang = '0.5.23'\n"
            "target = 'k8s://ml/Deployment/llama#sglang'\napply = 'safe'\n"
            # the watcher has no rights to ask the API: it is told what it starts
            f"launch = '''python -m sglang.launch_server {' '.join(self.container['args'])}'''\n"
        )
        self.cluster.roll_out()
        self.pair = Pair(self._start, self._run, config, folder / "state")

    def _words(self, words: Sequence[str]) -> list[str]:
        """In a mount namespace of its own, where /var/log is that of the cluster's node."""
        inside = 'mount --make-rprivate / && mount --bind "$1" /var/log && shift && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", inside, "sh", str(self._folder / "log"), *words]

    def _env(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self.cluster.kubeconfig), "HOME": str(self._folder)}

    def _start(self, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(self._words(words), stdout=out, stderr=out, env=self._env())

    def _run(self, words: Sequence[str]) -> str:
        done = subprocess.run(self._words(words), capture_output=True, text=True, env=self._env(), check=False)
        return done.stdout + done.stderr * (words[1] == "apply")

    def finished(self) -> str:
        self.pair.until(lambda: audit(self.actions, *ENDS), 120)
        return str(audit(self.actions, *ENDS)[-1]["event"])

    @property
    def container(self) -> dict[str, Any]:
        return dict(self.cluster.deployment["spec"]["template"]["spec"]["containers"][0])

    def ready(self) -> bool:
        return all(one["ready"] for pod in self.cluster.pods for one in pod["status"]["containerStatuses"])


@pytest.fixture
def deploy(tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def made(port: int, *wrong: str) -> Iterator[Deployed]:
        deployed = Deployed(tmp_path, port, *wrong)
        try:
            yield deployed
        finally:
            deployed.pair.close()
            deployed.cluster.close()

    return made


def test_a_crash_loop_ends_healthy_without_a_hand(deploy: Callable[..., Any]) -> None:
    port = free_port()
    with deploy(port, *MISMATCH) as deployed:
        assert deployed.finished() == "action_applied", deployed.pair.told()
        deployed.pair.until(deployed.ready, 20)
        assert deployed.container["args"][-2:] == ["--port", str(port)]
        changed = deployed.cluster.deployment["spec"]
        changed["template"]["spec"]["containers"][0]["args"] += MISMATCH
        assert changed == deployed.before, "nothing else was touched"
        deployed.pair.until(lambda: [one["state"] for one in deployed.pair.findings()] == ["resolved"], 20)


def test_a_fix_that_does_not_help_ends_in_the_old_launch(deploy: Callable[..., Any]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        with deploy(holder.getsockname()[1], *MISMATCH) as deployed:
            assert deployed.finished() == "action_rolled_back", deployed.pair.told()
            assert deployed.cluster.deployment["spec"] == deployed.before
            assert audit(deployed.actions, "breaker_tripped")
