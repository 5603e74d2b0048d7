"""What SGLang asks of the draft of an IQuest Q1. Mirrors speculative_hook.py: _handle_iquest_q1_mtp_draft."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.speculation import algorithm
from specwatch.checks.subject import Subject
from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models.base import ModelConfig

TARGET, DRAFT = "IQuestQ1ForCausalLM", "iquest_q1_mtp"
_PATH, _STEPS, _TOPK = "--speculative-draft-model-path", "--speculative-num-steps", "--speculative-eagle-topk"
_TOKENS = "--speculative-num-draft-tokens"
DEFAULT_SLOTS = 7
DEFAULT_LAYERS = 88


def applies(subject: Subject) -> bool:
    """Whether the target is an IQuest Q1, whose draft brings its own sizes."""
    if algorithm(subject) not in ("EAGLE", "EAGLE3", "STANDALONE") or not subject.since("0.5.21"):
        return False
    try:
        return subject.target().architectures[:1] == (TARGET,)
    except ModelError:
        return False


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    target, path = subject.target(), subject.draft_path
    facts: dict[str, Value] = {"target": subject.target_path, "draft": path}
    if path in (None, subject.target_path):
        message = "IQuest Q1 requires an independent draft model path."
        yield Law(cause="no-draft", flags=(_PATH,), message=message, facts=facts)
        return
    draft = subject.models.config(
        path or "",
        revision=subject.launch.text_value("speculative_draft_model_revision"),
        trust_remote_code=subject.launch.is_set("trust_remote_code"),
    )
    if draft.model_type != DRAFT:
        message = "IQuest Q1 requires an independent MTP draft checkpoint."
        yield Law(cause="draft-differs", flags=(_PATH,), message=message, facts=facts)
        return
    if any(_own(draft, key) != target.top.get(key) for key in ("hidden_size", "vocab_size")):
        message = "MTP draft hidden size and vocabulary must match the target."
        yield Law(cause="draft-differs", flags=(_PATH,), message=message, facts=facts)
    layers = draft.top.get("num_target_layers")
    if layers is None:
        layers = _nested(draft).get("num_hidden_layers", DEFAULT_LAYERS)
    if layers != target.top.get("num_hidden_layers"):
        message = "MTP draft target layer count must match the target."
        yield Law(cause="draft-differs", flags=(_PATH,), message=message, facts=facts)
    if subject.launch.value("speculative_token_map") is not None:
        message = "MTP uses its own full-vocabulary embedding and head."
        yield Law(cause="token-map", flags=("--speculative-token-map",), message=message)
    yield from _numbers(subject, draft)


def _numbers(subject: Subject, draft: ModelConfig) -> Iterator[Law]:
    slots = draft.top.get("num_draft_slots", DEFAULT_SLOTS)
    steps = subject.number("speculative_num_steps")
    if steps is None:
        steps = slots if isinstance(slots, int) else DEFAULT_SLOTS
    topk, tokens = subject.number("speculative_eagle_topk"), subject.number("speculative_num_draft_tokens")
    facts: dict[str, Value] = {"steps": steps, "window": steps + 1, "tokens": tokens, "topk": topk}
    if steps < 1:
        message = "MTP requires positive speculative_num_steps."
        yield Law(cause="steps", flags=(_STEPS,), message=message, facts=facts)
    if topk not in (None, 1):
        message = "MTP requires --speculative-eagle-topk 1."
        yield Law(cause="tree", flags=(_TOPK,), message=message, facts=facts)
    if tokens not in (None, steps + 1):
        message = "MTP verification width must equal draft steps + 1."
        yield Law(cause="width", flags=(_TOKENS, _STEPS), message=message, facts=facts)


def _nested(draft: ModelConfig) -> dict[str, Value]:
    """The target's configuration that a draft carries: it fills in what the draft itself leaves out."""
    raw = draft.top.get("target_config")
    return raw if isinstance(raw, dict) else {}


def _own(draft: ModelConfig, key: str) -> Value:
    value = draft.top.get(key)
    return value if draft.top.origin(key) == draft.source else _nested(draft).get(key, value)


CHECKS = (law_check("iquest_draft", "srt/arg_groups/speculative_hook.py: _handle_iquest_q1_mtp_draft", applies, _laws),)
