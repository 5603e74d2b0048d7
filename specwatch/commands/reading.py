"""Reads the logs of `specwatch diagnose`, several at a time where that pays, and gives what came of each in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from specwatch.domain import Finding
from specwatch.errors import SourceError

PAYS = 32 * 1024 * 1024
"""Bytes of all logs from which processes of their own are started."""


class Outcome(NamedTuple):
    """What came of one log: its findings folded, how much was read, and why not more."""

    path: str
    findings: tuple[Finding, ...] = ()
    bytes: int = 0
    lines: int = 0
    runs: int = 0
    passed: int = 0
    failed: str = ""


def outcomes(paths: Sequence[str], read: Callable[[str], Outcome], jobs: int | None) -> Iterator[Outcome]:
    """What `read` makes of each path, in their order; with `jobs` None, on all cores once the logs are large."""
    processes = min(len(paths), len(os.sched_getaffinity(0)) if jobs is None else jobs) if _can_fork() else 1
    if processes < 2 or "-" in paths or (jobs is None and _size(paths) < PAYS):
        yield from map(read, paths)
        return
    yield from _side_by_side(paths, read, processes)


def _side_by_side(paths: Sequence[str], read: Callable[[str], Outcome], processes: int) -> Iterator[Outcome]:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(processes, get_context("fork"), initializer=_start, initargs=(read,))
    try:
        yield from pool.map(_read, paths)
    except BrokenProcessPool:
        raise SourceError("a process that read a log was killed; with --jobs 1 they are read one by one") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_reads: list[Callable[[str], Outcome]] = []


def _start(read: Callable[[str], Outcome]) -> None:
    """In a new process: what it shall do, handed over by the fork and so not pickled."""
    _make_picklable()
    _reads[:] = [read]


def _read(path: str) -> Outcome:
    return _reads[0](path)


def _make_picklable() -> None:
    import copyreg

    copyreg.pickle(MappingProxyType, _reduced)


def _reduced(mapping: MappingProxyType[Any, Any]) -> tuple[Callable[..., MappingProxyType[Any, Any]], tuple[Any, ...]]:
    return _read_only, (dict(mapping),)


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


def _can_fork() -> bool:
    return sys.platform == "linux"


def _size(paths: Sequence[str]) -> int:
    return sum(Path(path).stat().st_size for path in paths if Path(path).is_file())
