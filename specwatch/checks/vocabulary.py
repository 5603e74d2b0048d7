"""Do target and draft share one vocabulary? What STANDALONE speculative decoding stands on."""

from __future__ import annotations

from specwatch.checks.subject import Answer, Check, Subject, broken, fact, size_of_vocabulary
from specwatch.domain import Evidence, Phase, Value
from specwatch.errors import ModelError

NAME = "same_vocabulary"
REFUSES_SINCE = "0.5.15"

_SIZES = (
    "STANDALONE speculative decoding requires the draft model to share the same vocabulary as the target model, "
    "but got target vocab_size={target} and draft vocab_size={draft}. Use a draft model with a matching vocabulary, "
    "or a speculative algorithm that supports heterogeneous vocabularies."
)


def _same_vocabulary(subject: Subject) -> Answer | None:
    if subject.algorithm != "STANDALONE" or subject.draft_path is None:
        return None
    target, draft = subject.target(), subject.draft()
    evidence = (
        size_of_vocabulary(NAME, "target", target),
        size_of_vocabulary(NAME, "draft", draft),
    )
    names: dict[str, Value] = {
        "target": subject.target_path,
        "draft": subject.draft_path,
        "target_vocab_size": target.vocab_size,
        "draft_vocab_size": draft.vocab_size,
    }
    if target.vocab_size != draft.vocab_size:
        refuses = subject.since(REFUSES_SINCE)
        message = _SIZES.format(target=target.vocab_size, draft=draft.vocab_size) if refuses else None
        return broken("vocabularies-differ", "ValueError" if refuses else None, message, *evidence, **names)
    return _same_tokens(subject, evidence, names)


def _same_tokens(subject: Subject, evidence: tuple[Evidence, ...], names: dict[str, Value]) -> Answer:
    """Compare the token maps. SGLang has this check too, but hands it no draft tokenizer, so it never speaks."""
    try:
        target = subject.models.tokenizer(subject.target_path, revision=subject.launch.text_value("revision"))
        revision = subject.launch.text_value("speculative_draft_model_revision")
        draft = subject.models.tokenizer(subject.draft_path or "", revision=revision)
    except ModelError as error:
        # what SGLang asks for is answered: it starts such a pair, and nobody can say how many proposals are accepted
        because = f"the sizes are equal, which is all that SGLang compares; the token maps could not be: {error}"
        return Answer(because=because, evidence=evidence)
    if target.digest == draft.digest:
        return Answer(evidence=evidence)
    differing = sorted(
        token for token in target.vocab.keys() | draft.vocab.keys() if target.vocab.get(token) != draft.vocab.get(token)
    )
    if not differing:
        return Answer(evidence=evidence)
    first = differing[0]
    evidence += (
        fact(NAME, "tokens with another id", len(differing), f"tokenizer of {subject.draft_path}"),
        fact(NAME, f"id of {first!r} in the target", target.vocab.get(first), f"tokenizer of {subject.target_path}"),
        fact(NAME, f"id of {first!r} in the draft", draft.vocab.get(first), f"tokenizer of {subject.draft_path}"),
    )
    return broken("token-maps-differ", None, None, *evidence, **names, differing=len(differing))


SAME_VOCABULARY = Check(
    name=NAME,
    phase=Phase.WORKER,
    mirrors="srt/speculative/standalone_worker_v2.py: StandaloneWorkerV2._validate_vocab_compatibility",
    run=_same_vocabulary,
)
CHECKS = (SAME_VOCABULARY,)
