"""From the name under which a server knows a model to the folder on this host, and back.

A name is a folder inside the server's file system (mapped by `--path-map FROM=TO`), a folder relative to the working
directory, or a repository id whose files lie in the Hugging Face cache.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specwatch.errors import ModelError
from specwatch.lazy import compiled
from specwatch.models import reading

_REPO = compiled(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_REVISION = compiled(r"[\w.-]+(/[\w.-]+)*", re.ASCII)


class Place(NamedTuple):
    """Where a model lies on this host. `local` tells a folder that the server names from a repository id."""

    folder: Path
    local: bool


class PathMaps:
    """Container paths to host paths and back; the longest prefix that fits wins."""

    def __init__(self, maps: Sequence[tuple[str, str]] = ()) -> None:
        pairs = [(posixpath.normpath(source), target) for source, target in maps]
        self._maps = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)

    def __bool__(self) -> bool:
        return bool(self._maps)

    def to_host(self, path: str) -> Path | None:
        """The host path of an absolute path of the server; None where maps are given and none covers it.

        `..` is resolved before the map is applied, so that no path leads out of the mapped folder.
        """
        if not self._maps:
            return Path(path)
        clean = "/" + posixpath.normpath(path).lstrip("/")
        for source, target in self._maps:
            rest = _below(clean, source)
            if rest is not None:
                return Path(target) / rest if rest else Path(target)
        return None

    def to_server(self, host: Path) -> str | None:
        """The name under which the server sees a host path; None where no map reaches it.

        Without maps server and host are taken to be the same. The map with the longest host folder wins.
        """
        if not self._maps:
            return str(host)
        best: tuple[int, str] | None = None
        for candidate in {_absolute(host), os.path.realpath(host)}:
            for source, target in self._maps:
                for root in {_absolute(Path(target)), os.path.realpath(target)}:
                    rest = _below(candidate, root)
                    if rest is not None and (best is None or len(root) > best[0]):
                        best = (len(root), posixpath.join(source, rest) if rest else source)
        return best[1] if best else None


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 (pathlib keeps `..`)


def _below(path: str, prefix: str) -> str | None:
    """What follows `prefix` in `path` if it is that folder or lies in it; both normalized."""
    if prefix == "/":
        return path.lstrip("/")
    if path == prefix:
        return ""
    return path[len(prefix) + 1 :] if path.startswith(prefix + "/") else None


def hub_cache(environ: Mapping[str, str]) -> Path:
    """The folder of the Hugging Face cache, as huggingface_hub finds it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    base = environ.get("XDG_CACHE_HOME")
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (Path(base).expanduser() if base else home / ".cache") / "huggingface" / "hub"


def is_repo_id(path: str) -> bool:
    """Whether a name can be a repository id."""
    return bool(_REPO.fullmatch(path)) and ".." not in path and "--" not in path


def snapshot(cache: Path, repo: str, revision: str | None) -> Path | None:
    """The folder of a cached revision of a repository (a branch, a tag or a full commit id); None if not cached."""
    wanted = revision or "main"
    if not is_repo_id(repo) or not _REVISION.fullmatch(wanted) or ".." in wanted.split("/"):
        return None
    root = cache / ("models--" + repo.replace("/", "--"))
    reference = reading.read(root / "refs" / wanted, cap=4096)
    commit = reference.decode("utf-8", "replace").strip() if reference is not None else wanted
    if "/" in commit or commit in ("", ".", ".."):
        return None
    folder = root / "snapshots" / commit
    return folder if folder.is_dir() else None


def cached_repos(cache: Path) -> Iterator[str]:
    """The ids of all repositories in a cache, sorted; nothing where there is no cache."""
    try:
        entries = reading.names(cache)
    except ModelError:
        return
    for name in entries:
        if name.startswith("models--"):
            yield name.removeprefix("models--").replace("--", "/")


def find(path: str, *, maps: PathMaps, cache: Path, revision: str | None) -> Place:
    """Where a model lies. Raises ModelError, without a verdict, where it is not on this machine."""
    if "\0" in path:
        raise ModelError(f"{path!r} is no path")
    if path.startswith("/"):
        host = maps.to_host(path)
        if host is None:
            raise ModelError(f"{path}: no --path-map tells where it lies on this machine")
    else:
        host = Path(path)
    if _is_dir(host):
        return Place(folder=host, local=True)
    if reading.is_file(host):
        raise ModelError(f"{path}: a single file; only folders of models are read here")
    if is_repo_id(path):
        cached = snapshot(cache, path, revision)
        if cached is not None:
            return Place(folder=cached, local=False)
        at = f" at revision {revision}" if revision else ""
        raise ModelError(f"{path}{at} is neither a folder here nor in the Hugging Face cache {cache}")
    shown = "" if str(host) == path else f" (looked for {host})"
    raise ModelError(f"{path} is not on this machine{shown}")


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
