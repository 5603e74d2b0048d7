"""The type checks that transformers 5 makes when it fills in a configuration, with the words it uses.

Mirrors huggingface_hub 1.x `dataclasses.py: type_validator` for the types that occur in model configurations.
"""

from __future__ import annotations

import re
from functools import lru_cache

from specwatch.domain import Value

_BASIC: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "dict": dict, "list": list}
_NAMES = {"None": "NoneType", "RopeParameters": "transformers.modeling_rope_utils.RopeParameters"}


def complaint(field: str, value: Value, kind: str) -> str:
    """What is wrong with `value` for a field of this type, empty when nothing is.

    `kind` is the annotation as the class has it, such as `int | None` or `list[str]`; an empty one allows everything.
    """
    parts = _parts(kind)
    if not kind:
        return ""
    if len(parts) == 1:
        return _one(field, value, parts[0])
    errors = []
    for part in parts:
        wrong = _one(field, value, part)
        if not wrong:
            return ""
        errors.append(wrong)
    shown = ", ".join(_shown(part) for part in parts)
    return f"Field '{field}' with value {value!r} doesn't match any type in ({shown}). Errors: {'; '.join(errors)}"


def field_error(field: str, complaint: str) -> str:
    """The text of huggingface_hub's `StrictDataclassFieldValidationError`."""
    return f"Validation error for field '{field}':\n    TypeError: {complaint}"


def class_error(validator: str, complaint: str, kind: str = "ValueError") -> str:
    """The text of huggingface_hub's `StrictDataclassClassValidationError`; `kind` is the error inside it."""
    return f"Class validation error for validator '{validator}':\n    {kind}: {complaint}"


@lru_cache(maxsize=256)
def _parts(kind: str) -> tuple[str, ...]:
    parts: list[str] = []
    depth, start = 0, 0
    for at, char in enumerate(kind):
        if char in "[]":
            depth += 1 if char == "[" else -1
        elif char == "|" and depth == 0:
            parts.append(kind[start:at].strip())
            start = at + 1
    return (*parts, kind[start:].strip())


def _one(field: str, value: Value, part: str) -> str:
    got = type(value).__name__
    if part in ("Any", ""):
        return ""
    if part == "RopeParameters":
        return "TypedDict does not support instance and class checks"
    if part == "None":
        return "" if value is None else f"Field '{field}' expected NoneType, got {got} (value: {value!r})"
    if (list_of := re.fullmatch(r"list\[(.+)\]", part)) is not None:
        if not isinstance(value, list):
            return f"Field '{field}' expected a list, got {got}"
        return next(
            (
                f"Invalid item at index {index} in list '{field}'"
                for index, item in enumerate(value)
                if complaint(f"{field}[{index}]", item, list_of.group(1))
            ),
            "",
        )
    if part.startswith("dict["):
        # Keys of a JSON object are strings, and the values of such fields are checked where they are used.
        return "" if isinstance(value, dict) else f"Field '{field}' expected a dict, got {got}"
    if part.startswith("tuple["):
        return f"Field '{field}' expected a tuple, got {got}"
    if part in _BASIC:
        fits = isinstance(value, _BASIC[part]) and not (part == "int" and isinstance(value, bool))
        return "" if fits else f"Field '{field}' expected {part}, got {got} (value: {value!r})"
    # A class of its own, such as a sub-configuration: JSON never holds one.
    return f"Field '{field}' expected {part.rpartition('.')[2]}, got {got} (value: {value!r})"


def _shown(part: str) -> str:
    if "[" in part:
        return part
    return f"<class '{_NAMES.get(part, part)}'>"
