"""What the DSPARK worker asks of its draft and its launch: mask token, Markov and confidence weights, scheduling mode.

Mirrors srt/speculative/dspark_components/dspark_worker_v2.py: DSparkWorkerV2.__init__, dspark_config.py:
resolve_runtime_config, dspark_planner.py: DSparkVerifyPlanner.__init__, and srt/models/dspark.py: DSparkDraftMixin.
"""

from __future__ import annotations

from collections.abc import Mapping

from specwatch.checks import dflash_config, dspark
from specwatch.checks.dflash import Malformed
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Evidence, Phase, Value
from specwatch.models.base import ModelConfig

RUNTIME, WEIGHTS = "dspark_runtime", "dspark_weights"
MODE = "SGLANG_RAGGED_VERIFY_MODE"
DENSE = frozenset({"DSparkDraftModel", "Qwen3DSparkModel", "LingDSparkModel"})
"""Draft classes with the weights of srt/models/dspark.py; their confidence head is one projection."""
_MARKOV: Mapping[str, frozenset[str]] = {
    "vanilla": frozenset({"markov_w1.weight", "markov_w2.weight"}),
    "gated": frozenset({"markov_w1.weight", "markov_w2.weight", "gate_proj.weight", "gate_proj.bias"}),
}


def mode(subject: Subject) -> str:
    """How the verification widths are scheduled; `static` needs no confidence head."""
    return subject.launch.env.get(MODE, "static")


def _draft(subject: Subject) -> tuple[ModelConfig, dspark.Parsed] | None:
    if subject.algorithm != "DSPARK":
        return None
    draft = dflash_config.draft_of(subject)
    if draft is None:
        return None
    try:
        return draft, dspark.parse(subject, draft)
    except Malformed:
        return None  # said by dspark_draft_config


def _runtime(subject: Subject) -> Answer | None:
    found = _draft(subject)
    if found is None:
        return None
    draft, parsed = found
    target = subject.target()
    padded = target.text.get("padded_vocab_size")
    rows = padded if isinstance(padded, int) and padded else target.vocab_size
    if rows is None:
        return Answer(unknown=f"{target.source} names no vocab_size")
    what = "padded_vocab_size" if rows == padded else "vocab_size"
    size = fact(RUNTIME, f"target {what}", rows, target.text.origin(what) or target.source)
    at = parsed.mask_at
    names: dict[str, Value] = {
        "draft": subject.draft_path or subject.target_path,
        "target": subject.target_path,
        "vocab_size": rows,
        "last_id": rows - 1,
        "key": at.key,
        "mask_token_id": parsed.mask_token_id,
        "source": at.source.partition(" ")[0] if at.overridden else at.source or draft.source,
    }
    if parsed.mask_token_id is None:
        text = "DSpark requires mask_token_id to be set in the draft model config."
        lost = draft.top.origin("dflash_config").startswith("--json") or at.overridden
        cause = "mask-missing-overridden" if lost else "mask-missing"
        names["source"] = "--json-model-override-args" if lost else names["source"]
        return broken(cause, "ValueError", text, fact(RUNTIME, "mask_token_id", None, draft.source), **names)
    if parsed.mask_token_id >= rows:
        text = f"DSpark mask_token_id={parsed.mask_token_id} is outside the target vocab size {rows}."
        cause = "mask-outside-overridden" if at.overridden else "mask-outside"
        return broken(cause, "ValueError", text, size, fact(RUNTIME, at.key, parsed.mask_token_id, at.source), **names)
    return _compact(subject, draft) or Answer(evidence=(size,), facts=names)


def _compact(subject: Subject, draft: ModelConfig) -> Answer | None:
    """Dense drafts cannot schedule compactly under attention data parallelism while decoding runs in CUDA graphs."""
    if not subject.since("0.5.23") or mode(subject) != "compact" or not subject.attention_dp():
        return None
    name = draft.architectures[0] if draft.architectures else ""
    backend = str(subject.launch.value("cuda_graph_backend_decode") or "")
    eager = subject.launch.is_set("disable_cuda_graph") or backend == "disabled"
    if name not in DENSE or eager or subject.launch.value("disaggregation_mode") == "prefill":
        return None
    text = (
        "DSpark dense-draft compact verify under attention DP does not yet support cuda graph (idle DP groups cannot "
        "join the token-keyed compact graph). Re-run with --disable-cuda-graph (eager is lossless), or use "
        "SGLANG_RAGGED_VERIFY_MODE=static. The dsv4 (MoE) draft supports cuda graph under DP."
    )
    return broken("compact-with-graph", "ValueError", text, fact(RUNTIME, MODE, "compact", "environment"))


def _weights(subject: Subject) -> Answer | None:
    """Markov and confidence tensors against the heads that the configuration asks for."""
    found = _draft(subject)
    if found is None or not found[0].architectures or found[0].architectures[0] not in DENSE:
        return None
    draft, parsed = found
    shapes = subject.models.weights(draft.path, revision=subject.launch.text_value("speculative_draft_model_revision"))
    if not shapes:
        return Answer(because="the draft has no safetensors headers to look at")
    known = _MARKOV.get(parsed.markov_head or "vanilla")
    stray = [name for name in shapes if name.startswith("markov_head.")]
    strange = next((name for name in stray if known and name.removeprefix("markov_head.") not in known), None)
    evidence: tuple[Evidence, ...] = (fact(WEIGHTS, "markov_head_type", parsed.markov_head, draft.source),)
    names: dict[str, Value] = {"draft": draft.path, "head": parsed.markov_head or "vanilla"}
    if strange is not None:
        cls = {"vanilla": "VanillaMarkov", "gated": "GatedMarkovHead"}[parsed.markov_head or "vanilla"]
        text = (
            f"DSpark unexpected markov weight {strange!r} not found in model parameters (known markov params require a "
            f"{cls} head)."
        )
        return broken("markov-weights", "ValueError", text, *evidence, tensor=strange, **names)
    return _confidence(subject, draft, shapes, names) or Answer(evidence=evidence)


def _confidence(
    subject: Subject, draft: ModelConfig, shapes: Mapping[str, tuple[int, ...]], names: dict[str, Value]
) -> Answer | None:
    """All modes but `static` schedule by the draft's confidence head, so its weights have to be there."""
    if mode(subject) == "static":
        return None
    missing = sorted({"confidence_head.proj.bias", "confidence_head.proj.weight"} - shapes.keys())
    if not missing:
        return None
    text = (
        f"DSpark confidence head is enabled but the checkpoint is missing {missing}. Provide a checkpoint with trained "
        "confidence weights, or disable the confidence head (enable_confidence_head=False)."
    )
    return broken(
        "no-confidence-head",
        "ValueError",
        text,
        fact(WEIGHTS, MODE, mode(subject), "environment"),
        fact(WEIGHTS, "missing tensors", list(missing), draft.path),
        mode=mode(subject),
        **names,
    )


DSPARK_RUNTIME = Check(
    name=RUNTIME,
    phase=Phase.WORKER,
    mirrors="srt/speculative/dspark_components/dspark_config.py: resolve_runtime_config",
    run=_runtime,
)
DSPARK_WEIGHTS = Check(
    name=WEIGHTS, phase=Phase.DRAFT, mirrors="srt/models/dspark.py: DSparkDraftMixin.load_weights", run=_weights
)
