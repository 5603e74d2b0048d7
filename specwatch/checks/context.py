"""Is the context longer than a model was made for? Every draft has to bear the target's whole context."""

from __future__ import annotations

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.models.base import ModelConfig

ALLOW = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def _longer(subject: Subject, name: str, whose: str, wanted: int, config: ModelConfig) -> Answer:
    typed = subject.number("context_length") is not None
    evidence = (
        fact(name, "context that is asked for", wanted, "--context-length" if typed else subject.target_path),
        fact(name, "derived context", config.context_length, config.source),
    )
    if wanted <= config.context_length or subject.env_flag(ALLOW) or subject.env_flag("SGLANG_IS_IN_CI"):
        return Answer(evidence=evidence)
    message = (
        f"Warning: {whose} context_length ({wanted}) is greater than the derived context_length "
        f"({config.context_length}). This may lead to incorrect model outputs or CUDA errors. Note that the derived "
        "context_length may differ from max_position_embeddings in the model's config. To allow overriding this "
        f"maximum, set the env var {ALLOW}=1"
    )
    return broken(
        "context-too-long",
        "ValueError",
        message,
        *evidence,
        context=wanted,
        limit=config.context_length,
        model=config.path,
        target=subject.target_path,
    )


def _target(subject: Subject) -> Answer | None:
    wanted = subject.number("context_length")
    if wanted is None:
        return None
    return _longer(subject, "target_context", "User-specified", wanted, subject.target())


def _given(subject: Subject) -> Answer | None:
    """The target's runner reads the draft as well, with `--context-length`: before the target's weights are loaded.

    Mirrors srt/model_executor/model_runner_components/spec_aux_hidden_state.py.
    """
    return _draft(subject) if subject.number("context_length") is not None else None


def _draft(subject: Subject) -> Answer | None:
    """Mirrors the draft workers, which are built with the target's context length."""
    # SGLang builds no draft worker for these
    if subject.draft_path is None or subject.algorithm in (None, "NONE", "NGRAM", "UNO"):
        return None
    wanted = subject.number("context_length")
    if wanted is None:
        wanted = subject.target().context_length
    return _longer(subject, "draft_context", "Target model's", wanted, subject.draft())


_DERIVE = "srt/configs/model_config.py: ModelConfig._derive_context_length"
TARGET_CONTEXT = Check(name="target_context", phase=Phase.ARGUMENTS, mirrors=_DERIVE, run=_target)
GIVEN_CONTEXT = Check(name="given_context", phase=Phase.TARGET, mirrors=_DERIVE, run=_given)
DRAFT_CONTEXT = Check(name="draft_context", phase=Phase.DRAFT, mirrors=_DERIVE, run=_draft)
