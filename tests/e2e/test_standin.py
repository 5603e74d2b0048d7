"""The stand-in says what the real SGLang says: its lines are those of real logs but for the values of the launch."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import ROOT, until

STANDIN = Path(__file__).with_name("standin")
MODELS = ROOT / "tests" / "data" / "oracle" / "models"
LOGS = ROOT / "tests" / "data" / "logs"
MASK = '{"dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 1000}}'
_OWN = re.compile(r"^\[[\d: -]{19}|(?<=pid=)\d+|(?<=server_args=).*|^(Value|Runtime)Error: .*")


def start(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    words = (
        sys.executable,
        "-m",
        "sglang.launch_server",
        "--model-path",
        f"{MODELS}/c_target",
        "--load-format",
        "dummy",
    )
    with log.open("wb") as out:
        return subprocess.Popen([*words, *arguments], stderr=out, env={**os.environ, "PYTHONPATH": str(STANDIN)})


def drafted(algorithm: str, draft: str, *more: str) -> tuple[str, ...]:
    return ("--speculative-algorithm", algorithm, "--speculative-draft-model-path", f"{MODELS}/{draft}", *more)


def plain(text: str) -> list[str]:
    return [_OWN.sub("*", line) for line in text.split("\n")]


@pytest.mark.parametrize(
    ("arguments", "real", "code", "message"),
    [
        (drafted("STANDALONE", "c_draft_bad"), "standalone-vocab-tp1", -9, "=1000 and draft vocab_size=1024."),
        (drafted("STANDALONE", "c_draft_bad", "--tp", "2"), "standalone-vocab-tp2", -9, "draft vocab_size=1024."),
        (drafted("STANDALONE", "c_draft_difftok"), "standalone-vocab-tp1", -9, "different token-to-id mappings"),
        (drafted("DFLASH", "c_df_maskout"), "dflash-mask-override", -9, "mask_token_id=1005, vocab_size=1000"),
        (drafted("DFLASH", "c_df_ok", "--json-model-override-args", MASK), "dflash-mask-override", -9, "_id=1000,"),
        (drafted("DFLASH", "c_df_lay"), "dflash-layers-out", -9, "target_layer_ids[1]=11, target_num_layers=8."),
        (drafted("DSPARK", "c_ds_maskout"), "dspark-mask-outside-tp2", -9, "mask_token_id=1001 is outside"),
        (drafted("EAGLE3", "c_eagle3"), "eagle3-context", -9, "(4096) is greater than the derived"),
        (("--speculative-algorithm", "DFLASH"), "dflash-no-draft", 1, "requires setting --speculative-draft-model"),
        (drafted("STANDALON", "c_draft_ok"), "0.5.23-unknown-spec-algo", 1, "algorithm name: STANDALON"),
    ],
)  # fmt: skip
def test_it_dies_as_the_real_one(
    arguments: tuple[str, ...], real: str, code: int, message: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert start(*arguments, log=log).wait(60) == code
    said = log.read_text()
    assert message in said
    assert plain(said.rstrip("\n")) == plain((LOGS / f"{real}.log").read_text().rstrip("\n"))


def test_it_refuses_what_the_real_parser_refuses(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert start("--max-model-len", "2048", log=log).wait(60) == 2
    assert log.read_text().endswith("\nsglang serve: error: unrecognized arguments: --max-model-len 2048\n")
    assert start("--dtype", "bf16", log=log).wait(60) == 2
    assert "error: argument --dtype: invalid choice: 'bf16' (choose from" in log.read_text()


def test_a_launch_that_is_right_serves(tmp_path: Path) -> None:
    (log := tmp_path / "log").touch()
    process = start("--port", "0", *drafted("STANDALONE", "c_draft_ok"), log=log)
    try:
        until(lambda: "ready to roll" in log.read_text(), 30, log.read_text)
        sockets = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
        (port,) = re.findall(rf"127\.0\.0\.1:(\d+) .*pid={process.pid},", sockets)
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert "SIGTERM received" in log.read_text()
    finally:
        process.kill()
        process.wait()


def test_what_it_says_is_diagnosed(tmp_path: Path) -> None:
    start(*drafted("STANDALONE", "c_draft_bad"), log=(log := tmp_path / "log")).wait(60)
    done = subprocess.run(
        [Path(sys.executable).with_name("specwatch"), "diagnose", log, "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rule"], finding["verdict"]["status"]) == ("standalone-vocab-mismatch", "broken")
