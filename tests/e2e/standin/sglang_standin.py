"""A server that behaves like SGLang 0.5.23 from its start to "fired up", on any machine, within a second.

It takes the real flags (and refuses what the real parser refuses), reads the model folders that it is given, and fails
where and as the real one fails: the lines are those of real logs (tests/data/logs), with this launch's values, numbers,
time and process in their places. A launch that is right gets its /health. It decides with its own few lines of code
what is wrong with a launch, never with specwatch's checks: those are what it puts to the test.

`STANDIN_LOAD=SECONDS` lets the weights take a while, `STANDIN_SHM=BYTES` lets its ranks need so much of /dev/shm.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LOGS = ROOT / "tests" / "data" / "logs"
RELEASE = "0.5.23"
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "NONE", "STANDALONE", "NGRAM", "DFLASH", "FROZEN_KV_MTP", "DSPARK", "UNO")
RECORDS = {
    "STANDALONE": "standalone-vocab-tp1",
    "DFLASH": "dflash-mask-override",
    "DSPARK": "dspark-mask-outside-tp2",
    "EAGLE3": "eagle3-context",
}
"""Real logs that hold the resolved arguments of each algorithm."""
MAPS_DIFFER = (
    "ValueError: STANDALONE speculative decoding requires the draft model to share the same vocabulary as the target "
    "model, but the two tokenizers have different token-to-id mappings even though their vocab sizes match. Use a "
    "draft model with a matching vocabulary, or a speculative algorithm that supports heterogeneous vocabularies."
)
_TIME = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_PID = re.compile(r"(?<=pid=)\d+")

Failure = tuple[str, str]
"""A real log, and the line that this launch has in the place of the log's own message."""


# what is wrong with a launch


def config_of(folder: object) -> dict[str, Any]:
    return dict(json.loads((Path(str(folder)) / "config.json").read_text()))


def of_arguments(values: Mapping[str, Any]) -> Failure | None:
    """What the main process refuses before any process is started."""
    algorithm = values.get("speculative_algorithm")
    if algorithm and algorithm.upper() not in ALGORITHMS:
        return "0.5.23-unknown-spec-algo", f"ValueError: Unknown speculative algorithm name: {algorithm}"
    if algorithm == "DFLASH" and not values.get("speculative_draft_model_path"):
        return (
            "dflash-no-draft",
            "ValueError: DFLASH speculative decoding requires setting --speculative-draft-model-path.",
        )
    return None


def of_models(values: Mapping[str, Any], environ: Mapping[str, str]) -> Failure | None:
    """What a scheduler refuses once it reads the models, in the order in which it comes to it."""
    algorithm, draft_path = values.get("speculative_algorithm"), values.get("speculative_draft_model_path")
    if not algorithm or not draft_path:
        return None
    target, draft = config_of(values["model_path"]), config_of(draft_path)
    draft |= json.loads(str(values.get("json_model_override_args") or "{}"))
    vocabulary = target["vocab_size"]
    own = draft.get("dflash_config") or {}
    if algorithm == "DFLASH":
        layers = target["num_hidden_layers"]
        for place, layer in enumerate(own.get("target_layer_ids") or ()):
            if not 0 <= layer < layers:
                return "dflash-layers-out", (
                    "ValueError: DFLASH target_layer_ids contains an out-of-range layer id. "
                    f"target_layer_ids[{place}]={layer}, target_num_layers={layers}."
                )
    asked = values.get("context_length") or target["max_position_embeddings"]
    derived = draft["max_position_embeddings"]
    if (
        algorithm in ("EAGLE", "EAGLE3")
        and asked > derived
        and not environ.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
    ):
        real = message_of("eagle3-context")
        return "eagle3-context", real.replace("(4096)", f"({asked})").replace("(2048)", f"({derived})")
    if algorithm == "STANDALONE":
        return standalone(values, vocabulary, draft["vocab_size"])
    if algorithm == "DFLASH":
        token = own.get("mask_token_id", draft.get("mask_token_id"))
        if token is not None and not 0 <= token < vocabulary:
            real = message_of("dflash-mask-override")
            return "dflash-mask-override", real.replace(
                "mask_token_id=1000, vocab_size=1000", f"mask_token_id={token}, vocab_size={vocabulary}"
            )
    if algorithm == "DSPARK":
        token = own.get("mask_token_id", draft.get("mask_token_id"))
        if token is not None and not 0 <= token < vocabulary:
            return "dspark-mask-outside-tp2", (
                f"ValueError: DSpark mask_token_id={token} is outside the target vocab size {vocabulary}."
            )
    return None


def of_container(environ: Mapping[str, str]) -> Failure | None:
    """What torch says when the ranks exchange more than the container's /dev/shm holds."""
    found = os.statvfs("/dev/shm")
    if found.f_blocks * found.f_frsize >= int(environ.get("STANDIN_SHM", "0")):
        return None
    says = "RuntimeError: unable to write to file </torch_4211_1234_0>: No space left on device (28)"
    return "standalone-vocab-tp1", says


def standalone(values: Mapping[str, Any], target: int, draft: int) -> Failure | None:
    log = "standalone-vocab-tp2" if values.get("tp_size", 1) > 1 else "standalone-vocab-tp1"
    if target != draft:
        real = message_of(log)
        sizes = f"target vocab_size={target} and draft vocab_size={draft}"
        return log, re.sub(r"target vocab_size=\d+ and draft vocab_size=\d+", sizes, real)
    maps = [token_map(values[name]) for name in ("model_path", "speculative_draft_model_path")]
    return (log, MAPS_DIFFER) if maps[0] != maps[1] else None


def token_map(folder: object) -> dict[str, int]:
    tokenizer = json.loads((Path(str(folder)) / "tokenizer.json").read_text())
    added = {one["content"]: one["id"] for one in tokenizer.get("added_tokens") or ()}
    return {**tokenizer["model"]["vocab"], **added}


# how it says so


def lines_of(log: str) -> list[str]:
    return (LOGS / f"{log}.log").read_bytes().decode().split("\n")


def message_of(log: str) -> str:
    """The message that a real log died of."""
    return next(line for line in lines_of(log) if re.match(r"(Value|Runtime)Error: ", line))


def record_of(log: str) -> dict[str, Any]:
    """The resolved arguments that a real log holds."""
    line = next(line for line in lines_of(log) if "server_args={" in line)
    return dict(ast.literal_eval(line.split("server_args=", 1)[1]))


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of this launch as the real server would write them down on a machine with a GPU."""
    record = record_of("healthy-plain") | {"device": "cuda", "load_format": "auto", "max_total_tokens": None}
    record |= {"attention_backend": "flashinfer", "sampling_backend": "flashinfer"}
    if (algorithm := values.get("speculative_algorithm")) in RECORDS:
        real = record_of(RECORDS[algorithm])
        wanted = {name for name in real if name.startswith("speculative_") or name == "max_running_requests"}
        record |= {name: real[name] for name in wanted - {"speculative_draft_attention_backend"}}
    record |= {name: value for name, value in values.items() if name in record}
    return record | {"tokenizer_path": record["model_path"], "served_model_name": record["model_path"]}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def retold(lines: list[str], values: Mapping[str, Any], message: str = "") -> Iterator[str]:
    """A real log's lines with this launch's values, time and process, and its message where the log has its own."""
    for line in lines:
        line = _PID.sub(str(os.getpid()), _TIME.sub(datetime.now().strftime("[%Y-%m-%d %H:%M:%S"), line))
        if "server_args={" in line:
            line = line.split("server_args=", 1)[0] + f"server_args={resolved(values)!r}"
        elif message and re.match(r"(Value|Runtime)Error: ", line):
            line = message
        yield line


def play(log: str, values: Mapping[str, Any], message: str = "", until: str = "") -> None:
    """Write a real log, up to the line that contains `until`."""
    for line in retold(lines_of(log), values, message):
        say(line)
        if "Load weight begin" in line:
            time.sleep(float(os.environ.get("STANDIN_LOAD", "0")))
        if until and until in line:
            return


# a server


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        stamp = datetime.now().strftime("[%Y-%m-%d %H:%M:%S]")
        say(f'{stamp} INFO:     {self.client_address[0]}:{self.client_address[1]} - "GET {self.path} HTTP/1.1" 200 OK')

    def log_message(self, format: str, *args: object) -> None:
        return


def serve(values: Mapping[str, Any]) -> None:
    """Come up as the real one does and answer until a signal; where the port is taken, hang as the real one does."""
    signal.signal(signal.SIGTERM, lambda *_: finish(values))
    port = int(values.get("port", 30000))
    play("healthy-plain", values, until="Application startup complete")
    try:
        server = ThreadingHTTPServer((str(values.get("host", "127.0.0.1")), port), Handler)
    except OSError:
        stamp = datetime.now().strftime("[%Y-%m-%d %H:%M:%S]")
        at = f"('127.0.0.1', {port})"
        say(f"{stamp} ERROR:    [Errno 98] error while attempting to bind on address {at}: address already in use")
        say(f"{stamp} INFO:     Waiting for application shutdown.")
        while True:
            signal.pause()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    healthy = lines_of("healthy-plain")
    begin = next(number for number, line in enumerate(healthy) if "Uvicorn running" in line)
    end = next(number for number, line in enumerate(healthy) if "fired up" in line)
    for line in retold(healthy[begin : end + 1], values):
        say(re.sub(r"127\.0\.0\.1:\d+ \(Press", f"127.0.0.1:{port} (Press", line))
    while True:
        signal.pause()


def finish(values: Mapping[str, Any]) -> None:
    healthy = lines_of("0.5.23-plain-healthy-cpu")
    begin = next(number for number, line in enumerate(healthy) if "SIGTERM received" in line)
    for line in retold(healthy[begin : begin + 2], values):
        say(line)
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Start with these arguments, as `python -m sglang.launch_server` does."""
    sys.path.insert(0, str(ROOT))
    from specwatch.errors import LaunchError
    from specwatch.launch.command import parse

    try:
        values = dict(parse(["python", "-m", "sglang.launch_server", *arguments], RELEASE).values)
    except LaunchError as error:
        for line in lines_of("argparse-unrecognized")[:-2]:
            say(line)
        say(error.refusal or str(error))
        sys.exit(2)
    failure = of_arguments(values)
    if failure:
        play(*failed(failure, values))
        sys.exit(1)
    failure = of_models(values, os.environ) or of_container(os.environ)
    if failure is None:
        serve(values)
        return
    play(*failed(failure, values))
    if os.getpid() == 1:  # in a container nothing can kill it, and it ends by itself
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def failed(failure: Failure, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str]:
    return failure[0], values, failure[1]


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
