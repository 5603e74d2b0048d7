"""Compose projects of several files: what is read is what `docker compose config` makes of the same folder."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specwatch.domain import Change
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.targets import Targeted, compose_files, plan, read

COMPOSE = Path(sys.executable).with_name("docker-compose")
SERVER = "python3 -m sglang.launch_server --model-path /m/a"
BASE = f"""services:
  a:
    image: x
    command: {SERVER} --port ${{SW_PORT:-1}}
    working_dir: /w
    env_file: one.env
    environment: {{A: "1", B: "${{SW_V:-d}}"}}
    volumes: ["./x:/models:ro", "./y:/y"]
    shm_size: 1g
    tmpfs: /t
"""

PROJECTS: dict[str, dict[str, str]] = {
    "one file": {"compose.yaml": BASE, "one.env": "E=1\n"},
    "an override beside it": {
        "compose.yaml": BASE,
        "compose.override.yml": f"""services:
  a:
    entrypoint: [env]
    command: [{", ".join(SERVER.split())}, --port, "${{SW_PORT}}"]
    env_file: [two.env]
    environment: ["A=2", "C=${{SW_W}}", "D=${{SW_X}}"]
    volumes: ["./z:/models"]
    shm_size: 32g
    ipc: host
    tmpfs: [/dev/shm]
""",
        ".env": "SW_PORT=7\nSW_V=v\nSW_W=${SW_V}/w\nSW_X='${SW_V}'\nSW_Y=a$$b\n",
        "one.env": 'E=1\nV=${E} ${SW_V}\nQ="a\\$b ${E}"\nA=beaten\nR=a$$b\n',
        "two.env": "F=${E}2 # x\nG=${A}\nexport H=h\n",
    },
    "an override of the other name": {
        "docker-compose.yml": BASE,
        "docker-compose.override.yaml": "services: {a: {command: null, environment: {A: }}}\n",
        "one.env": "",
    },
    "an override without services": {
        "compose.yaml": BASE,
        "compose.override.yaml": "networks: {default: {driver: bridge}}\n",
        "one.env": "",
    },
    "files that .env lists": {
        "compose.yaml": BASE,
        "compose.override.yaml": "services: {a: {command: not read}}\n",
        "gpu.yaml": f"services: {{a: {{command: {SERVER} --tp 8, shm_size: null}}}}\n",
        ".env": "COMPOSE_FILE=compose.yaml:gpu.yaml\n",
        "one.env": "",
    },
    "extends": {
        "compose.yaml": f"""services:
  a:
    extends: {{file: sub/base.yml, service: base}}
    environment: {{K: a}}
  b:
    extends: a
    command: {SERVER} --tp 2
  c:
    extends: {{service: b}}
    volumes: ["./c:/rel"]
""",
        "sub/base.yml": f"""services:
  base:
    image: z
    extends: root
    command: {SERVER} --port ${{SW_PORT}} --chat-template '$${{x}}'
    volumes: ["./rel:/rel"]
    env_file: [b.env]
  root:
    image: r
    entrypoint: env
    environment: {{K: root, L: root}}
""",
        "sub/b.env": "BENV=1\n",
        ".env": "SW_PORT=3\n",
        "sub/.env": "SW_PORT=4\n",
    },
    "include": {
        "compose.yaml": """include:
  - inc/compose.yaml
  - path: [two/one.yaml, two/more.yaml]
    env_file: two/other.env
services:
  a:
    volumes: ["./own:/r"]
""",
        "inc/compose.yaml": f"""services:
  a: {{image: x, command: "{SERVER} ${{SW_V}} ${{SW_I}}", volumes: ["./rel:/r", "./q:/q"], env_file: i.env}}
""",
        "inc/.env": "SW_I=inc\nSW_V=hidden\n",
        "inc/i.env": "IE=x${SW_I-none} ${SW_V}\n",
        "two/one.yaml": 'services: {j: {image: x, command: "echo ${SW_V}", volumes: ["./rel:/r"]}}\n',
        "two/more.yaml": f'services: {{j: {{command: "{SERVER} ${{SW_V}} ${{SW_I-none}}"}}}}\n',
        "two/other.env": "SW_V=hidden\n",
        ".env": "SW_V=project\n",
    },
    "files of variables": {
        "compose.yaml": f"""services:
  a:
    image: x
    command: {SERVER}
    environment: {{E: env, P: "$SW_V $SW_Q"}}
    env_file: [one.env, {{path: two.env}}, {{path: missing.env, required: false}}, {{path: raw.env, format: raw}}]
""",
        ".env": "SW_V=project\nSW_Q=${SW_V}\nSW_T=a\nSW_T=b\n",
        "one.env": "E=one\nSW_V=file\nE2=${E} ${SW_V}\n",
        "two.env": "Z=${E} ${E2}\nNOTHING\n",
        "raw.env": 'R=${E} "q" #c\n#no\n',
    },
}


PROJECTS["what YAML 1.1 takes for something else"] = {
    "compose.yaml": f"""services:
  a:
    image: x
    command: [{", ".join(SERVER.split())}, yes, NO, off, "on", 12:30, 190:20:30, =, 0o8]
    environment: {{A: yes, B: off, C: 12:30, D: 1.0, E: true, F: 1_000, G: 010, H: =, I: 1.50, on: Y}}
""",
}
ENTRIES = '["K=${SW_A}"]'
PROJECTS["values over lines"] = {
    "compose.yaml": f"services: {{a: {{image: x, command: {SERVER}, env_file: one.env, environment: {ENTRIES}}}}}",
    ".env": 'SW_A="1\n2 # no comment\n" # one\nSW_B=b\n',
    "one.env": "A='x\n\ny'\nB=${SW_A-}z\nC=\"a\\nb\"\n",
}


def laid_out(folder: Path, name: str) -> Path:
    """A project on disk; gives the file that a person would name."""
    for file, text in PROJECTS[name].items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    return folder / next(iter(PROJECTS[name]))


def by_compose(folder: Path) -> dict[str, Any]:
    """The services as `docker compose` in this folder would make them."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        [COMPOSE, "config", "--format", "json"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["services"]
    assert isinstance(found, dict)
    return found


def plain(text: str) -> str:
    """A text of `docker compose config`, in which every dollar is doubled."""
    return text.replace("$$", "$")


def size(text: str) -> str:
    return str(int(text[:-1]) << 30) if text.endswith("g") else text


@pytest.mark.parametrize("name", PROJECTS)
def test_what_is_read_is_what_compose_would_start(tmp_path: Path, name: str) -> None:
    file = laid_out(tmp_path, name)
    made = by_compose(tmp_path)
    ours = {one.name.rpartition("#")[2]: one for one in read(f"compose:{file}")} if servers(made) else {}
    assert set(ours) == servers(made)
    for service, one in ours.items():
        wanted = made[service]
        words = [plain(word) for word in [*(wanted["entrypoint"] or []), *wanted["command"]]]
        assert list(one.command) == words
        environment = {n: plain(v) for n, v in wanted.get("environment", {}).items() if v is not None}
        assert dict(one.env) == environment
        binds = {one["target"]: one["source"] for one in wanted.get("volumes", []) if one["type"] == "bind"}
        assert dict(one.path_maps) == binds
        assert one.folder == wanted.get("working_dir", "")
        assert one.container is not None
        assert size(one.container.options.get("shm_size", "")) == wanted.get("shm_size", "")
        assert one.container.options.get("ipc", "") == wanted.get("ipc", "")
        assert one.container.mounted is ("/dev/shm" in wanted.get("tmpfs", []))


def servers(made: dict[str, Any]) -> set[str]:
    return {name for name, one in made.items() if "sglang.launch_server" in shlex.join(one.get("command") or [])}


def test_the_projects_are_worth_comparing(tmp_path: Path) -> None:
    """Each project starts a server, but for the one whose override takes the command away."""
    idle = []
    for name in PROJECTS:
        (folder := tmp_path / name).mkdir()
        laid_out(folder, name)
        idle += [name] if not servers(by_compose(folder)) else []
    assert idle == ["an override of the other name"]


def test_a_command_that_an_override_takes_away_is_not_read_from_below(tmp_path: Path) -> None:
    file = laid_out(tmp_path, "an override of the other name")
    with pytest.raises(ConfigError, match="holds no launch"):
        read(f"compose:{file}")


def one(target: str) -> Targeted:
    (found,) = read(target)
    return found


def test_files_that_are_named_are_those_that_count(tmp_path: Path) -> None:
    laid_out(tmp_path, "files that .env lists")
    named = f"compose:{tmp_path}/compose.yaml:{tmp_path}/compose.override.yaml"
    with pytest.raises(ConfigError, match="holds no launch"):
        read(f"{named}#a")
    found = one(f"compose:{tmp_path}/compose.yaml:{tmp_path}/gpu.yaml#a")
    assert (found.command[-1], found.name) == ("8", f"compose:{tmp_path}/compose.yaml:{tmp_path}/gpu.yaml#a")
    (tmp_path / "odd:name.yaml").write_text(BASE)
    assert one(f"compose:{tmp_path}/odd:name.yaml#a").command[-1] == "1"


def test_which_files_docker_compose_takes(tmp_path: Path) -> None:
    def taken(file: str) -> list[str]:
        return [Path(path).name for path in compose_files(str(tmp_path / file))]

    for name in ("docker-compose.yml", "docker-compose.override.yml", "other.yaml", "other.override.yaml"):
        (tmp_path / name).write_text(BASE)
    assert taken("docker-compose.yml") == ["docker-compose.yml", "docker-compose.override.yml"]
    assert taken("other.yaml") == ["other.yaml"], "an override goes with the default names alone"
    (tmp_path / "compose.yaml").write_text(BASE)
    assert taken("docker-compose.yml") == ["docker-compose.yml"], "compose.yaml is the one that is taken"
    assert taken("compose.yaml") == ["compose.yaml", "docker-compose.override.yml"]
    (tmp_path / ".env").write_text("COMPOSE_FILE=other.yaml,compose.yaml\nCOMPOSE_PATH_SEPARATOR=,\n")
    assert taken("compose.yaml") == ["other.yaml", "compose.yaml"]
    assert taken("docker-compose.yml") == ["docker-compose.yml"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("include: [https://example.org/c.yaml]", "c.yaml: include names https://example.org/c.yaml, .* not read"),
        ("include: ['oci://example.org/c']", "names oci://example.org/c"),
        ("include: [none.yaml]", "none.yaml: "),
        ("include: [{env_file: x}]", "'include' names no file"),
        ("include: [c.yaml]", "more than 16 deep"),
        ("services: {a: {extends: b}}", "no service 'b', which 'a' extends"),
        ("services: {a: {extends: {file: other.yaml, service: b}}}", "other.yaml: no service 'b', which 'a' of"),
        ("services: {a: {extends: {file: gone.yaml, service: b}}}", "gone.yaml: "),
        ("services: {a: {extends: b}, b: {extends: a}}", "more than 16 deep"),
        ("services: {a: {extends: a}}", "no service 'a', which 'a' extends"),
        ("services: {a: {command: !reset null}}", "c.yaml: .*!reset"),
        ("services: {a: {command: '${SW_A:?say which}'}}", r"c.yaml: the variable SW_A has to be set .*\(say which\)"),
        ("services: {a: {command: '${SW_A'}}", r"c.yaml: \$\{SW_A: not a form of a variable"),
        ("services: {a: {command: '${SW_A=b}'}}", "not a form of a variable"),
        ("include: ['${}']", "c.yaml: include: .*not a form"),
        (f"services: {{a: {{command: {SERVER}, env_file: gone.env}}}}", "c.yaml: env_file .*/gone.env is not there"),
        (
            f"services: {{a: {{command: {SERVER}, env_file: open.env}}}}",
            "open.env: line 2: a quote is opened and never",
        ),
        (f'services: {{a: {{command: {SERVER}, volumes: ["./a\\0:/m"]}}}}', "NUL character"),
        (f"services: {{a: {{command: {SERVER}, env_file: bomb.env}}}}", "bomb.env: .*more than a million characters"),
        ("services: {a: {command: '" + "${SW_A:-" * 50000 + "'}}", "not a form of a variable"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text("services: {x: {command: y}}")
    (tmp_path / "open.env").write_text("A=1\nB='2\n")
    doubling = "".join(f"A{at}=${{A{at - 1}}}${{A{at - 1}}}\n" for at in range(1, 40))
    (tmp_path / "bomb.env").write_text(f"A0=xxxx\n{doubling}")
    with pytest.raises(ConfigError, match=complaint):
        read(f"compose:{tmp_path}/c.yaml#a")


def test_files_that_ask_for_one_another_over_and_over_are_refused(tmp_path: Path) -> None:
    for at in range(15):
        (tmp_path / f"i{at}.yaml").write_text(f"include: [i{at + 1}.yaml, i{at + 1}.yaml]\nservices: {{a{at}: {{}}}}\n")
    (tmp_path / "i15.yaml").write_text(f"services: {{z: {{command: {SERVER}}}}}\n")
    with pytest.raises(ConfigError, match="more than 5000 times"):
        read(f"compose:{tmp_path}/i0.yaml")
    chain = "".join(f"  a{at}: {{extends: a{at + 1}}}\n" for at in range(14))
    (tmp_path / "c.yaml").write_text("---\n".join([f"services:\n{chain}  a14: {{command: {SERVER}}}\n"] * 4))
    with pytest.raises(ConfigError, match="more than 5000 times"):
        read(f"compose:{tmp_path}/c.yaml")


def test_a_home_is_that_of_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = f"image: x, command: {SERVER}, volumes: ['~/y:/n', '~none/x:/m']"
    (tmp_path / "compose.yaml").write_text(f"services: {{a: {{{text}}}}}\n")
    wanted = {one["target"]: one["source"] for one in by_compose(tmp_path)["a"]["volumes"]}
    assert dict(one(f"compose:{tmp_path}/compose.yaml").path_maps) == wanted


def test_odd_names_of_files_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    text = f"env_file: [{{path: {'x' * 300}, required: false}}], volumes: ['./loop:/m', './{'y' * 300}:/n']"
    (tmp_path / "c.yaml").write_text(f"services: {{a: {{command: {SERVER}, {text}}}}}\n")
    assert dict(one(f"compose:{tmp_path}/c.yaml").path_maps) == {
        "/m": f"{tmp_path}/loop",
        "/n": f"{tmp_path}/{'y' * 300}",
    }


def test_a_variable_over_lines_is_taken_out_by_hand(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"services: {{a: {{command: {SERVER}, env_file: a.env}}}}\n")
    (tmp_path / "a.env").write_text("SGLANG_X='1\n2'\nB=3\n")
    with pytest.raises(LaunchError, match=r"a\.env: sets SGLANG_X, .* in several lines; take it out by hand"):
        plan(f"compose:{tmp_path}/c.yaml", [Change(op="unset_env", name="SGLANG_X")], "0.5.23")


def test_of_a_folder_each_project_is_read_once(tmp_path: Path) -> None:
    for name in ("an override beside it", "extends", "include"):
        (tmp_path / name).mkdir()
        laid_out(tmp_path / name, name)
    found = [Path(one.name.removeprefix("compose:")) for one in read(str(tmp_path))]
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "an override beside it/compose.yaml#a",
        *(f"extends/compose.yaml#{name}" for name in "abc"),
        "include/compose.yaml#a",
        "include/compose.yaml#j",
    ]


@pytest.mark.parametrize("name", ["an override beside it", "extends", "include"])
def test_what_stands_in_several_places_is_changed_by_hand(tmp_path: Path, name: str) -> None:
    file = laid_out(tmp_path, name)
    stands = {
        "an override beside it": "compose.override.yml",
        "extends": "sub/base.yml",
        "include": "inc/compose.yaml",
    }[name]
    with pytest.raises(LaunchError, match=f"by hand, its command stands in {tmp_path}/{stands}"):
        plan(f"compose:{file}#a", [Change(op="set", name="--page-size", new="1")], "0.5.23")


def test_a_service_that_one_included_file_makes_is_changed_there(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("include: [inc/c.yaml]\n")
    (tmp_path / "inc").mkdir()
    text = f"services:\n  a:\n    command: {SERVER} --port ${{SW_PORT}} # its port\n"
    (tmp_path / "inc" / "c.yaml").write_text(text)
    (tmp_path / "inc" / ".env").write_text("SW_PORT=5\n")
    (edit,) = plan(f"compose:{tmp_path}/compose.yaml#a", [Change(op="set", name="--port", new="6")], "0.5.23")
    assert getattr(edit, "path", None) == tmp_path / "inc" / "c.yaml"
    assert getattr(edit, "after", b"").decode() == text.replace("${SW_PORT}", "6")


def test_a_service_that_others_extend_is_left_alone(tmp_path: Path) -> None:
    text = f"services:\n  a:\n    command: {SERVER}\n  b:\n    extends: a\n    command: sleep 1\n"
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(LaunchError, match="service 'b' is made of 'a' as well; change it by hand"):
        plan(f"compose:{tmp_path}/c.yaml#a", [Change(op="set", name="--page-size", new="1")], "0.5.23")


def test_a_variable_that_holds_another_one_stays(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"services:\n  a:\n    command: {SERVER} --port ${{SW_PORT}}\n")
    (tmp_path / ".env").write_text("SW_P=5\nSW_PORT=${SW_P}1\n")
    assert one(f"compose:{tmp_path}/c.yaml#a").command[-1] == "51"
    edits = plan(f"compose:{tmp_path}/c.yaml#a", [Change(op="set", name="--port", new="6")], "0.5.23")
    assert [getattr(edit, "path", None) for edit in edits] == [tmp_path / "c.yaml"]
