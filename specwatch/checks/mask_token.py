"""Is the mask token of a DFLASH draft a token of the target?

Mirrors srt/speculative/dflash_worker_v2.py: DFlashWorkerV2._resolve_mask_token_id and
_maybe_merge_trained_mask_embedding.
"""

from __future__ import annotations

from typing import NamedTuple

from specwatch.checks import dflash
from specwatch.checks.subject import Answer, Check, Subject, broken, fact, size_of_vocabulary
from specwatch.domain import Evidence, Phase, Value
from specwatch.errors import ModelError
from specwatch.models.base import Tokenizer

NAME = "mask_token"


class _Question(NamedTuple):
    """The mask token of one launch, and what is known of the target's vocabulary."""

    vocab_size: int
    token: str
    number: dflash.Setting
    facts: dict[str, Value]
    size: Evidence
    tokenizer: str

    def outside(self, number: int) -> str:
        return (
            f"DFLASH mask_token_id is outside the target vocab size. mask_token_id={number}, "
            f"vocab_size={self.vocab_size}. This likely means mask_token={self.token!r} requires vocab "
            "expansion beyond the model's embedding size. SGLang does not support resizing target embeddings for "
            "DFLASH yet."
        )


def _mask_token(subject: Subject) -> Answer | None:
    if subject.algorithm != "DFLASH" or subject.draft_path is None:
        return None
    target, draft = subject.target(), subject.draft()
    try:
        token, number = dflash.mask_token(draft), dflash.mask_token_id(draft)
    except dflash.Malformed:
        return Answer(unknown="the draft's configuration does not parse, see dflash_draft_config")
    if target.vocab_size is None:
        return Answer(unknown=f"{target.source} names no vocab_size")
    question = _Question(
        vocab_size=target.vocab_size,
        token=str(token.value),
        number=number,
        facts={
            "target": subject.target_path,
            "draft": subject.draft_path,
            "vocab_size": target.vocab_size,
            "mask_token": str(token.value),
            "mask_token_id": number.value,
            "last_id": target.vocab_size - 1,
            "key": number.key,
            "source": number.source.partition(" ")[0] if number.overridden else number.source,
        },
        size=size_of_vocabulary(NAME, "target", target),
        tokenizer=f"tokenizer of {subject.launch.text_value('tokenizer_path') or subject.target_path}",
    )
    return _given(subject, question) if number.value is not None else _resolved(subject, question)


def _given(subject: Subject, question: _Question) -> Answer:
    """The draft's configuration, or an override of it, names the id."""
    number = question.number.value
    assert isinstance(number, int)  # mask_token_id() lets nothing else through
    evidence: tuple[Evidence, ...] = (question.size, fact(NAME, question.number.key, number, question.number.source))
    if number >= question.vocab_size:
        cause = "overridden" if question.number.overridden else "made-for-another-target"
        return broken(cause, "ValueError", question.outside(number), *evidence, **question.facts)
    try:
        tokenizer = subject.target_tokenizer()
    except ModelError as error:
        return Answer(unknown=f"{number} is inside the vocabulary, but the tokenizer: {error}", evidence=evidence)
    known = tokenizer.vocab.get(question.token) if tokenizer else None
    if tokenizer is None or known is None or known == number:
        return _trained_embedding(subject, question, number, evidence)
    message = (
        "DFLASH config mismatch: dflash_config.mask_token_id conflicts with tokenizer vocab id for "
        f"dflash_config.mask_token. mask_token={question.token!r}, mask_token_id={number}, tokenizer_vocab_id={known}."
    )
    evidence += (fact(NAME, f"id of {question.token!r} in the tokenizer", known, question.tokenizer),)
    cause = "conflict-overridden" if question.number.overridden else "conflicts-with-tokenizer"
    return broken(cause, "ValueError", message, *evidence, **question.facts, tokenizer_id=known)


def _resolved(subject: Subject, question: _Question) -> Answer:
    """No id is given: the target's tokenizer has to know the token, or it is appended to it."""
    tokenizer = subject.target_tokenizer()
    if tokenizer is None:
        message = (
            "DFLASH requires tokenizer initialization when dflash_config.mask_token_id is not set "
            "(skip_tokenizer_init is not supported in this mode)."
        )
        skip = fact(NAME, "--skip-tokenizer-init", True, "launch")
        return broken("no-tokenizer", "RuntimeError", message, question.size, skip, **question.facts)
    number, how = _look_up(tokenizer, question.token)
    if number is None or number < 0:
        message = (
            f"DFLASH requires resolving a mask token id, but it could not be resolved. mask_token={question.token!r}."
        )
        return broken("unresolved", "ValueError", message, question.size, **question.facts)
    evidence: tuple[Evidence, ...] = (
        question.size,
        fact(NAME, f"id of {question.token!r}, {how}", number, question.tokenizer),
    )
    if number >= question.vocab_size:
        facts = question.facts | {"mask_token_id": number, "how": how, "tokens": len(tokenizer.vocab)}
        evidence += (fact(NAME, "tokens in the tokenizer", len(tokenizer.vocab), question.tokenizer),)
        return broken("appended", "ValueError", question.outside(number), *evidence, **facts)
    return _trained_embedding(subject, question, number, evidence)


def _look_up(tokenizer: Tokenizer, token: str) -> tuple[int | None, str]:
    if tokenizer.mask_token == token and tokenizer.mask_token_id is not None:
        return tokenizer.mask_token_id, "declared as the tokenizer's mask token"
    if token in tokenizer.vocab:
        return tokenizer.vocab[token], "from the tokenizer's vocabulary"
    return tokenizer.append_mask(token), "appended by the server, the tokenizer has no such token"


def _trained_embedding(subject: Subject, question: _Question, number: int, evidence: tuple[Evidence, ...]) -> Answer:
    """A draft may bring `mask_embedding.pt`, trained for one id only."""
    path = subject.draft_path or ""
    saved = subject.models.mask_embedding(path)
    if saved is None:
        return Answer(evidence=evidence, facts=question.facts | {"mask_token_id": number})
    evidence += (fact(NAME, "mask_token_id of mask_embedding.pt", saved.mask_token_id, f"{path}/mask_embedding.pt"),)
    if saved.mask_token_id != number:
        message = (
            f"DFLASH mask_embedding.pt was trained with mask_token_id={saved.mask_token_id}, but the current resolved "
            f"mask_token_id={number}. These must match."
        )
        facts = question.facts | {"mask_token_id": number, "trained_id": saved.mask_token_id}
        return broken("trained-for-another-id", "ValueError", message, *evidence, **facts)
    if saved.per_position:
        message = (
            "DFLASH per-position mask embeddings are not supported in inference yet (mask_embedding.pt "
            "per_position=True)."
        )
        return broken("per-position", "NotImplementedError", message, *evidence, **question.facts)
    return Answer(evidence=evidence, facts=question.facts | {"mask_token_id": number})


MASK_TOKEN = Check(
    name=NAME,
    phase=Phase.WORKER,
    mirrors="srt/speculative/dflash_worker_v2.py: DFlashWorkerV2._resolve_mask_token_id",
    run=_mask_token,
)
CHECKS = (MASK_TOKEN,)
