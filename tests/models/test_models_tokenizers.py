"""Real tokenizers of the oracle's models, and the digests remembered on disk."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from specwatch.errors import ModelError
from specwatch.models import tokenizers
from specwatch.models.files import LocalModels

MODELS = Path(__file__).parent.parent / "data" / "oracle" / "models"


@pytest.fixture
def models(tmp_path: Path) -> LocalModels:
    return LocalModels(environ={"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})


def path(name: str) -> str:
    return str(MODELS / name)


@pytest.mark.parametrize(
    ("name", "number"),
    # mask.token-gap*: the file says 95 and 100, the library closes the gap
    [("target-mask-gap", 90), ("target-mask-gap-out", 90), ("target-mask-in-vocab", 90), ("target-mask-out", 100)],
)
def test_added_tokens_as_the_server_sees_them(models: LocalModels, name: str, number: int) -> None:
    assert models.tokenizer(path(name)).vocab["<|MASK|>"] == number
    assert models.tokenizer(path(name)).mask_token is None


def test_a_declared_mask_token(models: LocalModels) -> None:
    got = models.tokenizer(path("target-mask-declared"))
    assert (got.mask_token, got.mask_token_id) == ("<|MASK|>", 90)


@pytest.mark.parametrize(("name", "number"), [("target", 90), ("target-tok104", 104), ("target-mask-in-vocab", 90)])
def test_appending_a_mask_token_leaves_the_tokenizer_alone(models: LocalModels, name: str, number: int) -> None:
    got = models.tokenizer(path(name))
    before = dict(got.vocab)
    assert got.append_mask("<|MASK|>") == number
    assert got.append_mask("<|MASK|>") == number
    assert dict(got.vocab) == before
    assert got.mask_token is None


def test_digests_tell_token_maps_apart(models: LocalModels) -> None:
    assert models.vocab_digest(path("target")) == models.vocab_digest(path("draft"))
    assert models.vocab_digest(path("target")) != models.vocab_digest(path("draft-other-tokenizer"))
    assert tokenizers.digest({"a": 1, "b": 2}) == tokenizers.digest({"b": 2, "a": 1})
    assert tokenizers.digest({"a": 1, "b": 2}) != tokenizers.digest({"a": 2, "b": 1})


def test_the_model_type_makes_no_other_vocabulary(models: LocalModels, tmp_path: Path) -> None:
    folder = copy_of("target", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "qwen2"}))
    assert models.vocab_digest(str(folder)) == models.vocab_digest(path("target"))
    assert len(models.tokenizer(str(folder)).vocab) == 91  # the library's class for Qwen2 adds <|endoftext|>


def test_added_tokens_beside_the_vocabulary_count(models: LocalModels, tmp_path: Path) -> None:
    folder = copy_of("target", tmp_path / "m")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"90": {"content": "<new>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert models.vocab_digest(str(folder)) != models.vocab_digest(path("target"))


def test_a_model_without_a_tokenizer(models: LocalModels) -> None:
    with pytest.raises(ModelError, match="no tokenizer files") as caught:
        models.tokenizer(path("target-no-tokenizer"))
    assert caught.value.exception is None


def copy_of(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file in (MODELS / name).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_digest_is_remembered_until_the_files_change(models: LocalModels, tmp_path: Path) -> None:
    folder = copy_of("target", tmp_path / "m")
    first = models.vocab_digest(str(folder))
    cache = tmp_path / "cache" / "specwatch" / "tokenizers.json"
    data = json.loads(cache.read_text())
    key = str(folder.resolve())
    data["tokenizers"][key]["digest"] = "remembered"
    cache.write_text(json.dumps(data))
    again = LocalModels(environ={"HOME": "/x", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert again.vocab_digest(str(folder)) == "remembered"
    text = (folder / "tokenizer_config.json").read_text()
    (folder / "tokenizer_config.json").write_text(text + " ")
    fresh = LocalModels(environ={"HOME": "/x", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert fresh.vocab_digest(str(folder)) == first


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 99}', '{"version": 1, "tokenizers": []}', "\0"])
def test_a_foreign_or_torn_cache_is_written_anew(models: LocalModels, tmp_path: Path, content: str) -> None:
    cache = tmp_path / "cache" / "specwatch" / "tokenizers.json"
    cache.parent.mkdir(parents=True)
    cache.write_text(content)
    assert models.vocab_digest(path("target"))
    assert json.loads(cache.read_text())["version"] == 1
    assert [file.name for file in cache.parent.iterdir()] == ["tokenizers.json"]


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    models = LocalModels(environ={"HOME": "/x", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert models.vocab_digest(path("target"))


def test_a_broken_tokenizer(models: LocalModels, tmp_path: Path) -> None:
    folder = copy_of("target", tmp_path / "m")
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE"}}')
    with pytest.raises(ModelError, match="its tokenizer cannot be read") as caught:
        models.tokenizer(str(folder))
    assert caught.value.exception is None


def test_a_tokenizer_that_is_too_large(models: LocalModels, tmp_path: Path) -> None:
    folder = copy_of("target", tmp_path / "m")
    with (folder / "tokenizer.json").open("wb") as file:
        file.truncate(tokenizers.TOKENIZER_CAP + 1)
    with pytest.raises(ModelError, match="larger than"):
        models.tokenizer(str(folder))


def test_code_of_the_repository_never_runs(models: LocalModels, tmp_path: Path) -> None:
    folder = copy_of("target", tmp_path / "m")
    (folder / "tokenization_x.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass X: pass\n")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "X", "auto_map": {"AutoTokenizer": ["tokenization_x.X", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with contextlib.suppress(ModelError):
        assert models.tokenizer(str(folder)).vocab
    assert not (tmp_path / "ran").exists()


def test_nothing_heavy_is_imported_for_a_remembered_digest(models: LocalModels, tmp_path: Path) -> None:
    models.vocab_digest(path("target"))
    script = (
        "import sys\n"
        "from specwatch.models.files import LocalModels\n"
        f"models = LocalModels(environ={{'HOME': '/x', 'XDG_CACHE_HOME': {str(tmp_path / 'cache')!r}}})\n"
        f"models.vocab_digest({path('target')!r}); models.config({path('target')!r})\n"
        "print([name for name in ('transformers', 'tokenizers', 'yaml', 'huggingface_hub') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_library_stays_silent(tmp_path: Path) -> None:
    script = (
        "from specwatch.models.files import LocalModels\n"
        f"models = LocalModels(environ={{'HOME': {str(tmp_path)!r}}})\n"
        f"print(models.tokenizer({path('target')!r}).append_mask('<|MASK|>'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    assert (done.stdout, done.stderr) == ("90\n", "")
