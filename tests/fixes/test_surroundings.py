"""What a server shares with others: ports, a container's memory, GPUs, patience, and a common data type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specwatch.domain import Applicability, Change, Container, Launch, Status, Verdict
from specwatch.fixes import FIXES, Proposal, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

PLAIN = "python -m sglang.launch_server --model-path /m"
DOCKER = "docker run --gpus all {} image python3 -m sglang.launch_server --model-path /m"


def commands(use: str, command: str, models: dict[str, Any] | None = None, **captures: str) -> list[str]:
    """The commands that a repair proposes; none of them is more than for review."""
    verdict = Verdict(check="", status=Status.UNKNOWN)
    launch = parse(command, "0.5.23")
    ask = Request(launch=launch, verdict=verdict, models=MemoryModels(models or {}), captures=captures)
    proposals = list(FIXES[use](ask))
    assert all(p.ceiling <= Applicability.REVIEW for p in proposals if use != "target-dtype")
    return [proposal.launch.text for proposal in proposals if proposal.launch]


def test_shared_memory_of_a_container() -> None:
    assert commands("more-shared-memory", DOCKER.format("-p 1:1")) == [
        DOCKER.format("-p 1:1").replace("docker run", "docker run --shm-size 32g"),
        DOCKER.format("-p 1:1").replace("docker run", "docker run --ipc host"),
    ]


def test_shared_memory_that_was_given() -> None:
    command = DOCKER.format("--shm-size=1g")
    assert commands("more-shared-memory", command) == [command.replace("docker run", "docker run --ipc host")]


@pytest.mark.parametrize("command", [DOCKER.format("--ipc=host"), DOCKER.format("--ipc host"), PLAIN])
def test_nothing_to_give(command: str) -> None:
    assert commands("more-shared-memory", command) == []


def around(launch: Launch, container: Container, use: str = "more-shared-memory") -> list[Proposal]:
    """What a repair proposes for a launch in a container that its target makes."""
    ask = Request(
        launch=replace(launch, container=container),
        verdict=Verdict(check="", status=Status.UNKNOWN),
        models=MemoryModels({}),
    )
    return list(FIXES[use](ask))


def test_shared_memory_of_a_compose_service() -> None:
    launch = parse(PLAIN, "0.5.23")
    sized, host = around(launch, Container(kind="compose"))
    assert sized.changes == (Change(op="set", name="shm_size", new="32g"),)
    assert sized.launch is not None
    assert sized.launch.argv == launch.argv
    assert sized.launch.container == Container(kind="compose", options={"shm_size": "32g"})
    assert "`shm_size: 32g`" in sized.why
    assert host.changes == (Change(op="set", name="ipc", new="host"),)
    assert {one.ceiling for one in (sized, host)} == {Applicability.REVIEW}
    (host,) = around(launch, Container(kind="compose", options={"shm_size": "1g"}))
    assert [change.name for change in host.changes] == ["ipc"]
    for options in ({"ipc": "host"}, {"ipc": "service:b"}):
        assert around(launch, Container(kind="compose", options=options)) == []
    assert around(launch, Container(kind="compose", mounted=True)) == [], "a volume decides there"


def test_shared_memory_of_a_pod_is_a_persons_decision() -> None:
    launch = parse(PLAIN, "0.5.23")
    (fix,) = around(launch, Container(kind="kubernetes"))
    assert (fix.launch, fix.changes, fix.ceiling) == (None, (), Applicability.MANUAL)
    assert "emptyDir: {medium: Memory, sizeLimit: 32Gi}" in fix.why
    assert "mountPath: /dev/shm" in fix.why
    (fix,) = around(launch, Container(kind="kubernetes", mounted=True, options={"sizeLimit": "1Gi"}))
    assert "a sizeLimit of 1Gi" in fix.why
    assert around(launch, Container(kind="kubernetes", mounted=True)) == []
    assert around(launch, Container(kind="kubernetes", options={"hostIPC": "true"})) == []


def test_the_next_port_in_a_network_of_its_own() -> None:
    launch = parse(PLAIN, "0.5.23")
    for kind in ("compose", "kubernetes"):
        assert around(launch, Container(kind=kind), "next-port") == []
        assert len(around(launch, Container(kind=kind, host_network=True), "next-port")) == 1


def test_the_next_port() -> None:
    assert commands("next-port", f"{PLAIN} --port 8000") == [f"{PLAIN} --port 8001"]
    assert commands("next-port", PLAIN) == [f"{PLAIN} --port 30001"]
    assert commands("next-port", f"{PLAIN} --port 65535") == []
    assert commands("next-port", DOCKER.format("-p 30000:30000")) == []
    assert len(commands("next-port", DOCKER.format("--network host"))) == 1


def test_more_patience() -> None:
    assert commands("longer-watchdog", PLAIN, seconds="0.4") == [f"{PLAIN} --watchdog-timeout 600"]
    assert commands("longer-watchdog", f"{PLAIN} --watchdog-timeout 400", seconds="400") == [
        f"{PLAIN} --watchdog-timeout 800"
    ]
    assert commands("longer-watchdog", PLAIN) == []


def test_attention_dp_goes_only_where_it_is_on() -> None:
    on = f"{PLAIN} --tp-size 8 --dp-size 8 --enable-dp-attention"
    assert commands("without-attention-dp", on) == [f"{PLAIN} --tp-size 8"]
    assert commands("without-attention-dp", f"{PLAIN} --dp-size 2") == []


@pytest.mark.parametrize(
    ("tp", "heads", "kv_heads", "numerator", "wanted"),
    [
        (16, 40, 8, "40", 8),
        (3, 8, 8, "8", 2),
        (8, 12, 12, "12", 6),
        (8, 12, 2, "12", 6),
        (5, 12, 3, "12", 3),
        (2, 25, 5, "25", 1),
        (16, 40, 8, "11008", None),
        (1, 40, 8, "40", None),
    ],
)
def test_a_size_that_divides(tp: int, heads: int, kv_heads: int, numerator: str, wanted: int | None) -> None:
    config = {"model_type": "llama", "hidden_size": heads * 64, "vocab_size": 8}
    config |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    found = commands("dividing-tp-size", f"{PLAIN} --tp-size {tp}", {"/m": config}, numerator=numerator)
    assert found == ([f"{PLAIN} --tp-size {wanted}"] if wanted else [])


def test_a_size_that_divides_needs_the_configuration() -> None:
    assert commands("dividing-tp-size", f"{PLAIN} --tp-size 16", numerator="40") == []


def test_the_targets_own_type() -> None:
    models = {"/m": {"model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 8}}
    assert commands("target-dtype", PLAIN, models) == [f"{PLAIN} --dtype bfloat16"]
    assert commands("target-dtype", f"{PLAIN} --dtype half", models) == []
    assert commands("target-dtype", PLAIN, {"/m": {"model_type": "llama", "vocab_size": 8}}) == []
