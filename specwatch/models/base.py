"""What the rest of specwatch may ask about a model: its configuration, its tokens, the shapes of its weights.

`Models` is implemented by `files.LocalModels` (folders and the Hugging Face cache) and by `memory.MemoryModels`
(plain data, for the examples in rules). All questions name a model as the server names it: a path inside the
server's file system, or a repository id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from specwatch.domain import Value


class Config(Protocol):
    """One configuration as SGLang sees it: the file, then what the library fills in, then the overrides."""

    def get(self, key: str, default: Value = None) -> Value:
        """The value of `key`, or `default` where the configuration has no such attribute.

        Raises ModelError when the value depends on code that cannot be run here.
        """

    def has(self, key: str) -> bool:
        """Whether the configuration has the attribute, be it null."""

    def origin(self, key: str) -> str:
        """Who says so: a file's path, "transformers class default of qwen3", "--json-model-override-args", or ""."""

    def __iter__(self) -> Iterator[str]:
        """The names of all attributes that are known."""


class ModelConfig(NamedTuple):
    """A model's configuration, read as SGLang's `ModelConfig` reads it.

    `path` is the name under which the server knows the model, `source` the file that was read on this host. `text` is
    the part that describes the language model (`top` itself for a plain text model). `vocab_size` and
    `context_length` (in tokens) are the derived values that SGLang compares; `vocab_size` is None where the file has
    null and the class accepts it. `remote_code` tells that the server would let the repository's own code fill in what
    the file leaves out. `architectures` are those of the file: a draft may be given others, see
    `drafts.draft_architectures`.
    """

    path: str
    source: str
    top: Config
    text: Config
    architectures: tuple[str, ...] = ()
    model_type: str = ""
    vocab_size: int | None = None
    context_length: int = 0
    remote_code: bool = False


class Tokenizer(Protocol):
    """A tokenizer as the server would load it."""

    @property
    def vocab(self) -> Mapping[str, int]:
        """All tokens with their ids, added ones included."""

    @property
    def mask_token(self) -> str | None:
        """The mask token, if the tokenizer declares one."""

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token, None where none is declared."""

    @property
    def digest(self) -> str:
        """A hash of the token map in the files: equal for two models whose tokens have the same ids."""

    def append_mask(self, token: str) -> int | None:
        """The id that `token` would get by being declared the mask token; the tokenizer stays as it is."""


class Candidate(NamedTuple):
    """A model that was looked at as a draft, and whether it fits the target.

    `path` is its name for the server, None where the server cannot reach `host_path`. `because` is empty when it fits.
    `weight_bytes` is the size of the weights, estimated from the configuration where `estimated`.
    """

    path: str | None
    host_path: str
    fits: bool
    because: str = ""
    vocab_size: int = 0
    weight_bytes: int = 0
    estimated: bool = False
    architectures: tuple[str, ...] = ()
    context_length: int = 0
    model_type: str = ""


class MaskEmbedding(NamedTuple):
    """The trained mask embedding that a DFLASH draft may bring: good for one token id only."""

    mask_token_id: int
    per_position: bool = False


class Models(Protocol):
    """What is known of the models that a launch names. All methods raise ModelError where they cannot tell."""

    def config(
        self,
        path: str,
        *,
        overrides: Mapping[str, Value] | None = None,
        config_file: str | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> ModelConfig:
        """The configuration of a model, with `--json-model-override-args` (parsed) applied.

        `config_file` is the value of `--decrypted-draft-config-file` (or of the target's flag): a file that is read in
        place of config.json, looked for inside the model folder.
        """

    def tokenizer(self, path: str, *, revision: str | None = None) -> Tokenizer:
        """The tokenizer of a model."""

    def weights(self, path: str, *, revision: str | None = None) -> Mapping[str, tuple[int, ...]]:
        """The shape of each tensor in the model's safetensors files."""

    def exists(self, path: str, *, revision: str | None = None) -> bool:
        """Whether the model can be seen from here."""

    def has_weights(self, path: str, *, revision: str | None = None) -> bool:
        """Whether the model has at least one file of weights."""

    def file_exists(self, path: str, name: str, *, revision: str | None = None) -> bool:
        """Whether the model has a file of this name."""

    def mask_embedding(self, path: str) -> MaskEmbedding | None:
        """The `mask_embedding.pt` of a local draft folder, None where it has none."""

    def text(self, path: str) -> str:
        """The text of a small file that the launch names, such as that of `--config`; `path` as the server sees it."""

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
        """The models at hand as drafts for a target, fitting ones first, then by kinship and size.

        `context_length` is what the launch serves, where it is less than the target's own.
        """
