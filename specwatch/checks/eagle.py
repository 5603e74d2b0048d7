"""Is the draft of an EAGLE or EAGLE3 launch a head for that algorithm, and do its parts fit each other and the target?

SGLang has no check of its own here: a wrong head dies of whatever breaks first, or is never right. Mirrors
srt/speculative/eagle_worker_v2.py: EAGLEWorkerV2.init_lm_head, srt/models/llama_eagle3.py: LlamaModel.__init__ and
srt/model_executor/model_runner_components/spec_aux_hidden_state.py: _resolve_eagle_aux_hidden_state.
"""

from __future__ import annotations

from collections.abc import Mapping

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase, Value
from specwatch.models.base import ModelConfig
from specwatch.models.drafts import draft_architectures

HEAD, WEIGHTS, FEATURES = "eagle_head", "eagle_weights", "eagle_features"
EAGLE3 = frozenset({"LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"})
"""The classes that SGLang 0.5.23 has for EAGLE3 heads: those with a map of the draft's tokens (`hot_token_id`)."""
HEADS = frozenset({"LlamaForCausalLMEagle", "MistralForCausalLMEagle", "Qwen2ForCausalLMEagle"})
"""Heads of the older kind whose projection joins an embedding and one hidden state of the target."""
WITH_EMBED = frozenset({"LlamaForCausalLM", "LlamaForCausalLMEagle"})
"""Other classes that let their embedding be replaced, and so get one attribute further."""


def _head(subject: Subject) -> Answer | None:
    if subject.algorithm not in ("EAGLE", "EAGLE3"):
        return None
    draft = subject.draft()
    loaded = draft_architectures(draft.architectures)
    name = loaded[0] if loaded else ""
    evidence = (fact(HEAD, "draft architecture", name, draft.source),)
    names: dict[str, Value] = {"draft": draft.path, "target": subject.target_path, "architecture": name}
    if subject.algorithm == "EAGLE":
        if name not in EAGLE3:
            return Answer(evidence=evidence)
        return broken("eagle3-head-under-eagle", None, None, *evidence, **names)
    own = subject.draft_path is None or subject.draft_path == subject.target_path
    if own and name.endswith("ForCausalLM") and not name.endswith(("MTP", "NextN")):
        missing = "hot_token_id" if name in WITH_EMBED else "set_embed"
        message = f"'{name}' object has no attribute '{missing}'"
        return broken("no-draft", "AttributeError", message, *evidence, **names)
    if name == "LlamaForCausalLMEagle":
        message = f"'{name}' object has no attribute 'hot_token_id'"
        return broken("eagle-head-under-eagle3", "AttributeError", message, *evidence, **names)
    return Answer(evidence=evidence)


def _llama3(subject: Subject) -> ModelConfig | None:
    """The head, where it is of the class whose parts are known here."""
    if subject.algorithm != "EAGLE3" or subject.draft_path is None:
        return None
    draft = subject.draft()
    return draft if draft.architectures[:1] == ("LlamaForCausalLMEagle3",) else None


def _size(config: ModelConfig, key: str) -> int | None:
    value = config.top.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _layer_ids(config: ModelConfig) -> list[Value] | None:
    inner = config.top.get("eagle_config")
    ids = inner.get("eagle_aux_hidden_state_layer_ids") if isinstance(inner, dict) else None
    return ids if isinstance(ids, list) and ids else None


def _projected(draft: ModelConfig) -> tuple[int, int] | None:
    """How many hidden states the head's projection takes, and how wide each; None where a size is not known."""
    width = _size(draft, "target_hidden_size") or _size(draft, "hidden_size")
    ids = _layer_ids(draft)
    count = _size(draft, "num_aux_hidden_states") or (len(ids) if ids else 3)
    return None if width is None else (count, width)


def _features(subject: Subject) -> Answer | None:
    """The target captures so many layers of such a width; the head must take as many."""
    if subject.algorithm == "EAGLE" and subject.draft_path is not None:
        return _joined(subject, subject.draft())
    draft = _llama3(subject)
    if draft is None:
        return None
    target = subject.target()
    layers, hidden = target.text.get("num_hidden_layers"), target.text.get("hidden_size")
    projected = _projected(draft)
    inner = draft.top.get("eagle_config")
    uses = inner.get("use_aux_hidden_state", True) if isinstance(inner, dict) else True
    if projected is None or not isinstance(layers, int) or not isinstance(hidden, int) or not uses:
        return Answer()
    if "default" in target.text.origin("hidden_size") or "default" in draft.top.origin("hidden_size"):
        return Answer(because="a hidden size is not in the files")
    count, width = projected
    ids = _layer_ids(draft)
    names: dict[str, Value] = {
        "draft": draft.path,
        "target": subject.target_path,
        "layers": layers,
        "takes": count * width,
        "gets": (len(ids) if ids else 3) * hidden,
        "target_hidden": hidden,
        "head_hidden": width,
    }
    evidence = (
        fact(FEATURES, "target hidden_size", hidden, target.source),
        fact(FEATURES, "features that the head takes", count * width, draft.source),
    )
    high = next((entry for entry in ids or () if isinstance(entry, int) and not 0 <= entry <= layers), None)
    if high is not None:
        return broken("layer-out-of-range", None, None, *evidence, layer=high, **names)
    if names["takes"] != names["gets"]:
        return broken("features-differ", None, None, *evidence, **names)
    return Answer(evidence=evidence)


def _joined(subject: Subject, draft: ModelConfig) -> Answer | None:
    """An EAGLE head takes twice its own hidden size and gets twice the target's (srt/models/llama_eagle.py)."""
    if not HEADS.intersection(draft.architectures[:1]):
        return None
    target = subject.target()
    theirs, ours = target.text.get("hidden_size"), draft.text.get("hidden_size")
    given = not any("default" in config.text.origin("hidden_size") for config in (target, draft))
    if not given or not isinstance(theirs, int) or not isinstance(ours, int) or theirs == ours:
        return Answer()
    names: dict[str, Value] = {
        "draft": draft.path,
        "target": subject.target_path,
        "takes": 2 * ours,
        "gets": 2 * theirs,
    }
    evidence = (
        fact(FEATURES, "target hidden_size", theirs, target.source),
        fact(FEATURES, "head hidden_size", ours, draft.source),
    )
    return broken("features-differ", None, None, *evidence, **names)


def _weights(subject: Subject) -> Answer | None:
    """The shapes in the head's files against its own configuration, in the order in which the loader meets them."""
    draft = _llama3(subject)
    if draft is None:
        return None
    shapes = subject.models.weights(draft.path, revision=subject.launch.text_value("speculative_draft_model_revision"))
    hidden, projected = _size(draft, "hidden_size"), _projected(draft)
    if not shapes or hidden is None or projected is None or draft.top.get("quantization_config") is not None:
        return Answer()
    fc = (hidden, projected[0] * projected[1])
    for name, shape in shapes.items():
        bare = name.removeprefix("model.")
        if bare == "fc.weight" and shape != fc:
            message = f"Attempted to load weight (torch.Size({list(shape)})) into parameter (torch.Size({list(fc)}))"
            evidence = (
                fact(WEIGHTS, f"shape of {name}", list(shape), draft.path),
                fact(WEIGHTS, "expected shape", list(fc), draft.source),
            )
            names: dict[str, Value] = {"draft": draft.path, "tensor": name, "shape": str(shape), "expected": str(fc)}
            return broken("head-shape", "AssertionError", message, *evidence, **names)
        rows = _rows(draft, bare)
        if rows is not None and shape and shape[0] != rows:
            message = (
                f"self.org_vocab_size={rows} self.use_presharded_weights=False "
                f"loaded_weight.shape[output_dim]={shape[0]}"
            )
            evidence = (
                fact(WEIGHTS, f"rows of {name}", shape[0], draft.path),
                fact(WEIGHTS, "rows by the configuration", rows, draft.source),
            )
            names = {"draft": draft.path, "tensor": name, "rows": shape[0], "expected": rows}
            return broken("head-rows", "AssertionError", message, *evidence, **names)
    return _token_map(draft, shapes) or Answer()


def wrong_rows(subject: Subject) -> tuple[ModelConfig, str, int, int | None] | None:
    """The first table of an EAGLE3 head with other rows than its configuration says: name, rows, rows wanted."""
    draft = _llama3(subject)
    if draft is None or draft.top.get("quantization_config") is not None:
        return None
    shapes = subject.models.weights(draft.path, revision=subject.launch.text_value("speculative_draft_model_revision"))
    for name, shape in shapes.items():
        wanted = _rows(draft, name.removeprefix("model."))
        if wanted is not None and shape and shape[0] != wanted:
            return draft, name, shape[0], wanted
    return None


def _rows(draft: ModelConfig, name: str) -> int | None:
    """The rows that a table of the head must have, None for every other tensor."""
    if name == "embed_tokens.weight":
        return draft.vocab_size
    if name == "lm_head.weight" and not draft.top.get("tie_word_embeddings"):
        return _size(draft, "draft_vocab_size") or draft.vocab_size
    return None


def _token_map(draft: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> Answer | None:
    """`d2t` maps each token of the head to one of the target: one entry a token."""
    size = _size(draft, "draft_vocab_size")
    name = next((name for name in shapes if "d2t" in name), None)
    if size is None or name is None or shapes[name][:1] == (size,):
        return None
    entries = shapes[name][0] if shapes[name] else 0
    return broken(
        "token-map-length",
        None,
        None,
        fact(WEIGHTS, f"entries of {name}", entries, draft.path),
        fact(WEIGHTS, "draft_vocab_size", size, draft.source),
        draft=draft.path,
        entries=entries,
        draft_vocab_size=size,
    )


EAGLE_HEAD = Check(
    name=HEAD,
    phase=Phase.WORKER,
    mirrors="srt/speculative/eagle_worker_v2.py: EAGLEWorkerV2.init_lm_head",
    run=_head,
)
EAGLE_WEIGHTS = Check(
    name=WEIGHTS,
    phase=Phase.DRAFT,
    mirrors="srt/models/llama_eagle3.py: LlamaForCausalLMEagle3.load_weights",
    run=_weights,
)
EAGLE_FEATURES = Check(
    name=FEATURES, phase=Phase.SERVING, mirrors="srt/models/llama_eagle3.py: LlamaModel.forward", run=_features
)
