"""Which models on this machine fit a target as its draft, with the reason where one does not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models import paths, reading, weights
from specwatch.models.base import Candidate, ModelConfig

MAX_DEPTH = 5
"""Folders below a `--models-dir` that are looked into; a cache or a mirror nests three deep."""
MAX_FOLDERS = 5000
"""Folders that are visited in all."""

# Drafts whose first architecture SGLang replaces by a class that loads only a checkpoint's MTP/NextN layers, so that
# a full model under this name does not load as a draft.
# sglang/srt/configs/model_config.py: ModelConfig._config_draft_model (0.5.23).
REWRITTEN: Mapping[str, str] = {
    "DeepseekV3ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "DeepseekV32ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "GlmMoeDsaForCausalLM": "GlmMoeDsaForCausalLMNextN",
    "DeepseekV4ForCausalLM": "DeepseekV4ForCausalLMNextN",
    "Glm4MoeForCausalLM": "Glm4MoeForCausalLMNextN",
    "Glm4MoeLiteForCausalLM": "Glm4MoeLiteForCausalLMNextN",
    "Glm5NextForConditionalGeneration": "Glm5NextForConditionalGenerationNextN",
    "GlmOcrForConditionalGeneration": "GlmOcrForConditionalGenerationNextN",
    "LongcatFlashForCausalLM": "LongcatFlashForCausalLMNextN",
    "MiMoForCausalLM": "MiMoMTP",
    "MiMoV2ForCausalLM": "MiMoV2MTP",
    "MiMoV2FlashForCausalLM": "MiMoV2MTP",
    "Step3p5ForCausalLM": "Step3p5MTP",
    "InklingForConditionalGeneration": "InklingForConditionalGenerationMTP",
    "GigaChat35ForCausalLM": "GigaChat35ForCausalLMNextN",
    "Step3p7ForConditionalGeneration": "Step3p5MTP",
    "BailingMoeV2ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV2_5ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV3ForCausalLM": "BailingMoeForCausalLMNextN",
    "Ernie4_5_MoeForCausalLM": "Ernie4_5_MoeForCausalLMMTP",
    "Qwen3NextForCausalLM": "Qwen3NextForCausalLMMTP",
    "Qwen4ExpForConditionalGeneration": "Qwen4ExpForCausalLMMTP",
    "Qwen3MoeForCausalLM": "Qwen3MoeForCausalLMMTP",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5ForCausalLM": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForCausalLM": "Qwen3_5ForCausalLMMTP",
    "InternS2PreviewForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "InternS2MobiusForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "ExaoneMoEForCausalLM": "ExaoneMoEForCausalLMMTP",
    "ExaoneMoeForCausalLM": "ExaoneMoEForCausalLMMTP",
    "NemotronH_Omni_Reasoning_V3": "NemotronHForCausalLMMTP",
    "NemotronHForCausalLM": "NemotronHForCausalLMMTP",
    "NemotronHPuzzleForCausalLM": "NemotronHForCausalLMMTP",
    "HYV3ForCausalLM": "HYV3ForCausalLMNextN",
    "HYV4ForCausalLM": "HYV4ForCausalLMNextN",
}

# How the class names of trained heads begin or what they hold, by algorithm.
_HEADS = {"DFLASH": ("DFlash",), "DSPARK": ("DSpark",), "EAGLE3": ("Eagle3", "EAGLE3"), "EAGLE": ("Eagle", "EAGLE")}
_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
)


def draft_architectures(architectures: Sequence[str]) -> tuple[str, ...]:
    """The architectures under which SGLang loads a model as a draft."""
    first = tuple(REWRITTEN.get(name, name) for name in architectures[:1])
    return first + tuple(architectures[1:])


class _Host(Protocol):
    """What the search needs of `files.LocalModels`."""

    models_dirs: tuple[str, ...]
    hub_cache: Path

    @property
    def mapped(self) -> bool: ...
    def config_in(self, folder: Path, name: str) -> ModelConfig: ...
    def digest_in(self, folder: Path, name: str) -> str: ...
    def host_path(self, path: str, *, revision: str | None = None) -> Path: ...
    def server_path(self, host_path: str) -> str | None: ...
    def is_cached_repo(self, path: str, *, revision: str | None = None) -> bool: ...


class Wanted(NamedTuple):
    """What a draft has to match: the target's side of the comparison. `folder` is None where it cannot be seen."""

    config: ModelConfig
    algorithm: str
    context_length: int
    weight_bytes: int = 0
    digest: str = ""
    no_digest: str = ""


def search(
    models: _Host,
    target_path: str,
    *,
    target: ModelConfig,
    algorithm: str = "STANDALONE",
    revision: str | None = None,
    exclude: Sequence[str] = (),
    context_length: int | None = None,
) -> tuple[Candidate, ...]:
    """Every model folder in the models' directories and in the Hugging Face cache, judged as a draft for `target`.

    Fitting ones come first; among them those of the target's model type, then the smaller. `exclude` names models as
    the server does. Searching is bounded by MAX_DEPTH and MAX_FOLDERS; links that lead in circles are safe.
    """
    context = min(context_length, target.context_length) if context_length else target.context_length
    target_folder = _folder(models, target_path, revision)
    wanted = Wanted(config=target, algorithm=algorithm.upper(), context_length=context)
    if target_folder is not None:
        wanted = wanted._replace(weight_bytes=_size(target_folder))
    skip = {os.path.realpath(f) for f in (_folder(models, name, None) for name in exclude) if f is not None}
    if target_folder is not None:
        skip.add(os.path.realpath(target_folder))
    by_id = not models.mapped or models.is_cached_repo(target_path, revision=revision)
    found = []
    for folder, repo in _all(models):
        real = os.path.realpath(folder)
        name = repo if repo and by_id else models.server_path(str(folder))
        if real in skip or name in exclude or repo in exclude:
            continue
        skip.add(real)
        if wanted.algorithm == "STANDALONE" and not wanted.digest and not wanted.no_digest:
            wanted = _with_digest(models, wanted, target_folder, target_path)
        found.append(_judge(models, folder, name, wanted))
    return ranked(found, target)


def ranked(found: Sequence[Candidate], target: ModelConfig) -> tuple[Candidate, ...]:
    """Candidates in the order in which they are offered."""
    return tuple(
        sorted(found, key=lambda c: (not c.fits, c.model_type != target.model_type, c.weight_bytes, c.host_path))
    )


def _folder(models: _Host, path: str, revision: str | None) -> Path | None:
    try:
        return models.host_path(path, revision=revision)
    except ModelError:
        return None


def _with_digest(models: _Host, wanted: Wanted, folder: Path | None, path: str) -> Wanted:
    if folder is None:
        return wanted._replace(no_digest=f"the tokenizer of {path} cannot be seen from here")
    try:
        return wanted._replace(digest=models.digest_in(folder, path))
    except ModelError as error:
        return wanted._replace(no_digest=str(error))


def _all(models: _Host) -> Iterator[tuple[Path, str]]:
    """Folder and repository id (empty for a plain folder) of everything that looks like a model."""
    for directory in models.models_dirs:
        for folder in _model_folders(Path(directory).expanduser()):
            yield folder, ""
    for repo in paths.cached_repos(models.hub_cache):
        cached = paths.snapshot(models.hub_cache, repo, None)
        if cached is not None and reading.is_file(cached / "config.json"):
            yield cached, repo


def _model_folders(root: Path) -> Iterator[Path]:
    """Folders with a config.json below `root`, `root` included; parts of a model are not looked into."""
    seen: set[str] = set()
    level = [root]
    for _ in range(MAX_DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            real = os.path.realpath(folder)
            if real in seen or len(seen) >= MAX_FOLDERS:
                continue
            seen.add(real)
            if reading.is_file(folder / "config.json"):
                yield folder
                continue
            try:
                below += [child for child in sorted(folder.iterdir()) if child.is_dir() and child.name[:1] != "."]
            except OSError:
                continue
        level = below


def _judge(models: _Host, folder: Path, name: str | None, wanted: Wanted) -> Candidate:
    shown = name or str(folder)
    candidate = Candidate(path=name, host_path=str(folder), fits=False)
    try:
        config = models.config_in(folder, shown)
        size = _size(folder)
        candidate = candidate._replace(
            vocab_size=config.vocab_size or 0,
            weight_bytes=size or estimate(config),
            estimated=not size,
            architectures=config.architectures,
            context_length=config.context_length,
            model_type=config.model_type,
        )
        because = mismatch(candidate, config, wanted)
        if not because and not size:
            because = "it has no weights"
        if not because:
            because = _by_weights(folder, config, wanted)
        if not because and wanted.algorithm == "STANDALONE":
            because = wanted.no_digest
            if not because and models.digest_in(folder, shown) != wanted.digest:
                because = "its tokenizer gives other ids to the tokens than the target's"
    except ModelError as error:
        because = str(error)
    except OSError as error:
        because = f"{folder}: cannot be read: {error.strerror}"
    return candidate._replace(fits=not because, because=because)


def mismatch(candidate: Candidate, config: ModelConfig, wanted: Wanted) -> str:
    """Why a model's configuration does not fit, empty where it does."""
    target = wanted.config
    first = config.architectures[0] if config.architectures else ""
    if config.vocab_size != target.vocab_size:
        return f"its vocab_size is {config.vocab_size}, the target's {target.vocab_size}"
    if config.context_length < wanted.context_length:
        return f"its context of {config.context_length} tokens is shorter than the target's {wanted.context_length}"
    if wanted.algorithm != "STANDALONE":
        return _head_mismatch(config, first, wanted)
    if first in REWRITTEN:
        return f"SGLang loads {first} as a draft only through {REWRITTEN[first]}"
    if not first.endswith("ForCausalLM"):
        return f"{first or 'its architecture'} is not a full causal language model"
    ours, theirs = candidate.weight_bytes, wanted.weight_bytes
    if candidate.estimated or not theirs:
        ours, theirs = estimate(config), estimate(target)
    if ours >= theirs:
        return "it is not smaller than the target"
    return ""


def _head_mismatch(config: ModelConfig, first: str, wanted: Wanted) -> str:
    marks = _HEADS.get(wanted.algorithm)
    if marks is None:
        return f"which drafts {wanted.algorithm or 'this algorithm'} takes is not known here"
    if not any(mark in first for mark in marks) or (wanted.algorithm == "EAGLE" and "agle3" in first.lower()):
        return f"{first or 'its architecture'} is not a draft for {wanted.algorithm}"
    inner = config.top.get("dflash_config")
    given: Value = inner.get("num_target_layers") if isinstance(inner, dict) else None
    layers = given if given is not None else config.top.get("num_target_layers")
    target_layers = wanted.config.text.get("num_hidden_layers")
    if layers is not None and layers != target_layers:
        return f"it is made for a target of {layers} layers, the target has {target_layers}"
    hidden = wanted.config.text.get("hidden_size")
    own = config.top.get("target_hidden_size") or config.text.get("hidden_size")
    if own != hidden:
        return f"it is made for a hidden size of {own}, the target has {hidden}"
    return ""


def _by_weights(folder: Path, config: ModelConfig, wanted: Wanted) -> str:
    """What the headers of the weights say against the model; formats without headers say nothing."""
    shapes = weights.shapes(folder)
    for name, shape in shapes.items():
        rows = shape[0] if shape else 0
        if name.endswith(_EMBEDDINGS) and wanted.algorithm == "STANDALONE" and rows != config.vocab_size:
            return f"{name} has {rows} rows, but its vocab_size is {config.vocab_size}"
    hidden = wanted.config.text.get("hidden_size")
    fused = shapes.get("fc.weight", shapes.get("model.fc.weight"))
    head = wanted.algorithm != "STANDALONE" and fused and len(fused) == 2
    if head and fused and isinstance(hidden, int) and hidden > 0 and fused[1] % hidden:
        return f"its fc.weight takes {fused[1]} features, which is no multiple of the target's {hidden}"
    return ""


def _size(folder: Path) -> int:
    try:
        return weights.weight_bytes(folder)
    except (ModelError, OSError):
        return 0


def estimate(config: ModelConfig) -> int:
    """The rough size of a model in bytes at two bytes a parameter, from its configuration; 0 if that is silent."""
    numbers = []
    for key in ("hidden_size", "num_hidden_layers", "intermediate_size"):
        try:
            value = config.text.get(key)
        except ModelError:
            value = None
        numbers.append(value if isinstance(value, int) else 0)
    hidden, layers, inner = numbers
    experts = 1
    for key in ("num_local_experts", "num_experts", "n_routed_experts"):
        value = config.text.get(key)
        if isinstance(value, int) and value > 1:
            experts, moe = value, config.text.get("moe_intermediate_size")
            inner = moe if isinstance(moe, int) and moe else inner
    inner = inner or 4 * hidden
    per_layer = 4 * hidden * hidden + 3 * hidden * inner * experts
    return 2 * (layers * per_layer + 2 * hidden * (config.vocab_size or 0))
