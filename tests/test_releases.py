"""Releases and ranges are compared as `packaging` compares them, which is only imported for versions that need it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from specwatch.releases import covers, is_release, older

PLAIN = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda numbers: ".".join(map(str, numbers)))
ENDINGS = ("", "", "", "rc1", ".post1", ".dev3", "+cu125", "a2", ".post4+cu125")
VERSION = st.builds("{}{}".format, PLAIN, st.sampled_from(ENDINGS))
CLAUSE = st.builds("{}{}".format, st.sampled_from((">=", "<=", "<", ">", "==", "!=", ">= ", " <")), PLAIN)
RANGE = st.lists(CLAUSE, max_size=3).map(",".join)


@given(VERSION, VERSION)
@example("0.5", "0.5.0")
@example("0.5.20rc1", "0.5.20")
@example("0.5.9", "0.5.10")
def test_older_as_packaging_has_it(one: str, other: str) -> None:
    assert is_release(one)
    assert older(one, other) == (Version(one) < Version(other))


@given(RANGE, VERSION)
@example(">=0.5.11,<0.5.20", "0.5.20")
@example("==0.5", "0.5.0")
@example("==0.5.*,!=0.5.3", "0.5.4")
@example("~=0.5.3", "0.5.9")
def test_a_range_covers_what_packaging_says(releases: str, release: str) -> None:
    assert covers(releases, release) == SpecifierSet(releases).contains(Version(release), prereleases=True)


@pytest.mark.parametrize("release", ["", "main", "0.5.x"])
def test_an_unknown_release_is_not_older_and_may_be_any(release: str) -> None:
    assert not is_release(release)
    assert not older(release, "0.5.20")
    assert covers(">=99", release)


def test_plain_releases_need_no_packaging() -> None:
    code = """
import sys
from specwatch.releases import covers, older
assert older("0.5.9", "0.5.23") and covers(">=0.5.9, <0.6", "0.5.23") and not covers("<0.5.9", "0.5.23")
assert "packaging" not in sys.modules
assert older("0.5.23rc1", "0.5.23") and "packaging" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
