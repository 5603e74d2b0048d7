"""What the DFLASH worker asks of a draft with a Domino or LiLiCorr head before it comes to the mask token.

Mirrors srt/speculative/dflash_worker_v2.py: DFlashWorkerV2.__init__ and srt/speculative/domino_utils.py:
validate_domino_runtime.
"""

from __future__ import annotations

from specwatch.checks import dflash_config
from specwatch.checks.dflash import Malformed
from specwatch.checks.dtypes import dtype_of
from specwatch.checks.subject import Answer, Check, Subject, broken, fact, size_of_vocabulary
from specwatch.domain import Phase
from specwatch.models.base import ModelConfig

NAME = "domino_runtime"


def _domino(subject: Subject) -> Answer | None:
    if subject.algorithm != "DFLASH" or subject.draft_path is None or not subject.since("0.5.21"):
        return None
    draft = subject.draft()
    try:
        parsed = dflash_config.parse(subject, draft)
    except Malformed:
        return None  # said by dflash_draft_config
    head = "LiLiCorr" if draft.architectures[:1] == ("LiLiCorrDraftModel",) else "Domino" if parsed.domino else ""
    if not head:
        return None
    if subject.attention_dp() and subject.launch.value("device") != "npu" and subject.since("0.5.23"):
        text = (
            "DFLASH with dp attention supports plain DFlash and DFlash2 drafts; Domino and LiLiCorr heads are not "
            "supported."
        )
        seen = fact(NAME, "head of the draft", head, draft.source)
        return broken("head-with-attention-dp", "ValueError", text, seen, draft=draft.path, head=head)
    if not parsed.domino:
        return Answer()
    return _runtime(subject, draft, parsed)


def _runtime(subject: Subject, draft: ModelConfig, parsed: dflash_config.Parsed) -> Answer:
    pool = subject.number("speculative_domino_candidate_pool_size") or 0
    if pool < 0:
        text = f"--speculative-domino-candidate-pool-size must be non-negative, got {pool}."
        flag = fact(NAME, "--speculative-domino-candidate-pool-size", pool, "launch")
        return broken("negative-pool", "ValueError", text, flag, pool=pool)
    target = subject.target()
    sizes = (size_of_vocabulary(NAME, "target", target), size_of_vocabulary(NAME, "draft", draft))
    if draft.vocab_size is not None and target.vocab_size != draft.vocab_size:
        text = (
            "DFLASH Domino requires identical target and draft vocab sizes, "
            f"got target={target.vocab_size}, draft={draft.vocab_size}."
        )
        return broken(
            "vocabularies-differ",
            "ValueError",
            text,
            *sizes,
            draft=draft.path,
            target=subject.target_path,
            target_vocab_size=target.vocab_size,
            draft_vocab_size=draft.vocab_size,
        )
    theirs, ours = dtype_of(subject, target), dtype_of(subject, draft)
    if theirs is None or ours is None:
        return Answer(unknown="the dtype of the target or of the draft is not known from here", evidence=sizes)
    other = [f"torch.{dtype}" for dtype in [theirs] * 2 + [ours] * 4 if dtype != "bfloat16"]
    if other:
        text = f"DFLASH Domino currently requires BF16 target and projector weights; found {other}."
        flag = fact(NAME, "--dtype", str(subject.launch.value("dtype") or "auto"), "launch")
        return broken("not-bfloat16", "ValueError", text, flag, draft=draft.path, dtype=theirs, draft_dtype=ours)
    tokens = subject.number("speculative_num_draft_tokens") or subject.number("speculative_dflash_block_size")
    if tokens is None:
        tokens = parsed.block_size or 16
    if tokens <= 1:
        text = f"DFLASH Domino requires speculative_num_draft_tokens > 1, got {tokens}."
        flag = fact(NAME, "--speculative-num-draft-tokens", tokens, "launch")
        return broken("one-token", "ValueError", text, flag, tokens=tokens, block=parsed.block_size)
    return Answer(evidence=sizes)


DOMINO = Check(
    name=NAME, phase=Phase.WORKER, mirrors="srt/speculative/domino_utils.py: validate_domino_runtime", run=_domino
)
