"""Repairs: from a launch and what its check found to changed launches. None of them is a fix until it is re-checked."""

from __future__ import annotations

from collections.abc import Mapping

from specwatch.fixes import (
    algorithm,
    arguments,
    draft,
    mask_token,
    memory,
    options,
    overrides,
    precision,
    speculation,
    splitting,
    surroundings,
)
from specwatch.fixes.change import change
from specwatch.fixes.proposal import Edit, Proposal, Repair, Request

FIXES: Mapping[str, Repair] = {
    "change": change,
    "correct-arguments": arguments.correct_arguments,
    "drop-arguments": arguments.drop_arguments,
    "drop-named-draft": speculation.drop_named_draft,
    "drop-speculation": speculation.drop_speculation,
    "fitting-algorithm": speculation.fitting_algorithm,
    "matching-draft": draft.matching_draft,
    "nearest-algorithm": algorithm.nearest_algorithm,
    "trained-block-size": speculation.trained_block_size,
    "without-option": options.without_option,
    "remove-draft-override": overrides.remove_draft_override,
    "remove-mask-token-override": mask_token.remove_mask_token_override,
    "restate-mask-token": mask_token.restate_mask_token,
    "drop-draft-config-file": mask_token.drop_draft_config_file,
    "init-tokenizer": mask_token.init_tokenizer,
    "target-dtype": precision.target_dtype,
    "single-token-pages": memory.single_token_pages,
    "raise-memory-fraction": memory.raise_memory_fraction,
    "lower-memory-fraction": memory.lower_memory_fraction,
    "smaller-cuda-graphs": memory.smaller_cuda_graphs,
    "without-cuda-graphs": memory.without_cuda_graphs,
    "fewer-running-requests": memory.fewer_running_requests,
    "smaller-prefill-chunks": memory.smaller_prefill_chunks,
    "smaller-kv-cache": memory.smaller_kv_cache,
    "enough-state-slots": memory.enough_state_slots,
    "without-host-cache": memory.without_host_cache,
    "more-shared-memory": surroundings.more_shared_memory,
    "next-port": surroundings.next_port,
    "longer-watchdog": surroundings.longer_watchdog,
    "without-attention-dp": surroundings.without_attention_dp,
    "dividing-tp-size": surroundings.dividing_tp_size,
    "tp-size-of-whole-blocks": splitting.tp_size_of_whole_blocks,
    "whole-experts": splitting.whole_experts,
    "larger-dispatch-buffer": splitting.larger_dispatch_buffer,
    "without-flashinfer": splitting.without_flashinfer,
}

__all__ = ["FIXES", "Edit", "Proposal", "Repair", "Request"]
