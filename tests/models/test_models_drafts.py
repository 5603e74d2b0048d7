"""The search for a draft that fits, on folders and on plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specwatch.models.base import Candidate
from specwatch.models.drafts import draft_architectures
from specwatch.models.files import LocalModels
from specwatch.models.memory import MemoryModels, token_map

BASE: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 4096,
}


def lay(folder: Path, letter: str = "a", size: int = 100, rows: int | None = None, **changes: Any) -> Path:
    config = BASE | changes
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    model = {"type": "WordLevel", "vocab": token_map(letter), "unk_token": "<unk>"}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model})
    )
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    if size:
        count = config["vocab_size"] if rows is None else rows
        tensor = {"dtype": "U8", "shape": [count, size], "data_offsets": [0, count * size]}
        header = json.dumps({"model.embed_tokens.weight": tensor}).encode()
        content = len(header).to_bytes(8, "little") + header + bytes(count * size)
        (folder / "model.safetensors").write_bytes(content)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lay(tmp_path / "target", size=1000)
    return tmp_path


def search(root: Path, *, exclude: tuple[str, ...] = (), **more: Any) -> dict[str, Candidate]:
    models = LocalModels(
        models_dirs=[str(root)], environ={"HOME": str(root / "home"), "HF_HOME": str(root / "hf")}, **more
    )
    name = "/models/target" if more else str(root / "target")
    found = models.drafts(name, target=models.config(name), exclude=exclude)
    return {Path(candidate.host_path).name: candidate for candidate in found}


def test_a_fitting_draft(root: Path) -> None:
    lay(root / "draft", size=10)
    got = search(root)
    assert list(got) == ["draft"]
    assert got["draft"].fits
    assert got["draft"].because == ""
    assert got["draft"].path == str(root / "draft")
    assert got["draft"].weight_bytes == (root / "draft" / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"vocab_size": 63}, "its vocab_size is 63, the target's 64"),
        ({"letter": "b"}, "its tokenizer gives other ids to the tokens than the target's"),
        ({"max_position_embeddings": 2048}, "its context of 2048 tokens is shorter than the target's 4096"),
        ({"size": 2000}, "it is not smaller than the target"),
        ({"size": 0, "num_hidden_layers": 1}, "it has no weights"),
        ({"rows": 70}, "model.embed_tokens.weight has 70 rows, but its vocab_size is 64"),
        (
            {"architectures": ["Qwen3MoeForCausalLM"]},
            "SGLang loads Qwen3MoeForCausalLM as a draft only through Qwen3MoeForCausalLMMTP",
        ),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3 is not a full causal language model"),
    ],
)
def test_why_a_model_does_not_fit(root: Path, changes: dict[str, Any], because: str) -> None:
    lay(root / "draft", **({"size": 10} | changes))
    got = search(root)["draft"]
    assert (got.fits, got.because) == (False, because)


def test_a_model_that_cannot_be_read_says_why(root: Path) -> None:
    (root / "bad").mkdir()
    (root / "bad" / "config.json").write_text("{")
    (root / "torn").mkdir()
    lay(root / "cut", size=10)
    (root / "cut" / "model.safetensors").write_bytes(b"\x01")
    got = search(root)
    assert "not a valid JSON file" in got["bad"].because
    assert "cut off" in got["cut"].because
    assert "torn" not in got


def test_kin_first_then_the_smaller(root: Path) -> None:
    lay(root / "other-small", size=1, model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    lay(root / "kin-large", size=50)
    lay(root / "kin-small", size=20)
    lay(root / "misfit", size=1, vocab_size=5)
    assert list(search(root)) == ["kin-small", "kin-large", "other-small", "misfit"]


def test_excluded_models_and_the_target_itself_are_left_out(root: Path) -> None:
    lay(root / "draft", size=10)
    (root / "alias").symlink_to("target")
    assert search(root, exclude=(str(root / "draft"),)) == {}


def test_links_in_circles_and_deep_folders(root: Path) -> None:
    lay(root / "a" / "b" / "c" / "draft", size=10)
    lay(root / "1" / "2" / "3" / "4" / "5" / "6" / "deep", size=10)
    (root / "a" / "loop").symlink_to(root)
    assert list(search(root)) == ["draft"]


def test_the_name_that_the_server_sees(root: Path) -> None:
    lay(root / "draft", size=10)
    mapped = search(root, path_maps=[("/models", str(root))])
    assert mapped["draft"].path == "/models/draft"
    outside = search(root, path_maps=[("/models/target", str(root / "target"))])
    assert outside["draft"].path is None
    assert outside["draft"].fits


def test_the_hugging_face_cache_is_searched(root: Path) -> None:
    snapshot = root / "hf" / "hub" / "models--org--small" / "snapshots" / ("0" * 40)
    lay(snapshot, size=10)
    (root / "hf" / "hub" / "models--org--small" / "refs").mkdir()
    (root / "hf" / "hub" / "models--org--small" / "refs" / "main").write_text("0" * 40)
    models = LocalModels(environ={"HOME": str(root / "home"), "HF_HOME": str(root / "hf")})
    target = str(root / "target")
    found = models.drafts(target, target=models.config(target))
    assert [(candidate.path, candidate.fits) for candidate in found] == [("org/small", True)]
    mapped = LocalModels(
        path_maps=[("/", str(root))], environ={"HOME": str(root / "home"), "HF_HOME": str(root / "hf")}
    )
    found = mapped.drafts("/target", target=mapped.config("/target"))
    assert [candidate.path for candidate in found] == ["/hf/hub/models--org--small/snapshots/" + "0" * 40]


def test_a_shorter_served_context_lets_shorter_drafts_fit(root: Path) -> None:
    lay(root / "draft", size=10, max_position_embeddings=2048)
    models = LocalModels(models_dirs=[str(root)], environ={"HOME": str(root / "home")})
    name = str(root / "target")
    assert models.drafts(name, target=models.config(name), context_length=2048)[0].fits


def test_heads_for_other_algorithms() -> None:
    target = {"hidden_size": 64, "num_hidden_layers": 8}
    flash = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 64, "vocab_size": 32000}
    flash |= {"max_position_embeddings": 4096}
    models = MemoryModels(
        {
            "/t": target,
            "/fits": flash | {"dflash_config": {"num_target_layers": 8}},
            "/layers": flash | {"num_target_layers": 9},
            "/hidden": flash | {"hidden_size": 128},
            "/model": target,
        }
    )
    found = models.drafts("/t", target=models.config("/t"), algorithm="dflash")
    assert [candidate.path for candidate in found if candidate.fits] == ["/fits"]
    reasons = {candidate.path: candidate.because for candidate in found}
    assert reasons["/layers"] == "it is made for a target of 9 layers, the target has 8"
    assert reasons["/hidden"] == "it is made for a hidden size of 128, the target has 64"
    assert reasons["/model"] == "LlamaForCausalLM is not a draft for DFLASH"
    assert not any(c.fits for c in models.drafts("/t", target=models.config("/t"), algorithm="UNO"))


def test_architectures_of_a_draft() -> None:
    assert draft_architectures(["DeepseekV32ForCausalLM", "x"]) == ("DeepseekV3ForCausalLMNextN", "x")
    assert draft_architectures(["LlamaForCausalLM"]) == ("LlamaForCausalLM",)
    assert draft_architectures([]) == ()
