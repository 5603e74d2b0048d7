"""Models made of plain data, for the examples in rules: nothing is read from disk.

    "/models/x" = { vocab_size = 256000, vocab = "a", model_type = "llama", added = { "<mask>" = 70 } }

Every key is a key of config.json, but for those of OWN_KEYS. `model_type` and `architectures` are filled in for a
plain Llama where an example does not care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models import config as configs
from specwatch.models import drafts as draft_models
from specwatch.models import tokenizers
from specwatch.models.base import Candidate, MaskEmbedding, ModelConfig, Tokenizer

OWN_KEYS = frozenset(
    {"vocab", "added", "mask_token", "weights", "files", "weight_bytes", "config_files", "mask_embedding", "text"}
)
"""Keys of an example's model that do not belong to its config.json.

`vocab` is a letter for a token map, `added` more tokens with their ids, `mask_token` the declared mask token,
`weights` a table of tensor shapes (an empty one: no weights), `files` names of further files, `weight_bytes` the size,
`config_files` other configurations by name, as for `--decrypted-draft-config-file`, `text` the content of what is no
model but a file, such as that of `--config`.
"""
_SIZE = 64


def token_map(letter: str) -> dict[str, int]:
    """A vocabulary of 64 tokens; two letters never share one."""
    special = {"<unk>": 0, "<s>": 1, "</s>": 2}
    return special | {f"{letter}{number}": number + len(special) for number in range(_SIZE - len(special))}


@dataclass(frozen=True)
class MemoryTokenizer:
    """A tokenizer made of plain data. Implements `base.Tokenizer`."""

    letter: str
    added: Mapping[str, int]
    mask_token: str | None = None

    @cached_property
    def vocab(self) -> Mapping[str, int]:
        """All tokens with their ids."""
        return token_map(self.letter) | dict(self.added)

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token, None where none is declared."""
        return self.vocab.get(self.mask_token) if self.mask_token else None

    @cached_property
    def digest(self) -> str:
        """A hash of the token map."""
        return tokenizers.digest(self.vocab)

    def append_mask(self, token: str) -> int | None:
        """The id that `token` has, or gets behind the last one."""
        if token in self.vocab:
            return self.vocab[token]
        return max(self.vocab.values()) + 1


class MemoryModels:
    """The models of an example. Implements `base.Models`."""

    def __init__(self, spec: Mapping[str, Mapping[str, Any]]) -> None:
        self._spec = {path.rstrip("/") or path: dict(model) for path, model in spec.items()}

    def config(
        self,
        path: str,
        *,
        overrides: Mapping[str, Value] | None = None,
        config_file: str | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> ModelConfig:
        """The configuration of a model; see `base.Models.config`."""
        del revision
        model = self._model(path)
        data = {key: value for key, value in model.items() if key not in OWN_KEYS}
        if config_file:
            files = model.get("config_files", {})
            if config_file not in files:
                raise ModelError(f"{path}: the example has no {config_file}")
            data = dict(files[config_file])
        data.setdefault("model_type", "llama")
        data.setdefault("architectures", ["LlamaForCausalLM"])
        return configs.model_config(
            data,
            path=path,
            source=f"{path}/{config_file or 'config.json'}",
            overrides=overrides,
            trust_remote_code=trust_remote_code,
        )

    def tokenizer(self, path: str, *, revision: str | None = None) -> Tokenizer:
        """The tokenizer that the model's letter stands for."""
        del revision
        model = self._model(path)
        if not model.get("vocab"):
            raise ModelError(f"{path}: no tokenizer files")
        return MemoryTokenizer(str(model["vocab"]), dict(model.get("added", {})), model.get("mask_token"))

    def weights(self, path: str, *, revision: str | None = None) -> Mapping[str, tuple[int, ...]]:
        """The shapes that the example gives."""
        del revision
        return {name: tuple(shape) for name, shape in self._model(path).get("weights", {}).items()}

    def exists(self, path: str, *, revision: str | None = None) -> bool:
        """Whether the example has the model."""
        del revision
        return (path.rstrip("/") or path) in self._spec

    def has_weights(self, path: str, *, revision: str | None = None) -> bool:
        """True unless the example says `weights = {}`."""
        del revision
        model = self._model(path)
        return "weights" not in model or bool(model["weights"])

    def file_exists(self, path: str, name: str, *, revision: str | None = None) -> bool:
        """Whether the example gives the model a file of this name."""
        del revision
        model = self._model(path)
        if name in ("tokenizer.json", "tokenizer_config.json"):
            return bool(model.get("vocab"))
        return name == "config.json" or name in model.get("files", ())

    def mask_embedding(self, path: str) -> MaskEmbedding | None:
        """The trained mask embedding that the example gives the draft: `mask_embedding = { mask_token_id = 7 }`."""
        saved = self._model(path).get("mask_embedding")
        return MaskEmbedding(**saved) if saved else None

    def text(self, path: str) -> str:
        """The text of a file of the example: `"/etc/x.yaml" = { text = "…" }`."""
        return str(self._model(path).get("text", ""))

    def drafts(
        self,
        target_path: str,
        *,
        target: ModelConfig,
        algorithm: str = "STANDALONE",
        revision: str | None = None,
        exclude: Sequence[str] = (),
        context_length: int | None = None,
    ) -> tuple[Candidate, ...]:
        """The other models of the example as drafts for the target."""
        del revision
        context = min(context_length, target.context_length) if context_length else target.context_length
        wanted = draft_models.Wanted(config=target, algorithm=algorithm.upper(), context_length=context)
        wanted = wanted._replace(weight_bytes=int(self._model(target_path).get("weight_bytes", 0)))
        others = [path for path in self._spec if path not in (target_path.rstrip("/"), *exclude)]
        return draft_models.ranked([self._judge(path, target_path, wanted) for path in others], target)

    def _judge(self, path: str, target_path: str, wanted: draft_models.Wanted) -> Candidate:
        candidate = Candidate(path=path, host_path=path, fits=False)
        try:
            config = self.config(path)
            size = int(self._model(path).get("weight_bytes", 0))
            candidate = candidate._replace(
                vocab_size=config.vocab_size or 0,
                weight_bytes=size or draft_models.estimate(config),
                estimated=not size,
                architectures=config.architectures,
                context_length=config.context_length,
                model_type=config.model_type,
            )
            because = draft_models.mismatch(candidate, config, wanted)
            if not because and not self.has_weights(path):
                because = "it has no weights"
            if not because and wanted.algorithm == "STANDALONE":
                same = self.tokenizer(path).digest == self.tokenizer(target_path).digest
                because = "" if same else "its tokenizer gives other ids to the tokens than the target's"
        except ModelError as error:
            because = str(error)
        return candidate._replace(fits=not because, because=because)

    def _model(self, path: str) -> Mapping[str, Any]:
        found = self._spec.get(path.rstrip("/") or path)
        if found is None:
            raise ModelError(f"{path} is not on this machine")
        return found
