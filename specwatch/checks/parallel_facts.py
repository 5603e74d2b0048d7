"""What rules need to know of a launch's ranks when one of the ways to divide a model has to go."""

from __future__ import annotations

from collections.abc import Mapping

from specwatch.checks.subject import Subject, Unreadable
from specwatch.domain import Value
from specwatch.errors import ModelError


def without_pipeline(subject: Subject) -> Mapping[str, Value]:
    """The sizes of a launch that has to give up its pipeline.

    `tp_all` is the tensor-parallel size that keeps all the GPUs, left out where it does not divide the target's heads.
    """
    tp, pp = subject.number("tp_size") or 1, subject.number("pp_size") or 1
    facts: dict[str, Value] = {"tp_size": tp, "pp_size": pp}
    try:
        heads = subject.target().text.get("num_attention_heads")
    except (ModelError, Unreadable):
        heads = None
    if not isinstance(heads, int) or heads % (tp * pp) == 0:
        facts["tp_all"] = tp * pp
    return facts
