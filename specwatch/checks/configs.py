"""Can SGLang read the configurations of the models at all? The first thing a start does with them."""

from __future__ import annotations

from specwatch.checks.subject import Answer, Check, Subject, broken, fact, size_of_vocabulary
from specwatch.domain import Phase

FLAG = "--speculative-draft-model-path"
EMPTY = (
    "Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with '-' or '.' and the "
    "maximum length is 96: ''."
)


def _target(subject: Subject) -> Answer | None:
    if not subject.target_path:
        return Answer(unknown="the launch names no model")
    return Answer(evidence=(size_of_vocabulary("target_config", "target", subject.target()),))


def _draft(subject: Subject) -> Answer | None:
    """The draft's configuration is read whatever the algorithm is, even with none."""
    if subject.launch.value("speculative_draft_model_path") == "":
        if subject.algorithm in (None, "NONE", "NGRAM"):
            return None  # an empty name is no draft, and nothing asks for one
        return broken("draft-path-empty", "OSError", EMPTY, fact("draft_config", FLAG, "", "launch"))
    if subject.draft_path is None:
        return None
    draft = subject.draft()
    gemma = any("Gemma4" in name and "Assistant" in name for name in draft.architectures)
    if subject.algorithm == "EAGLE3" and gemma:
        message = (
            "Gemma4AssistantForCausalLM draft requires --speculative-algorithm NEXTN or EAGLE; EAGLE3 is not supported "
            "for this draft architecture."
        )
        return broken("eagle3-on-gemma4-assistant", "ValueError", message, draft=subject.draft_path)
    return Answer(evidence=(size_of_vocabulary("draft_config", "draft", draft),))


def _tokenizer(subject: Subject) -> Answer | None:
    """A tokenizer from elsewhere must be there; what is in it, only checks that need it look at."""
    own = subject.launch.text_value("tokenizer_path")
    if own is None or own == subject.target_path or subject.launch.is_set("skip_tokenizer_init"):
        return None
    if subject.models.exists(own):
        return Answer()
    return Answer(unknown=f"--tokenizer-path {own} is not on this machine")


TARGET = Check(
    name="target_config",
    phase=Phase.ARGUMENTS,
    mirrors="srt/utils/hf_transformers/config.py: get_config",
    run=_target,
)
DRAFT = Check(
    name="draft_config",
    phase=Phase.ARGUMENTS,
    mirrors="srt/arg_groups/speculative_hook.py: _resolve_speculative_algorithm_alias",
    run=_draft,
)
TOKENIZER = Check(
    name="tokenizer_folder",
    phase=Phase.ARGUMENTS,
    mirrors="srt/utils/hf_transformers/tokenizer.py: get_tokenizer",
    run=_tokenizer,
)
