"""Diagnoses incidents in a child process with limits, so that no model folder can hurt, swell or stop the daemon.

The parent sends what it knows (pickle: its own objects, to a process it started) and reads back one JSON document: the
finding as `report.as_json` writes it. It never unpickles or executes anything that the child answers, as the child has
read files of strangers. A child that dies, says nonsense or takes too long gives the same finding with the verdict
`unknown` and the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, cast

from specwatch.domain import Container, Finding, Incident, Launch, Status
from specwatch.errors import LaunchError, ModelError, SpecwatchError
from specwatch.models.base import Models
from specwatch.pipeline import conclude
from specwatch.report.as_json import finding_object
from specwatch.rulebook.book import Rulebook

if TYPE_CHECKING:
    from specwatch.launch.targets import Targeted

ANSWER_CAP = 4 * 1024 * 1024
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "CACHE_DIRECTORY", "TMPDIR")

Document = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a child needs to know. `launch` is the command as somebody typed it, `target` is where it stands.

    `container` is what stands around `launch`; that of a target is read with it.
    """

    incident: Incident
    path_maps: tuple[tuple[str, str], ...] = ()
    models_dirs: tuple[str, ...] = ()
    launch: str = ""
    target: str = ""
    container: Container | None = None
    sglang: str = ""
    gpu: str = ""
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a child may use: address space in MiB, wall time in seconds (the same of processor time)."""

    memory: int = 4096
    time: float = 30.0


class Unseen:
    """Models of which nothing is known, for a reason."""

    def __init__(self, because: str) -> None:
        self._because = because

    def __getattr__(self, name: str) -> Any:
        """Each question fails with the reason."""

        def fail(*_args: object, **_kwargs: object) -> None:
            raise ModelError(self._because)

        return fail


def without_models(ask: Ask, book: Rulebook, because: str) -> tuple[Document, bool]:
    """The finding without a look at the model files, and whether they could tell more."""
    finding = conclude(ask.incident, book, cast("Models", Unseen(because)), typed(ask), ask.sglang, ask.gpu)
    return cast("Document", dict(finding_object(finding))), _needs_models(finding, book)


def _needs_models(finding: Finding, book: Rulebook) -> bool:
    if finding.rule is None or finding.verdict.status is Status.REFUTED:
        return False
    return book.rules[finding.rule].check is not None or bool(finding.fixes)


def typed(ask: Ask) -> Launch | None:
    """The launch that the configuration gives or names, None where that is none that can be understood.

    One that SGLang's own parser refuses is a launch all the same: it is what has to be mended.
    """
    from specwatch.launch.command import parse

    command: str | tuple[str, ...] = ask.launch
    env: Mapping[str, str] = {}
    around = ask.container
    if not command and (found := targeted(ask)) is not None:
        command, env, around = found.command, found.env, found.container
    release = ask.sglang or next((one.sglang for one in ask.incident.launches), "")
    for lenient in (False, True) if command else ():
        with contextlib.suppress(LaunchError):
            launch = parse(command, release, lenient=lenient)
            return replace(launch, env={**env, **launch.env}, container=around)
    return None


def targeted(ask: Ask) -> Targeted | None:
    """What stands in the target that the configuration names, None where it is not readable for this user.

    What only the API of Kubernetes knows is not asked for: that takes time and rights.
    """
    if not ask.target or ask.target.startswith("k8s://"):
        return None
    from specwatch.launch.targets import read

    try:
        found = read(ask.target)
    except (SpecwatchError, OSError):
        return None  # the log's own record has to do
    return found[0] if len(found) == 1 else None


class Child:
    """One running inspection."""

    def __init__(self, ask: Ask, limits: Limits, now: float, program: Sequence[str] = ()) -> None:
        package = str(Path(__file__).resolve().parents[2])
        environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
        command = [
            *(program or (sys.executable, "-P", "-m", "specwatch.watching.inspection")),
            str(limits.memory),
            str(limits.time),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**environ, "PYTHONPATH": package, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )
        self.until = now + limits.time
        self._ask = pack(ask)
        self._answer = bytearray()
        self._fd = cast("IO[bytes]", self._process.stdout).fileno()
        os.set_blocking(self._fd, False)
        self._send()

    def fileno(self) -> int:
        """Readable when `answer` may have something."""
        return self._fd

    def answer(self, now: float) -> tuple[Document | None, str] | None:
        """The document or the reason why there is none; None while it goes on."""
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                if now >= self.until:
                    self.stop()
                    return None, "reading the model files took too long"
                return None
            if not data:
                break
            self._answer += data
            if len(self._answer) > ANSWER_CAP:
                self.stop()
                return None, "the inspection of the model files gave more than it may"
        code = self.stop()
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(self._answer)
            if code == 0 and isinstance(document, dict) and isinstance(document.get("id"), str):
                return document, ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return None, f"the process that reads the model files {how}"

    def stop(self) -> int:
        """End it, if it has not ended by itself; gives its exit code."""
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._answer and self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _send(self) -> None:
        """The child reads all of it before it does anything else, so this does not wait for long."""
        with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", self._process.stdin) as pipe:
            pipe.write(self._ask)


def pack(ask: Ask) -> bytes:
    """An `Ask` as bytes."""
    out = BytesIO()
    packer = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    table: dict[type, Callable[[Any], Any]] = {MappingProxyType: _unproxied}
    packer.dispatch_table = table
    packer.dump(ask)
    return out.getvalue()


def _unproxied(mapping: Mapping[str, object]) -> tuple[Callable[..., object], tuple[dict[str, object]]]:
    return _proxied, (dict(mapping),)


def _proxied(mapping: dict[str, object]) -> Mapping[str, object]:
    return MappingProxyType(mapping)


@dataclass(slots=True)
class Memory:
    """Answers of the last minutes: a crash loop asks the same again and again."""

    seconds: float = 60.0
    most: int = 64
    _answers: dict[object, tuple[float, Document]] = field(default_factory=dict)

    @staticmethod
    def key(server: str, incident: Incident) -> object:
        """Equal for incidents that get the same answer."""
        launches = tuple(launch.argv for launch in incident.launches)
        return server, incident.error, incident.chain, incident.outlived, launches

    def get(self, key: object, now: float) -> Document | None:
        """The answer to a question that was asked lately."""
        at, document = self._answers.get(key, (0.0, None))
        return dict(document) if document is not None and now - at < self.seconds else None

    def put(self, key: object, document: Document, now: float) -> None:
        """Keep an answer."""
        if len(self._answers) >= self.most:
            self._answers.pop(next(iter(self._answers)))
        self._answers[key] = (now, document)


def _limit(memory: int, time: float) -> None:
    import resource

    for what, most in (
        (resource.RLIMIT_AS, memory * 1024 * 1024),
        (resource.RLIMIT_CPU, max(1, int(time))),
        (resource.RLIMIT_FSIZE, 16 * 1024 * 1024),  # the cache of tokenizer digests
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the daemon


def main() -> None:
    """The child: an `Ask` on stdin, limits as arguments, the finding as JSON on stdout."""
    _limit(int(sys.argv[1]), float(sys.argv[2]))
    ask = pickle.load(sys.stdin.buffer)  # noqa: S301 (from the parent that started this process)
    from specwatch.models.files import LocalModels
    from specwatch.rulebook.book import load_directories

    book = load_directories(Path(folder) for folder in ask.rules).book
    found = targeted(ask)
    path_maps = (*ask.path_maps, *(found.path_maps if found else ()))
    models = LocalModels(path_maps=path_maps, models_dirs=ask.models_dirs)
    finding = conclude(ask.incident, book, models, typed(ask), ask.sglang, ask.gpu)
    json.dump(finding_object(finding), sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    # the classes must be those of the imported module, which the parent's pickle names
    from specwatch.watching import inspection

    inspection.main()
