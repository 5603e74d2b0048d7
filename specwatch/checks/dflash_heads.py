"""The newer parts of a DFLASH draft's configuration: convolution, selector, attention extras, Domino, LiLiCorr.

Mirrors srt/speculative/dflash_utils.py: parse_dflash_draft_config and srt/speculative/lilicorr_utils.py:
_parse_lilicorr_config. Other than the older fields, most of these are read from `dflash_config` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from specwatch.checks.dflash import Malformed, Setting, parse_number, section, setting
from specwatch.domain import Value
from specwatch.models.base import ModelConfig

WIDEST_CANDIDATES = 16  # srt: kernels/ops/speculative/lilicorr.py: MAX_FUSED_CANDIDATE_TOPK


class Extras(NamedTuple):
    """Convolution and selector of a draft, 0 where it has none."""

    conv_group_size: int = 0
    selector_rank: int = 0


def inner(config: ModelConfig, key: str, default: Value = None) -> Setting:
    """A value that SGLang looks for in `dflash_config` only."""
    found = section(config)
    value = found.get(key, default)
    return Setting(value, f"dflash_config.{key}", config.top.origin("dflash_config") if key in found else "")


def before_layers(config: ModelConfig) -> Extras:
    """What SGLang parses between the block size and the target layers. Raises Malformed."""
    kernel_at, group_at = inner(config, "conv_kernel_size", 0), inner(config, "conv_group_size", 0)
    kernel = parse_number(kernel_at, "DFLASH conv_kernel_size", 0)
    group = parse_number(group_at, "DFLASH conv_group_size", 0)
    if bool(kernel) != bool(group):
        text = (
            "DFLASH grouped convolution needs conv_kernel_size and conv_group_size together. "
            f"Got conv_kernel_size={kernel}, conv_group_size={group}."
        )
        raise Malformed("malformed", text, kernel_at if kernel else group_at)
    rank_at, top_at = inner(config, "selector_rank", 0), inner(config, "selector_top_k", 0)
    rank = parse_number(rank_at, "DFLASH selector rank", 0)
    top = parse_number(top_at, "DFLASH selector top_k", 0)
    if bool(rank) != bool(top):
        text = f"DFLASH selector needs rank and top_k together. Got rank={rank}, top_k={top}."
        raise Malformed("malformed", text, rank_at if rank else top_at)
    multiplier = inner(config, "output_multiplier", 1.0)
    if _as_float(multiplier) <= 0:
        raise Malformed("malformed", "DFLASH output_multiplier must be positive.", multiplier)
    cap = inner(config, "final_logit_softcapping")
    _as_float(Setting(cap.value or 0.0, cap.key, cap.source))
    return Extras(conv_group_size=group or 0, selector_rank=rank or 0)


def _as_float(at: Setting) -> float:
    try:
        return float(at.value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed("malformed", str(error), at, type(error).__name__) from error


def after_mask(config: ModelConfig, block_size: int | None) -> Value:
    """What SGLang parses behind the mask token; the type of the projector. Raises Malformed."""
    bias = inner(config, "attention_sink_bias", False)
    if not isinstance(bias.value, bool):
        kind = type(bias.value).__name__
        text = f"DFLASH dflash_config.attention_sink_bias must be a bool, got {bias.value!r} (type={kind})."
        raise Malformed("malformed", text, bias)
    scale = inner(config, "attention_value_scale")
    if scale.value is not None and (isinstance(scale.value, bool) or not isinstance(scale.value, (int, float))):
        kind = type(scale.value).__name__
        text = f"DFLASH dflash_config.attention_value_scale must be int|float|None, got {scale.value!r} (type={kind})."
        raise Malformed("malformed", text, scale)
    projector = setting(config, "projector_type").value
    if projector == "domino":
        _domino(config, block_size)
    return projector


def _domino(config: ModelConfig, block_size: int | None) -> None:
    shift, prefix_at = setting(config, "shift_label"), setting(config, "pure_draft_prefix_len")
    prefix = parse_number(prefix_at, "DFLASH Domino pure_draft_prefix_len", 0)
    hidden_at = setting(config, "gru_hidden_dim")
    hidden = parse_number(hidden_at, "DFLASH Domino gru_hidden_dim")
    nested_at = inner(config, "emb_dim")
    nested = parse_number(nested_at, "DFLASH Domino dflash_config.emb_dim")
    top_at = Setting(config.top.get("emb_dim"), "emb_dim", config.top.origin("emb_dim"))
    top = parse_number(top_at, "DFLASH Domino top-level emb_dim")
    if nested is not None and top is not None and nested != top:
        text = f"DFLASH Domino emb_dim differs between dflash_config and the top-level config: {nested} != {top}."
        raise Malformed("domino", text, top_at if top_at.overridden else nested_at)
    if not isinstance(shift.value, bool):
        text = f"DFLASH Domino requires dflash_config.shift_label to be a bool, got {shift.value!r}."
        raise Malformed("domino", text, shift)
    if prefix != 1:
        text = f"DFLASH Domino currently requires pure_draft_prefix_len=1, got {prefix!r}."
        raise Malformed("domino", text, prefix_at)
    if hidden is None:
        raise Malformed("domino", "DFLASH Domino requires dflash_config.gru_hidden_dim.", hidden_at)
    if nested is None and top is None:
        raise Malformed("domino", "DFLASH Domino requires dflash_config.emb_dim.", nested_at)
    if block_size is not None and block_size <= 1:
        text = f"DFLASH Domino requires block_size > 1, got {block_size}."
        raise Malformed("domino", text, setting(config, "block_size"))


def lilicorr(config: ModelConfig) -> None:
    """Read the geometry of a LiLiCorr head, which has no defaults. Raises Malformed."""
    own = section(config)
    enabled = own.get("lilicorr_enabled")
    if not any(key.startswith("lilicorr_") for key in own) or (enabled is not None and not enabled):
        text = (
            "LiLiCorr requires the lilicorr_* geometry fields in dflash_config; a checkpoint declaring "
            'architectures=["LiLiCorrDraftModel"] without them cannot be rebuilt.'
        )
        raise Malformed("lilicorr", text, inner(config, "lilicorr_candidate_topk"))
    topk = _lilicorr(config, "candidate_topk", int)
    at = inner(config, "lilicorr_candidate_topk")
    whole = int(topk)
    if whole & (whole - 1):
        text = (
            f"dflash_config.lilicorr_candidate_topk must be a power of two, got {whole}: "
            "tl.arange requires a power-of-two extent."
        )
        raise Malformed("lilicorr", text, at)
    if whole > WIDEST_CANDIDATES:
        text = (
            f"dflash_config.lilicorr_candidate_topk={whole} exceeds the fused greedy commit's width of "
            f"{WIDEST_CANDIDATES}, one Triton lane group; a wider head would serve on the reference path."
        )
        raise Malformed("lilicorr", text, at)
    _lilicorr(config, "hidden_size", int, positive=False)
    for key in ("num_layers", "num_heads"):
        _lilicorr(config, key, int)
    _lilicorr(config, "mlp_ratio", float)
    _lilicorr(config, "factor_dim", int)
    for key in ("vector_eps", "logit_scale"):
        _lilicorr(config, key, float)


def _lilicorr(config: ModelConfig, key: str, cast: Callable[..., float], *, positive: bool = True) -> float:
    full = f"lilicorr_{key}"
    at = inner(config, full)
    if full not in section(config):
        text = (
            f"DFLASH dflash_config.{full} is required to rebuild the LiLiCorr head, and the checkpoint does not carry "
            "it."
        )
        raise Malformed("lilicorr", text, at)
    try:
        value = cast(at.value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed("lilicorr", f"Invalid dflash_config.{full}={at.value!r}.", at) from error
    if positive and value <= 0:
        raise Malformed("lilicorr", f"dflash_config.{full} must be positive, got {value}.", at)
    return value
