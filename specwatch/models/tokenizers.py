"""Real tokenizers, read by transformers as SGLang reads them; code of a repository never runs.

transformers is imported only when a tokenizer has to be built. The digest of a token map, all that a comparison
needs, is remembered on disk by the names, sizes and times of the files that it came from.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from specwatch.errors import ModelError
from specwatch.models import reading

TOKENIZER_CAP = 256 << 20
"""Largest file of a tokenizer, in bytes."""
_CACHE_VERSION = 1
_CACHE_ENTRIES = 1000
_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "config.json",
)


def digest(vocab: Mapping[str, int]) -> str:
    """A hash of a token map, independent of the order of its tokens."""
    text = json.dumps(sorted((number, token) for token, number in vocab.items()), separators=(",", ":"))
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


class LocalTokenizer:
    """The tokenizer of a folder. Implements `base.Tokenizer`; built by transformers on first need."""

    def __init__(self, folder: Path, name: str, known_digest: str | None = None) -> None:
        self._folder = folder
        self._name = name
        self._known_digest = known_digest

    @cached_property
    def _library(self) -> Any:
        return _load(self._folder, self._name)

    @cached_property
    def vocab(self) -> Mapping[str, int]:
        """All tokens with their ids, added ones included."""
        vocab = self._library.get_vocab()
        if not isinstance(vocab, dict) or not vocab:
            raise ModelError(f"{self._name}: its tokenizer has no list of tokens")
        return vocab

    @property
    def mask_token(self) -> str | None:
        """The mask token, if the tokenizer declares one."""
        token = self._library.mask_token
        return str(token) if token is not None else None

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token, None where none is declared."""
        number = self._library.mask_token_id
        return int(number) if number is not None else None

    @cached_property
    def digest(self) -> str:
        """A hash of the token map that the files hold.

        Tokens that the library's class for a model type adds of its own accord are left out: they have no row in any
        model, and would tell apart the same vocabulary under two model types.
        """
        if self._known_digest:
            return self._known_digest
        return digest(_file_map(self._folder, self._name) or self.vocab)

    def append_mask(self, token: str) -> int | None:
        """The id that `token` would get by being declared the mask token; the tokenizer stays as it is."""
        with _quiet(), _failures(self._name):
            trial = copy.deepcopy(self._library)
            trial.add_special_tokens({"mask_token": token})
            number = trial.mask_token_id
        return int(number) if number is not None else None


def tokenizer(folder: Path, name: str, cache: Path | None) -> LocalTokenizer:
    """The tokenizer of a model's folder. Raises ModelError where there is none that can be read without its code.

    `name` is what messages call the model, `cache` the file of remembered digests.
    """
    fingerprint = _fingerprint(folder)
    if not fingerprint:
        raise ModelError(f"{name}: no tokenizer files in {folder}")
    key = str(folder.resolve())
    known = _remembered(cache).get(key)
    if isinstance(known, dict) and known.get("files") == fingerprint and isinstance(known.get("digest"), str):
        return LocalTokenizer(folder, name, known["digest"])
    found = LocalTokenizer(folder, name)
    _remember(cache, key, {"files": fingerprint, "digest": found.digest})
    return found


def cache_file(environ: Mapping[str, str]) -> Path:
    """Where digests are remembered: specwatch/tokenizers.json in the user's cache folder."""
    base = environ.get("XDG_CACHE_HOME")
    home = environ.get("HOME")
    root = Path(base) if base else (Path(home) if home else Path.home()) / ".cache"
    return root / "specwatch" / "tokenizers.json"


def _fingerprint(folder: Path) -> list[list[str | int]]:
    """Name, size and time of each file that shapes the tokenizer, and the version of the library that reads them."""
    found: list[list[str | int]] = []
    for name in _FILES:
        path = folder / name
        if not reading.is_file(path):
            continue
        state = path.stat()
        if state.st_size > TOKENIZER_CAP:
            raise ModelError(f"{path}: larger than {TOKENIZER_CAP >> 20} MB; expected a tokenizer's file, not read")
        found.append([name, state.st_size, state.st_mtime_ns])
    if not any(name != "config.json" for name, *_ in found):
        return []
    return [*found, ["transformers", 0, _library_version()]]


def _library_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("transformers")
    except PackageNotFoundError:
        return "none"


def _file_map(folder: Path, name: str) -> dict[str, int]:
    """The tokens in tokenizer.json and the added ones beside it; empty where there is no such file."""
    if not reading.is_file(folder / "tokenizer.json"):
        return {}
    with _quiet(), _failures(name):
        from tokenizers import Tokenizer

        vocab: dict[str, int] = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)
    decoder = _json(folder / "tokenizer_config.json").get("added_tokens_decoder")
    for number, token in decoder.items() if isinstance(decoder, dict) else ():
        content = token.get("content") if isinstance(token, dict) else None
        if isinstance(content, str) and number.isdecimal():
            vocab.setdefault(content, int(number))
    for content, position in _json(folder / "added_tokens.json").items():
        if isinstance(position, int):
            vocab.setdefault(content, position)
    return vocab


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where there is none."""
    content = reading.read(path)
    try:
        data = json.loads(content) if content is not None else {}
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _load(folder: Path, name: str) -> Any:
    """Build the tokenizer with the library. Mirrors sglang's `utils/hf_transformers/tokenizer.py: get_tokenizer`."""
    names = {entry[0] for entry in _fingerprint(folder)}
    if "tekken.json" in names and "tokenizer.json" not in names:
        raise ModelError(f"{name}: a tokenizer in Mistral's own format, which is not read here")
    with _quiet(), _failures(name):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True, clean_up_tokenization_spaces=False
        )


@contextlib.contextmanager
def _failures(name: str) -> Iterator[None]:
    """Everything that goes wrong inside the library becomes a ModelError: it also raises ImportError and worse."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, ModelError):
        raise
    except MemoryError as error:
        raise ModelError(f"{name}: its tokenizer does not fit into memory") from error
    except BaseException as error:  # a panic of the Rust library is no Exception
        first = next(iter(str(error).strip().split("\n")), "")[:300]
        hint = "; its own code would be needed, which is never run here" if "trust_remote_code" in str(error) else ""
        raise ModelError(f"{name}: its tokenizer cannot be read: {type(error).__name__}: {first}{hint}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from the terminal and from the network."""
    import logging

    settings = {"TRANSFORMERS_VERBOSITY": "critical", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
    settings |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(_Nowhere()):
            warnings.simplefilter("ignore")
            with _offline():
                yield
    finally:
        logging.disable(disabled)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Set the library's own switch, which it reads from the environment only once per process."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


class _Nowhere:
    """A text stream that forgets."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return None


def _remembered(cache: Path | None) -> dict[str, Any]:
    """The remembered digests; empty where the file is missing, torn or somebody else's."""
    if cache is None:
        return {}
    try:
        content = reading.read(cache)
        data = json.loads(content) if content is not None else {}
    except (ModelError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("version") != _CACHE_VERSION:
        return {}
    entries = data.get("tokenizers")
    return entries if isinstance(entries, dict) else {}


def _remember(cache: Path | None, key: str, entry: dict[str, Any]) -> None:
    """Write one digest; two processes may lose each other's, never tear the file. Failing to write is no failure."""
    if cache is None:
        return
    entries = _remembered(cache)
    entries.pop(key, None)
    entries[key] = entry
    kept = dict(list(entries.items())[-_CACHE_ENTRIES:])
    text = json.dumps({"version": _CACHE_VERSION, "tokenizers": kept})
    import tempfile

    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=cache.parent, prefix=".tokenizers-", delete=False) as file:
            try:
                file.write(text)
                file.close()
                Path(file.name).replace(cache)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
