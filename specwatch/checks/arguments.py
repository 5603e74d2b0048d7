"""What SGLang refuses from the arguments of a speculative launch alone, before it reads a model's weights."""

from __future__ import annotations

from specwatch.checks import (
    dflash_arguments,
    dspark_arguments,
    eagle_arguments,
    iquest,
    ngram,
    speculation,
    uno,
)

CHECKS = (
    *speculation.CHECKS,
    *dflash_arguments.CHECKS,
    *uno.CHECKS,
    *dspark_arguments.CHECKS,
    *iquest.CHECKS,
    *eagle_arguments.CHECKS,
    *ngram.CHECKS,
)
