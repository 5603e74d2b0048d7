"""In which precision does SGLang run a model, and do the draft's layers get what the target's give?

Mirrors srt/configs/model_config.py: _get_and_verify_dtype.
"""

from __future__ import annotations

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.models.base import ModelConfig

NAME = "draft_dtype"
_NAMES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32", "float32": "float32"}


def dtype_of(subject: Subject, config: ModelConfig) -> str | None:
    """The dtype of a model as torch names it, None where it cannot be told from the files and the launch."""
    typed = subject.launch.text_value("dtype") or "auto"
    if typed != "auto":
        return _NAMES.get(typed)
    name = given_dtype(config) or "float32"
    if name == "float32":  # nobody serves it: gemma goes to bfloat16, all others to float16
        return "bfloat16" if config.model_type.startswith("gemma") else "float16"
    return name if name in ("float16", "bfloat16") else None


def given_dtype(config: ModelConfig) -> str | None:
    """The dtype that the model's own configuration names, None where it is silent."""
    for part in (config.text, config.top):
        for key in ("torch_dtype", "dtype"):
            value = part.get(key)
            if value:
                return str(value).removeprefix("torch.")
    return None


def _draft(subject: Subject) -> Answer | None:
    """An EAGLE head multiplies the target's hidden states with its own weights: both must have one dtype.

    With `--dtype auto` each model keeps the dtype of its own configuration.
    """
    if subject.algorithm not in ("EAGLE", "EAGLE3") or subject.draft_path is None:
        return None
    target, draft = subject.target(), subject.draft()
    if not draft.architectures or "Eagle" not in draft.architectures[0]:
        return Answer()
    if target.top.get("quantization_config") is not None or subject.launch.is_set("quantization"):
        return Answer(because="the dtype of a quantized target is settled by its quantization")
    if given_dtype(target) is None or given_dtype(draft) is None:
        return Answer(because="a dtype is not in the files")
    theirs, ours = dtype_of(subject, target), dtype_of(subject, draft)
    if theirs is None or ours is None or theirs == ours:
        return Answer()
    return broken(
        "dtypes-differ",
        None,
        None,
        fact(NAME, "target dtype", theirs, target.source),
        fact(NAME, "draft dtype", ours, draft.source),
        target=subject.target_path,
        draft=subject.draft_path,
        target_dtype=theirs,
        draft_dtype=ours,
    )


DRAFT_DTYPE = Check(
    name=NAME, phase=Phase.SERVING, mirrors="srt/configs/model_config.py: _get_and_verify_dtype", run=_draft
)
