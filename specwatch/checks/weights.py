"""Do the shapes in the weight files fit the configuration? Read from safetensors headers, nothing is loaded."""

from __future__ import annotations

from specwatch.checks import dflash
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.errors import ModelError
from specwatch.models.base import ModelConfig

FC = {"fc.weight", "model.fc.weight", "encoder.fc.weight"}
EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight", "lm_head.weight")


def _draft_model(subject: Subject) -> Answer | None:
    """What the DFLASH draft's class asks of its own configuration, then of its weights.

    Mirrors srt/models/dflash.py: DFlashDraftModel.__init__ and load_weights.
    """
    if subject.algorithm != "DFLASH" or subject.draft_path is None:
        return None
    draft = subject.draft()
    try:
        features = _context_features(draft)
    except dflash.Malformed as error:
        if error.cause in ("layer-out-of-own-range", "layers-too-few"):
            source = error.at.source or draft.source
            return broken(
                error.cause,
                "ValueError",
                error.message,
                fact("dflash_weights", error.at.key, error.at.value, source),
                draft=subject.draft_path,
                target=subject.target_path,
            )
        return Answer(unknown="the draft's configuration does not parse, see dflash_draft_config")
    hidden = draft.text.get("hidden_size")
    if not isinstance(hidden, int):
        return Answer(unknown=f"{draft.source} names no hidden_size")
    return _projection(subject, draft, features, hidden)


def _projection(subject: Subject, draft: ModelConfig, features: int, hidden: int) -> Answer:
    expected = (hidden, features * hidden)
    shapes = subject.models.weights(draft.path, revision=subject.launch.text_value("speculative_draft_model_revision"))
    for name, shape in shapes.items():
        if name in FC and shape != expected:
            message = (
                "DFLASH fc.weight shape mismatch. This usually means the draft checkpoint's number of context "
                f"features (K) does not match this config. Expected fc.weight.shape={expected} "
                f"(num_context_features={features}, hidden_size={hidden}), but got {shape} for weight '{name}'."
            )
            evidence = (
                fact("dflash_weights", f"shape of {name}", list(shape), draft.path),
                fact("dflash_weights", "expected shape", list(expected), draft.source),
            )
            return broken("projection-shape", "ValueError", message, *evidence, draft=subject.draft_path)
    return Answer()


def _context_features(draft: ModelConfig) -> int:
    """How many target layers the draft listens to. Raises dflash.Malformed."""
    own = draft.text.get("num_hidden_layers")
    layers = own if isinstance(own, int) else 1
    ids = dflash.layer_ids(draft)
    trained = dflash.whole_number(draft, "num_target_layers", "DFLASH draft num_target_layers")
    bound = trained if trained is not None else max(ids) + 1 if ids else layers
    if ids is None:
        return len(dflash.default_layer_ids(bound, layers))
    for place, layer in enumerate(ids):
        if not 0 <= layer < bound:
            text = (
                "DFLASH target_layer_ids contains an out-of-range layer id. "
                f"target_layer_ids[{place}]={layer}, target_num_layers={bound}."
            )
            at = dflash.setting(draft, "target_layer_ids")
            raise dflash.Malformed("layer-out-of-own-range", text, at)
    return len(ids)


def _target_rows(subject: Subject) -> Answer | None:
    return _rows(subject, "target_embedding", subject.target(), subject.launch.text_value("revision"))


def _draft_rows(subject: Subject) -> Answer | None:
    if subject.algorithm != "STANDALONE" or subject.draft_path is None:
        return None
    revision = subject.launch.text_value("speculative_draft_model_revision")
    return _rows(subject, "draft_embedding", subject.draft(), revision)


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
        message = (
            f"self.org_vocab_size={config.vocab_size} self.use_presharded_weights=False "
            f"loaded_weight.shape[output_dim]={shape[0]}"
        )
        return broken(
            "rows-differ-from-vocabulary",
            "AssertionError",
            message,
            fact(name, f"rows of {tensor}", shape[0], config.path),
            fact(name, "vocab_size", config.vocab_size, config.text.origin("vocab_size") or config.source),
            model=config.path,
            rows=shape[0],
            vocab_size=config.vocab_size,
        )
    return Answer()


_LOADER = "srt/layers/vocab_parallel_embedding.py: VocabParallelEmbedding.weight_loader"
TARGET_EMBEDDING = Check(name="target_embedding", phase=Phase.TARGET, mirrors=_LOADER, run=_target_rows)
DRAFT_EMBEDDING = Check(name="draft_embedding", phase=Phase.DRAFT, mirrors=_LOADER, run=_draft_rows)
DFLASH_WEIGHTS = Check(
    name="dflash_weights",
    phase=Phase.DRAFT,
    mirrors="srt/models/dflash.py: DFlashDraftModel.load_weights",
    run=_draft_model,
)
