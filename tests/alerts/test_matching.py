"""Which server an alert is about: yes, no, or nothing; never a guess."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from specwatch.alerts import saying
from specwatch.alerts.matching import servers_of
from specwatch.settings import LABELS, Server

HOSTS = frozenset({"gpu-17"})
UNIT = Server(name="llama-70b", logs=("journal:sglang-llama.service",), health="http://127.0.0.1:30000/health")
OTHER = Server(
    name="qwen", logs=("/var/log/qwen.log",), target="systemd:qwen.service", health="http://10.0.0.5:30001/h"
)
PODS = Server(name="pods", logs=("pods:prod/llama-*/server",))
WHOLE = Server(name="whole", logs=("pods:batch/*/*",))
DOCKER = Server(name="dock", logs=("docker:sglang-*",))
OWN = Server(name="own", logs=("/x",), labels=(("team", "llm"), ("instance", "10.9.*")))
ALL = (UNIT, OTHER, PODS, WHOLE, DOCKER, OWN)


@pytest.mark.parametrize(
    ("labels", "about"),
    [
        ({"job": "llama-70b"}, ["llama-70b"]),
        ({"instance": "llama-70b"}, ["llama-70b"]),
        ({"job": "sglang"}, []),
        ({"unit": "sglang-llama.service"}, ["llama-70b"]),
        ({"unit": "sglang-llama"}, ["llama-70b"]),
        ({"unit": "qwen.service"}, ["qwen"]),
        ({"unit": "nginx.service"}, []),
        ({"instance": "10.0.0.5:30001"}, ["qwen"]),
        ({"instance": "http://10.0.0.5:30001/metrics"}, ["qwen"]),
        ({"instance": "10.0.0.5:9100"}, []),
        ({"instance": "localhost:30000"}, ["llama-70b"]),
        ({"instance": "gpu-17:30000"}, ["llama-70b"]),
        ({"instance": "gpu-18:30000"}, []),
        ({"instance": "[::1"}, []),
        ({"instance": "gpu-17:99999999"}, []),
        ({"node": "gpu-17"}, []),
        ({"pod": "llama-7f9c-x2", "namespace": "prod", "container": "server"}, ["pods"]),
        ({"pod": "llama-7f9c-x2"}, ["pods"]),
        ({"pod": "llama-7f9c-x2", "namespace": "stage"}, []),
        ({"pod": "llama-7f9c-x2", "namespace": "prod", "container": "istio-proxy"}, []),
        ({"namespace": "prod"}, []),
        ({"namespace": "batch"}, ["whole"]),
        ({"container": "sglang-a"}, ["dock"]),
        ({"container": "nginx"}, []),
        ({"team": "llm"}, ["own"]),
        ({"team": "llm", "instance": "10.8.1.1:1"}, []),
        ({"instance": "10.9.1.1:1"}, ["own"]),
        ({"job": "llama-70b", "unit": "qwen.service"}, ["qwen"]),
        ({"job": "llama-70b", "instance": "10.0.0.5:30001"}, ["llama-70b", "qwen"]),
        ({"severity": "llama-70b", "alertname": "qwen"}, []),
        ({}, []),
        ({"unit": ""}, []),
    ],
)  # fmt: skip
def test_labels(labels: dict[str, str], about: list[str]) -> None:
    assert servers_of(labels, ALL, LABELS, HOSTS) == about


def test_a_health_endpoint_that_is_no_address_says_nothing() -> None:
    assert servers_of({"instance": "a:80"}, [Server(name="x", logs=(), health="http://a:b/")], LABELS) == []


def test_only_labels_that_are_believed_name_a_server() -> None:
    assert servers_of({"job": "llama-70b"}, ALL, ("instance",), HOSTS) == []
    assert servers_of({"name": "sglang-llama.service"}, ALL, LABELS, HOSTS) == []
    for value, name in (("sglang-llama.service", "llama-70b"), ("whole", "whole"), ("box", "box")):
        servers = (*ALL, Server(name="box", logs=("docker:box",)))
        assert servers_of({"name": value, "job": "node"}, servers, (*LABELS, "name"), HOSTS) == [name]
    assert servers_of({"team": "llm"}, ALL, (), HOSTS) == ["own"], "a configured label needs no belief"


def test_what_decides_and_words_asks_nobody() -> None:
    """The files that match, word and compose do no input or output, and do not read the clock."""
    folder = Path(saying.__file__).parent
    for name in ("matching", "splice", "saying", "kinds", "alertmanager", "slack", "pagerduty", "webhook", "otel"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {one.split(".")[0] for one in imported} & {
            "time",
            "os",
            "socket",
            "subprocess",
            "sqlite3",
            "httpx",
        }, name
