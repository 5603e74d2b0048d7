"""Folders, path maps, the Hugging Face cache, and files that are not what they seem."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from specwatch.errors import ModelError
from specwatch.models.files import LocalModels
from specwatch.models.paths import PathMaps

CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 100}
NOWHERE = {"HOME": "/nonexistent"}


def lay(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def safetensors(file: Path, shapes: dict[str, list[int]], cut: int = 0) -> None:
    entries, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for extent in shape:
            size *= extent
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(at)
    file.write_bytes(content[: len(content) - cut])


def local(**more: Any) -> LocalModels:
    return LocalModels(environ=NOWHERE, **more)


def test_reads_a_folder(tmp_path: Path) -> None:
    folder = lay(tmp_path / "m")
    got = local().config(str(folder))
    assert got.vocab_size == 100
    assert got.source == str(folder / "config.json")
    assert local().exists(str(folder))
    assert local().file_exists(str(folder), "config.json")
    assert not local().file_exists(str(folder), "mask_embedding.pt")


def test_the_longest_map_wins_and_nothing_leads_out() -> None:
    maps = PathMaps([("/models", "/data/a"), ("/models/big/", "/data/b")])
    assert maps.to_host("/models/x") == Path("/data/a/x")
    assert maps.to_host("/models/big/y/") == Path("/data/b/y")
    assert maps.to_host("/models/bigger") == Path("/data/a/bigger")
    assert maps.to_host("/models") == Path("/data/a")
    assert maps.to_host("/models/../etc") is None
    assert maps.to_host("/other") is None
    everything = PathMaps([("/", "/host/")])
    assert everything.to_host("/a/../../../b") == Path("/host/b")


def test_back_to_the_servers_name(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    maps = PathMaps([("/models", str(tmp_path)), ("/", "/elsewhere")])
    assert maps.to_server(tmp_path / "x") == "/models/x"
    assert maps.to_server(tmp_path) == "/models"
    assert maps.to_server(Path("/elsewhere/y")) == "/y"
    assert maps.to_server(Path("/etc")) is None
    assert PathMaps().to_server(Path("/etc")) == "/etc"


def test_a_mapped_model(tmp_path: Path) -> None:
    lay(tmp_path / "m")
    models = local(path_maps=[("/models", str(tmp_path))])
    assert models.config("/models/m").path == "/models/m"
    with pytest.raises(ModelError, match="no --path-map") as caught:
        models.config("/srv/m")
    assert caught.value.exception is None


def test_a_relative_path_starts_at_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    assert local().config("./m/").vocab_size == 100


def test_a_missing_model_is_unknown_not_broken(tmp_path: Path) -> None:
    for path in (str(tmp_path / "nowhere"), "org/name", "a/b/c", "with\0nul"):
        with pytest.raises(ModelError) as caught:
            local().config(path)
        assert caught.value.exception is None
        assert not local().exists(path)


def cached(home: Path, repo: str, commit: str = "0" * 40, ref: str = "main") -> Path:
    root = home / "hub" / ("models--" + repo.replace("/", "--"))
    (root / "refs").mkdir(parents=True, exist_ok=True)
    (root / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
    (root / "refs" / ref).write_text(commit)
    blob = root / "blobs" / ("b" * 40)
    blob.parent.mkdir(exist_ok=True)
    blob.write_text(json.dumps(CONFIG))
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / "config.json").symlink_to(f"../../blobs/{'b' * 40}")
    return snapshot


def test_the_hub_cache(tmp_path: Path) -> None:
    cached(tmp_path, "org/name")
    cached(tmp_path, "org/pinned", "1" * 40, "refs/pr/1")
    models = LocalModels(environ={"HF_HOME": str(tmp_path)})
    assert models.config("org/name").vocab_size == 100
    assert models.config("org/pinned", revision="1" * 40).vocab_size == 100
    assert models.config("org/pinned", revision="refs/pr/1").vocab_size == 100
    assert models.is_cached_repo("org/name")
    for revision in (None, "v2", "../../x"):
        with pytest.raises(ModelError):
            models.config("org/pinned", revision=revision)
    assert LocalModels(environ={"HF_HUB_CACHE": str(tmp_path / "hub")}).exists("org/name")
    assert (
        LocalModels(environ={"HOME": "/x", "XDG_CACHE_HOME": str(tmp_path)}).hub_cache == tmp_path / "huggingface/hub"
    )


def test_a_partly_cached_repository_is_unknown(tmp_path: Path) -> None:
    (cached(tmp_path, "org/name") / "config.json").unlink()
    with pytest.raises(ModelError, match="the server may fetch it") as caught:
        LocalModels(environ={"HF_HOME": str(tmp_path)}).config("org/name")
    assert caught.value.exception is None


def test_another_configuration_file(tmp_path: Path) -> None:
    folder = lay(tmp_path / "m")
    (folder / "other.json").write_text(json.dumps(CONFIG | {"vocab_size": 7}))
    (tmp_path / "outside.json").write_text(json.dumps(CONFIG | {"vocab_size": 8}))
    models, path = local(), str(folder)
    assert models.config(path, config_file="other.json").vocab_size == 7
    assert models.config(path, config_file="../outside.json").vocab_size == 8
    assert models.config(path, config_file=str(tmp_path / "outside.json")).vocab_size == 8
    assert models.config(path, config_file="").vocab_size == 100
    with pytest.raises(ModelError) as caught:
        models.config(path, config_file="none.json", revision="v1")
    assert caught.value.exception == "OSError"
    assert caught.value.message == (
        f"{path} does not appear to have a file named none.json. Checkout "
        f"'https://huggingface.co/{path}/tree/v1' for available files."
    )


def test_a_mapped_configuration_file_outside_of_the_model(tmp_path: Path) -> None:
    lay(tmp_path / "models" / "m")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "c.json").write_text(json.dumps(CONFIG | {"vocab_size": 8}))
    models = local(path_maps=[("/", str(tmp_path))])
    assert models.config("/models/m", config_file="/json/c.json").vocab_size == 8
    assert models.config("/models/m", config_file="../../json/c.json").vocab_size == 8


def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ModelError, match="not a regular file"):
        local().config(str(folder))
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="not a regular file"):
        local().config(str(folder))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    folder = lay(tmp_path / "m")
    with (folder / "config.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ModelError, match="larger than 64 MB") as caught:
        local().config(str(folder))
    assert caught.value.exception is None


def test_a_missing_configuration_reads_as_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").symlink_to("gone")
    with pytest.raises(ModelError) as caught:
        local().config(str(tmp_path / "m"))
    assert (caught.value.message or "").startswith("Unrecognized model in")


def test_answers_are_remembered_failures_too(tmp_path: Path) -> None:
    folder, models = lay(tmp_path / "m"), local()
    first = models.config(str(folder))
    (folder / "config.json").unlink()
    assert models.config(str(folder)) is first
    with pytest.raises(ModelError):
        models.config(str(tmp_path / "late"))
    lay(tmp_path / "late")
    with pytest.raises(ModelError):
        models.config(str(tmp_path / "late"))


def test_weights_come_from_headers(tmp_path: Path) -> None:
    folder, models = lay(tmp_path / "m"), local()
    assert models.weights(str(folder)) == {}
    assert not models.has_weights(str(folder))
    safetensors(folder / "model-00001-of-00002.safetensors", {"a": [2, 3]})
    safetensors(folder / "model-00002-of-00002.safetensors", {"b": []})
    fresh = local()
    assert fresh.weights(str(folder)) == {"a": (2, 3), "b": ()}
    assert fresh.has_weights(str(folder))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05",
        (99).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
    ],
)
def test_torn_weights(tmp_path: Path, content: bytes) -> None:
    folder = lay(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        local().weights(str(folder))


def test_weights_cut_off_in_the_data(tmp_path: Path) -> None:
    folder = lay(tmp_path / "m")
    safetensors(folder / "model.safetensors", {"a": [100]}, cut=1)
    with pytest.raises(ModelError, match="cut off"):
        local().weights(str(folder))


def test_what_is_no_weights(tmp_path: Path) -> None:
    folder = lay(tmp_path / "m")
    (folder / "training_args.bin").write_bytes(b"x")
    (folder / "mask_embedding.pt").write_bytes(b"x")
    assert not local().has_weights(str(folder))
    (folder / "pytorch_model.bin").write_bytes(b"x")
    assert local().has_weights(str(folder))


def test_no_permission_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lay(tmp_path / "m")

    def refuse(*args: object, **more: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("specwatch.models.reading.os.open", refuse)
    with pytest.raises(ModelError, match="Permission denied") as caught:
        local().config(str(folder))
    assert caught.value.exception is None
