"""Options of `docker run` are set where they stand, and never passed to the server."""

from __future__ import annotations

import pytest

from specwatch.domain import Change
from specwatch.errors import LaunchError
from specwatch.launch.command import container_setting, edit, parse

TAIL = "image:1 python3 -m sglang.launch_server --model-path m"


@pytest.mark.parametrize(
    ("before", "option", "after"),
    [
        ("docker run", "--shm-size", "docker run --shm-size 32g"),
        ("docker run --shm-size 1g --gpus all", "--shm-size", "docker run --shm-size 32g --gpus all"),
        ("docker run --gpus all --shm-size=1g", "--shm-size", "docker run --gpus all --shm-size=32g"),
        ("sudo podman run -d", "--shm-size", "sudo podman run --shm-size 32g -d"),
        ("docker create --name x", "--shm-size", "docker create --shm-size 32g --name x"),
    ],
)
def test_set(before: str, option: str, after: str) -> None:
    launch = parse(f"{before} {TAIL}", "0.5.23")
    change = container_setting(launch, option, "32g")
    assert change is not None
    changed = edit(launch, [change])
    assert changed.text == f"{after} {TAIL}"
    assert changed.values == launch.values


def test_the_present_value_is_known() -> None:
    change = container_setting(parse(f"docker run --shm-size=1g {TAIL}", "0.5.23"), "--shm-size", "2g")
    assert change == Change(op="set", name="--shm-size", old="1g", new="2g")


@pytest.mark.parametrize("command", ["docker exec box python -m sglang.launch_server --model-path m", "sglang serve m"])
def test_no_container_is_created(command: str) -> None:
    launch = parse(command, "0.5.23")
    assert container_setting(launch, "--ipc", "host") is None
    with pytest.raises(LaunchError, match="creates no container"):
        edit(launch, [Change(op="set", name="--ipc", new="host")])


def test_a_value_is_quoted() -> None:
    launch = parse(f"docker run {TAIL}", "0.5.23")
    changed = edit(launch, [Change(op="set", name="--shm-size", new="1g; reboot")])
    assert changed.text == f"docker run --shm-size '1g; reboot' {TAIL}"
