"""Files written whole or not at all, on a full disk too; patches of the Kubernetes API made and taken back."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from stage import nothing_there

from specwatch.acting.keeping import Plan, keep, kept
from specwatch.acting.writing import make, put, standing, turned, unmake
from specwatch.errors import ApplyError
from specwatch.launch.targets.base import ApiPatch, Rewrite
from specwatch.runtime.running import Done
from specwatch.settings import Server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (made := tmp_path / "unit.conf").write_bytes(b"old\r\n")
    made.chmod(0o640)
    return made


def test_mode_owner_and_attributes_stay(file: Path) -> None:
    os.chown(file, 12345, 23456)
    os.setxattr(file, "user.note", b"keep me")
    put(file, b"old\r\n", b"new")
    found = file.stat()
    assert (file.read_bytes(), stat.S_IMODE(found.st_mode)) == (b"new", 0o640)
    assert (found.st_uid, found.st_gid) == (12345, 23456)
    assert os.getxattr(file, "user.note") == b"keep me"


def test_a_new_file_gets_its_folder_and_mode_and_goes_again(tmp_path: Path) -> None:
    path = tmp_path / "x.service.d" / "specwatch.conf"
    put(path, None, b"[Service]\n", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    put(path, b"[Service]\n", None)
    assert not path.exists()
    put(path, None, None)


@pytest.mark.parametrize(
    ("before", "after"), [(b"other", b"new"), (None, b"new"), (b"other", None)], ids=["changed", "made", "removed"]
)
def test_what_somebody_else_wrote_is_never_overwritten(file: Path, before: bytes | None, after: bytes | None) -> None:
    with pytest.raises(ApplyError, match="somebody else meanwhile"):
        put(file, before, after)
    assert file.read_bytes() == b"old\r\n"
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_went_away_is_not_made_again(file: Path) -> None:
    file.unlink()
    with pytest.raises(ApplyError):
        put(file, b"old\r\n", b"new")
    assert not file.exists()


def test_what_an_interrupted_write_left_is_swept(file: Path) -> None:
    (file.parent / ".unit.conf.specwatch-deadbeef").write_text("half")
    put(file, b"old\r\n", b"new")
    assert list(file.parent.iterdir()) == [file]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "specwatch-test", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_the_old_file(small: Path) -> None:
    path = small / "launch.sh"
    path.write_bytes(b"old")
    (small / "filler").write_bytes(b"x" * 56 * 1024)
    with pytest.raises(ApplyError, match="No space left"):
        put(path, b"old", b"n" * 32 * 1024)
    assert path.read_bytes() == b"old"
    assert sorted(one.name for one in small.iterdir()) == ["filler", "launch.sh"]
    with pytest.raises(ApplyError, match="No space left"):
        keep(small / "kept", Plan(server=SERVER, edits=(Rewrite(path=path, before=b"o" * 32 * 1024, after=b"n"),)))


SERVER = Server(
    name="a", logs=("/x.log",), target="script:/x", restart=("/r", "-x"), path_map=(("/m", "/n"),),
    labels=(("pod", "a*"),), models=("/models",),
)  # fmt: skip
PATCH = ApiPatch(
    namespace="prod", kind="deployment", name="llm", container="sglang", resource_version="7",
    operations=(
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/spec/x", "value": "old"},
        {"op": "replace", "path": "/spec/x", "value": "new"},
    ),
    undo=(
        {"op": "test", "path": "/spec/x", "value": "new"},
        {"op": "replace", "path": "/spec/x", "value": "old"},
    ),
)  # fmt: skip


def test_a_plan_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    edits = (
        Rewrite(path=Path("/a b"), before=b"\xff\0old", after=b"new", mode=0o600),
        Rewrite(path=Path("/new"), before=None, after=b""),
        Rewrite(path=Path("/gone"), before=b"", after=None),
        PATCH,
    )
    plan = Plan(
        server=SERVER, edits=edits, argv=("a", "b c"), env=(("X", "1"), ("Y", None)), release="0.5.23", error="e"
    )
    keep(tmp_path / "kept", plan)
    assert kept(tmp_path / "kept") == plan
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in (tmp_path / "kept").iterdir())
    (tmp_path / "kept" / "plan.json").write_text("{")
    with pytest.raises(ApplyError, match="cannot be read"):
        kept(tmp_path / "kept")


def test_edits_are_made_and_taken_back_in_order(file: Path) -> None:
    new = file.with_name("new.conf")
    edits = (Rewrite(path=file, before=b"old\r\n", after=b"new"), Rewrite(path=new, before=None, after=b"x"))
    make(edits, nothing_there)
    make(edits, nothing_there)
    assert {standing(one, nothing_there) for one in edits} == {"after"}
    unmake(edits, nothing_there)
    unmake(edits, nothing_there)
    assert {standing(one, nothing_there) for one in edits} == {"before"}
    assert not new.exists()
    assert [turned(turned(one)) for one in edits] == list(edits)


def test_nothing_is_taken_back_where_one_file_is_somebody_elses(file: Path) -> None:
    new = file.with_name("new.conf")
    edits = (Rewrite(path=file, before=b"old\r\n", after=b"new"), Rewrite(path=new, before=None, after=b"x"))
    make(edits, nothing_there)
    new.write_bytes(b"mine")
    with pytest.raises(ApplyError, match=r"new\.conf was changed by somebody else"):
        unmake(edits, nothing_there)
    assert (file.read_bytes(), new.read_bytes()) == (b"new", b"mine")


class Cluster:
    """One value of one object, with a resource version."""

    def __init__(self) -> None:
        self.value, self.version = "old", 7
        self.ran: list[Sequence[str]] = []

    def __call__(self, words: Sequence[str]) -> Done:
        import json

        self.ran.append(words)
        (body,) = (word.removeprefix("--patch=") for word in words if word.startswith("--patch="))
        for operation in json.loads(body):
            held = str(self.version) if "resourceVersion" in operation["path"] else self.value
            if operation["op"] == "test" and operation["value"] != held:
                return Done(code=1, out="", err="the server rejected our request: test failed")
            if operation["op"] == "replace" and "--dry-run=server" not in words:
                self.value, self.version = operation["value"], self.version + 1
        return Done(code=0, out="patched", err="")


def test_a_patch_is_made_and_taken_back_and_its_state_is_told() -> None:
    cluster = Cluster()
    assert standing(PATCH, cluster) == "before"
    make((PATCH,), cluster)
    assert cluster.ran[-1][:6] == ("kubectl", "patch", "deployment", "llm", "--namespace", "prod")
    assert (cluster.value, standing(PATCH, cluster)) == ("new", "after")
    unmake((PATCH,), cluster)
    assert cluster.value == "old"
    make((turned(turned(PATCH)),), cluster)
    assert cluster.value == "new"
    cluster.value = "mine"
    assert standing(PATCH, cluster) == "other"
    with pytest.raises(ApplyError, match="deployment/llm in prod was changed by somebody else"):
        unmake((PATCH,), cluster)


def test_a_patch_on_an_object_that_changed_is_refused() -> None:
    cluster = Cluster()
    cluster.version = 8
    with pytest.raises(ApplyError, match="cannot be changed: the server rejected"):
        make((PATCH,), cluster)
    assert cluster.value == "old"
