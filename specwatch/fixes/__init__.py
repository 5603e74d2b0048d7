"""Repairs: from a launch and what its check found to changed launches. None of them is a fix until it is re-checked."""

from __future__ import annotations

from collections.abc import Mapping

from specwatch.fixes import draft, mask_token, speculation
from specwatch.fixes.change import change
from specwatch.fixes.proposal import Edit, Proposal, Repair, Request

FIXES: Mapping[str, Repair] = {
    "change": change,
    "drop-speculation": speculation.drop_speculation,
    "fitting-algorithm": speculation.fitting_algorithm,
    "matching-draft": draft.matching_draft,
    "remove-mask-token-override": mask_token.remove_mask_token_override,
    "restate-mask-token": mask_token.restate_mask_token,
    "drop-draft-config-file": mask_token.drop_draft_config_file,
    "init-tokenizer": mask_token.init_tokenizer,
}

__all__ = ["FIXES", "Edit", "Proposal", "Repair", "Request"]
