"""What is particular to changing each kind of target."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from targets_corpus import DATA, RELEASE, got, laid_out, one, written

from specwatch.domain import Change, Container
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.command import container_setting, edit, parse
from specwatch.launch.targets import ApiPatch, Files, Rewrite, plan, process, read


def change(op: str, name: str, new: str | None = None) -> Change:
    return Change(op=op, name=name, new=new)


NEW = [change("set", "--page-size", "1")]
LAUNCH = "python3 -m sglang.launch_server --model-path /m/a --tp 2"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def after(target: str, changes: list[Change], files: Files | None = None) -> dict[str, str]:
    """The texts that a plan gives, by the names of the files."""
    edits = plan(target, changes, RELEASE, files) if files else plan(target, changes, RELEASE)
    assert all(isinstance(edit, Rewrite) for edit in edits)
    return {e.path.name: (e.after or b"").decode() for e in edits if isinstance(e, Rewrite)}


# systemd


def units(folder: Path, **texts: str) -> Files:
    for name, text in texts.items():
        write(folder / "lib", f"{name}.service", text)
    return Files(units=(str(folder / "etc"), str(folder / "lib")))


def test_a_drop_in_says_who_wrote_it_and_keeps_what_is_not_changed(tmp_path: Path) -> None:
    laid_out(tmp_path)
    files = Files(units=(str(tmp_path / "etc"), str(tmp_path / "systemd")))
    (edit,) = plan("systemd:sglang@llama", [change("remove", "--log-level")], RELEASE, files)
    assert isinstance(edit, Rewrite)
    assert edit.path == tmp_path / "etc" / "sglang@llama.service.d" / "specwatch.conf"
    assert (edit.before, edit.mode) == (None, 0o644)
    assert (edit.after or b"").decode() == (
        "# Written by specwatch: it changes how sglang@llama.service starts its server.\n"
        "# To take it out: delete this file, then run\n"
        "#   systemctl daemon-reload && systemctl restart sglang@llama.service\n"
        "[Service]\n"
        "# ExecStart= below replaces that of the unit: what is changed there has no effect while this file is here.\n"
        "ExecStart=\n"
        "ExecStart=/usr/local/bin/sglang serve /models/%i \\\n"
        "    --port ${PORT} \\\n"
        "    --tp ${TP} \\\n"
        "    --served-model-name %i \\\n"
        "    --enable-metrics\n"
    )


def test_other_command_lines_stay_as_they_are(tmp_path: Path) -> None:
    line = "-/bin/echo  'a  b' ; /bin/true %n ${X}"
    files = units(tmp_path, a=f"[Service]\nType=oneshot\nExecStart={line}\nExecStart=@{LAUNCH}\nExecStart=/bin/true\n")
    text = after("systemd:a", NEW, files)["specwatch.conf"]
    assert f"ExecStart=\nExecStart={line}\nExecStart=@python3 -m sglang.launch_server \\\n" in text
    assert text.endswith("    --page-size 1\nExecStart=/bin/true\n")


def test_changes_add_up_in_one_drop_in(tmp_path: Path) -> None:
    files = units(tmp_path, a=f"[Service]\nEnvironment=A=1 B=2\nExecStart={LAUNCH}\n")
    for changes in ([change("set_env", "C", "3")], NEW, [change("unset_env", "A")], [change("set_env", "C", "4")]):
        written(plan("systemd:a", changes, RELEASE, files))
    argv, env = got(one("systemd:a", files))
    assert argv[-2:] == ("--page-size", "1")
    assert env == {"B": "2", "C": "4"}
    written(plan("systemd:a", [change("set_env", "A", "9")], RELEASE, files))
    assert got(one("systemd:a", files))[1] == {"A": "9", "B": "2", "C": "4"}
    text = (tmp_path / "etc/a.service.d/specwatch.conf").read_text()
    assert text.count("[Service]") == text.count("ExecStart=\n") == 1


def test_a_variable_of_an_environment_file_is_beaten_by_one_of_ours(tmp_path: Path) -> None:
    theirs = write(tmp_path, "theirs.env", "A=1\nB=2\n")
    files = units(tmp_path, a=f"[Service]\nEnvironmentFile={theirs}\nExecStart={LAUNCH}\n")
    written(plan("systemd:a", [change("set_env", "A", "3"), change("set_env", "B", "2")], RELEASE, files))
    assert got(one("systemd:a", files))[1] == {"A": "3", "B": "2"}
    (tmp_path / "etc/a.service.d/specwatch.conf").unlink()
    (tmp_path / "etc/a.service.d/specwatch.env").unlink()
    edits = plan("systemd:a", [change("set_env", "A", 'x "y" $z\nw')], RELEASE, files)
    assert [e.path.name for e in edits if isinstance(e, Rewrite)] == ["specwatch.conf", "specwatch.env"]
    written(edits)
    assert got(one("systemd:a", files))[1] == {"A": 'x "y" $z\nw', "B": "2"}
    written(plan("systemd:a", [change("unset_env", "A")], RELEASE, files))
    assert got(one("systemd:a", files))[1] == {"B": "2"}
    assert not (tmp_path / "etc/a.service.d/specwatch.env").exists()
    assert theirs.read_text() == "A=1\nB=2\n"


def test_what_the_unit_takes_out_can_be_set_again(tmp_path: Path) -> None:
    files = units(tmp_path, a=f"[Service]\nUnsetEnvironment=A B\nExecStart={LAUNCH}\n")
    written(plan("systemd:a", [change("set_env", "A", "1")], RELEASE, files))
    assert got(one("systemd:a", files))[1] == {"A": "1"}
    assert "UnsetEnvironment=\nUnsetEnvironment=B\n" in (tmp_path / "etc/a.service.d/specwatch.conf").read_text()


def test_a_later_drop_in_that_wins_is_named(tmp_path: Path) -> None:
    files = units(tmp_path, a=f"[Service]\nExecStart={LAUNCH}\n")
    write(tmp_path, "etc/a.service.d/zz.conf", f"[Service]\nExecStart=\nExecStart={LAUNCH} --port 1\n")
    with pytest.raises(LaunchError, match=r"zz\.conf comes after specwatch\.conf and wins"):
        plan("systemd:a", NEW, RELEASE, files)


def test_words_in_an_environment_file_are_changed_there(tmp_path: Path) -> None:
    laid_out(tmp_path)
    files = Files(units=(str(tmp_path / "etc"), str(tmp_path / "systemd")))
    before = (tmp_path / "systemd/args.env").read_text()
    texts = after("systemd:args", [change("set", "--tp", "8"), change("remove", "--enable-metrics")], files)
    assert texts == {"args.env": before.replace("--tp 2", "--tp 8").replace(" --enable-metrics", "")}


def test_words_in_a_variable_that_is_used_twice_are_left_alone(tmp_path: Path) -> None:
    args = write(tmp_path, "args.env", "ARGS=--model-path /m/a --tp 2\n")
    unit = f"[Service]\nEnvironmentFile={args}\nExecStartPre=/bin/check $ARGS\nExecStart=/bin/sglang serve $ARGS\n"
    with pytest.raises(LaunchError, match=r"\$ARGS is used 2 times"):
        plan("systemd:a", [change("set", "--tp", "8")], RELEASE, units(tmp_path, a=unit))


def test_words_in_a_variable_of_the_unit_are_changed_in_the_drop_in(tmp_path: Path) -> None:
    unit = '[Service]\nEnvironment="ARGS=--model-path /m/a --tp 2"\nExecStart=/bin/sglang serve $ARGS\n'
    text = after("systemd:a", [change("set", "--tp", "8")], units(tmp_path, a=unit))["specwatch.conf"]
    assert 'Environment="ARGS=--model-path /m/a --tp 8"\n' in text
    assert "ExecStart" not in text


def test_a_file_that_is_not_utf_8_says_where(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "a.service"
    path.parent.mkdir()
    path.write_bytes(f"[Service]\nExecStart={LAUNCH}\nEnvironment=NAME=caf\xe9\n".encode("latin-1"))
    for target, files in (("systemd:a", units(tmp_path)), (f"systemd:{path}", Files())):
        says = rf"{path}:3: not UTF-8: byte 0xe9 at offset {path.read_bytes().index(0xE9)}\. Write that line in UTF-8"
        with pytest.raises(ConfigError, match=says):
            read(target, files)
        with pytest.raises(ConfigError, match=says):
            plan(target, NEW, RELEASE, files)


def test_a_unit_by_the_path_of_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, "my.service", f"[Service]\nExecStart={LAUNCH}\n")
    for target in (str(path), f"systemd:{path}"):
        (edit,) = plan(target, NEW, RELEASE)
        assert isinstance(edit, Rewrite)
        assert edit.path == tmp_path / "my.service.d" / "specwatch.conf"


def test_a_script_that_a_unit_starts_is_changed_itself(tmp_path: Path) -> None:
    run = write(tmp_path, "run.sh", f"#!/bin/bash\n# mine\nexec {LAUNCH}\n")
    for start in (run, f"/bin/bash {run}"):
        files = units(tmp_path, a=f"[Service]\nExecStart={start}\n")
        assert after("systemd:a", NEW, files) == {"run.sh": f"#!/bin/bash\n# mine\nexec {LAUNCH} --page-size 1\n"}
        assert "Environment=A=1\n" in after("systemd:a", [change("set_env", "A", "1")], files)["specwatch.conf"]


def test_a_variable_that_nothing_known_sets_stays_open(tmp_path: Path) -> None:
    files = units(tmp_path, a="[Service]\nExecStart=/bin/sglang serve ${MODEL} --port ${PORT:-1} --tp 2 $MORE\n")
    assert one("systemd:a", files).command == "/bin/sglang serve \"${MODEL}\" --port '' --tp 2 $MORE"


# Compose


def compose(tmp_path: Path, text: str, **more: str) -> str:
    for name, content in more.items():
        write(tmp_path, f".{name}", content)
    return f"compose:{write(tmp_path, 'compose.yaml', text)}"


def test_a_variable_of_dotenv_is_changed_there_only_if_this_is_its_only_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"services:\n  a:\n    command: {LAUNCH} --port ${{SW_P}}\n"
    target = compose(tmp_path, text, env="SW_P='1' # port\n")
    wanted = [change("set", "--port", "9")]
    assert after(target, wanted) == {".env": "SW_P=9 # port\n"}
    monkeypatch.setenv("SW_P", "5")  # the shell wins over the file
    assert after(target, wanted) == {"compose.yaml": text.replace("${SW_P}", "9")}
    monkeypatch.delenv("SW_P")
    text += "    ports: ['${SW_P}:${SW_P}']\n"
    target = compose(tmp_path, text)
    assert after(target, wanted) == {"compose.yaml": text.replace("--port ${SW_P}", "--port 9")}


def test_options_of_the_container_are_keys_of_the_service(tmp_path: Path) -> None:
    target = compose(tmp_path, f"services:\n  a:\n    image: x  # y\n    shm_size: 1g # z\n    command: {LAUNCH}\n")
    wanted = [change("set", "--shm-size", "32g"), change("set", "--ipc", "host")]
    assert after(target, wanted) == {
        "compose.yaml": "services:\n  a:\n    image: x  # y\n    ipc: host\n    shm_size: 32g # z\n"
        f"    command: {LAUNCH}\n"
    }


def test_the_options_of_a_service_are_spelled_as_its_keys(tmp_path: Path) -> None:
    text = f"services:\n  a:\n    image: x\n    command: {LAUNCH}\n"
    target = compose(tmp_path, text)
    (found,) = read(target)
    launch = replace(parse(found.command, RELEASE), container=found.container)
    wanted = container_setting(launch, "--shm-size", "32g")
    assert wanted == Change(op="set", name="shm_size", new="32g")
    changed = edit(launch, [wanted])
    assert (changed.argv, changed.container) == (launch.argv, Container(kind="compose", options={"shm_size": "32g"}))
    assert after(target, [wanted]) == {"compose.yaml": text.replace("image: x\n", 'image: x\n    shm_size: "32g"\n')}
    given = compose(tmp_path, text + "    shm_size: ${SW_SHM:-1g}\n    ipc: shareable\n    network_mode: host\n")
    (found,) = read(given)
    assert found.container == Container(
        kind="compose", options={"shm_size": "1g", "ipc": "shareable"}, host_network=True
    )
    with pytest.raises(LaunchError, match="shm_size is a key of a Compose service"):
        edit(parse(LAUNCH, RELEASE), [wanted])
    with pytest.raises(LaunchError, match="'volumes' is neither a flag nor a key"):
        plan(target, [change("set", "volumes", "/:/")], RELEASE)


@pytest.mark.parametrize(
    "volumes",
    ["volumes: [/dev/shm:/dev/shm]", "tmpfs: /dev/shm:size=1g", "volumes: [{type: tmpfs, target: /dev/shm/}]"],
)
def test_a_volume_at_the_shared_memory_of_a_service(tmp_path: Path, volumes: str) -> None:
    (found,) = read(compose(tmp_path, f"services:\n  a:\n    {volumes}\n    command: {LAUNCH}\n"))
    assert found.container == Container(kind="compose", mounted=True)


def test_a_service_that_others_share_is_left_alone(tmp_path: Path) -> None:
    target = compose(tmp_path, f"services:\n  a: &a\n    command: [{', '.join(LAUNCH.split())}]\n  b:\n    <<: *a\n")
    with pytest.raises(LaunchError, match=r"services\.a\.command is shared with other places by an anchor"):
        plan(f"{target}#a", NEW, RELEASE)
    text = after(f"{target}#b", NEW)["compose.yaml"]
    assert text.startswith(
        f"services:\n  a: &a\n    command: [{', '.join(LAUNCH.split())}]\n  b:\n    <<: *a\n    command:"
    )


def test_an_environment_that_others_share_is_left_alone(tmp_path: Path) -> None:
    text = f"services:\n  a: {{command: {LAUNCH}, environment: &e {{A: '1'}}}}\n"
    target = compose(tmp_path, text + f"  b: {{command: {LAUNCH}, environment: *e}}\n")
    for name in "ab":
        with pytest.raises(
            LaunchError, match=rf"services\.{name}\.environment\.A is shared with other places by an anchor"
        ):
            plan(f"{target}#{name}", [change("set_env", "A", "2")], RELEASE)


def test_a_variable_of_an_env_file_is_set_beside_it_and_taken_out_there(tmp_path: Path) -> None:
    text = f"services:\n  a:\n    env_file: .vars\n    command: {LAUNCH}\n"
    target = compose(tmp_path, text, vars="# x\nA=1\nB=2")
    assert after(target, [change("set_env", "A", "2")]) == {"compose.yaml": f'{text}    environment:\n      A: "2"\n'}
    assert after(target, [change("unset_env", "A")]) == {".vars": "# x\nB=2"}


def test_a_dollar_is_doubled_where_compose_would_fill_it_in(tmp_path: Path) -> None:
    text = f"services:\n  a:\n    command: {LAUNCH}\n    environment:\n      A: '1'\n"
    target = compose(tmp_path, text)
    changed = after(target, [change("set", "--api-key", "$x"), change("set_env", "A", "${y}")])["compose.yaml"]
    assert "--api-key '$$x'" in changed
    assert "A: '$${y}'" in changed


# Kubernetes


def test_what_a_manifest_cannot_say(tmp_path: Path) -> None:
    laid_out(tmp_path)
    target = f"k8s:{tmp_path}/kubernetes/deployment.yaml"
    with pytest.raises(LaunchError, match="HF_TOKEN comes from a secret, a config map or a field"):
        plan(target, [change("set_env", "HF_TOKEN", "x")], RELEASE)
    with pytest.raises(LaunchError, match="emptyDir with `medium: Memory` and `sizeLimit: 32g`"):
        plan(target, [change("set", "--shm-size", "32g")], RELEASE)
    with pytest.raises(LaunchError, match="hostIPC"):
        plan(target, [change("set", "--ipc", "host")], RELEASE)


@pytest.mark.parametrize(
    ("volumes", "options", "mounted"),
    [
        ("[]", {}, False),
        ("[{name: s, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]", {"sizeLimit": "1Gi"}, True),
        ("[{name: s, emptyDir: {medium: Memory}}]", {}, True),
        ("[{name: s, emptyDir: {sizeLimit: 1Gi}}]", {}, True),
    ],
)
def test_the_shared_memory_of_a_pod(tmp_path: Path, volumes: str, options: dict[str, str], mounted: bool) -> None:
    mounts = "[{name: s, mountPath: /dev/shm}]" if mounted else "[]"
    words = json.dumps(LAUNCH.split())
    pod = f"{{hostNetwork: true, volumes: {volumes}, containers: [{{name: c, args: {words}, volumeMounts: {mounts}}}]}}"
    path = write(tmp_path, "pod.yaml", f"kind: Pod\nspec: {pod}\n")
    (found,) = read(f"k8s:{path}#c")
    assert found.container == Container(kind="kubernetes", options=options, mounted=mounted, host_network=True)


def test_only_the_words_of_one_container_change(tmp_path: Path) -> None:
    laid_out(tmp_path)
    path = tmp_path / "kubernetes/lws.yaml"
    changed = after(f"k8s:{path}#sglang-leader", [change("set", "--tp", "8"), *NEW])["lws.yaml"]
    old = (DATA / "kubernetes/lws.yaml").read_text()
    assert changed == old.replace('- "16"\n', '- "8"\n').replace(
        "- --trust-remote-code\n", '- --trust-remote-code\n          - --page-size\n          - "1"\n'
    )


KUBECTL = """#!{python}
import json, sys
with open({calls!r}, "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
if {fails!r}:  # a log line of its own, and what it says
    print({fails!r}, file=sys.stderr)
    raise SystemExit(1)
print(open({object!r}).read())
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that answers with the object of a file, and writes down how it was called."""
    program = tmp_path / "kubectl"
    names = {"python": sys.executable, "calls": str(tmp_path / "calls"), "object": str(tmp_path / "object.json")}
    program.write_text(KUBECTL.format(**names, fails=""))
    program.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(program))
    return tmp_path


CONTAINER = {
    "name": "sglang",
    "command": ["python3", "-m", "sglang.launch_server"],
    "args": ["--model-path", "$(MODEL)", "--tp", "2"],
    "env": [
        {"name": "MODEL", "value": "/m/a"},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
}


def kube_object(kind: str = "Deployment", **container: Any) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "side", "image": "x"}, {**CONTAINER, **container}]}}
    spec = {"leaderWorkerTemplate": {"workerTemplate": pod}} if kind == "LeaderWorkerSet" else {"template": pod}
    return {"kind": kind, "metadata": {"name": "llm", "resourceVersion": "77"}, "spec": spec}


def patched(value: Any, operations: tuple[Any, ...]) -> Any:
    """RFC 6902, as far as it is used here; a test that fails is an AssertionError."""
    value = json.loads(json.dumps(value))
    for operation in operations:
        *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        holder = value
        for step in steps:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if operation["op"] == "test":
            assert holder[last] == operation["value"]
        elif operation["op"] == "remove":
            del holder[last]
        else:
            assert (last in holder) == (operation["op"] == "replace")
            holder[last] = operation["value"]
    return value


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet"])
def test_an_object_of_the_api(kubectl: Path, kind: str) -> None:
    before = kube_object(kind)
    (kubectl / "object.json").write_text(json.dumps(before))
    target = f"k8s://prod/{kind.lower()}/llm#sglang"
    assert one(target).command == (*CONTAINER["command"], "--model-path", "/m/a", "--tp", "2")
    changes = [change("set", "--tp", "8"), *NEW, change("set_env", "A", "$(x)"), change("set_env", "MODEL", "/m/b")]
    (patch,) = plan(target, changes, RELEASE)
    assert isinstance(patch, ApiPatch)
    assert (patch.namespace, patch.kind, patch.name, patch.container) == ("prod", kind.lower(), "llm", "sglang")
    assert patch.resource_version == "77"
    assert patch.operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "77"}
    changed = patched(before, patch.operations)
    (kubectl / "object.json").write_text(json.dumps(changed))
    argv, env = got(one(target))
    assert argv == (*CONTAINER["command"], "--model-path", "/m/b", "--tp", "8", "--page-size", "1")
    assert env == {"MODEL": "/m/b", "A": "$(x)"}
    assert patched(changed, patch.undo) == before
    calls = [json.loads(line) for line in (kubectl / "calls").read_text().strip().split("\n")]
    assert set(map(tuple, calls)) == {("get", kind.lower(), "llm", "--namespace", "prod", "--output", "json")}


def test_a_change_of_somebody_else_makes_the_patch_fail(kubectl: Path) -> None:
    (kubectl / "object.json").write_text(json.dumps(kube_object()))
    (patch,) = plan("k8s://prod/deployment/llm#sglang", NEW, RELEASE)
    assert isinstance(patch, ApiPatch)
    for other in (kube_object(args=["--model-path", "x"]), {**kube_object(), "metadata": {"resourceVersion": "78"}}):
        with pytest.raises(AssertionError):
            patched(other, patch.operations)


def test_a_container_without_variables_or_arguments(kubectl: Path) -> None:
    before = kube_object(command=LAUNCH.split(), args=None, env=None)
    del before["spec"]["template"]["spec"]["containers"][1]["args"]
    del before["spec"]["template"]["spec"]["containers"][1]["env"]
    (kubectl / "object.json").write_text(json.dumps(before))
    (patch,) = plan("k8s://prod/deployment/llm", [*NEW, change("set_env", "A", "1")], RELEASE)
    assert isinstance(patch, ApiPatch)
    changed = patched(before, patch.operations)
    container = changed["spec"]["template"]["spec"]["containers"][1]
    assert container["command"] == [*LAUNCH.split(), "--page-size", "1"]
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert patched(changed, patch.undo) == before


def test_nothing_to_change_is_no_patch(kubectl: Path) -> None:
    (kubectl / "object.json").write_text(json.dumps(kube_object()))
    assert plan("k8s://prod/deployment/llm", [change("set", "--tp", "2")], RELEASE) == ()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("//prod/deployment", "expected k8s://NAMESPACE/KIND/NAME#CONTAINER"),
        ("//prod/deployment/--raw#x", "expected k8s://NAMESPACE/KIND/NAME#CONTAINER"),
        ("//prod/deployment/llm#other", "no container 'other'"),
        ("//prod/deployment/llm#side", "holds no launch"),
    ],
)
def test_an_object_that_is_not_there(kubectl: Path, spec: str, complaint: str) -> None:
    (kubectl / "object.json").write_text(json.dumps(kube_object()))
    with pytest.raises(ConfigError, match=complaint):
        read(f"k8s:{spec}")


def test_what_kubectl_says_is_passed_on(kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = kubectl / "kubectl"
    program.write_text(
        KUBECTL.format(
            python=sys.executable, calls="/dev/null", object="", fails="E1130 10:00:00.1 7 x.go:1] noise\nForbidden: no"
        )
    )
    with pytest.raises(ConfigError, match=r"failed \(1\): Forbidden: no"):
        read("k8s://prod/deployment/llm")
    monkeypatch.setenv("KUBECTL", "/nowhere/kubectl")
    with pytest.raises(ConfigError, match="/nowhere/kubectl is not installed"):
        read("k8s://prod/deployment/llm")


def test_the_commands_take_an_object_of_the_api(kubectl: Path) -> None:
    (kubectl / "object.json").write_text(json.dumps(kube_object()))
    main = "from specwatch.cli import main; main()"
    argv = [sys.executable, "-c", main, "check", "--target", "k8s://prod/deployment/llm#sglang"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout
    log = write(kubectl, "empty.log", "")
    done = subprocess.run([*argv[:3], "diagnose", str(log), *argv[4:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_containers_of_one_name_are_left_to_a_person(kubectl: Path) -> None:
    pod = {"spec": {"containers": [CONTAINER]}}
    spec = {"leaderWorkerTemplate": {"leaderTemplate": pod, "workerTemplate": pod}}
    (kubectl / "object.json").write_text(json.dumps({**kube_object(), "spec": spec}))
    with pytest.raises(LaunchError, match=r"name one of k8s://prod/\S+/llm#leader/sglang, .*#worker/sglang"):
        plan("k8s://prod/leaderworkerset/llm#sglang", NEW, RELEASE)
    (edit,) = plan("k8s://prod/leaderworkerset/llm#worker/sglang", NEW, RELEASE)
    assert isinstance(edit, ApiPatch)
    assert edit.container == "sglang"
    assert all("/workerTemplate/" in str(one["path"]) for one in edit.operations[1:])
    (found,) = read("k8s://prod/leaderworkerset/llm#leader/sglang")
    assert found.name == "k8s://prod/leaderworkerset/llm#leader/sglang"
    with pytest.raises(ConfigError, match="no container 'leader/other'; there are leader/sglang, worker/sglang"):
        read("k8s://prod/leaderworkerset/llm#leader/other")
    with pytest.raises(ConfigError, match="expected k8s://NAMESPACE/KIND/NAME#CONTAINER"):
        read("k8s://prod/leaderworkerset/llm#boss/sglang")


def test_containers_of_one_name_in_a_manifest(tmp_path: Path) -> None:
    laid_out(tmp_path)
    path = tmp_path / "kubernetes/lws.yaml"
    text = path.read_text().replace("sglang-leader", "sglang").replace("sglang-worker", "sglang")
    path.write_text(text)
    assert [one.name for one in read(f"k8s:{path}")] == [f"k8s:{path}#leader/sglang", f"k8s:{path}#worker/sglang"]
    changed = after(f"k8s:{path}#leader/sglang", [change("set", "--tp", "8")])["lws.yaml"]
    assert changed == text.replace('- "16"\n', '- "8"\n')
    changed = after(f"k8s:{path}#worker/sglang", [change("set", "--tp", "8")])["lws.yaml"]
    assert changed == text.replace('--tp, "16"', '--tp, "8"')
    twice = write(tmp_path, "twice.yaml", f"{(DATA / 'kubernetes/deployment.yaml').read_text()}\n---\n" * 2)
    with pytest.raises(LaunchError, match="2 containers have this name"):
        plan(f"k8s:{twice}", NEW, RELEASE)


# Hostile files


def test_aliases_that_blow_up_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    path = write(tmp_path, "compose.yaml", "\n".join([*rows, "services: {a: {command: *a8}}", ""]))
    with pytest.raises(ConfigError, match="more than 100000 values"):
        read(f"compose:{path}")


def test_a_file_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "compose.yaml", f"services: {'[' * 5000}{']' * 5000}\n")
    with pytest.raises(ConfigError, match="nested"):
        read(f"compose:{path}")


def test_a_script_of_many_words_is_changed_at_both_ends(tmp_path: Path) -> None:
    middle = "".join(f"# line {n} of a very long script\n" for n in range(12_000))
    path = write(tmp_path, "a.sh", f"export A=1\n{middle}exec {LAUNCH}\n")
    texts = after(f"script:{path}", [change("set_env", "A", "2"), *NEW])
    assert texts == {"a.sh": f"export A=2\n{middle}exec {LAUNCH} --page-size 1\n"}


# Scripts


@pytest.mark.parametrize(
    ("script", "wanted", "expected"),
    [
        ('A=(/m)\nA+=(--tp 2)\nsglang serve "${A[@]}"\n', "--tp", 'A=(/m)\nA+=(--tp 8)\nsglang serve "${A[@]}"\n'),
        ("A='--tp 2 --port 1'\nsglang serve /m $A\n", "--tp", "A='--tp 8 --port 1'\nsglang serve /m $A\n"),
        ("A=--tp\nsglang serve /m --tp 2\n", "--tp", "A=--tp\nsglang serve /m --tp 8\n"),
        ("T=2\nsglang serve /m --tp $T\n", "--tp", "T=2\nsglang serve /m --tp 8\n"),
    ],
)  # fmt: skip
def test_a_word_of_a_script_is_changed_where_it_stands(tmp_path: Path, script: str, wanted: str, expected: str) -> None:
    path = write(tmp_path, "a.sh", script)
    assert after(f"script:{path}", [change("set", wanted, "8")]) == {"a.sh": expected}


def test_comments_of_an_array_stay_when_a_word_between_them_goes(tmp_path: Path) -> None:
    script = 'A=(\n  /m   # the model\n{}  # see the wiki\n  --port 1 # api\n)\nsglang serve "${{A[@]}}"\n'
    path = write(tmp_path, "a.sh", script.format("  --tp 2\n"))
    assert after(f"script:{path}", [change("remove", "--tp")]) == {"a.sh": script.format("")}


@pytest.mark.parametrize("name", ["systemd/docker.service", "script/docker.sh"])
def test_an_option_of_docker_run_is_set_on_the_command(tmp_path: Path, name: str) -> None:
    target, files = laid_out(tmp_path)[name]
    (text,) = after(target, [change("set", "--shm-size", "32g"), change("set", "--ipc", "private")], files).values()
    assert "--shm-size 32g" in text
    assert "16g" not in text
    assert re.search("--ipc[ =]private", text)
    launch = parse(one(target, files).command, RELEASE)
    assert container_setting(launch, "--shm-size", "32g") == Change(op="set", name="--shm-size", old="16g", new="32g")


@pytest.mark.parametrize(
    "script",
    [
        'if true; then A=(--tp 2); fi\nsglang serve /m "${A[@]}"\n',
        'A=(--tp 2)\nA=(--tp 4)\nsglang serve /m "${A[@]}"\n',
        'A=(--tp 2)\necho "${A[@]}"\nsglang serve /m "${A[@]}"\n',
        'A=(--tp $(nvidia-smi -L | wc -l))\nsource ./more\nsglang serve /m "${A[@]}"\n',
        'true && A=(--tp 2)\nsglang serve /m "${A[@]}"\n',
    ],
)
def test_what_only_a_shell_could_tell_is_refused(tmp_path: Path, script: str) -> None:
    path = write(tmp_path, "a.sh", script)
    with pytest.raises(LaunchError, match="depends on"):
        plan(f"script:{path}", [change("set", "--tp", "8")], RELEASE)


# The file of --config


@pytest.mark.parametrize(
    ("name", "changes", "replaced"),
    [
        ("spec.yaml", [change("set", "--tp-size", "8")], {"tp-size: 2 ": "tp-size: 8 "}),
        ("spec.yaml", [change("set", "--mem-fraction-static", "0.7")], {"static: 0.85": "static: 0.7"}),
        ("spec.yaml", [change("set", "--speculative-draft-model-path", "/m/x: y")], {'"/models/eagle"': '"/m/x: y"'}),
        ("spec.yaml", [change("remove", "--speculative-num-steps")], {"speculative-num-steps: 3\n": ""}),
        ("spec.yaml", [change("remove", "--enable-metrics")], {"enable-metrics: true\n": ""}),
        ("lists.yml", [change("set", "--tp", "8")], {"tp-size: 4": "tp-size: 8"}),
        ("lists.yml", [change("remove", "--cuda-graph-bs-decode")],
         {"cuda-graph-bs-decode:\n  - 1   # first\n  - 2\n": ""}),
        ("lists.yml", [change("set", "--served-model-name", "it's")], {"'the \"big\" one'": "'it''s'"}),
        ("flow.yaml", [change("set", "--tp-size", "8")], {"tp: 1": "tp: 8"}),
        ("flow.yaml", [change("remove", "--log-level")], {'log-level: "info", ': ""}),
        ("flow.yaml", [change("remove", "--cuda-graph-bs-decode")], {", cuda-graph-bs-decode: [1, 2, 4]": ""}),
        ("flow.yaml", [change("set", "--cuda-graph-bs-decode", "1 2")], {"[1, 2, 4]": '["1", "2"]'}),
    ],
)  # fmt: skip
def test_a_flag_of_the_configuration_file_is_changed_there(
    tmp_path: Path, name: str, changes: list[Change], replaced: dict[str, str]
) -> None:
    laid_out(tmp_path)
    path = tmp_path / "config" / name
    script = write(tmp_path, "a.sh", f"sglang serve --config {path} --port 1\n")
    expected = path.read_text()
    for old, new in replaced.items():
        assert old in expected
        expected = expected.replace(old, new)
    assert after(f"script:{script}", changes) == {name: expected}


def test_a_flag_that_both_set_goes_from_both(tmp_path: Path) -> None:
    laid_out(tmp_path)
    script = write(tmp_path, "a.sh", f"sglang serve --config {tmp_path}/config/spec.yaml --tp 4\n")
    texts = after(f"script:{script}", [change("remove", "--tp-size")])
    assert texts["a.sh"] == f"sglang serve --config {tmp_path}/config/spec.yaml\n"
    assert "tp-size" not in texts["spec.yaml"]
    texts = after(f"script:{script}", [change("set", "--tp-size", "8")])
    assert texts == {"a.sh": f"sglang serve --config {tmp_path}/config/spec.yaml --tp 8\n"}


def test_a_configuration_file_inside_a_container(tmp_path: Path) -> None:
    laid_out(tmp_path)
    command = "sglang serve --config /conf/spec.yaml"
    target = compose(tmp_path, f"services:\n  a:\n    command: {command}\n    volumes: ['./config:/conf:ro']\n")
    texts = after(target, [change("set", "--tp-size", "8")])
    assert list(texts) == ["spec.yaml"]


# Processes


@pytest.mark.parametrize(
    ("cgroup", "instead"),
    [
        ("0::/system.slice/sglang@llama.service\n", "give --target systemd:sglang@llama.service"),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/llm.service\n", "systemd:llm.service"),
        ("0::/system.slice/docker-0123456789abcdef.scope\n", "container 0123456789ab: give the Compose file"),
        ("0::/kubepods.slice/pod1/cri-containerd-0123456789abcdef.scope\n", "k8s://NAMESPACE/KIND/NAME#CONTAINER"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", "give what starts it"),
    ],
)
def test_a_process_names_what_to_change_instead(cgroup: str, instead: str) -> None:
    assert instead in str(process.refusal("7", cgroup))


def test_a_process_is_never_changed() -> None:
    with pytest.raises(LaunchError, match="cannot be changed"):
        plan(f"pid:{os.getpid()}", NEW, RELEASE)


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    wanted = {"systemd": 8, "compose": 8, "kubernetes": 6, "script": 6, "config": 3}
    count = {kind.name: len([file for file in kind.iterdir() if file.suffix != ".env"]) for kind in DATA.iterdir()}
    assert sorted(count) == sorted(wanted)
    assert all(count[kind] >= least for kind, least in wanted.items())
