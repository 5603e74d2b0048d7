"""The validations of SGLang, re-run on a launch and the model files.

Each takes (launch, models) and answers with a Verdict; `CHECKS` holds them in the order in which a start makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specwatch.checks import arguments, capture, configs, context, dflash, mask_token, vocabulary, weights
from specwatch.checks.subject import Check
from specwatch.domain import Launch, Status, Verdict
from specwatch.models.base import Models

_TARGET_CONTEXT, _DRAFT_CONTEXT = context.CHECKS

IN_ORDER: tuple[Check, ...] = (
    *configs.CHECKS,
    _TARGET_CONTEXT,
    *arguments.CHECKS,
    *dflash.CHECKS,
    *capture.CHECKS,
    weights.TARGET_EMBEDDING,
    _DRAFT_CONTEXT,
    weights.DFLASH_WEIGHTS,
    weights.DRAFT_EMBEDDING,
    *vocabulary.CHECKS,
    *mask_token.CHECKS,
)
CHECKS: Mapping[str, Check] = {check.name: check for check in IN_ORDER}


def examine(launch: Launch, models: Models) -> tuple[Verdict, ...]:
    """All verdicts on a launch, in the order in which SGLang would come to them."""
    return tuple(check(launch, models) for check in IN_ORDER)


def refusal(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The first verdict of which SGLang dies, None where the launch passes (or nothing can be told)."""
    for verdict in verdicts:
        if verdict.status is Status.BROKEN and verdict.message is not None:
            return verdict
    return None


__all__ = ["CHECKS", "IN_ORDER", "Check", "examine", "refusal"]
