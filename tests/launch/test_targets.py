"""Launches read from where they live."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from specwatch.errors import ConfigError
from specwatch.launch.command import parse
from specwatch.launch.targets import Targeted, read

UNIT = """\
[Unit]
Description=SGLang %i
[Service]
Environment=HF_HOME=/data/hf "SGLANG_LOG_MS=1"
Environment=PORT=30000
EnvironmentFile=-/nowhere/at.all
# a comment
ExecStart=/bin/true
ExecStart=
ExecStart=-/opt/sglang/bin/python -m sglang.launch_server \\
    --model-path /models/%i \\
    # not part of it
    --port ${PORT} --tp 2
Restart=always
[Install]
WantedBy=multi-user.target
"""
COMPOSE = """\
services:
  web:
    image: nginx
  llm:
    image: lmsysorg/sglang:latest
    entrypoint: python3 -m sglang.launch_server
    command: >
      --model-path /models/${MODEL:-llama}
      --host 0.0.0.0 --tp 2
      --served-model-name $$x
    environment:
      HF_TOKEN: ${TOKEN-none}
      SGLANG_LOG_MS: true
    volumes:
      - /data/models:/models:ro
      - ./cache:/root/.cache
"""
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: sidecar
        image: busybox
      - name: sglang
        command: ["python3", "-m", "sglang.launch_server"]
        args: ["--model-path", "$(MODEL)", "--tp", "2"]
        env:
        - {name: MODEL, value: /models/llama}
        - {name: SECRET, valueFrom: {secretKeyRef: {name: a, key: b}}}
        volumeMounts:
        - {name: models, mountPath: /models, subPath: prod}
      volumes:
      - name: models
        hostPath: {path: /data}
---
kind: Service
spec: {}
"""


def write(folder: Path, name: str, content: str) -> str:
    path = folder / name
    path.write_text(content)
    return str(path)


def values(target: Targeted) -> dict[str, object]:
    return dict(parse(target.command, "0.5.23").values)


def test_a_unit_file(tmp_path: Path) -> None:
    (target,) = read(f"systemd:{write(tmp_path, 'sglang@llama.service', UNIT)}")
    assert values(target) == {"model_path": "/models/llama", "port": 30000, "tp_size": 2}
    assert target.env == {"HF_HOME": "/data/hf", "SGLANG_LOG_MS": "1", "PORT": "30000"}


def test_a_unit_with_a_drop_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    monkeypatch.setattr("specwatch.launch.targets.systemd.FOLDERS", (str(etc), str(lib)))
    lib.mkdir()
    (lib / "sglang@.service").write_text(UNIT)
    dropin = etc / "sglang@llama.service.d"
    dropin.mkdir(parents=True)
    (dropin / "10-more.conf").write_text(
        "[Service]\nExecStart=\nExecStart=sglang serve /models/other --tp 4\nEnvironment=PORT=1\n"
    )
    (target,) = read("systemd:sglang@llama")
    assert values(target) == {"model_path": "/models/other", "tp_size": 4}
    assert target.env["PORT"] == "1"


def test_a_missing_unit() -> None:
    with pytest.raises(ConfigError, match="no such unit"):
        read("systemd:no-such-unit-here")


def test_a_compose_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODEL", raising=False)
    monkeypatch.delenv("TOKEN", raising=False)
    (tmp_path / ".env").write_text("# x\nTOKEN='abc'\n")
    path = write(tmp_path, "compose.yaml", COMPOSE)
    for spec in (path, f"compose:{path}", f"compose:{path}#llm"):
        (target,) = read(spec)
        assert target.name == f"compose:{path}#llm"
        assert values(target) == {
            "model_path": "/models/llama",
            "host": "0.0.0.0",
            "tp_size": 2,
            "served_model_name": "$x",
        }
        assert target.env == {"HF_TOKEN": "abc", "SGLANG_LOG_MS": "true"}
        assert target.path_maps == (("/models", "/data/models"), ("/root/.cache", str(tmp_path / "cache")))
    with pytest.raises(ConfigError, match="no service 'nobody'; there are web, llm"):
        read(f"compose:{path}#nobody")


def test_a_manifest(tmp_path: Path) -> None:
    path = write(tmp_path, "deployment.yaml", MANIFEST)
    for spec in (path, f"k8s:{path}", f"k8s:{path}#sglang"):
        (target,) = read(spec)
        assert values(target) == {"model_path": "/models/llama", "tp_size": 2}
        assert target.path_maps == (("/models", "/data/prod"),)
    with pytest.raises(ConfigError, match="no container 'other'"):
        read(f"k8s:{path}#other")


def test_a_script(tmp_path: Path) -> None:
    path = write(tmp_path, "start.sh", "#!/bin/sh\n# note\nexec sglang serve m \\\n  --tp 2\n")
    (target,) = read(path)
    assert values(target) == {"model_path": "m", "tp_size": 2}


def test_a_process() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, "sglang.launch_server", "--model-path", "m"]
    env = {**os.environ, "SGLANG_LOG_MS": "1", "OTHER": "2"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        try:
            # the kernel fills in the command line a moment after a new program has taken over
            assert process.stdout
            process.stdout.readline()
            (target,) = read(f"pid:{process.pid}")
        finally:
            process.kill()
    assert target.command == tuple(argv)
    assert target.env["SGLANG_LOG_MS"] == "1"
    assert "OTHER" not in target.env


def test_a_folder_of_all_kinds(tmp_path: Path) -> None:
    write(tmp_path, "a.service", UNIT)
    write(tmp_path, "b.yaml", COMPOSE)
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", "c.yml", MANIFEST)
    write(tmp_path, "d.sh", "sglang serve m\n")
    write(tmp_path, "e.yaml", "other: 1\n")
    write(tmp_path, "f.service", "[Service]\nExecStart=/bin/true\n")
    assert len(read(str(tmp_path))) == 4


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.yaml", "services: [", "not YAML"),
        ("a.yaml", "services: 3", "no 'services'"),
        ("a.sh", "echo", "holds no launch"),
        ("a.service", "[Service]\nEnvironment='x\nExecStart=sglang serve m", "Environment="),
    ],
)
def test_what_is_no_target(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    path = write(tmp_path, name, textwrap.dedent(content))
    with pytest.raises(ConfigError, match=complaint):
        read(path)


@pytest.mark.parametrize("spec", ["pid:none", "pid:0", "/nowhere/at.all", "docker:x"])
def test_what_is_not_there(spec: str) -> None:
    with pytest.raises(ConfigError, match=spec.split(":")[0]):
        read(spec)
