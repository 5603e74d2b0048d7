"""What the configuration of a change has to hold, said when it is read and not at the crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from specwatch.config import load
from specwatch.errors import ConfigError

SERVER = '[[server]]\nname = "a"\nlogs = ["journal:a.service"]\n'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('apply = "safe"', "apply: needs a target to change"),
        ('target = "sglang.service"', "expected systemd:UNIT"),
        ('target = "compose:/srv/c.yaml"', "compose:FILE#SERVICE"),
        ('target = "script:run.sh"', "script:/PATH"),
        ('target = "pid:7"', "expected systemd:UNIT"),
    ],
)
def test_a_change_that_could_never_be_made_is_refused(tmp_path: Path, lines: str, says: str) -> None:
    (path := tmp_path / "c.toml").write_text(f"{SERVER}{lines}\n")
    with pytest.raises(ConfigError, match=says) as refused:
        load(path, allow_insecure=True)
    assert f"{path}:4:" in str(refused.value)


@pytest.mark.parametrize(
    "target",
    [
        "systemd:sglang@a.service",
        "compose:/srv/c.yaml#sglang",
        "k8s:/srv/d.yaml#sglang",
        "k8s://prod/deployment/llm#sglang",
        "script:/srv/run.sh",
        "/srv/run.sh",
    ],
)
def test_targets_that_can_be_changed(tmp_path: Path, target: str) -> None:
    (path := tmp_path / "c.toml").write_text(f'{SERVER}target = "{target}"\napply = "review"\n')
    assert load(path, allow_insecure=True).servers[0].target == target
