"""What systemd, Compose and Kubernetes say of a server, and what that means; what is run to start it anew."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from stage import Clock

from specwatch import runtime
from specwatch.acting.looking import down
from specwatch.errors import ApplyError
from specwatch.policy import Down
from specwatch.runtime.base import Life, State
from specwatch.runtime.running import Done, run, well


class Program:
    """Answers by what the words hold; remembers what was run."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.ran: list[tuple[str, ...]] = []

    def __call__(self, words: Sequence[str]) -> Done:
        self.ran.append(tuple(words))
        for key, answer in self.answers.items():
            if key in words:
                if isinstance(answer, Done):
                    return answer
                return Done(code=0, out=answer if isinstance(answer, str) else json.dumps(answer), err="")
        return Done(code=0, out="", err="")


def unit(**properties: str) -> str:
    plain = {"LoadState": "loaded", "Result": "success", "NRestarts": "0", "ExecMainStatus": "0", "InvocationID": "aa"}
    return "".join(f"{name}={value}\n" for name, value in {**plain, **properties}.items())


@pytest.mark.parametrize(
    ("properties", "life", "says"),
    [
        ({"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainStatus": "1"}, Life.DOWN,
         "failed: exit-code, status 1"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "Result": "signal", "NRestarts": "7"}, Life.DOWN,
         "restarted 7 times by itself"),
        ({"ActiveState": "activating", "SubState": "auto-restart-queued", "Result": "signal"}, Life.DOWN, "died"),
        ({"ActiveState": "active", "SubState": "running"}, Life.UP, "is active (running)"),
        ({"ActiveState": "activating", "SubState": "start"}, Life.UP, "activating (start)"),
        ({"ActiveState": "inactive", "SubState": "dead"}, Life.UNKNOWN, "whoever stopped it"),
        ({"ActiveState": "inactive", "SubState": "dead", "Result": "oom-kill"}, Life.DOWN, "oom-kill"),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, Life.UNKNOWN, "not-found"),
    ],
)  # fmt: skip
def test_the_states_of_a_unit(properties: dict[str, str], life: Life, says: str) -> None:
    state = runtime.of("systemd:sglang", runs=Program(show=unit(**properties))).state()
    assert state.life is life
    assert says in state.because


def test_a_unit_is_started_anew_without_waiting_and_whatever_its_limits_say() -> None:
    program = Program(**{"reset-failed": Done(code=1, out="", err="Unit sglang@a.service not loaded.")})
    unit = runtime.of("systemd:sglang@a.service", runs=program)
    unit.prepare()
    assert ("systemctl", "restart", "--no-block", "sglang@a.service") not in program.ran
    unit.restart()
    assert program.ran == [
        ("systemctl", "daemon-reload"),
        ("systemctl", "reset-failed", "sglang@a.service"),
        ("systemctl", "restart", "--no-block", "sglang@a.service"),
    ]
    broken = Program(restart=Done(code=1, out="", err="Failed to restart: Access denied\n"))
    with pytest.raises(ApplyError, match=r"systemctl restart .*Access denied"):
        runtime.of("systemd:sglang", runs=broken).restart()


def container(**fields: object) -> dict[str, object]:
    return {"ID": "abc", "Name": "llm-sglang-1", "State": "running", "Health": "", "ExitCode": 0, **fields}


@pytest.mark.parametrize(
    ("said", "life", "ready"),
    [
        (container(State="exited", ExitCode=1), Life.DOWN, None),
        (container(State="restarting", ExitCode=137), Life.DOWN, None),
        (container(State="exited"), Life.UNKNOWN, None),
        (container(), Life.UP, None),
        (container(Health="healthy"), Life.UP, True),
        (container(Health="starting"), Life.UP, False),
        (container(Health="unhealthy"), Life.DOWN, False),
        ([container(State="exited", ExitCode=1), container(ID="def")], Life.UP, None),
        ([], Life.UNKNOWN, None),
    ],
)
def test_the_states_of_a_service(said: object, life: Life, ready: bool | None) -> None:
    found = runtime.of("compose:/srv/c.yaml#sglang", runs=Program(ps=said, inspect='3 "2026-11-30T10:00:00Z"')).state()
    assert (found.life, found.ready) == (life, ready)


def test_compose_lists_one_object_a_line_too() -> None:
    said = "\n".join(
        json.dumps(one) for one in (container(State="exited", ExitCode=1), container(State="dead", ExitCode=2))
    )
    assert runtime.of("compose:/srv/c.yaml#sglang", runs=Program(ps=said)).state().life is Life.DOWN


def test_a_service_is_made_anew_alone_by_whichever_compose_there_is() -> None:
    program = Program()
    runtime.of("compose:/srv/c.yaml#sglang", runs=program).restart()
    assert program.ran[-1] == (
        "docker", "compose", "-f", "/srv/c.yaml", "up", "--detach", "--no-deps", "--force-recreate", "sglang",
    )  # fmt: skip

    def old(words: Sequence[str]) -> Done:
        return Done(code=1 if words[0] == "docker" else 0, out="", err="is not a docker command")

    assert runtime.of("compose:/srv/c.yaml#sglang", runs=old).commands()[0][0] == "docker-compose"

    def none(words: Sequence[str]) -> Done:
        raise ApplyError(f"{words[0]}: is not installed")

    state = runtime.of("compose:/srv/c.yaml#sglang", runs=none).state()
    assert state.life is Life.UNKNOWN
    assert "neither docker compose nor docker-compose" in state.because


@pytest.mark.parametrize(
    ("files", "env", "says"),
    [
        ("/srv/c.yaml", "", ""),
        ("c.yaml", "/srv/.env", ""),
        ("/srv/c.yaml,/srv/gpu.yaml", "", "made from /srv/gpu.yaml as well"),
        ("c.yaml,c.override.yaml", "", "made from c.override.yaml as well"),
        ("/srv/c.yaml", "/srv/prod.env", "made from /srv/prod.env as well"),
        ("/srv/other.yaml", "", "made from /srv/other.yaml as well"),
    ],
)
def test_a_service_of_several_files_is_not_made_anew_from_one_of_them(files: str, env: str, says: str) -> None:
    """What the other files give it, as its GPUs, would be gone."""
    project = "com.docker.compose.project"
    labels = {f"{project}.working_dir": "/srv", f"{project}.config_files": files, f"{project}.environment_file": env}
    found = runtime.of("compose:/srv/c.yaml#sglang", runs=Program(ps=container(), inspect=labels))
    if says:
        with pytest.raises(ApplyError, match=says):
            found.commands()
    else:
        assert found.commands()


def test_a_service_of_several_files_is_made_anew_from_the_same(tmp_path: Path) -> None:
    for name in ("compose.yaml", "compose.override.yaml", "gpu.yaml"):
        (tmp_path / name).write_text("services: {}\n")
    file, override, gpu = (str(tmp_path / name) for name in ("compose.yaml", "compose.override.yaml", "gpu.yaml"))

    def commands(target: str, *made: str) -> Sequence[Sequence[str]]:
        labels = {"com.docker.compose.project.config_files": ",".join(made)}
        return runtime.of(target, runs=Program(ps=container(), inspect=labels)).commands()

    assert commands(f"compose:{file}#sglang", file, override)[0][2:6] == ("-f", file, "-f", override)
    assert commands(f"compose:{file}:{gpu}#sglang", file, gpu)[0][2:6] == ("-f", file, "-f", gpu)
    with pytest.raises(ApplyError, match=f"was made without {override}"):
        commands(f"compose:{file}#sglang", file)


WORKLOAD = {"kind": "Deployment", "metadata": {"name": "llm"}, "spec": {"selector": {"matchLabels": {"app": "llm"}}}}
DIED = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "ready": False, "restartCount": 4}
AGAIN = {
    "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}, "ready": False,
    "restartCount": 5,
}  # fmt: skip
LOADING = {"state": {"running": {}}, "ready": False, "restartCount": 0}
SERVING = {"state": {"running": {}}, "ready": True, "restartCount": 2}


def pod(status: dict[str, object], name: str = "llm-1", revision: str = "a", at: str = "10", **meta: object) -> object:
    return {
        "metadata": {"name": name, "uid": f"u-{name}", "creationTimestamp": at,
                     "labels": {"pod-template-hash": revision}, **meta},
        "status": {"containerStatuses": [{"name": "sglang", **status}, {"name": "sidecar", "ready": True}]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "life", "ready"),
    [
        ([pod(DIED)], Life.DOWN, False),
        ([pod(AGAIN)], Life.DOWN, False),
        ([pod(LOADING)], Life.UP, False),
        ([pod(SERVING)], Life.UP, True),
        ([pod(SERVING), pod(DIED, "llm-2")], Life.UP, False),
        ([pod(DIED), pod(LOADING, "llm-2")], Life.UP, False),
        ([pod(DIED), pod(LOADING, "llm-2", "b", "11")], Life.UP, False),
        ([pod(SERVING), pod(DIED, "llm-2", "b", "11")], Life.DOWN, False),
        ([pod(DIED), pod(SERVING, "llm-2", deletionTimestamp="12")], Life.DOWN, False),
        ([], Life.UNKNOWN, None),
    ],
)
def test_the_states_of_pods(pods: list[object], life: Life, ready: bool | None) -> None:
    program = Program(pods={"items": pods}, deployment=WORKLOAD)
    state = runtime.of("k8s://prod/deployment/llm#sglang", runs=program).state()
    assert (state.life, state.ready) == (life, ready), state
    assert program.ran[-1][3:5] == ("--selector", "app=llm")


def test_the_leader_and_the_workers_of_a_group_are_told_apart() -> None:
    def member(index: str, status: dict[str, object]) -> object:
        labels = {"leaderworkerset.sigs.k8s.io/worker-index": index}
        return {
            "metadata": {"name": f"llm-0-{index}", "uid": index, "creationTimestamp": "10", "labels": labels},
            "status": {"containerStatuses": [{"name": "sglang", **status}]},
        }

    group = {"kind": "LeaderWorkerSet", "metadata": {"name": "llm"}}
    program = Program(pods={"items": [member("0", DIED), member("1", SERVING)]}, lws=group)
    leader, worker, both = (
        runtime.of(f"k8s://prod/lws/llm#{name}", runs=program).state()
        for name in ("leader/sglang", "worker/sglang", "sglang")
    )
    assert (leader.life, leader.identity) == (Life.DOWN, "0")
    assert (worker.life, worker.identity) == (Life.UP, "1")
    assert (both.life, both.identity) == (Life.UP, "0 1")
    pod = {"spec": {"containers": [{"name": "sglang"}]}}
    spec = {"leaderWorkerTemplate": {"leaderTemplate": pod, "workerTemplate": pod}}
    manifest = Program(**{"-f": {**group, "spec": spec}}, pods=program.answers["pods"], LeaderWorkerSet=group)
    assert runtime.of("k8s:/srv/lws.yaml#leader/sglang", runs=manifest).state().life is Life.DOWN


def test_another_rollout_is_another_start() -> None:
    def identity(*pods: object) -> str:
        program = Program(pods={"items": list(pods)}, deployment=WORKLOAD)
        return runtime.of("k8s://prod/deployment/llm#sglang", runs=program).state().identity

    old = pod(DIED)
    assert identity(old) == identity(pod(AGAIN)), "a container that is started again is the same start"
    assert identity(old) != identity(old, pod(LOADING, "llm-2", "b", "11"))


def test_pods_of_a_stateful_set_that_never_get_ready_are_deleted() -> None:
    program = Program(
        pods={"items": [pod(DIED), pod(SERVING, "llm-2")]}, statefulset={**WORKLOAD, "kind": "StatefulSet"}
    )
    runtime.of("k8s://prod/statefulset/llm#sglang", runs=program).restart()
    assert program.ran[-1] == ("kubectl", "delete", "pods", "--namespace", "prod", "--wait=false", "llm-1")


@pytest.mark.parametrize("target", ["", "pid:7", "k8s:file", "nonsense", "compose:/srv/c.yaml", "k8s://a/b"])
def test_what_cannot_be_restarted_is_refused(target: str) -> None:
    with pytest.raises(ApplyError, match="expected systemd:UNIT"):
        runtime.of(target)


def test_a_bare_path_is_known_by_its_content(tmp_path: Path) -> None:
    (unit_file := tmp_path / "llm.service").write_text("[Service]\nExecStart=/x\n")
    (script := tmp_path / "run.sh").write_text("exec python -m sglang.launch_server\n")
    (compose := tmp_path / "c.yaml").write_text("services: {}\n")
    assert runtime.of(str(unit_file)).commands()[-1][-1] == "llm.service"
    assert runtime.of(str(script), ("/again",)).commands() == (("/again",),)
    for path, says in ((compose, "expected systemd:UNIT"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(ApplyError, match=says):
            runtime.of(str(path))


def test_a_script_needs_a_command() -> None:
    with pytest.raises(ApplyError, match="no way to restart"):
        runtime.of("script:/srv/run.sh").restart()
    program = Program()
    runtime.of("script:/srv/run.sh", ("/srv/again", "$(now)"), program).restart()
    assert program.ran == [("/srv/again", "$(now)")]


def test_programs_that_do_not_answer_are_errors_with_a_name() -> None:
    with pytest.raises(ApplyError, match="no-such-program-here: is not installed"):
        run(("no-such-program-here",))
    with pytest.raises(ApplyError, match="no end within"):
        run(("sleep", "60"), timeout=0.05)
    with pytest.raises(ApplyError, match=r"sh -c .*: so it is"):
        well(("sh", "-c", "echo so it is >&2; exit 3"))
    assert well(("printf", "%s", "$HOME; `id`")) == "$HOME; `id`"


@pytest.fixture
def endpoint() -> Iterator[Callable[[int], str]]:
    """A health endpoint that answers with a code."""
    servers: list[HTTPServer] = []

    def start(code: int) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        return f"http://127.0.0.1:{server.server_port}/health"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def closed() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/health"


DEAD = State(life=Life.DOWN, because="it failed")
RUNNING = State(life=Life.UP, because="it runs")
LOOPING = State(life=Life.UP, because="it runs", starts=3)
STOPPED = State(life=Life.UNKNOWN, because="it was stopped")
BLIND = State(life=Life.UNKNOWN, because="nothing tells", blind=True)


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        (DEAD, None, Down.YES),
        (DEAD, 0, Down.YES),
        (DEAD, 503, Down.YES),
        (DEAD, 200, Down.NO),
        (RUNNING, None, Down.NO),
        (RUNNING, 0, Down.UNKNOWN),
        (RUNNING, 503, Down.UNKNOWN),
        (LOOPING, 0, Down.YES),
        (LOOPING, 503, Down.UNKNOWN),
        (LOOPING, None, Down.NO),
        (STOPPED, None, Down.UNKNOWN),
        (STOPPED, 0, Down.UNKNOWN),
        (BLIND, None, Down.UNKNOWN),
        (BLIND, 0, Down.YES),
        (BLIND, 503, Down.UNKNOWN),
        (BLIND, 200, Down.NO),
        (State(life=Life.UP, because="3 pods are ready", ready=True), None, Down.NO),
        (State(life=Life.UP, because="loading", ready=False), None, Down.UNKNOWN),
    ],
)
def test_really_down(state: State, code: int | None, expected: Down, endpoint: Callable[[int], str]) -> None:
    """`code`: what the health endpoint answers, 0 where nobody listens, None where there is none."""
    url = "" if code is None else endpoint(code) if code else closed()
    found, because = down(state, url, Clock())
    assert found is expected, because
    assert because


def test_a_crash_loop_without_a_health_endpoint_asks_for_one() -> None:
    assert "give --health URL" in down(LOOPING, "", Clock())[1]
    assert "--health" not in down(RUNNING, "", Clock())[1]


def test_pods_of_the_revision_before_that_serve_are_no_server_that_is_down() -> None:
    pods = [pod(SERVING), pod(DIED, "llm-2", "b", "11")]
    program = Program(pods={"items": pods}, deployment=WORKLOAD)
    state = runtime.of("k8s://prod/deployment/llm#sglang", runs=program).state()
    found, because = down(state, "", Clock())
    assert found is Down.NO
    assert "llm-1 serves" in because


def test_refused_is_what_the_system_calls_it() -> None:
    from specwatch.acting.looking import REFUSED, answers

    assert answers(closed(), Clock()) == REFUSED == os.strerror(errno.ECONNREFUSED)
