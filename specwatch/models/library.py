"""Configuration objects as transformers 5 builds them from a config.json, without importing it.

Mirrors transformers 5.19 `configuration_utils.py: PreTrainedConfig` (fields, then derived values, then what is left
of the file, then the checks) for the keys that checks ask for. What each class fills in stands in
config_defaults.json, which tools/make_config_defaults.py writes; a key whose value depends on code that is not
mirrored here is marked `unsure` there, and asking for it raises ModelError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models import strict

GENERIC = "PreTrainedConfig"

# In this order: sglang/srt/utils/hf_transformers/common.py: CONTEXT_LENGTH_KEYS.
CONTEXT_LENGTH_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
UNSET: Mapping[str, Any] = {}


def refuse(exception: str, message: str, where: str = "") -> NoReturn:
    """Raise the ModelError for files that SGLang itself refuses, in its own words."""
    place = f"{where}: " if where else ""
    raise ModelError(f"{place}SGLang refuses it: {exception}: {message}", exception=exception, message=message)


@lru_cache(maxsize=1)
def table() -> Mapping[str, Any]:
    """The shipped table of what each class fills in; read on first use."""
    loaded: Mapping[str, Any] = json.loads(Path(__file__).with_name("config_defaults.json").read_text("utf-8"))
    return loaded


def known(model_type: str) -> bool:
    """Whether SGLang's transformers knows a class for this model type."""
    return model_type in table()["classes"] or model_type in table()["known"]


class LibraryConfig:
    """One configuration object: attributes with where each comes from. Implements `base.Config`."""

    __slots__ = (
        "_aliases",
        "_fixed",
        "_given",
        "_odd",
        "_origins",
        "_types",
        "_unsure",
        "_values",
        "class_name",
        "model_type",
        "source",
    )

    def __init__(self, class_name: str, model_type: str, entry: Mapping[str, Any], source: str) -> None:
        self.class_name = class_name
        self.model_type = model_type
        self.source = source
        self._aliases: Mapping[str, str] = entry.get("map", UNSET)
        self._unsure: frozenset[str] = frozenset(entry.get("unsure", ()))
        self._odd: frozenset[str] = frozenset(entry.get("odd", ()))
        self._given: set[str] = set()
        self._values: dict[str, Any] = {}
        self._origins: dict[str, str] = {}
        self._types: Mapping[str, str] = UNSET
        self._fixed: frozenset[str] = frozenset(entry.get("fixed", ()))

    def get(self, key: str, default: Value = None) -> Value:
        """The value of `key`, or `default` where there is no such attribute; a sub-configuration as a dict."""
        name = self._name(key)
        if name in (self._odd if name in self._given else self._unsure):
            raise ModelError(
                f"{self.source}: how the configuration class of {self.model_type} sets {key} is not known here"
            )
        if name not in self._values:
            return default
        got = self._values[name]
        return got.as_dict() if isinstance(got, LibraryConfig) else got

    def has(self, key: str) -> bool:
        """Whether there is such an attribute."""
        return self._name(key) in self._values

    def origin(self, key: str) -> str:
        """Where the value comes from, empty where there is none."""
        return self._origins.get(self._name(key), "")

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._values))

    def sub(self, key: str) -> LibraryConfig | None:
        """The sub-configuration under this key, if it is an object."""
        got = self._values.get(self._name(key))
        return got if isinstance(got, LibraryConfig) else None

    def raw(self, key: str) -> Any:
        """The value without asking whether it is sure; None where there is none."""
        return self._values.get(self._name(key))

    def as_dict(self) -> dict[str, Value]:
        """All attributes, sub-configurations as dicts too."""
        return {k: v.as_dict() if isinstance(v, LibraryConfig) else v for k, v in self._values.items()}

    def give(self, key: str, value: Any, origin: str) -> None:
        """Assign what a person wrote, in the file or as an override: type-checked, and trusted over a class's own."""
        if self.fixed(key):
            text = f"property '{self._name(key)}' of '{self.class_name}' object has no setter"
            refuse("AttributeError", text, self.source)
        self.set(key, value, origin)
        self._given.add(self._name(key))

    def fixed(self, key: str) -> bool:
        """Whether the class computes the attribute and lets nobody set it."""
        return key in self._fixed or self._name(key) in self._fixed

    def set(self, key: str, value: Any, origin: str) -> None:
        """Assign an attribute, type check included."""
        wrong = "" if isinstance(value, LibraryConfig) else strict.complaint(key, value, self._types.get(key, ""))
        if wrong:
            refuse("StrictDataclassFieldValidationError", strict.field_error(key, wrong), self.source)
        name = self._name(key)
        self._values[name] = value
        self._origins[name] = origin

    def context(self) -> int:
        """The context length in tokens, as sglang 0.5.23 `utils/hf_transformers/common.py: get_context_length`.

        Raises ModelError where it depends on code that is not mirrored here, or would not be a number.
        """
        if "context" in self._odd and "rope_parameters" in self._given:
            raise ModelError(f"{self.source}: how {self.model_type} derives its context length is not known here")
        return self.plain_context()

    def plain_context(self) -> int:
        """`context()` without asking whether it is sure."""
        params = self.raw("rope_parameters")
        factor: Any = 1
        if params and not isinstance(params, dict):
            raise ModelError(f"{self.source}: rope_scaling is not an object")
        if params and "original_max_position_embeddings" not in params:
            factor = 1 if params.get("rope_type") == "llama3" else params.get("factor", 1)
        for key in CONTEXT_LENGTH_KEYS:
            value = self.raw(key)
            if value is None:
                continue
            if not isinstance(value, int | float) or not isinstance(factor, int | float):
                raise ModelError(f"{self.source}: {key} = {value!r} with a rope factor of {factor!r} is no length")
            return int(factor * value)
        return 2048

    def drop(self, key: str) -> None:
        """Forget an attribute."""
        self._values.pop(key, None)
        self._origins.pop(key, None)

    def fill(self, values: Mapping[str, Any], types: Mapping[str, str], origin: str) -> None:
        """What the class itself brings along, unchecked."""
        self._values |= {key: list(v) if isinstance(v, list) else v for key, v in values.items()}
        self._origins |= dict.fromkeys(values, origin)
        self._types = types

    def _name(self, key: str) -> str:
        key = self._aliases.get(key, key)
        return {"rope_scaling": "rope_parameters", "torch_dtype": "dtype"}.get(key, key)
