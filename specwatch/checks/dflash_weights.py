"""Can SGLang build the class of a DFLASH or DSPARK draft from its configuration, and do the weights fit it?

Mirrors srt/models/dflash.py: DFlashDraftModel.__init__ (with its layers, attention and convolution) and load_weights.
Only headers of safetensors files are read.
"""

from __future__ import annotations

from collections.abc import Mapping

from specwatch.checks import dflash, dflash_config, dflash_heads
from specwatch.checks.dflash import Malformed, Setting
from specwatch.checks.dflash_config import Parsed
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase
from specwatch.models.base import ModelConfig

NAME, BUILD, LAYERS = "dflash_weights", "dflash_build", "dflash_layers"
FC = {"fc.weight", "model.fc.weight", "encoder.fc.weight"}
SELECTORS = frozenset({"DFlash2DraftModel", "DFlash2BeamDraftModel", "MiniMaxDFlash2DraftModel"})
CLASSES = SELECTORS | {
    "DFlashDraftModel",
    "MuseGlimmerAssistantModel",
    "LiLiCorrDraftModel",
    "DSparkDraftModel",
    "Qwen3DSparkModel",
    "LingDSparkModel",
}
"""Draft classes that are built by DFlashDraftModel.__init__ as it is."""


def _plain(subject: Subject) -> ModelConfig | None:
    """The draft, where its class is one that this module knows."""
    draft = dflash_config.draft_of(subject)
    if draft is None:
        return None
    return draft if draft.architectures and draft.architectures[0] in CLASSES else None


def _build(subject: Subject) -> Answer | None:
    draft = _plain(subject)
    if draft is None:
        return None
    try:
        parsed = dflash_config.parse(subject, draft)
    except Malformed:
        return None  # said by dflash_draft_config
    try:
        _convolution(draft, parsed)
        layers = parsed.layers or 0
        heads = _heads(subject, draft) if layers else None
        if heads is not None:
            return heads
        for layer in range(layers):
            _layer_type(draft, layer)
        if layers and subject.since("0.5.23"):
            _activation(draft)
        if draft.architectures[0] in SELECTORS and not parsed.selector_rank:
            at = dflash_heads.inner(draft, "selector_rank")
            raise Malformed("unbuildable", "DFlash selector draft requires dflash_config.selector_rank.", at)
        if draft.architectures[0] == "LiLiCorrDraftModel":
            dflash_heads.lilicorr(draft)
    except Malformed as error:
        return dflash.refused(BUILD, subject, draft, error)
    return Answer()


def _convolution(draft: ModelConfig, parsed: Parsed) -> None:
    hidden = draft.text.get("hidden_size")
    group = parsed.conv_group_size
    if group and parsed.layers and isinstance(hidden, int) and hidden % group:
        text = f"DFLASH conv_group_size={group} must divide hidden_size={hidden}."
        raise Malformed("unbuildable", text, dflash_heads.inner(draft, "conv_group_size"))


def _heads(subject: Subject, draft: ModelConfig) -> Answer | None:
    """Attention heads are dealt out evenly to the tensor-parallel ranks (models/dflash.py: DFlashAttention)."""
    tp = subject.number("tp_size") or 1
    heads = draft.text.get("num_attention_heads")
    kv = draft.text.get("num_key_value_heads", heads)
    if not isinstance(heads, int) or not isinstance(kv, int) or tp < 1 or kv < 1:
        return None
    if subject.launch.value("device") == "cpu":
        return None  # heads are padded there
    text = _uneven(heads, kv, tp)
    if not text:
        return None
    if subject.attention_dp():
        return Answer(unknown="how many ranks share the draft's heads under attention data parallelism")
    target = subject.target()
    theirs = target.text.get("num_attention_heads")
    theirs_kv = target.text.get("num_key_value_heads", theirs)
    fitting = [
        size
        for size in range(1, tp)
        if not _uneven(heads, kv, size)
        and (not isinstance(theirs, int) or not isinstance(theirs_kv, int) or not _uneven(theirs, theirs_kv, size))
    ]
    return broken(
        "heads-not-divisible",
        "AssertionError",
        text,
        fact(BUILD, "num_attention_heads", heads, draft.source),
        fact(BUILD, "num_key_value_heads", kv, draft.source),
        fact(BUILD, "--tp-size", tp, "launch"),
        draft=subject.draft_path,
        target=subject.target_path,
        heads=heads,
        kv_heads=kv,
        tp=tp,
        fitting_tp=max(fitting, default=1),
    )


def _uneven(heads: int, kv: int, tp: int) -> str:
    """What DFlashAttention asserts of heads and ranks, empty where they fit."""
    if heads % tp:
        return f"DFlashAttention requires total_num_heads divisible by tp_size. total_num_heads={heads}, tp_size={tp}."
    if kv >= tp and kv % tp:
        return (
            "DFlashAttention requires total_num_kv_heads divisible by tp_size when >= tp_size. "
            f"total_num_kv_heads={kv}, tp_size={tp}."
        )
    if kv < tp and tp % kv:
        return (
            "DFlashAttention requires tp_size divisible by total_num_kv_heads when total_num_kv_heads < tp_size. "
            f"total_num_kv_heads={kv}, tp_size={tp}."
        )
    return ""


def _layer_type(draft: ModelConfig, layer: int) -> None:
    """What kind of attention a layer of the draft has (models/dflash.py: _get_dflash_layer_attention_params)."""
    types = draft.text.get("layer_types")
    at = Setting(types, "layer_types", draft.text.origin("layer_types"))
    if types is None:
        return
    if not isinstance(types, list):
        text = "DFLASH config.layer_types must be a sequence of attention type strings."
        raise Malformed("unbuildable", text, at)
    if layer >= len(types):
        text = (
            "DFLASH config.layer_types must contain one entry per draft layer. "
            f"Got {len(types)} entries, layer_id={layer}."
        )
        raise Malformed("unbuildable", text, at)
    if types[layer] == "full_attention":
        return
    if types[layer] != "sliding_attention":
        text = f"Unsupported DFLASH draft layer type. layer_types[{layer}]={types[layer]!r}."
        raise Malformed("unbuildable", text, at)
    window = draft.text.get("sliding_window")
    # Nemotron drafts have one more place for it; a draft that is not one has no such key either.
    if window is None and dflash_heads.inner(draft, "swa_window_size").value is None:
        text = "DFLASH sliding_attention layers require config.sliding_window."
        where = Setting(None, "sliding_window", draft.text.origin("sliding_window"))
        raise Malformed("unbuildable", text, where)


def _activation(draft: ModelConfig) -> None:
    act = draft.text.get("hidden_act", "silu")
    if act not in ("silu", "swigluoai"):
        text = f"Unsupported DFlash activation: {act}. Supported activations are silu and swigluoai."
        raise Malformed("unbuildable", text, Setting(act, "hidden_act", draft.text.origin("hidden_act")))


def context_features(draft: ModelConfig, parsed: Parsed) -> int:
    """How many target layers the draft listens to, by its own files alone. Raises Malformed."""
    layers = parsed.layers or 1
    ids = parsed.layer_ids
    bound = parsed.trained_layers or (max(ids) + 1 if ids else layers)
    if ids is None:
        return len(dflash_config.default_layer_ids(bound, layers))
    for place, layer in enumerate(ids):
        if not 0 <= layer < bound:
            text = (
                "DFLASH target_layer_ids contains an out-of-range layer id. "
                f"target_layer_ids[{place}]={layer}, target_num_layers={bound}."
            )
            raise Malformed("layer-out-of-own-range", text, dflash.setting(draft, "target_layer_ids"))
    return len(ids)


def _layers(subject: Subject) -> Answer | None:
    """The layers that the draft names, against the target's depth and then against its own `num_target_layers`."""
    answer = dflash_config.target_layers(subject)
    draft = dflash_config.draft_of(subject)
    if draft is None or answer is None or answer.cause:
        return answer
    try:
        parsed = dflash_config.parse(subject, draft)
        context_features(draft, parsed)
    except Malformed as error:
        return dflash.refused(LAYERS, subject, draft, error)
    return answer


def _load(subject: Subject) -> Answer | None:
    """What load_weights makes of the names and shapes in the draft's files, in the order of the files."""
    draft = dflash_config.draft_of(subject)
    if draft is None:
        return None
    try:
        parsed = dflash_config.parse(subject, draft)
        features = context_features(draft, parsed)
    except Malformed:
        return None  # said by dflash_draft_config or dflash_build
    hidden = draft.text.get("hidden_size")
    if not isinstance(hidden, int):
        return Answer(unknown=f"{draft.source} names no hidden_size")
    revision = subject.launch.text_value("speculative_draft_model_revision")
    shapes = subject.models.weights(draft.path, revision=revision)
    expected = (hidden, features * hidden)
    quantized = draft.top.get("quantization_config") is not None  # packed weights have other shapes
    for name, shape in shapes.items():
        if subject.since("0.5.21") and not parsed.domino and _of_domino(name):
            text = f"DFLASH checkpoint contains Domino projector weights but projector_type={parsed.projector_type!r}."
            seen = fact(NAME, "tensor of a Domino head", name, draft.path)
            return broken("domino-weights", "ValueError", text, seen, draft=draft.path, tensor=name)
        if name in FC and shape != expected and not quantized:
            return _projection(subject, draft, features, hidden, name, shape)
    if parsed.domino and shapes and draft.architectures[:1] != ("LiLiCorrDraftModel",):
        return _domino(draft, shapes) or Answer()
    return Answer()


def _of_domino(name: str) -> bool:
    return name.removeprefix("model.").startswith(("prefix_gru.", "embed_proj."))


def _projection(
    subject: Subject, draft: ModelConfig, features: int, hidden: int, name: str, shape: tuple[int, ...]
) -> Answer:
    expected = (hidden, features * hidden)
    message = (
        "DFLASH fc.weight shape mismatch. This usually means the draft checkpoint's number of context "
        f"features (K) does not match this config. Expected fc.weight.shape={expected} "
        f"(num_context_features={features}, hidden_size={hidden}), but got {shape} for weight '{name}'."
    )
    at = dflash.setting(draft, "target_layer_ids")
    whole = len(shape) == 2 and shape[0] == hidden and shape[1] % hidden == 0
    has = shape[1] // hidden if whole else None
    return broken(
        "projection-shape" + ("-overridden" if at.overridden else ""),
        "ValueError",
        message,
        fact(NAME, f"shape of {name}", list(shape), draft.path),
        fact(NAME, "expected shape", list(expected), at.source or draft.source),
        draft=draft.path,
        target=subject.target_path,
        key=at.key,
        source=at.source.partition(" ")[0] if at.overridden else at.source,
        features=features,
        hidden=hidden,
        shape=str(shape),
        trained_features=has,
    )


def _domino(draft: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> Answer | None:
    required = {"prefix_gru.weight_ih_l0", "prefix_gru.weight_hh_l0", "embed_proj.0.weight", "embed_proj.2.weight"}
    missing = sorted(required - {name.removeprefix("model.") for name in shapes})
    if not missing:
        return None
    text = f"DFLASH Domino checkpoint is missing required projector weights: {missing}."
    return broken(
        "domino-weights-missing",
        "ValueError",
        text,
        fact(NAME, "missing tensors", list(missing), draft.path),
        draft=draft.path,
        missing=", ".join(missing),
    )


_DFLASH = "srt/models/dflash.py: DFlashDraftModel."
DFLASH_LAYERS = Check(name=LAYERS, phase=Phase.DRAFT, mirrors=_DFLASH + "__init__", run=_layers)
DFLASH_BUILD = Check(name=BUILD, phase=Phase.DRAFT, mirrors=_DFLASH + "__init__", run=_build)
DFLASH_WEIGHTS = Check(name=NAME, phase=Phase.DRAFT, mirrors=_DFLASH + "load_weights", run=_load)
