"""The validations of SGLang, re-run on a launch and the model files.

Each takes (launch, models) and answers with a Verdict; `CHECKS` holds them in the order in which a start makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specwatch.checks import (
    adjustments,
    arguments,
    capture,
    configs,
    context,
    dflash_config,
    dflash_weights,
    domino,
    draft_backend,
    dspark,
    dspark_runtime,
    dtypes,
    eagle,
    features,
    lora,
    mask_token,
    option_models,
    option_pairs,
    option_values,
    parallel,
    parsing,
    quantization,
    server_args,
    serving,
    simulation,
    vocabulary,
    weights,
)
from specwatch.checks.subject import Check
from specwatch.domain import Launch, Status, Verdict
from specwatch.models.base import Models

IN_ORDER: tuple[Check, ...] = (
    *parsing.CHECKS,
    serving.LOG_LEVEL,
    features.EARLY,
    option_values.FIRST,
    serving.ENCRYPTION,
    option_values.SERVING,
    configs.TARGET,
    quantization.SERVE,
    context.TARGET_CONTEXT,
    configs.DRAFT,
    configs.TOKENIZER,
    quantization.CHECK,
    option_models.DECODING,
    option_models.KINDS,
    features.MODEL_ARGUMENTS,
    features.ATTENTION,
    option_models.STATE,
    features.SCORING,
    option_models.HOST_CACHE,
    parallel.DATA_PARALLEL,
    parallel.CONTEXT_PARALLEL,
    option_models.CONTEXT,
    parallel.EXPERT_PARALLEL,
    option_models.EXPERTS,
    *arguments.CHECKS,
    option_pairs.MODEL_PARTS,
    features.WEIGHT_CACHE,
    features.CACHES,
    option_pairs.CACHES,
    features.UNIFIED_MEMORY,
    serving.DIFFUSION,
    option_pairs.END,
    option_pairs.NODES,
    server_args.BEFORE_LORA,
    option_pairs.MIXED,
    serving.PAGES,
    *lora.CHECKS,
    option_pairs.DRAFT_EXPERTS,
    option_pairs.BUCKETS,
    server_args.AFTER_LORA,
    option_pairs.LAST,
    option_pairs.REST,
    context.GIVEN_CONTEXT,
    dflash_config.DRAFT_CONFIG,
    dflash_config.TARGET_LAYERS,
    dspark.DRAFT_CONFIG,
    *capture.CHECKS,
    weights.TARGET_EMBEDDING,
    context.DRAFT_CONTEXT,
    dflash_weights.DFLASH_LAYERS,
    dflash_weights.DFLASH_BUILD,
    dflash_weights.DFLASH_WEIGHTS,
    dspark_runtime.DSPARK_WEIGHTS,
    eagle.EAGLE_WEIGHTS,
    weights.EMBEDDING_ROWS,
    *vocabulary.CHECKS,
    domino.DOMINO,
    *mask_token.CHECKS,
    dspark_runtime.DSPARK_RUNTIME,
    eagle.EAGLE_HEAD,
    draft_backend.DRAFT_BACKEND,
    dflash_config.TRAINED_DEPTH,
    dflash_config.FEATURE_WIDTH,
    eagle.EAGLE_FEATURES,
    dtypes.DRAFT_DTYPE,
    simulation.SIMULATION,
    *adjustments.CHECKS,
)
CHECKS: Mapping[str, Check] = {check.name: check for check in IN_ORDER}


def examine(launch: Launch, models: Models) -> tuple[Verdict, ...]:
    """All verdicts on a launch, in the order in which SGLang would come to them.

    Where the arguments themselves cannot be known (a `--config` file that is not here), nothing that hangs on them is
    proved: a flag that seems to be missing may stand in the file.
    """
    verdicts = tuple(check(launch, models) for check in IN_ORDER)
    arguments_unknown = next((v for v in verdicts[: len(parsing.CHECKS)] if v.status is Status.UNKNOWN), None)
    if arguments_unknown is None:
        return verdicts
    because = f"the arguments are not all known: {arguments_unknown.because}"
    return tuple(
        v._replace(status=Status.UNKNOWN, because=because) if v.status is Status.BROKEN else v for v in verdicts
    )


def refusal(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The first verdict of which SGLang dies, None where the launch passes (or nothing can be told)."""
    for verdict in verdicts:
        if verdict.status is Status.BROKEN and verdict.message is not None:
            return verdict
    return None


__all__ = ["CHECKS", "IN_ORDER", "Check", "examine", "refusal"]
