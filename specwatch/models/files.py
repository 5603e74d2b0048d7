"""Models as they lie on this machine: folders, mapped container paths, and the Hugging Face cache."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models import config as configs
from specwatch.models import drafts, mask_embedding, paths, reading, tokenizers, weights
from specwatch.models.base import Candidate, MaskEmbedding, ModelConfig, Tokenizer
from specwatch.models.library import refuse

T = TypeVar("T")

# What `--online` may fetch: descriptions, never weights.
_FETCHED = [
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
]


class LocalModels:
    """The models of this machine. Implements `base.Models`.

    `path_maps` are pairs (path in the server, path here), `models_dirs` the folders in which drafts may be looked for,
    `online` allows to fetch missing descriptions (never weights) of repositories from the Hub. Answers are remembered
    for the life of the object.
    """

    def __init__(
        self,
        path_maps: Sequence[tuple[str, str]] = (),
        models_dirs: Sequence[str] = (),
        environ: Mapping[str, str] = os.environ,
        *,
        online: bool = False,
    ) -> None:
        self.models_dirs = tuple(models_dirs)
        self.hub_cache = paths.hub_cache(environ)
        self._maps = paths.PathMaps(path_maps)
        self._digests = tokenizers.cache_file(environ)
        self._online = online
        self._answers: dict[tuple[Any, ...], Any] = {}

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
        key = ("config", path, json.dumps(dict(overrides or {})), config_file, revision, trust_remote_code)

        def load() -> ModelConfig:
            place = self._place(path, revision)
            data, source = self._data(place, path, config_file or "config.json", revision)
            return configs.model_config(
                data,
                path=path,
                source=str(source),
                local=place.local,
                overrides=overrides,
                trust_remote_code=trust_remote_code,
                registry_data=(lambda: self._data(place, path, "config.json", revision)[0]) if config_file else None,
            )

        return self._once(key, load)

    def config_in(self, folder: Path, name: str) -> ModelConfig:
        """The configuration of a folder on this host, for which messages use `name`."""

        def load() -> ModelConfig:
            file = folder / "config.json"
            content = reading.read(file)
            data = configs.parse(content, str(file)) if content is not None else {}
            return configs.model_config(data, path=name, source=str(file))

        return self._once(("config_in", str(folder), name), load)

    def digest_in(self, folder: Path, name: str) -> str:
        """The hash of the token map of a folder on this host."""
        key = ("digest_in", str(folder), name)
        return self._once(key, lambda: tokenizers.tokenizer(folder, name, self._digests).digest)

    def _data(self, place: paths.Place, path: str, name: str, revision: str | None) -> tuple[Mapping[str, Any], Path]:
        """The content of a configuration file, and where it lies here.

        Mirrors transformers' `utils/hub.py: cached_file`: a missing config.json is an empty configuration, any other
        missing file an error.
        """
        file = self._inside(place, path, name)
        content = reading.read(file)
        # os.path.join, as the library does it, so that messages name the file in the same way.
        named = os.path.join(path, name) if place.local else str(file)  # noqa: PTH118
        if content is not None:
            return configs.parse(content, named), file
        if not place.local:
            raise ModelError(f"{path}: {name} is not in the Hugging Face cache; the server may fetch it")
        if name != "config.json":
            refuse(
                "OSError",
                f"{path} does not appear to have a file named {name}. Checkout "
                f"'https://huggingface.co/{path}/tree/{revision or 'main'}' for available files.",
            )
        return {}, file

    def _inside(self, place: paths.Place, path: str, name: str) -> Path:
        """The host path of a file that a launch names relative to a model's folder."""
        if name.startswith("/") or ".." in Path(name).parts:
            if not place.local:
                raise ModelError(f"{name}: outside of the cached repository {path}")
            if path.startswith("/") or name.startswith("/"):
                host = self._maps.to_host(os.path.join(path, name))  # noqa: PTH118
                if host is None:
                    raise ModelError(f"{name}: no --path-map tells where it lies on this machine")
                return host
        return place.folder / name

    def tokenizer(self, path: str, *, revision: str | None = None) -> Tokenizer:
        """The tokenizer of a model; see `base.Models.tokenizer`."""

        def load() -> tokenizers.LocalTokenizer:
            return tokenizers.tokenizer(self._place(path, revision).folder, path, self._digests)

        return self._once(("tokenizer", path, revision), load)

    def vocab_digest(self, path: str, *, revision: str | None = None) -> str:
        """The hash of a model's token map, from the cache on disk where its files did not change."""
        return self.tokenizer(path, revision=revision).digest

    def weights(self, path: str, *, revision: str | None = None) -> Mapping[str, tuple[int, ...]]:
        """The shape of each tensor in the model's safetensors files."""
        return self._once(("weights", path, revision), lambda: weights.shapes(self._place(path, revision).folder))

    def exists(self, path: str, *, revision: str | None = None) -> bool:
        """Whether the model can be seen from here."""
        with contextlib.suppress(ModelError):
            self._place(path, revision)
            return True
        return False

    def has_weights(self, path: str, *, revision: str | None = None) -> bool:
        """Whether the model has at least one file of weights."""
        return bool(weights.weight_files(self._place(path, revision).folder))

    def file_exists(self, path: str, name: str, *, revision: str | None = None) -> bool:
        """Whether the model has a file of this name."""
        return reading.is_file(self._place(path, revision).folder / name)

    def is_cached_repo(self, path: str, *, revision: str | None = None) -> bool:
        """Whether the name is a repository id that was found in the Hugging Face cache."""
        with contextlib.suppress(ModelError):
            return not self._place(path, revision).local
        return False

    @property
    def mapped(self) -> bool:
        """Whether the server sees paths under other names than this host."""
        return bool(self._maps)

    def host_path(self, path: str, *, revision: str | None = None) -> Path:
        """The folder of a model on this host."""
        return self._place(path, revision).folder

    def server_path(self, host_path: str) -> str | None:
        """The name under which the server sees a host path, None where no map reaches it."""
        return self._maps.to_server(Path(host_path))

    def mask_embedding(self, path: str) -> MaskEmbedding | None:
        """The `mask_embedding.pt` of a local draft folder, None where it has none.

        SGLang looks for it under the path as given, so a repository of the Hub never has one.
        """
        if not self._place(path, None).local:
            return None
        return self._once(("mask embedding", path), lambda: mask_embedding.read(self._place(path, None).folder))

    def text(self, path: str) -> str:
        """The text of a small file that the launch names; see `base.Models.text`."""

        def load() -> str:
            # a path that no map reaches may still be this host's own
            mapped = self._maps.to_host(path) if path.startswith("/") else None
            content = reading.read(mapped if mapped is not None else Path(path))
            if content is None:
                raise ModelError("no such file on this machine")
            try:
                return content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ModelError(f"{path}: expected UTF-8 text: {error}") from None

        return self._once(("text", path), load)

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
        """The models of this machine as drafts for a target, fitting ones first; see `drafts.search`."""
        return drafts.search(
            self,
            target_path,
            target=target,
            algorithm=algorithm,
            revision=revision,
            exclude=tuple(exclude),
            context_length=context_length,
        )

    def _place(self, path: str, revision: str | None) -> paths.Place:
        if not path:
            text = "Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with '-' or '.' "
            refuse("OSError", text + "and the maximum length is 96: ''.")
        return self._once(("place", path, revision), lambda: self._located(path, revision))

    def _located(self, path: str, revision: str | None) -> paths.Place:
        try:
            return paths.find(path, maps=self._maps, cache=self.hub_cache, revision=revision)
        except ModelError:
            if not (self._online and paths.is_repo_id(path)):
                raise
        _fetch(path, revision, self.hub_cache)
        return paths.find(path, maps=self._maps, cache=self.hub_cache, revision=revision)

    def _once(self, key: tuple[Any, ...], load: Callable[[], T]) -> T:
        """The answer for a key, remembered; so is a ModelError."""
        if key not in self._answers:
            try:
                self._answers[key] = load()
            except ModelError as error:
                self._answers[key] = error
        answer = self._answers[key]
        if isinstance(answer, ModelError):
            raise answer
        found: T = answer
        return found


def _fetch(repo: str, revision: str | None, cache: Path) -> None:
    """Fetch the description of a repository into the cache. Raises ModelError where the Hub does not give it."""
    try:
        from huggingface_hub import snapshot_download

        snapshot_download(repo, revision=revision, cache_dir=cache, allow_patterns=_FETCHED)
    except Exception as error:
        first = str(error).strip().split("\n")[0][:300]
        raise ModelError(f"{repo}: not on this machine, and the Hub did not give it: {first}") from error
