"""The configuration file: refused with file, line, key and the nearest name, or understood."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from specwatch.config import Settings, load, secret, show, state_directory
from specwatch.errors import ConfigError

FULL = """
[[server]]
name     = "llama-70b"
logs     = ["journal:sglang-llama.service", "/var/log/sglang/llama*.log"]
target   = "systemd:sglang-llama.service"
health   = "http://127.0.0.1:30000/health"
models   = ["/data/models"]
path_map = { "/models" = "/data/models" }
apply    = "none"
[state]
dir      = "/var/lib/specwatch"
[policy]
[web]
listen   = "127.0.0.1:9117"
[[alert]]
kind     = "alertmanager"
url      = "http://127.0.0.1:9093"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "specwatch.toml"
    path.write_text(text)
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    return path


def test_the_documented_file_is_understood(tmp_path: Path) -> None:
    settings = load(written(tmp_path, FULL))
    (server,) = settings.servers
    assert server.path_map == (("/models", "/data/models"),)
    (alert,) = settings.alerts
    assert (alert.kind, alert.name, settings.web.listen) == ("alertmanager", "alertmanager-1", "127.0.0.1:9117")
    assert settings.policy == Settings().policy
    assert state_directory(settings) == Path("/var/lib/specwatch")


def test_what_is_printed_is_the_file_with_its_defaults(tmp_path: Path) -> None:
    settings = load(written(tmp_path, FULL))
    (again := tmp_path / "again").mkdir()
    reread = load(written(again, show(settings)))
    assert replace(reread, path=None) == replace(settings, path=None)
    assert tomllib.loads(show(Settings()))["watch"]["silence"] == 300.0


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[[servers]]\n", 1, "did you mean server?"),
        ('\n[[server]]\nname = "a"\nlog = ["/x"]\n', 4, "did you mean logs?"),
        ('[[server]]\nname = "a"\nlogs = ["/x"]\n[[server]]\nname = "b"\nlogs = ["x.log"]\n', 6, "an absolute path"),
        ('[[server]]\nname = "a b"\nlogs = ["/x"]\n', 2, "a name of ASCII letters"),
        ('[[server]]\nname = ".."\nlogs = ["/x"]\n', 2, "a name of ASCII letters"),
        ('[[server]]\nname = "gr\u00fcn"\nlogs = ["/x"]\n', 2, "a name of ASCII letters"),
        ('[[server]]\nname = "a"\nlogs = "/x"\n', 3, "a list of texts"),
        ('[[server]]\nname = "a"\nlogs = ["pods:a/b"]\n', 3, "pods:NAMESPACE/POD/CONTAINER"),
        ('[[server]]\nname = "a"\nlogs = ["/x"]\nhealth = "https://x"\n', 4, "http://"),
        ('[[server]]\nname = "a"\nlogs = ["/x"]\napply = "all"\n', 4, "none, safe or review"),
        ('[[server]]\nname = "a"\nlogs = ["/x"]\npath_map = { "a" = "b" }\n', 4, "expected paths"),
        ("[watch]\nsilence = -1\n", 2, "a number above 0"),
        ("[watch]\nsilense = 1\n", 2, "did you mean silence?"),
        ("[state]\ndirectory = 1\n", 2, "did you mean dir?"),
        ('[web]\nlisen = ""\n', 2, "did you mean listen?"),
        ('[web]\nlisten = "9117"\n', 2, "HOST:PORT"),
        ('[policy]\nmode = "auto"\n', 2, "observe, propose, approve, safe, review"),
        ('[policy]\nquiet_hours = ["22-6"]\n', 2, "times of day"),
        ('[[alert]]\nkind = "mail"\n', 2, "alertmanager, slack"),
        ('[[alert]]\nkind = "webhook"\n', 2, "needs a url"),
        ('[[alert]]\nkind = "webhook"\nurl = "file:///x"\n', 3, "http:// or https://"),
        ('[[alert]]\nkind = "alertmanager"\nurl = "http://x"\nlabels = { a-b = "c" }\n', 4, "letters, digits and _"),
        ('[[alert]]\nkind = "command"\ncommand = "rm"\n', 3, "a list of texts"),
        ('[[alert]]\nkind = "slack"\nurl = "http://x"\nseverity = "bad"\n', 4, "notice, degraded or fatal"),
        ('[[silence]]\nserver = "a"\nuntil = "tomorrow"\n', 3, "a date and time"),
        ('[[silence]]\nserver = "a"\n', 1, "needs until"),
        ("[otel]\nheaders = { a = 1 }\n", 2, "texts by name"),
        ('[[server]]\nname = "a"\nlogs = ["/x"]\n[[server]]\nname = "a"\nlogs = ["/y"]\n', 2, "two servers"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


def test_a_secret_is_for_its_owner_and_group_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    path.chmod(0o640)
    assert secret(str(path)) == "s3cret"
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 640"):
        secret(str(path))
    path.chmod(0o600)
    path.write_text(" \n")
    with pytest.raises(ConfigError, match="holds no secret"):
        secret(str(path))


def test_no_toml_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not TOML"):
        load(written(tmp_path, "[[server"))
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.toml")


@pytest.mark.parametrize(("file", "folder"), [(0o666, 0o755), (0o664, 0o755), (0o644, 0o777)])
def test_a_file_that_others_may_change_is_refused(tmp_path: Path, file: int, folder: int) -> None:
    path = written(tmp_path, "")
    path.chmod(file)
    tmp_path.chmod(folder)
    with pytest.raises(ConfigError, match="may be changed by others"):
        load(path)
    assert load(path, allow_insecure=True) == Settings(path=path)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"STATE_DIRECTORY": "/var/lib/specwatch", "HOME": "/h"}, "/var/lib/specwatch"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/specwatch"),
        ({"HOME": "/h"}, "/h/.local/state/specwatch"),
    ],
)
def test_where_the_state_lies(environ: dict[str, str], wanted: str) -> None:
    assert state_directory(Settings(), environ) == Path(wanted)


def test_without_any_place_it_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match="STATE_DIRECTORY"):
        state_directory(Settings(), {})


def test_alerts_are_not_sent_round_for_ever(tmp_path: Path) -> None:
    hook = '[[alert]]\nkind = "webhook"\nname = "hook"\nurl = "http://127.0.0.1:9117/alertmanager"\n'
    forward = '[enrich]\nforward = ["hook"]\n'
    assert load(written(tmp_path, hook + forward)).enrich.forward == ("hook",), "nobody serves that address"
    with pytest.raises(ConfigError, match="is our own address"):
        load(written(tmp_path, f"{hook}[web]\n{forward}"))


def test_two_daemons_do_not_share_a_state(tmp_path: Path) -> None:
    config = written(tmp_path, f'[[server]]\nname = "a"\nlogs = ["/x"]\n[state]\ndir = "{tmp_path / "state"}"\n')
    words = [sys.executable, "-m", "specwatch.cli", "watch", "--config", str(config), "--allow-insecure-permissions"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as first:
        try:
            assert first.stderr is not None
            assert b"watch_started" in first.stderr.readline()
            second = subprocess.run([*words, "--once"], capture_output=True, text=True, timeout=60, check=False)
            assert second.returncode == 2
            assert "another specwatch watches with this state" in second.stderr
        finally:
            first.kill()
    assert subprocess.run([*words, "--once"], capture_output=True, timeout=60, check=False).returncode == 0
