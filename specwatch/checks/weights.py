"""Do the shapes in the weight files fit the configuration? Read from safetensors headers, nothing is loaded."""

from __future__ import annotations

from specwatch.checks import eagle
from specwatch.checks.subject import OVERRIDE, Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.errors import ModelError
from specwatch.models.base import ModelConfig

EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight", "lm_head.weight")


def _target_rows(subject: Subject) -> Answer | None:
    return _rows(subject, "embedding_rows", subject.target(), subject.launch.text_value("revision"))


def _all_rows(subject: Subject) -> Answer | None:
    """The target's table, which a start meets first, then the draft's."""
    answer = _target_rows(subject)
    if answer is not None and answer.cause:
        return answer
    return _draft_rows(subject) or _head_rows(subject) or answer


def _head_rows(subject: Subject) -> Answer | None:
    """An EAGLE3 head has two tables: one of the target's tokens, one of its own."""
    try:
        found = eagle.wrong_rows(subject)
    except ModelError:
        return None
    if found is None:
        return None
    draft, name, rows, configured = found
    return _differ("embedding_rows", draft, name, rows, configured)


def _draft_rows(subject: Subject) -> Answer | None:
    if subject.algorithm != "STANDALONE" or subject.draft_path is None:
        return None
    revision = subject.launch.text_value("speculative_draft_model_revision")
    return _rows(subject, "embedding_rows", subject.draft(), revision)


def _rows(subject: Subject, name: str, config: ModelConfig, revision: str | None) -> Answer:
    """A table of embeddings has one row a token; a `vocab_size` override ends here.

    Nothing is said where the headers cannot be read: most checks are worth having without the weights.
    """
    try:
        shapes = subject.models.weights(config.path, revision=revision)
    except ModelError:
        return Answer(because="the weights cannot be seen from here")
    for tensor in EMBEDDINGS:
        shape = shapes.get(tensor)
        if shape is None or len(shape) != 2 or shape[0] == config.vocab_size:
            continue
        return _differ(name, config, tensor, shape[0], config.vocab_size)
    return Answer()


def _differ(name: str, config: ModelConfig, tensor: str, rows: int, configured: int | None) -> Answer:
    message = (
        f"self.org_vocab_size={configured} self.use_presharded_weights=False loaded_weight.shape[output_dim]={rows}"
    )
    origin = config.text.origin("vocab_size")
    overridden = origin.startswith(OVERRIDE)
    return broken(
        "rows-differ-from-vocabulary" + ("-overridden" if overridden else ""),
        "AssertionError",
        message,
        fact(name, f"rows of {tensor}", rows, config.path),
        fact(name, "rows by the configuration", configured, origin or config.source),
        model=config.path,
        key="vocab_size",
        source=origin.partition(" ")[0] if overridden else config.source,
        rows=rows,
        vocab_size=configured,
    )


_LOADER = "srt/layers/vocab_parallel_embedding.py: VocabParallelEmbedding.weight_loader"
TARGET_EMBEDDING = Check(name="target_embedding", phase=Phase.TARGET, mirrors=_LOADER, run=_target_rows)
EMBEDDING_ROWS = Check(name="embedding_rows", phase=Phase.DRAFT, mirrors=_LOADER, run=_all_rows)
