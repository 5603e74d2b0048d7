"""What was seen before a launch is changed, for whoever asks afterwards: a folder of texts, secrets taken out.

`manifest.json` lists each file with its size and digest, and why what is missing could not be had.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from specwatch import __version__
from specwatch.acting.neighbourhood import Neighbourhood
from specwatch.acting.revalidating import Firing
from specwatch.domain import Launch
from specwatch.errors import ApplyError, LaunchError
from specwatch.launch.command import parse
from specwatch.plainfile import opened
from specwatch.report import redact
from specwatch.runtime.base import State
from specwatch.runtime.running import Run, well
from specwatch.settings import Server
from specwatch.storage.audit import sync_folder

LARGEST = 256 * 1024
"""Bytes that one file may have; of a longer one the end is kept."""
_GPU = ("--query-compute-apps=pid,used_memory,process_name", "--format=csv")
_CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json")

Collect = Callable[[], str]


def collect(folder: Path, server: Server, firing: Firing, state: State, seen: Neighbourhood, runs: Run) -> list[str]:
    """Fill the folder; gives what could not be had. Raises ApplyError where it cannot be written."""
    try:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        files: list[dict[str, object]] = []
        missing: dict[str, str] = {}
        for name, gather in _collectors(server, firing, state, seen, runs):
            try:
                text = gather()
            except (ApplyError, OSError, ValueError) as error:
                missing[name] = redact.text(str(error))
                continue
            data = _capped(redact.text(text)).encode()
            _write(folder / name, data)
            files.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        manifest = {"schema": 1, "specwatch": __version__, "server": server.name, "files": files, "missing": missing}
        _write(folder / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())
        sync_folder(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise ApplyError(f"{folder}: the evidence cannot be kept: {error.strerror or error}", retry=True) from None
    return [f"{name}: {why}" for name, why in missing.items()]


def _collectors(
    server: Server, firing: Firing, state: State, seen: Neighbourhood, runs: Run
) -> Iterable[tuple[str, Collect]]:
    yield "finding.json", lambda: json.dumps(firing.document, indent=1)
    yield "log.txt", lambda: "\n".join(firing.tail)
    yield "launch.txt", lambda: _launch(firing)
    yield "configs.txt", lambda: _configs(server, firing)
    yield "versions.txt", lambda: _versions(firing)
    yield "state.txt", lambda: f"{state.life}: {state.because}\nidentity {state.identity}\nrestarts {state.starts}\n"
    if server.target.startswith("systemd:"):
        unit = server.target.partition(":")[2].rpartition("/")[2]
        yield "unit.txt", lambda: well(("systemctl", "cat", unit), runs)
    yield "gpu.txt", lambda: well(("nvidia-smi", *_GPU), runs)
    yield "shm.txt", _shm
    yield "ports.txt", lambda: _ports()
    yield "neighbourhood.txt", lambda: "\n".join((*seen.found, *(f"not seen: {one}" for one in seen.unseen)))


def _launch(firing: Firing) -> str:
    lines = []
    if firing.target is not None:
        command = firing.target.command
        words = command if isinstance(command, str) else " ".join(redact.argv(command))
        lines += [f"target  {firing.target.name}", f"command {words}"]
        lines += [f"env     {name}={value}" for name, value in redact.env(firing.target.env).items()]
    lines.append(f"diagnosed {json.dumps(firing.document.get('launch'))}")
    return "\n".join(lines)


def _configs(server: Server, firing: Firing) -> str:
    """The configuration files of the model and of its draft, as far as they can be found from here."""
    launch = _parsed(firing)
    maps = (*server.path_map, *(firing.target.path_maps if firing.target else ()))
    out = []
    for name in ("model_path", "speculative_draft_model_path"):
        path = launch.text_value(name) if launch is not None else None
        if path is None:
            continue
        for inside, outside in maps:
            if path == inside or path.startswith(inside.rstrip("/") + "/"):
                path = outside + path[len(inside) :]
                break
        for file in _CONFIGS:
            if (text := _config(Path(path), file)) is not None:
                out.append(f"--- {path}/{file}\n{text}")
    if not out:
        raise ApplyError("the models' configuration files are not to be found from here")
    return "\n".join(out)


def _parsed(firing: Firing) -> Launch | None:
    """The launch where it stands: what a log names may be any folder of this machine."""
    if firing.target is None:
        return None
    try:
        return parse(firing.target.command, firing.sglang, lenient=True)
    except LaunchError:
        return None


def _config(folder: Path, name: str) -> str | None:
    """A configuration file of a model, None where there is none.

    A model's folder is a download, and what is kept may be read by anybody: a link out of it is not followed, but for
    those of the cache of the Hugging Face Hub, from `snapshots/` to `blobs/`.
    """
    try:
        place, root = (folder / name).resolve(), folder.resolve()
        roots = (root, root.parent.parent / "blobs") if root.parent.name == "snapshots" else (root,)
        if not any(place.is_relative_to(one) for one in roots):
            return f"(a link that leads out of the folder, to {place}: not read)"
        with opened(place) as file:
            data = file.read(LARGEST + 1)
    except (OSError, RuntimeError):
        return None
    return data.decode("utf-8", "replace") if len(data) <= LARGEST else None


def _versions(firing: Firing) -> str:
    return (
        f"specwatch {__version__}\nsglang {firing.sglang or 'not known'}\npython {sys.version.split()[0]}\n"
        f"{platform.platform()}\n"
    )


def _shm() -> str:
    shm = Path("/dev/shm")  # noqa: S108 (looked at, not written)
    found = os.statvfs(shm)
    size, free = found.f_blocks * found.f_frsize >> 20, found.f_bavail * found.f_frsize >> 20
    entries = sorted(((one.lstat().st_size, one.name) for one in shm.iterdir()), reverse=True)[:50]
    return "\n".join((f"{size - free} of {size} MiB in use", *(f"{bytes_:>14} {name}" for bytes_, name in entries)))


def _ports() -> str:
    return "".join(
        f"{name}\n{Path(name).read_text(encoding='ascii', errors='replace')}"
        for name in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(name).is_file()
    )


def _capped(text: str) -> str:
    data = text.encode()
    if len(data) <= LARGEST:
        return text
    return f"[the first {len(data) - LARGEST} bytes are left out]\n" + data[-LARGEST:].decode(errors="replace")


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(fd, "wb") as file:  # noqa: PTH123 (a descriptor)
        os.fchmod(fd, 0o644)
        file.write(data)
        file.flush()
        os.fsync(fd)
