"""The commands as a person runs them: real processes, a script that is restarted by a command, a health endpoint."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Run  # type: ignore[import-not-found,unused-ignore]
from stage import EXAMPLES, READY, START

SERVER = """
import http.server, os, signal, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
open("server.log", "a").write({log!r})
server = http.server.HTTPServer(("127.0.0.1", {port}), Answer)
open("pid", "w").write(str(os.getpid()))
server.serve_forever()
"""
RESTART = """#!{python}
import os, subprocess, sys, time
os.chdir({folder!r})
if b"STANDALONE" in open("launch.sh", "rb").read() or os.path.exists("broken"):
    open("server.log", "ab").write(open({crash!r}, "rb").read())
else:
    subprocess.Popen([sys.executable, "server.py"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL, start_new_session=True)
"""


@dataclass
class Site:
    """A folder with a server that crashed, and the configuration of specwatch."""

    folder: Path
    config: Path

    @property
    def launch(self) -> bytes:
        return (self.folder / "launch.sh").read_bytes()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    tmp_path.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("launch.sh", "server.log"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    (tmp_path / "server.py").write_text(SERVER.format(log=START + READY, port=port))
    again = tmp_path / "again"
    again.write_text(RESTART.format(python=sys.executable, folder=str(tmp_path), crash=str(EXAMPLES / "server.log")))
    again.chmod(0o755)
    config = tmp_path / "specwatch.toml"
    config.write_text(f"""
[[server]]
name = "atlas"
logs = ["{tmp_path}/server.log"]
target = "script:{tmp_path}/launch.sh"
restart = ["{again}"]
health = "http://127.0.0.1:{port}/health"
path_map = {{ "/models" = "{EXAMPLES}/models" }}
[state]
dir = "{tmp_path}/state"
actions = "{tmp_path}/apply"
[policy]
health_within = 60
""")
    yield Site(tmp_path, config)
    if (tmp_path / "pid").exists():
        os.kill(int((tmp_path / "pid").read_text()), 9)


def finding(site: Site, specwatch: Run) -> str:
    specwatch("watch", "--once", "--config", site.config)
    found = json.loads(specwatch("findings", "list", "--config", site.config, "--format", "json").stdout)
    return str(found["findings"][0]["id"])


def test_from_the_finding_to_a_healthy_server_and_back(site: Site, specwatch: Run) -> None:
    name = finding(site, specwatch)
    before = site.launch

    dry = specwatch("apply", name, "--config", site.config, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "-    --speculative-algo STANDALONE" in dry.stdout
    assert dry.stdout.count("  yes  ") == 10
    assert "384 tokens" in dry.stdout
    assert "fix drop-speculation [safe] same model, same outputs, slower" in " ".join(dry.stdout.split())
    assert site.launch == before
    assert not (site.folder / "apply").exists()

    unasked = specwatch("apply", name, "--config", site.config)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert site.launch == before

    done = specwatch("apply", name[:5], "--config", site.config, "--yes")
    assert done.returncode == 0, done.stderr
    assert "answers" in done.stderr
    assert "what changes" in done.stdout
    assert b"STANDALONE" not in site.launch
    action = json.loads(specwatch("findings", "show", name, "--config", site.config, "--format", "json").stdout)[
        "findings"
    ][0]["actions"][0]["id"]
    assert f"specwatch rollback {action}" in done.stderr
    shown = specwatch("findings", "show", name, "--config", site.config).stdout
    assert f"action {action}: drop-speculation for this finding, asked for by a person" in shown
    assert "helped after" in shown

    again = specwatch("apply", name, "--config", site.config, "--yes")
    assert again.returncode == 1
    assert "no crash after which it was not ready again" in again.stderr

    back = specwatch("rollback", action, "--config", site.config, "--yes")
    assert back.returncode == 0, back.stderr
    assert site.launch == before
    assert specwatch("rollback", action, "--config", site.config, "--yes").returncode == 1

    verified = specwatch("audit", "verify", "--config", site.config)
    assert verified.returncode == 0
    assert "the chain is whole" in verified.stderr
    listed = specwatch("audit", "list", "--config", site.config).stdout
    assert "action_applied" in listed
    log = site.folder / "apply" / "audit.jsonl"
    log.write_text(log.read_text().replace("drop-speculation", "something-else", 1))
    tampered = specwatch("audit", "verify", "--config", site.config, "--format", "json")
    assert tampered.returncode == 1
    assert "was changed" in " ".join(json.loads(tampered.stdout)["problems"])


def test_a_fix_that_does_not_help_and_the_breaker(site: Site, specwatch: Run) -> None:
    site.config.write_text(site.config.read_text() + "breaker = 1\n")
    name = finding(site, specwatch)
    (site.folder / "broken").touch()
    before = site.launch
    done = specwatch("apply", name, "--config", site.config, "--yes")
    assert done.returncode == 1
    assert "rolled back" in done.stderr
    assert "crashed again (standalone-vocab-mismatch)" in done.stderr
    assert site.launch == before
    shown = specwatch("findings", "show", name, "--config", site.config).stdout
    assert "did not help, taken back" in shown
    assert "the breaker is open: 1 attempts in a row" in shown
    refused = specwatch("apply", name, "--config", site.config, "--dry-run")
    assert refused.returncode == 1
    assert "NO   Is the breaker closed?" in refused.stdout
    assert specwatch("reset", "nobody", "--config", site.config).returncode == 2
    reset = specwatch("reset", "atlas", "--config", site.config)
    assert reset.returncode == 0
    assert "it was open" in reset.stderr
    (site.folder / "broken").unlink()
    assert specwatch("apply", name, "--config", site.config, "--yes").returncode == 0


def test_a_person_is_asked_on_a_terminal(site: Site, specwatch: Run) -> None:
    name = finding(site, specwatch)
    before = site.launch
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "specwatch.cli", "apply", name, "--config", str(site.config)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        os.write(ours, b"n\n")
        out, err = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 1
    assert "may it be applied?" in out
    assert "Do this to atlas now? [y/N]" in err
    assert "did not say yes" in err
    assert site.launch == before


def test_without_a_configuration_the_target_and_the_log_are_named(site: Site, specwatch: Run) -> None:
    name = finding(site, specwatch)
    dry = specwatch(
        "apply", name, "--dry-run", "--target", f"script:{site.folder}/launch.sh", "--log", site.folder / "server.log",
        "--health", "http://127.0.0.1:9/health", "--path-map", f"/models={EXAMPLES}/models",
    )  # fmt: skip
    assert dry.returncode == 0, dry.stderr
    assert "drop-speculation" in dry.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("apply",), 2, "FINDING"),
        (("apply", "nonsense!"), 2, "expected a finding's id"),
        (("apply", "0123456789ab"), 1, "does not fire now"),
        (("rollback", "beef"), 1, "no action has the id beef"),
        (("audit", "verify"), 3, "nothing was ever changed"),
        (("audit", "list"), 0, ""),
    ],
)
def test_what_cannot_be_done_says_why(
    site: Site, specwatch: Run, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = specwatch(*arguments, "--config", site.config)
    assert done.returncode == code, done.stderr
    assert says in done.stderr


def test_an_id_that_fits_no_server_names_what_fires(site: Site, specwatch: Run) -> None:
    name = finding(site, specwatch)
    done = specwatch("apply", "0123456789ab", "--config", site.config, "--dry-run")
    assert done.returncode == 1
    assert f"what fires is {name} (standalone-vocab-mismatch)" in done.stderr
