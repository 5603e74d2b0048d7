"""The layers of CONTRIBUTING.md, and the import costs that they promise."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "specwatch"
LAYERS = {
    "cli": 5, "app": 5, "commands": 5, "daemon": 5, "notify": 5, "web": 5, "metrics": 5, "sending": 5,
    "pipeline": 4, "proof": 4, "report": 4, "watching": 4, "alerts": 4, "policy": 4, "act": 4, "acting": 4,
    "tried": 3, "sources": 3, "log": 3, "diagnose": 3,
    "rulebook": 2, "fixes": 2, "checks": 2,
    "launch": 1, "models": 1, "config": 1, "settings": 1, "health": 1, "runtime": 1, "storage": 1,
    "domain": 0, "errors": 0, "lazy": 0, "plainfile": 0, "releases": 0, "__init__": 0,
}  # fmt: skip
INSIDE_KNOWLEDGE = {"rulebook": 2, "fixes": 1, "checks": 0}  # rulebook -> fixes -> checks
PURE = ("domain", "checks", "fixes", "diagnose", "report", "policy")
IMPURE = {"time", "os", "subprocess", "socket", "random", "urllib", "requests"}
HEAVY = {
    "ahocorasick_rs",
    "hyperscan",
    "transformers",
    "tokenizers",
    "torch",
    "sglang",
    "yaml",
    "rich",
    "click",
    "typer",
    "huggingface_hub",
    "zstandard",
}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module of a file, and whether at module level."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", id(node) in top))
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = room(path)
    assert own in LAYERS, f"{own} has no layer: add it to the table and to CONTRIBUTING.md"
    for name, _ in imports(path):
        if not name.startswith("specwatch."):
            continue
        other = name.split(".")[1]
        assert LAYERS[other] <= LAYERS[own], f"{path}: imports {name} from a layer above"
        if own in INSIDE_KNOWLEDGE and other in INSIDE_KNOWLEDGE:
            assert INSIDE_KNOWLEDGE[other] <= INSIDE_KNOWLEDGE[own], f"{path}: imports {name} upwards"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_modules_are_imported_where_they_are_used(path: Path) -> None:
    for name, top in imports(path):
        if top and name.split(".")[0] in HEAVY:
            assert name == "click", f"{path}: imports {name} at module level"
            assert path.name == "app.py"


@pytest.mark.parametrize("name", PURE)
def test_pure_rooms_touch_no_clock_file_or_network(name: str) -> None:
    for path in FILES:
        if room(path) == name:
            assert not {module.split(".")[0] for module, _ in imports(path)} & IMPURE, path
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("open", "print")], path


def at_exit(what: str, *arguments: str) -> list[str]:
    """What an expression gives when a run of the command ends."""
    code = (
        f"import sys, gc, atexit; atexit.register(lambda: print(*{what}, file=sys.stderr));"
        f"sys.argv = ['specwatch', *{arguments!r}]; from specwatch.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stderr.strip().split("\n")[-1].split()


def modules_after(*arguments: str) -> set[str]:
    """The modules that a run of the command has imported, and the packages that they lie in at the top."""
    return set(at_exit("{part for m in sys.modules for part in (m, m.partition('.')[0])}", *arguments))


def test_version_imports_nothing() -> None:
    assert not modules_after("--version") & (HEAVY | {"json", "re", "packaging"})


def test_help_imports_only_the_command_line() -> None:
    assert modules_after("--help") & HEAVY == {"click"}


def test_a_diagnosis_without_token_maps_imports_no_transformers(examples: Path) -> None:
    log, models = str(examples / "server.log"), f"/models={examples / 'models'}"
    assert not modules_after("diagnose", log, "--path-map", models) & (HEAVY - {"click"})


HEALTHY = "[2026-01-05 08:00:00] The server is fired up and ready to roll!\n"
UNHEARD_OF = """[2026-01-05 08:00:01] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/own/plugin.py", line 7, in run
    go()
ValueError: unheard of

[2026-01-05 08:00:02] Received sigquit from a child process. It usually means the child failed.
"""
READING_RULES = {"tomllib", "packaging", "specwatch.rulebook.laws"}
"""What reads and proves rules: a start that finds them kept needs none of it."""


def test_a_healthy_log_imports_no_check_and_no_rule(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    log = tmp_path / "server.log"
    log.write_text(HEALTHY)
    subprocess.run([sys.executable, "-m", "specwatch.cli", "diagnose", str(log)], check=True)
    needless = READING_RULES | {f"specwatch.{room}" for room in ("checks", "fixes", "models", "launch", "diagnose")}
    assert not modules_after("diagnose", str(log)) & (needless | {"signal", "subprocess", "hashlib", "textwrap"})
    log.write_text(HEALTHY + UNHEARD_OF)
    found = modules_after("diagnose", str(log))
    assert "specwatch.diagnose" in found
    assert not found & (READING_RULES | {"specwatch.checks", "specwatch.fixes", "specwatch.rulebook.rule"})
    proved = modules_after("diagnose", str(examples / "server.log"), "--path-map", f"/models={examples / 'models'}")
    assert {"specwatch.checks", "specwatch.fixes", "specwatch.rulebook.rule"} <= proved
    assert not proved & READING_RULES


def test_garbage_is_collected_in_the_daemon_only() -> None:
    assert int(at_exit("gc.get_threshold()", "diagnose", "--help")[0]) > 100_000
    assert int(at_exit("gc.get_threshold()", "watch", "--help")[0]) < 10_000


def test_a_reader_that_goes_away_ends_a_command_quietly() -> None:
    command = [sys.executable, "-m", "specwatch.cli", "rules", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 128 + signal.SIGPIPE
