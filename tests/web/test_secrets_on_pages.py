"""Secrets of a log stand on no page, in no answer, in no file for a ticket, and with no finding in the store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_pages import ask
from webbox import House

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "s3cr3tValue1234567890"
PLACES = (
    f"--api-key {SECRET}", f"--api-key={SECRET}", f"HF_TOKEN={SECRET}", f"https://user:{SECRET}@host/path",
    f"https://host/path?access_token={SECRET}", f"Authorization: Bearer {SECRET}", f"hf_{SECRET}", f"sk-{SECRET}",
    f"{{'api_key': '{SECRET}'}}", f'"password": "{SECRET}"',
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
)  # fmt: skip


def crashed(place: str) -> str:
    return (
        f"[2026-07-02 09:14:29] server_args=ServerArgs(model_path='/m', api_key='{SECRET}', tp_size=1)\n"
        f"[2026-07-02 09:14:30] started with {place}\n"
        "[2026-07-02 09:14:31] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
        f"    run('{place}')\n"
        f"RuntimeError: could not reach {place}\n"
        "\n"
        "[2026-07-02 09:14:31] Received sigquit from a child process. It usually means the child failed.\n"
        f"[2026-07-02 09:14:31] gave up on {place}\n"
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finding for each place."""
    folder = tmp_path_factory.mktemp("secrets")
    servers = ""
    for number, place in enumerate(PLACES):
        (folder / f"{number}.log").write_text(crashed(place))
        servers += f'[[server]]\nname = "s{number}"\nlogs = ["{folder}/{number}.log"]\n'
    (folder / "specwatch.toml").write_text(f'{servers}[state]\ndir = "{folder}/state"\n')
    done = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", "watch", "--once", "--allow-insecure-permissions",
         "--config", str(folder / "specwatch.toml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert SECRET not in done.stderr
    return folder / "state"


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_nowhere(stored: Path, number: int, specwatch: Run) -> None:
    house = House(stored, servers=tuple(f"s{n}" for n in range(len(PLACES))))
    servers = {one["name"]: one for one in ask(house, "/api/v1/servers").json()["servers"]}
    (finding,) = servers[f"s{number}"]["firing"]
    one = f"/findings/s{number}/{finding}"
    assert "could not reach" in ask(house, one).text
    for path in ("/", one, f"/servers/s{number}", f"/api/v1{one}", "/api/v1/findings", "/metrics", "/audit"):
        assert SECRET not in ask(house, path).text, path
    page = specwatch("findings", "show", f"s{number}/{finding}", "--state", stored, "--html", "-").stdout
    assert "could not reach" in page
    assert SECRET not in page


def test_not_with_the_findings_in_the_store(stored: Path) -> None:
    db = sqlite3.connect(stored / "specwatch.db")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert {"finding", "excerpt", "incident", "outbox"} <= set(tables)
    for table in set(tables) - {"stream"}:  # positions hold the lines to begin a run with, as they are
        assert SECRET not in str(db.execute(f"SELECT * FROM {table}").fetchall()), table
    db.close()
