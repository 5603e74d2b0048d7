"""Does the configuration of a DFLASH draft parse, and does it fit the depth and width of the target?

Mirrors srt/speculative/dflash_utils.py: parse_dflash_draft_config and resolve_target_layer_ids, and
srt/model_executor/model_runner_components/spec_aux_hidden_state.py: _resolve_dflash_aux_hidden_state.
"""

from __future__ import annotations

from typing import NamedTuple

from specwatch.checks import dflash, dflash_heads
from specwatch.checks.dflash import Malformed, Setting
from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase, Value
from specwatch.models.base import ModelConfig

CONFIG, LAYERS, DEPTH, WIDTH = (
    "dflash_draft_config",
    "dflash_target_layers",
    "dflash_trained_depth",
    "dflash_feature_width",
)


class Parsed(NamedTuple):
    """What SGLang knows of a DFLASH draft after the parse; None or 0 is what the draft does not name."""

    layers: int | None
    trained_layers: int | None
    block_size: int | None
    layer_ids: tuple[int, ...] | None
    conv_group_size: int = 0
    selector_rank: int = 0
    projector_type: Value = None

    @property
    def domino(self) -> bool:
        """Whether the draft has a Domino head."""
        return self.projector_type == "domino"


def parse(subject: Subject, config: ModelConfig) -> Parsed:
    """Parse a draft in SGLang's own order, so that the first fault is the one that it names. Raises Malformed."""
    layers = dflash.layers(config)
    trained = dflash.whole_number(config, "num_target_layers", "DFLASH draft num_target_layers")
    block = dflash.whole_number(config, "block_size", "DFLASH block_size")
    extras = dflash_heads.before_layers(config) if subject.since("0.5.19") else dflash_heads.Extras()
    ids = dflash.layer_ids(config)
    dflash.mask_token(config)
    dflash.mask_token_id(config)
    projector = dflash_heads.after_mask(config, block) if subject.since("0.5.21") else None
    return Parsed(
        layers=layers,
        trained_layers=trained,
        block_size=block,
        layer_ids=tuple(ids) if ids is not None else None,
        conv_group_size=extras.conv_group_size,
        selector_rank=extras.selector_rank,
        projector_type=projector,
    )


def draft_of(subject: Subject) -> ModelConfig | None:
    """The draft of a DFLASH or DSPARK launch; None for other launches and for those that name no draft.

    A DSPARK draft may be bundled with the target (srt/arg_groups/speculative_hook.py: _handle_dspark).
    """
    if subject.algorithm == "DFLASH" and subject.draft_path is not None:
        return subject.draft()
    if subject.algorithm != "DSPARK":
        return None
    if subject.draft_path is not None:
        return subject.draft()
    target = subject.target()
    return target if bundles_dspark(target) else None


def bundles_dspark(config: ModelConfig) -> bool:
    """Whether a checkpoint carries its own DSPARK draft (dspark_config.py: checkpoint_bundles_dspark_draft)."""
    keys = ("dspark_block_size", "dspark_markov_rank", "dspark_noise_token_id", "dspark_target_layer_ids")
    return any(config.top.get(key) is not None for key in keys)


def _parse(subject: Subject) -> Answer | None:
    draft = draft_of(subject)
    if draft is None:
        return None
    try:
        if parse(subject, draft).layers is None:
            text = "DFLASH requires draft num_hidden_layers in config. Got config without num_hidden_layers."
            raise Malformed("malformed", text, Setting(None, "num_hidden_layers", draft.source))
    except Malformed as error:
        return dflash.refused(CONFIG, subject, draft, error)
    return Answer()


def default_layer_ids(target_layers: int, draft_layers: int) -> list[int]:
    """The target layers that SGLang picks when the draft names none (dflash_utils.py: build_target_layer_ids)."""
    if draft_layers == 1:
        return [target_layers // 2]
    last = target_layers - 3
    if last < 1:
        text = f"DFlash layer selection requires num_target_layers >= 4. Got num_target_layers={target_layers}."
        raise Malformed("layers-too-few", text, Setting(None, "target_layer_ids", ""))
    return [int(round(1 + i * (last - 1) / (draft_layers - 1))) for i in range(draft_layers)]  # noqa: RUF046


def depth(config: ModelConfig) -> int | None:
    """The number of layers of a target that ids may name: its layers times its loops. None where it names none."""
    layers = config.text.get("num_hidden_layers")
    if isinstance(layers, bool) or not isinstance(layers, int):
        return None
    loops = config.text.get("num_loops", 1)
    return layers * (loops if isinstance(loops, int) else 1)


def target_layers(subject: Subject) -> Answer | None:
    """Every layer that the draft listens to must exist in the target: asked before the target's weights are loaded."""
    draft = draft_of(subject)
    if draft is None:
        return None
    target = subject.target()
    layers = depth(target)
    if layers is None:
        value = target.text.get("num_hidden_layers")
        return broken(
            "target-layers",
            "ValueError",
            f"Block-draft-with-target-kv spec requires target num_hidden_layers in config. Got target={value}.",
            fact(LAYERS, "target num_hidden_layers", value, target.source),
            target=subject.target_path,
        )
    seen = fact(LAYERS, "target num_hidden_layers", layers, target.text.origin("num_hidden_layers") or target.source)
    try:
        parsed = parse(subject, draft)
    except Malformed:
        return None  # said by dflash_draft_config
    try:
        ids = parsed.layer_ids or default_layer_ids(layers, parsed.layers or 1)
    except Malformed as error:
        return dflash.refused(LAYERS, subject, draft, error)
    at = dflash.setting(draft, "target_layer_ids")
    for place, layer in enumerate(ids):
        if not 0 <= layer < layers:
            return broken(
                "layer-out-of-range" + ("-overridden" if at.overridden else ""),
                "ValueError",
                "DFLASH target_layer_ids contains an out-of-range layer id. "
                f"target_layer_ids[{place}]={layer}, target_num_layers={layers}.",
                seen,
                fact(LAYERS, at.key, list(ids), at.source),
                draft=subject.draft_path or subject.target_path,
                target=subject.target_path,
                key=at.key,
                source=at.source.partition(" ")[0] if at.overridden else at.source,
                layer=layer,
                layers=layers,
                last=layers - 1,
                value=repr(at.value),
            )
    return Answer(evidence=(seen,))


def _trained_depth(subject: Subject) -> Answer | None:
    """SGLang only warns of a draft that was trained for a target of another depth."""
    draft = draft_of(subject)
    if draft is None or subject.draft_path is None:
        return None
    try:
        trained = parse(subject, draft).trained_layers
    except Malformed:
        return None
    target = subject.target()
    layers = depth(target)
    if trained is None or layers is None or trained == layers:
        return Answer()
    at = dflash.setting(draft, "num_target_layers")
    return broken(
        "trained-for-another-depth",
        None,
        None,
        fact(DEPTH, at.key, trained, at.source),
        fact(DEPTH, "target num_hidden_layers", layers, target.source),
        draft=subject.draft_path,
        target=subject.target_path,
        trained=trained,
        layers=layers,
    )


PLAIN = frozenset({"DFlashDraftModel", "DFlash2DraftModel", "DFlash2BeamDraftModel", "MiniMaxDFlash2DraftModel"})
"""Draft classes that project the target's hidden states as they are (srt/models/dflash.py)."""


def _width(subject: Subject) -> Answer | None:
    """The draft projects the target's hidden states: both must be as wide.

    Mirrors srt/models/dflash.py: DFlashDraftModel.project_target_hidden, which raises at the first request.
    """
    draft = draft_of(subject)
    if subject.algorithm != "DFLASH" or draft is None or draft.architectures[:1] == ():
        return None
    if draft.architectures[0] not in PLAIN:
        return None
    target = subject.target()
    theirs, ours = target.text.get("hidden_size"), draft.text.get("hidden_size")
    given = not any("default" in config.text.origin("hidden_size") for config in (target, draft))
    if not given or not isinstance(theirs, int) or not isinstance(ours, int) or theirs == ours:
        return Answer()
    return broken(
        "another-hidden-size",
        None,
        None,
        fact(WIDTH, "draft hidden_size", ours, draft.text.origin("hidden_size") or draft.source),
        fact(WIDTH, "target hidden_size", theirs, target.text.origin("hidden_size") or target.source),
        draft=subject.draft_path,
        target=subject.target_path,
        draft_hidden=ours,
        target_hidden=theirs,
    )


_UTILS = "srt/speculative/dflash_utils.py: "
DRAFT_CONFIG = Check(name=CONFIG, phase=Phase.TARGET, mirrors=_UTILS + "parse_dflash_draft_config", run=_parse)
TARGET_LAYERS = Check(
    name=LAYERS,
    phase=Phase.TARGET,
    mirrors=_UTILS + "DFlashDraftConfig.resolve_target_layer_ids",
    run=target_layers,
)
TRAINED_DEPTH = Check(
    name=DEPTH,
    phase=Phase.SERVING,
    mirrors="srt/model_executor/model_runner_components/spec_aux_hidden_state.py: _resolve_dflash_aux_hidden_state",
    run=_trained_depth,
)
FEATURE_WIDTH = Check(
    name=WIDTH,
    phase=Phase.SERVING,
    mirrors="srt/models/dflash.py: DFlashDraftModel.project_target_hidden",
    run=_width,
)
