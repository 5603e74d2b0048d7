"""A shell script that ends in the launch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specwatch.launch.targets.base import Targeted, is_server, text_of


def read(spec: str) -> Iterator[Targeted]:
    """The launch of a script, nothing where it starts no SGLang server."""
    text = text_of(Path(spec))
    if is_server(text):
        yield Targeted(name=f"script:{spec}", command=text)
