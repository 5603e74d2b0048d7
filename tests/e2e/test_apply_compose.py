"""The same on a real Docker Engine with compose: a container that crashes in a loop ends healthy, or as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from boxes import ROOT, STANDIN, DockerBox, Pair, audit, mounts, write_launchers

ENDS = ("action_applied", "action_rolled_back", "action_failed")


class Composed:
    """One service of one file in the engine, and specwatch beside it."""

    def __init__(
        self, box: DockerBox, folder: Path, launchers: Path, port: int, wrong: str, init: bool, more: str = ""
    ) -> None:
        self.box, self.port = box, port
        folder.mkdir()
        self.file, self.config = folder / "compose.yaml", folder / "specwatch.toml"
        self.actions, state = folder / "actions", folder / "state"
        volumes = {**mounts(launchers), Path("/usr"): "/usr", ROOT / "tests" / "data" / "oracle" / "models": "/models"}
        shown = "\n".join(f"      - {here}:{there}:ro" for here, there in volumes.items())
        self.before = f"""# the servers of this machine
services:
  llama: &llama
    image: standin:1   # no network, no registry
    container_name: llama-{port}
    network_mode: host
    restart: always
    init: {str(init).lower()}{more}
    volumes:
{shown}
    command: >
      {STANDIN} -m sglang.launch_server
      --model-path /models/c_target --load-format dummy
      --port {port} {wrong}
  # not ours
  other:
    image: standin:1
    profiles: [never]
"""
        self.file.write_text(self.before)
        self.config.write_text(
            f"[policy]\ncooldown = 1\nbreaker = 1\nhealth_within = 60\n[state]\nactions = '{self.actions}'\n"
            f"[[server]]\nname = 'llama'\nlogs = ['docker:llama-{port}']\ntarget = 'compose:{self.file}#llama'\n"
            f"health = 'http://127.0.0.1:{port}/health'\napply = 'safe'\nsglang = '0.5.23'\n"
            f"path_map = {{ '/models' = '{ROOT}/tests/data/oracle/models' }}\n"
        )
        self._compose = ("docker", "compose", "-f", str(self.file))
        box.run(*self._compose, "up", "-d", "llama")
        self.pair = Pair(self._start, self._run, self.config, state)

    def _words(self, words: Sequence[str]) -> list[str]:
        return ["env", f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}", *words]

    def _start(self, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        return self.box.start(*self._words(words), log=log)

    def _run(self, words: Sequence[str]) -> str:
        return self.box.run(*self._words(words), check=False)

    def healthy(self) -> bool:
        ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{self.port}/health', timeout=2).status)"
        return self.box.run(sys.executable, "-c", ask, check=False).strip() == "200"

    def finished(self) -> str:
        self.pair.until(lambda: audit(self.actions, *ENDS), 120)
        return str(audit(self.actions, *ENDS)[-1]["event"])

    def apply(self, *words: str) -> str:
        """`specwatch apply` by a person."""
        return self._run(["specwatch", "apply", *words, "--config", str(self.config)])

    def close(self) -> None:
        self.pair.close()
        self.box.run(*self._compose, "down", "-t", "1", check=False)


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_launchers(folder := tmp_path_factory.mktemp("opt"))
    return folder


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerBox]:
    box = DockerBox(tmp_path_factory.mktemp("engine"))
    try:
        yield box
    finally:
        box.stop()


# as process 1 the server ends with exit code 0 when it crashes, under an init with 137
@pytest.mark.parametrize("init", [False, True], ids=["as-process-1", "under-init"])
def test_a_crash_loop_ends_healthy_without_a_hand(box: DockerBox, tmp_path: Path, launchers: Path, init: bool) -> None:
    wrong = "--speculative-algorithm STANDALONE --speculative-draft-model-path /models/c_draft_bad"
    composed = Composed(box, tmp_path / "a", launchers, 32001 + init, wrong, init)
    try:
        assert composed.finished() == "action_applied", composed.pair.told()
        composed.pair.until(composed.healthy, 10)
        after = composed.file.read_text()
        assert "--speculative" not in after
        command = str(yaml.safe_load(after)["services"]["llama"]["command"])
        assert command.split()[-4:] == ["--load-format", "dummy", "--port", str(32001 + init)]
        for line in composed.before.split("\n"):
            assert "--" in line or "    command: >" in line or line in after, "everything else stands as it was"
        composed.pair.until(lambda: [one["state"] for one in composed.pair.findings()] == ["resolved"], 20)
    finally:
        composed.close()


def test_a_mask_token_override_is_taken_out_and_speculation_stays(
    box: DockerBox, tmp_path: Path, launchers: Path
) -> None:
    wrong = (
        "--speculative-algorithm DFLASH --speculative-draft-model-path /models/c_df_ok\n"
        """      --json-model-override-args '{"dflash_config": {"target_layer_ids": [1, 5], "mask_token_id": 1000}}'"""
    )
    composed = Composed(box, tmp_path / "a", launchers, 32005, wrong, True)
    try:
        assert composed.finished() == "action_applied", composed.pair.told()
        composed.pair.until(composed.healthy, 10)
        assert "--speculative-algorithm DFLASH" in composed.file.read_text()
        assert "json-model-override-args" not in composed.file.read_text()
    finally:
        composed.close()


def test_shared_memory_is_a_key_of_the_service(box: DockerBox, tmp_path: Path, launchers: Path) -> None:
    more = f"\n    environment: {{STANDIN_SHM: {1 << 30}}}"
    composed = Composed(box, tmp_path / "a", launchers, 32006, "", True, more)
    try:
        composed.pair.until(lambda: "finding_raised" in composed.pair.log.read_text(), 60)
        (finding,) = composed.pair.findings()
        assert (finding["rule"], finding["cause"]) == ("no-space-on-disk", "shared-memory"), composed.pair.told()
        words = (str(finding["id"]), "--fix", "more-shared-memory")
        assert '\n  +    shm_size: "32g"\n' in composed.apply(*words, "--dry-run")
        assert composed.file.read_text() == composed.before
        composed.apply(*words, "--yes")
        composed.pair.until(composed.healthy, 30)
        place = "    image: standin:1   # no network, no registry\n"
        assert composed.file.read_text() == composed.before.replace(place, f'{place}    shm_size: "32g"\n', 1)
        (done,) = audit(composed.actions, "action_applied")
        assert done["server"] == "llama"
        size = "import os; print(os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize >> 30)"
        assert composed.box.run("docker", "exec", "llama-32006", STANDIN, "-c", size).strip() == "32"
    finally:
        composed.close()


def test_a_fix_that_does_not_help_ends_in_the_old_file(box: DockerBox, tmp_path: Path, launchers: Path) -> None:
    hold = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 32004)); time.sleep(1000)"
    holder = box.start(sys.executable, "-c", hold, log=tmp_path / "holder.log")
    wrong = "--speculative-algorithm STANDALONE --speculative-draft-model-path /models/c_draft_bad"
    composed = Composed(box, tmp_path / "a", launchers, 32004, wrong, True)
    try:
        assert composed.finished() == "action_rolled_back", composed.pair.told()
        assert composed.file.read_text() == composed.before
        assert audit(composed.actions, "breaker_tripped")
        # the old launch runs again, and crashes as before
        composed.pair.until(lambda: "vocab_size=1024" in composed.box.run("docker", "logs", "llama-32004", check=False)
                            or "Restarting" in composed.box.run("docker", "ps", "-a"), 30)  # fmt: skip
    finally:
        composed.close()
        holder.terminate()
        holder.wait(10)
