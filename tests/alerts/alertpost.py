"""What the tests of alerts share: findings, a clock, and a receiver over HTTP that answers as it is told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

from specwatch.storage.store import Seen, Store

START = 1_800_000_000.0


def silent(text: str) -> None:
    raise AssertionError(text)


def until(so: Callable[[], object], what: str = "", seconds: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, f"it never happened: {what}"
        time.sleep(0.01)


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> float:
        return self.at


def document(fingerprint: str, **more: object) -> dict[str, Any]:
    """A finding as `diagnose --format json` prints it."""
    return {
        "id": fingerprint,
        "rule": "standalone-vocab-mismatch",
        "title": "STANDALONE draft model does not share the target's vocabulary",
        "severity": "fatal",
        "cause": "vocabularies-differ",
        "says": "/models/draft has 384 tokens, /models/target has 320",
        "root": {"source": "server.log", "line": 83, "text": "ValueError: STANDALONE speculative decoding requires"},
        "verdict": {
            "status": "broken",
            "because": "",
            "evidence": [
                {"check": "v", "fact": "target vocab_size", "value": 320, "source": "/models/target/config.json"},
                {"check": "v", "fact": "draft vocab_size", "value": 384, "source": "/models/draft/config.json"},
            ],
        },
        "fixes": [
            {
                "id": "drop-speculation",
                "applicability": "safe",
                "why": "same model, same outputs, slower",
                "because": "",
                "command": "python -m sglang.launch_server --model-path '/models/target x'",
            }
        ],
        **more,
    }


def seen(
    key: str, fingerprint: str = "f1", server: str = "llama", at: float = START, state: str = "firing", **more: Any
) -> Seen:
    content = document(fingerprint, **more)
    return Seen(
        key=f"{server} {fingerprint} {key}",
        server=server,
        stream=f"{server}|x",
        place=int(at),
        at=at,
        fingerprint=fingerprint,
        severity=str(content["severity"]),
        document=json.dumps(content),
        state=state,
    )


def new_store(folder: Path) -> Store:
    return Store(folder, silent)


class Post:
    """A receiver on loopback. `answers` are given in turn, (status, headers) or "hang"; then always 200."""

    def __init__(self, *answers: Any, port: int = 0) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.released = Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(length := int(self.headers["Content-Length"]))
                if len(body) < length:  # whoever sent it was killed in the middle: no receiver takes half of it
                    self.close_connection = True
                    return
                outer.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                answer = outer.answers.pop(0) if outer.answers else (200, {})
                if callable(answer):
                    answer = answer(body)
                if answer == "hang":
                    outer.released.wait(60)
                    return
                if answer == "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                    while not outer.released.wait(0.05):
                        try:
                            self.wfile.write(b"x")
                        except OSError:
                            return
                    return
                self.send_response(answer[0])
                for name, value in answer[1].items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"said by the receiver")

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def bodies(self) -> list[Any]:
        """What came, as JSON."""
        return [json.loads(body) for _, _, body in self.got]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
