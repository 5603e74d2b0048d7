"""The real SGLang: it crashes on a draft of another vocabulary, is diagnosed, changed, and serves, without a hand.

A stage of its own (real_sglang/run.sh): its environment takes six minutes and 2.9 GB the first time.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxes import PATH, ROOT, SystemdBox, mounts, write_launchers

SETUP = Path(__file__).with_name("real_sglang") / "setup.sh"
ACTIONS = "/var/lib/specwatch-apply"
PORT = 31993
LAUNCH = (
    f"/opt/real/bin/python -m sglang.launch_server --model-path /opt/checkout/examples/models/atlas-8b --device cpu "
    f"--port {PORT} --max-total-tokens 4096 --speculative-algo STANDALONE "
    "--speculative-draft-model-path /opt/checkout/examples/models/sprout-0.3b --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
SERVER = f"""
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=PYTHONPATH=/opt/checkout/tests/e2e/real_sglang/site TRITON_INTERPRET=1 HF_HUB_OFFLINE=1 HOME=/root
Environment=CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1
ExecStart={LAUNCH}
Restart=on-failure
RestartSec=5
"""
CONFIG = f"""
[policy]
health_within = 600

[state]
actions = "{ACTIONS}"

[[server]]
name = "real"
logs = ["journal:sglang.service"]
target = "systemd:sglang.service"
health = "http://127.0.0.1:{PORT}/health"
apply = "safe"
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdBox]:
    done = subprocess.run([SETUP], stdout=subprocess.PIPE, text=True, check=True)
    write_launchers(folder := tmp_path_factory.mktemp("opt"))
    inside = {**mounts(folder), Path(done.stdout.strip()): "/opt/real"}
    box = SystemdBox(f"r{os.getpid()}", *(f"--bind-ro={here}:{there}" for here, there in inside.items()))
    try:
        for unit in ("specwatch.service", "specwatch-apply.service", "specwatch-apply.path"):
            box.write(f"/etc/systemd/system/{unit}", (ROOT / "systemd" / unit).read_text())
        for unit in ("specwatch", "specwatch-apply"):
            box.write(
                f"/etc/systemd/system/{unit}.service.d/test.conf",
                f"[Service]\nEnvironment=PATH={PATH}\n",
            )
        box.write("/etc/systemd/system/sglang.service", SERVER)
        box.write("/etc/specwatch/specwatch.toml", CONFIG)
        box.run("systemctl", "daemon-reload")
        yield box
    finally:
        box.stop()


def test_the_real_server_is_mended_without_a_hand(box: SystemdBox) -> None:
    box.run("systemctl", "start", "specwatch-apply.path", "specwatch.service")
    box.run("systemctl", "start", "sglang")
    units = ("specwatch", "specwatch-apply", "sglang")
    box.until(lambda: "ready to roll" in box.journal("sglang"), *units, seconds=600)
    entries = [json.loads(line) for line in box.read(f"{ACTIONS}/audit.jsonl").split("\n") if line]
    box.until(lambda: "action_applied" in box.read(f"{ACTIONS}/audit.jsonl"), *units, seconds=60)
    assert "action_rolled_back" not in {one["event"] for one in entries}

    log = box.journal("sglang", lines=5000)
    crash, _, after = log.partition("Received sigquit from a child process")
    assert "STANDALONE speculative decoding requires the draft model to share the same vocabulary" in crash
    assert "The server is fired up and ready to roll!" in after
    assert "--spec" not in box.read("/etc/systemd/system/sglang.service.d/specwatch.conf").partition("ExecStart=")[2]

    # it does not only say so: it answers
    ask = (
        "import json, urllib.request as r;"
        f"q = r.Request('http://127.0.0.1:{PORT}/generate', headers={{'Content-Type': 'application/json'}},"
        "data=json.dumps({'text': 'a', 'sampling_params': {'max_new_tokens': 2}}).encode());"
        "print(json.load(r.urlopen(q, timeout=120))['meta_info']['completion_tokens'])"
    )
    assert int(box.run("/opt/specwatch/bin/python", "-c", ask)) >= 1
    told = box.run("/opt/specwatch/bin/specwatch", "findings", "list", "--all", "--format", "json",
                   "--state", "/var/lib/private/specwatch", check=False)  # fmt: skip
    (finding,) = json.loads(told)["findings"]
    assert (finding["rule"], finding["state"]) == ("standalone-vocab-mismatch", "resolved")
