"""How long an alert is held up by enriching it, with many findings in the store.

    python benchmarks/alerts.py [--findings 10000] [--alerts 2000]

Each run is what `POST /alertmanager` does with one alert: open the store, match the labels, look the finding up, put
the annotations in. Three shapes of the same number of findings: over ten servers, all firing on one, one for each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from specwatch.alerts.enrich import enrich
from specwatch.settings import Server, Settings
from specwatch.storage.store import Seen, Store

NOW = 1_800_000_000.0


def document(fingerprint: str) -> str:
    """A finding of the usual size, some 6 KB."""
    command = "python -m sglang.launch_server --model-path /models/target " + " ".join(
        f"--flag-{n} {n}" for n in range(40)
    )
    return json.dumps(
        {
            "id": fingerprint,
            "rule": "standalone-vocab-mismatch",
            "title": "STANDALONE draft model does not share the target's vocabulary",
            "severity": "fatal",
            "cause": "vocabularies-differ",
            "says": "/models/draft has 384 tokens, /models/target has 320",
            "root": {"source": "server.log", "line": 83, "text": "ValueError: " + "x" * 1000},
            "verdict": {
                "status": "broken",
                "because": "",
                "evidence": [
                    {"fact": f"fact {n}", "value": n, "source": "/models/target/config.json"} for n in range(8)
                ],
            },
            "launch": {"argv": command.split(" ")},
            "fixes": [
                {"id": "f", "applicability": "safe", "why": "slower", "command": command, "argv": command.split(" ")}
            ],
        }
    )


def fill(folder: Path, servers: list[str], count: int) -> Path:
    store = Store(folder, print)
    facts = []
    for n in range(count):
        name, fingerprint = servers[n % len(servers)], f"{n:012x}"
        facts.append(
            Seen(
                key=f"{n}", server=name, stream=f"{name}|x", place=n, at=NOW + n % 3600, fingerprint=fingerprint,
                severity="fatal", document=document(fingerprint),
            )
        )  # fmt: skip
    store.commit(facts, NOW)
    store.close()
    return store.path


def measure(servers: list[str], findings: int, alerts: int) -> tuple[float, float, float]:
    """Milliseconds: median, 99th percentile, worst."""
    with tempfile.TemporaryDirectory() as folder:
        path = fill(Path(folder), servers, findings)
        settings = Settings(servers=tuple(Server(name=name, logs=(f"/{name}",)) for name in servers[:100]))
        took = []
        for n in range(alerts):
            labels = {"alertname": "Down", "job": servers[n % len(servers)], "instance": f"10.0.0.{n % 250}:30000"}
            starts = datetime.fromtimestamp(NOW + n % 3600, UTC).isoformat()
            payload = {"version": "4", "alerts": [{"status": "firing", "labels": labels, "startsAt": starts}]}
            body = json.dumps(payload).encode()
            begun = time.perf_counter()
            done = enrich(body, path, settings)
            took.append((time.perf_counter() - begun) * 1000)
            if b"specwatch_fix" not in done.body:
                raise SystemExit(f"an alert was not enriched: {done.because or labels}")
    took.sort()
    return took[len(took) // 2], took[int(len(took) * 0.99)], took[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--findings", type=int, default=10_000)
    parser.add_argument("--alerts", type=int, default=2_000)
    given = parser.parse_args()
    shapes = {
        "10 servers": [f"server-{n}" for n in range(10)],
        "1 server": ["server-0"],
        "one server each": [f"server-{n}" for n in range(given.findings)],
    }
    print("| findings | of | alerts | p50 ms | p99 ms | worst ms |\n| --- | --- | --- | --- | --- | --- |")
    for name, servers in shapes.items():
        median, late, worst = measure(servers, given.findings, given.alerts)
        print(f"| {given.findings} | {name} | {given.alerts} | {median:.2f} | {late:.2f} | {worst:.2f} |")


if __name__ == "__main__":
    main()
