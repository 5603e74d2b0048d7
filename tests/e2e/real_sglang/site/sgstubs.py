"""Stands for the packages that exist for GPUs only: anything may be imported from them, nothing of it does anything.

A package that is installed is used; these come last.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

NAMES = frozenset({"torchvision", "torchaudio", "sgl_kernel", "flash_attn", "cutlass", "vllm", "soundfile"})


class _Anything(type):
    """A class whose every attribute is another such class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)

    def __or__(cls, _other: object) -> Any:
        return object

    def __ror__(cls, _other: object) -> Any:
        return object


class _Nothing:
    """What all of them have: they may be made, called, looked into, iterated over, used as an index."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        return

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a decorator it gives the function back."""
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)()

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __index__(self) -> int:
        return 0


def _made(name: str) -> Any:
    return _Anything(name, (_Nothing,), {})


class _Module(types.ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _made(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in NAMES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return


def install() -> None:
    """From now on in this process."""
    sys.meta_path.append(_Finder())
