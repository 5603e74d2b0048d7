"""The numbers: what they count, that Prometheus' own tools like them, and that no text of a log is a label."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from webbox import EXAMPLES, House, daemon, get, lived_in, seen, until

from specwatch.metrics import Metrics
from specwatch.sources.once import LINE_CAP, Raw
from specwatch.watching.tally import Tally

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def text(house: House) -> str:
    return Metrics(lambda: house.settings, house.folder, house.tally, lambda: 1_800_000_000.0).text().decode()


def promtool(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    house = lived_in(tmp_path)
    house.tally.said("finding_raised", {"server": "llama", "rule": 'a"b\\c\nd', "severity": "fatal"})
    house.tally.up["llama"] = False
    assert promtool("check", "metrics", stdin=text(house)) == ""


def test_what_is_counted(tmp_path: Path) -> None:
    house = lived_in(tmp_path)
    tally = house.tally
    tally.read("llama", [Raw("s", 1, 0, "abc"), Raw("s", 2, 4, "ü"), Raw("s", 3, 7, "x" * (LINE_CAP + 1))], 1.5e9)
    tally.said("finding_raised", {"server": "llama", "rule": "some-rule", "severity": "fatal"})
    tally.said("finding_returned", {"server": "llama", "rule": "some-rule", "severity": "fatal"})
    tally.said("finding_resolved", {"server": "llama"})
    tally.said("source_troubled", {"server": "qwen", "says": "secret text of a log"})
    tally.reached(["qwen"], 1_799_999_990.0)
    tally.reached(["qwen"], 1_799_999_995.0)
    found = text(house)
    for line in (
        'specwatch_source_lines_total{server="llama"} 3.0',
        f'specwatch_source_bytes_total{{server="llama"}} {4 + 3 + LINE_CAP + 2}.0',
        'specwatch_source_lines_capped_total{server="llama"} 1.0',
        'specwatch_findings_total{rule="some-rule",server="llama",severity="fatal"} 2.0',
        'specwatch_findings_firing{rule="some-rule",server="llama",severity="fatal"} 1.0',
        'specwatch_findings_resolved_total{server="llama"} 1.0',
        'specwatch_source_troubles_total{server="qwen"} 1.0',
        'specwatch_source_lag_seconds{server="qwen"} 10.0',
        'specwatch_source_lag_seconds{server="llama"} 0.0',
        'specwatch_crash_loop{server="llama"} 1.0',
        'specwatch_crash_loop{server="qwen"} 0.0',
        "specwatch_store_writable 1.0",
        "specwatch_scrape_errors 0.0",
    ):
        assert f"\n{line}\n" in found, line
    assert "secret text" not in found


def test_series_are_bounded() -> None:
    tally = Tally()
    for n in range(7000):
        tally.said("finding_raised", {"server": f"s{n}", "rule": "r", "severity": "fatal"})
    assert len(tally.findings) == 5000


def test_a_store_that_is_gone_leaves_the_rest(tmp_path: Path) -> None:
    house = lived_in(tmp_path)
    (tmp_path / "specwatch.db").unlink()
    found = text(house)
    assert "\nspecwatch_scrape_errors 2.0\n" in found
    assert "\nspecwatch_store_writable 1.0\n" in found
    assert not (tmp_path / "specwatch.db").exists(), "looking makes nothing"


def test_the_rules_do_what_they_say() -> None:
    rules = DEPLOY / "prometheus" / "specwatch.rules.yml"
    assert "SUCCESS: 12 rules found" in promtool("check", "rules", str(rules))
    assert "SUCCESS" in promtool("test", "rules", str(DEPLOY / "prometheus" / "specwatch.rules.test.yml"))
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.example.yml"))
    tested = (DEPLOY / "prometheus" / "specwatch.rules.test.yml").read_text()
    for alert in re.findall(r"alert: (\w+)", rules.read_text()):
        assert f"alertname: {alert}\n" in tested, f"{alert} has no test"


def expressions() -> Iterator[str]:
    for panel in json.loads((DEPLOY / "grafana" / "specwatch.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_the_dashboard_and_the_rules_name_metrics_that_there_are(tmp_path: Path) -> None:
    from specwatch.storage.actions import Actions

    house = lived_in(tmp_path)
    house.commit(seen("llama", "aaaaaaaaaaaa", severity="degraded"))
    Actions(tmp_path / "actions").close()
    house.tally.up["llama"] = True
    there = set(re.findall(r"^# TYPE (\w+)", text(house), re.MULTILINE)) | {"up"}
    used = " ".join([*expressions(), (DEPLOY / "prometheus" / "specwatch.rules.yml").read_text()])
    names = set(re.findall(r"\b((?:specwatch|process)_[a-z_]+)\b", used))
    assert len(names) > 15
    assert names <= there, names - there


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A real Prometheus that scrapes `target` and evaluates the shipped rules, fast; gives its address."""
    shutil.copy(DEPLOY / "prometheus" / "specwatch.rules.yml", folder)
    (folder / "prometheus.yml").write_text(
        "global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [specwatch.rules.yml]\n"
        f"scrape_configs:\n  - job_name: specwatch\n    static_configs: [{{ targets: ['{target}'] }}]\n"
    )
    said = folder / "prometheus.log"
    with said.open("wb") as err:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
             "--web.listen-address=127.0.0.1:0", "--log.format=json"],
            stderr=err, stdout=err,
        )  # fmt: skip
    try:
        url = f"http://{until(lambda: _address(said, process))}"
        until(lambda: get(f"{url}/-/ready")[0] == 200)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _address(said: Path, process: subprocess.Popen[bytes]) -> str:
    """Where it listens: with port 0 only its sockets say."""
    assert process.poll() is None, said.read_text()
    own = {link.readlink() for link in Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()}
    for row in Path(f"/proc/{process.pid}/net/tcp").read_text().split("\n")[1:]:
        parts = row.split()
        if len(parts) > 9 and parts[3] == "0A" and Path(f"socket:[{parts[9]}]") in own:
            return f"127.0.0.1:{int(parts[1].partition(':')[2], 16)}"
    return ""


def firing(url: str) -> dict[str, str]:
    """The alerts that fire, with their servers."""
    status, body = get(f"{url}/api/v1/alerts")
    assert status == 200
    return {
        one["labels"]["alertname"]: one["labels"].get("server", "")
        for one in json.loads(body)["data"]["alerts"]
        if one["state"] == "firing"
    }


def test_a_real_prometheus_scrapes_and_its_rules_fire_and_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"")
    with daemon(tmp_path, {"llama": log}) as ours:
        (tmp_path / "p").mkdir()
        with prometheus(tmp_path / "p", ours.removeprefix("http://")) as theirs:
            query = f"{theirs}/api/v1/query?query=" + urllib.parse.quote('up{job="specwatch"} == 1')
            until(lambda: json.loads(get(query)[1])["data"]["result"])
            assert "SpecwatchServerBroken" not in firing(theirs)
            crash = (EXAMPLES / "server.log").read_bytes()
            with log.open("ab") as file:
                file.write(crash)
            until(lambda: firing(theirs).get("SpecwatchServerBroken") == "llama")
            for expression in expressions():
                plain = re.sub(r"\$__rate_interval", "1m", expression)
                plain = plain.replace("$instance", ".*").replace("$server", ".*")
                status, body = get(f"{theirs}/api/v1/query?query={urllib.parse.quote(plain)}")
                assert status == 200, (expression, body)
            with log.open("ab") as file:
                file.write(b"[2026-11-30 23:00:00] server_args=ServerArgs(model_path='/m')\n")
                file.write(b"[2026-11-30 23:00:09] The server is fired up and ready to roll!\n")
            until(lambda: "SpecwatchServerBroken" not in firing(theirs))


@pytest.mark.parametrize("name", ["web", "metrics", "tally", "history", "excerpt"])
def test_diagnose_imports_nothing_of_it(name: str) -> None:
    import sys

    code = "import sys; from specwatch.commands import diagnose; sys.exit(f'specwatch.{sys.argv[1]}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, name], check=False).returncode == 0
