"""How long a page takes with 10,000 findings that fire on 100 servers, each with its log. Needs no server."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from specwatch.config import Server, Settings, State, Web
from specwatch.metrics import Metrics
from specwatch.storage.store import Seen, Store
from specwatch.watching.tally import Tally
from specwatch.web.site import Site

SERVERS, EACH, RUNS = 100, 100, 50


def seed(folder: Path) -> None:
    lines = [
        {"line": n, "kind": "context", "ranks": ["TP0"], "time": None, "text": "x" * 150} for n in range(120)
    ]  # fmt: skip
    fix = {"id": "drop-speculation", "applicability": "safe", "why": "slower", "rechecked": True, "changes": [],
           "command": "python -m sglang.launch_server --model-path /models/a"}  # fmt: skip
    document = {"rule": "some-rule", "says": "it broke", "verdict": {"status": "broken"}, "fixes": [fix]}
    store = Store(folder, print)
    now = time.time()
    store.commit(
        [
            Seen(
                key=f"{server} {n}", server=f"s{server}", stream=f"s{server}|x", place=n, at=now - 10_000 + n,
                fingerprint=f"{n:012x}", severity="fatal", document=json.dumps({**document, "id": f"{n:012x}"}),
                excerpt=json.dumps({"cut": False, "lines": lines}),
            )
            for server in range(SERVERS)
            for n in range(EACH)
        ],
        now,
    )  # fmt: skip
    store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seed(folder)
        settings = Settings(
            servers=tuple(Server(name=f"s{n}", logs=("/x",)) for n in range(SERVERS)),
            state=State(dir=name, actions=f"{name}/actions"),
            web=Web(listen="127.0.0.1:0"),
        )
        tally = Tally(turned=time.monotonic())
        site = Site(settings=lambda: settings, state=folder, tally=tally, now=time.monotonic, wall=time.time)
        metrics = Metrics(lambda: settings, folder, tally, time.time)
        parts: dict[str, Callable[[], object]] = {
            "/": site.home,
            "/findings/SERVER/ID": lambda: site.finding("s1", f"{5:012x}"),
            "/servers/SERVER": lambda: site.server("s1"),
            "/api/v1/findings": lambda: json.dumps(site.api_findings("", "", 100, 0)),
            "/metrics": metrics.text,
        }
        print("| page | p50 ms | worst ms |\n| --- | --- | --- |")
        for path, ask in parts.items():
            took = []
            for _ in range(RUNS):
                start = time.perf_counter()
                ask()
                took.append((time.perf_counter() - start) * 1000)
            print(f"| {path} | {statistics.median(took):.0f} | {max(took):.0f} |")


if __name__ == "__main__":
    main()
