"""Expressions compiled on first use are the same ones."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from specwatch.lazy import compiled


def test_it_finds_what_a_compiled_one_finds() -> None:
    lazy, real = compiled(r"(?P<word>\w+)! ?", re.ASCII), re.compile(r"(?P<word>\w+)! ?", re.ASCII)
    for method in ("match", "search", "fullmatch"):
        got, expected = getattr(lazy, method)("one! two!"), getattr(real, method)("one! two!")
        assert (got and got.groupdict()) == (expected and expected.groupdict())
    assert lazy.sub("x", "one! two!") == real.sub("x", "one! two!")
    assert (lazy.pattern, lazy.flags) == (real.pattern, real.flags)
    assert compiled(b"a+").findall(b"aaba") == [b"aa", b"a"]


def test_a_mistake_shows_at_its_first_use() -> None:
    wrong = compiled("(")
    with pytest.raises(re.error):
        wrong.match("x")


def test_every_expression_of_the_package_compiles() -> None:
    code = """
import pkgutil, specwatch, importlib
from specwatch import lazy
made = []
init = lazy._Lazy.__init__
def noted(self, *arguments):
    init(self, *arguments)
    made.append(self)
lazy._Lazy.__init__ = noted
for package in ("log", "report", "launch", "models", "sources", "fixes", "rulebook"):
    module = importlib.import_module(f"specwatch.{package}")
    for found in pkgutil.iter_modules(module.__path__, f"specwatch.{package}."):
        importlib.import_module(found.name)
assert len(made) > 100, len(made)
for one in made:
    one.match
"""
    subprocess.run([sys.executable, "-c", code], check=True)
