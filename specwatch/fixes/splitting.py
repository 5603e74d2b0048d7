"""Changes in how a model is laid out over its ranks, and in the packages and buffers that the layout uses."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.subject import Subject, Unreadable
from specwatch.domain import Applicability
from specwatch.errors import ModelError
from specwatch.fixes.change import spelled
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import setting, setting_env

DISPATCH = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DISPATCH_DEFAULT = 128
DISPATCH_MOST = 1024
"""What DeepEP's low-latency kernels take per rank at most."""


def tp_size_of_whole_blocks(ask: Request) -> Iterator[Proposal]:
    """The largest part of the present --tp-size by which a layer of the size in the message leaves whole blocks.

    The size is the part of one rank times the ranks; with data-parallel attention or expert parallelism a layer is
    split over other numbers than that, and nothing is offered.
    """
    launch, part, block = ask.launch, ask.captures.get("part", ""), ask.captures.get("block", "")
    if launch is None or not part.isdigit() or not block.isdigit() or not int(block):
        return
    subject = Subject(launch, ask.models)
    now = subject.number("tp_size")
    if now is None or now < 2 or subject.attention_dp() or (subject.number("ep_size") or 1) > 1:
        return
    whole = int(part) * now
    sizes = (size for size in range(now // 2, 0, -1) if now % size == 0)
    wanted = next((size for size in sizes if whole % (size * int(block)) == 0), None)
    if wanted is None:
        return
    why = f"{whole} split {wanted} ways is a whole number of blocks of {block}; fewer GPUs must hold the weights"
    yield edited(launch, (setting(launch, "--tp-size", wanted),), why, ceiling=Applicability.REVIEW)


def whole_experts(ask: Request) -> Iterator[Proposal]:
    """Give each rank whole experts instead of a slice of every one; not where the release wants a further flag."""
    launch = ask.launch
    if launch is None or spelled(launch, "--enable-ep-moe"):
        return
    subject = Subject(launch, ask.models)
    size = subject.number("tp_size")
    if size is None or size < 2 or (subject.number("ep_size") or 1) > 1:
        return
    try:
        config = subject.target().text
    except (ModelError, Unreadable):
        return
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    experts = next((count for name in names if isinstance(count := config.get(name), int)), None)
    if experts is not None and experts % size:
        return
    why = f"{size} ranks hold whole experts each, so that none is split; the same weights per GPU"
    yield edited(launch, (setting(launch, "--ep-size", size),), why, ceiling=Applicability.REVIEW)


def larger_dispatch_buffer(ask: Request) -> Iterator[Proposal]:
    """Keep prompts out of DeepEP's low-latency kernels, or make room for twice as many tokens."""
    launch = ask.launch
    if launch is None:
        return
    if launch.value("deepep_mode") == "low_latency":
        why = "prompts take the kernels without this limit, decoding stays in low-latency mode"
        yield edited(launch, (setting(launch, "--deepep-mode", "auto"),), why, ceiling=Applicability.REVIEW)
    told = launch.env.get(DISPATCH, str(DISPATCH_DEFAULT))
    now = int(told) if told.isdigit() else DISPATCH_DEFAULT
    if now < DISPATCH_MOST:
        wanted = min(DISPATCH_MOST, 2 * max(now, 1))
        why = f"room for {wanted} tokens per rank instead of {now}; takes GPU memory, and may not be enough"
        yield edited(launch, (setting_env(launch, DISPATCH, str(wanted)),), why, ceiling=Applicability.REVIEW)


def without_flashinfer(ask: Request) -> Iterator[Proposal]:
    """Attention and sampling without FlashInfer, where that is the package in question."""
    launch = ask.launch
    if launch is None or not ask.captures.get("module", "").startswith("flashinfer"):
        return
    changes = (setting(launch, "--attention-backend", "triton"), setting(launch, "--sampling-backend", "pytorch"))
    why = "backends that need no FlashInfer; slower on most GPUs"
    yield edited(launch, changes, why, ceiling=Applicability.REVIEW)
