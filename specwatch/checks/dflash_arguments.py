"""What SGLang refuses in the arguments of a DFLASH launch. Mirrors speculative_hook.py: _handle_dflash."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks import dflash, dflash_config
from specwatch.checks.laws import Doubt, Law, law_check
from specwatch.checks.parallel_facts import without_pipeline
from specwatch.checks.speculation import COORDINATION, device
from specwatch.checks.subject import Subject, Unreadable
from specwatch.domain import Value
from specwatch.errors import ModelError
from specwatch.models.base import ModelConfig
from specwatch.releases import older

DEFAULT_BLOCK = 16


def _laws(subject: Subject) -> Iterator[Law | Doubt]:
    yield from _device(subject)
    yield from _attention_dp(subject)
    if subject.number("pp_size") not in (None, 1):
        yield Law(
            cause="pipeline",
            flags=("--pp-size",),
            message="Currently DFLASH speculative decoding only supports pp_size == 1.",
            facts=without_pipeline(subject),
        )
    if subject.draft_path is None:
        yield Law(
            cause="no-draft",
            flags=("--speculative-draft-model-path",),
            message="DFLASH speculative decoding requires setting --speculative-draft-model-path.",
            facts={"target": subject.target_path},
        )
    yield from _block(subject)
    yield from _window(subject)


def _device(subject: Subject) -> Iterator[Law]:
    kind = device(subject)
    if kind is None or kind.startswith("cuda"):
        return
    release = subject.launch.sglang
    since = {"npu": "0.5.17", "xpu": "0.5.20"}.get(kind)
    if since is not None and not older(release, since):
        return
    text = f"DFLASH speculative decoding is not supported by SRTPlatform on device {kind!r}."
    if older(release, "0.5.21"):
        text = "DFLASH speculative decoding only supports CUDA, NPU and XPU devices."
    if older(release, "0.5.20"):
        text = "DFLASH speculative decoding only supports CUDA and NPU devices."
    if older(release, "0.5.17"):
        text = "DFLASH speculative decoding only supports CUDA device."
    facts: dict[str, Value] = {"device": kind}
    yield Law(cause="device", flags=("--device",), message=text, since="0.5.16", facts=facts)


def _attention_dp(subject: Subject) -> Iterator[Law]:
    if not subject.attention_dp() or device(subject) == "npu":
        return
    flags = ("--attn-dp-size", "--enable-dp-attention", "--enable-dp-lm-head")
    none = "Currently DFLASH speculative decoding does not support dp attention"
    yield Law(cause="attention-dp", flags=flags[:2], message=f"{none}.", before="0.5.20")
    yield Law(
        cause="attention-dp",
        flags=flags[:2],
        message=f"{none} on non-NPU devices.",
        since="0.5.20",
        before="0.5.23",
    )
    kind = device(subject)
    if kind is not None and not kind.startswith("cuda"):
        yield Law(
            cause="dp-device",
            flags=("--device", *flags[:2]),
            message="DFLASH with dp attention requires CUDA or NPU.",
            since="0.5.23",
            facts={"device": kind},
        )
    if not subject.launch.is_set("enable_dp_lm_head"):
        message = "DFLASH with dp attention requires --enable-dp-lm-head."
        yield Law(cause="dp-lm-head", flags=flags, message=message, since="0.5.23")
    if (subject.number("attn_cp_size") or 1) != 1:
        yield Law(
            cause="context-parallel",
            flags=("--attn-cp-size", *flags[:2]),
            message="DFLASH with dp attention does not support context parallel.",
            since="0.5.23",
            facts={"attn_cp_size": subject.number("attn_cp_size")},
        )
    if subject.env_flag(COORDINATION):
        yield Law(
            cause="coordination",
            flags=(COORDINATION, *flags[:2]),
            message=f"DFLASH with dp attention requires {COORDINATION}=0.",
            since="0.5.23",
        )


def _block(subject: Subject) -> Iterator[Law]:
    block, tokens = subject.number("speculative_dflash_block_size"), subject.number("speculative_num_draft_tokens")
    if block is None:
        return
    if block <= 0:
        yield Law(
            cause="block-size-not-positive",
            flags=("--speculative-dflash-block-size",),
            message=f"DFLASH requires --speculative-dflash-block-size to be positive, got {block}.",
            facts={"block": block},
        )
    if tokens is not None and tokens != block:
        own = trained_block(subject)
        yield Law(
            cause="block-size-differs",
            flags=("--speculative-num-draft-tokens", "--speculative-dflash-block-size"),
            message="Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ. "
            f"For DFLASH they must match. speculative_num_draft_tokens={tokens}, "
            f"speculative_dflash_block_size={block}.",
            facts={"tokens": tokens, "block": block, "trained": own, "draft": subject.draft_path},
        )


def trained_block(subject: Subject) -> int | None:
    """The block size that the draft's own configuration names; None where it names none or cannot be read."""
    try:
        return _block_of(subject)
    except (ModelError, Unreadable):
        return None


def argument_draft(subject: Subject) -> ModelConfig:
    """The draft as the argument phase reads it: `--decrypted-draft-config-file` does not count yet."""
    return subject.models.config(
        subject.draft_path or subject.target_path,
        overrides=subject.overrides(),
        revision=subject.launch.text_value("speculative_draft_model_revision"),
        trust_remote_code=subject.launch.is_set("trust_remote_code"),
    )


def _block_of(subject: Subject) -> int | None:
    """The draft's block size; None where its configuration does not parse, which SGLang only warns of here."""
    try:
        return dflash_config.parse(subject, argument_draft(subject)).block_size
    except dflash.Malformed:
        return None


def _window(subject: Subject) -> Iterator[Law | Doubt]:
    window = subject.number("speculative_draft_window_size")
    if window is None:
        window = subject.number("speculative_dflash_draft_window_size")  # its name in 0.5.11
    if window is None:
        return
    tokens = subject.number("speculative_dflash_block_size")
    if tokens is None:
        tokens = subject.number("speculative_num_draft_tokens")
    if tokens is None:
        tokens = _block_of(subject) or DEFAULT_BLOCK
    if window < tokens:
        yield Law(
            cause="window-below-block",
            flags=("--speculative-dflash-draft-window-size", "--speculative-num-draft-tokens"),
            message="DFLASH --speculative-dflash-draft-window-size must be >= --speculative-num-draft-tokens "
            f"(block_size). window_size={window}, block_size={tokens}.",
            before="0.5.12",
            facts={"window": window, "block": tokens},
        )
        yield Law(
            cause="window-below-block",
            flags=("--speculative-draft-window-size", "--speculative-num-draft-tokens"),
            message="--speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size). "
            f"window_size={window}, block_size={tokens}.",
            since="0.5.12",
            facts={"window": window, "block": tokens},
        )


CHECKS = (
    law_check(
        "dflash_arguments",
        "srt/arg_groups/speculative_hook.py: _handle_dflash",
        lambda subject: subject.algorithm == "DFLASH",
        _laws,
    ),
)
