"""Give a server the memory that it lacks, by numbers that its own log shows.

`--mem-fraction-static` is the share of the free GPU memory that weights and KV cache together may take. It is too
small when nothing is left for the KV cache, too large when nothing is left for graphs and activations, and printed
advice points either way. `minimum`, what the weights alone need, is printed by SGLang since 0.5.14; before that it is
1 - (free after the weights) / (free before them), both of which the log shows (`before`, `after` in a rule's context).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from specwatch.domain import Applicability, Change
from specwatch.fixes.change import spelled
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import removal, setting

FRACTION = "--mem-fraction-static"
HIGHEST = 0.95  # above it CUDA itself, NCCL and the activations find no room
MARGIN = 0.05
LEAST_CACHE = 0.03  # of the GPU: what a share that is lowered must still leave for the KV cache
LEAST_ROOM = 0.015  # of the GPU: below that a KV cache serves nobody
DEFAULT_REQUESTS = 48  # what SGLang sets for speculation where --max-running-requests is not given
GRAPH_SIZES = "--cuda-graph-max-bs-decode|--cuda-graph-max-bs"


def raise_memory_fraction(ask: Request) -> Iterator[Proposal]:
    """Give weights and KV cache a larger share: what the weights need and a margin, or one step if that is unknown."""
    launch, now, minimum = ask.launch, _fraction(ask), _minimum(ask)
    if now is None and minimum is None:
        return
    base = max(value for value in (now, minimum) if value is not None)
    wanted = math.ceil(round((base + MARGIN) * 100, 6)) / 100
    if wanted > HIGHEST and minimum is not None and minimum + LEAST_ROOM <= HIGHEST:
        wanted = HIGHEST
    if wanted > HIGHEST or (now is not None and wanted <= now):
        return  # what fills the GPU at this share fits at no share
    why = f"the weights alone take {minimum:.3f} of the free memory; " if minimum is not None else "one step up; "
    why += f"{wanted} leaves the rest for the KV cache, and less for CUDA graphs and activations"
    if launch is None:
        yield Proposal(changes=(Change(op="set", name=FRACTION, new=str(wanted)),), why=why)
        return
    yield edited(launch, (setting(launch, FRACTION, wanted),), why, ceiling=Applicability.REVIEW)


def lower_memory_fraction(ask: Request) -> Iterator[Proposal]:
    """Leave more memory beside weights and KV cache, as long as a KV cache still fits."""
    launch, now, minimum = ask.launch, _fraction(ask), _minimum(ask)
    if launch is None or now is None:
        return
    wanted = round(now - MARGIN, 2)
    if wanted < (minimum + LEAST_CACHE if minimum is not None else 0.3):
        return  # squeezed: less leaves no KV cache, so another knob has to turn
    why = f"{MARGIN:.0%} of the GPU more for what is allocated beside weights and KV cache; fewer tokens are cached"
    yield edited(launch, (setting(launch, FRACTION, wanted),), why, ceiling=Applicability.REVIEW)


def smaller_cuda_graphs(ask: Request) -> Iterator[Proposal]:
    """Capture graphs for smaller batches only; larger ones run without a graph, slower."""
    launch = ask.launch
    if launch is None:
        return
    name = spelled(launch, GRAPH_SIZES)
    lists = ("cuda_graph_bs", "cuda_graph_bs_decode")
    if name is None or any(launch.values.get(dest) for dest in lists):
        return  # an explicit list of sizes goes before the largest size
    typed = launch.values.get(name[2:].replace("-", "_"))
    wanted = typed // 2 if isinstance(typed, int) else 8 if launch.text_value("speculative_algorithm") else 16
    if wanted < 1:
        return
    why = f"graphs for batches of up to {wanted} only: less memory for graphs, larger batches run slower"
    yield edited(launch, (setting(launch, name, wanted),), why, ceiling=Applicability.REVIEW)


def without_cuda_graphs(ask: Request) -> Iterator[Proposal]:
    """Run decode steps without CUDA graphs: far slower, but each kernel is launched, and fails, by itself."""
    launch = ask.launch
    # multi-layer EAGLE works with graphs only
    if launch is None or launch.is_set("disable_cuda_graph") or launch.is_set("enable_multi_layer_eagle"):
        return
    name = spelled(launch, "--cuda-graph-backend-decode|--disable-cuda-graph")
    if name is None or launch.value(name[2:].replace("-", "_")) == "disabled":
        return
    change = setting(launch, name, "disabled" if name.endswith("-decode") else True)
    why = "no CUDA graphs for decoding, far slower; if the fault stays, the trace then names the kernel"
    yield edited(launch, (change,), why, ceiling=Applicability.REVIEW)


def fewer_running_requests(ask: Request) -> Iterator[Proposal]:
    """Serve half as many requests at once, where the present limit is known."""
    launch = ask.launch
    if launch is None:
        return
    now = launch.value("max_running_requests")
    if not isinstance(now, int) and launch.text_value("speculative_algorithm"):
        now = DEFAULT_REQUESTS
    if not isinstance(now, int) or now < 2:
        return
    why = f"at most {now // 2} requests at once instead of {now}: the others wait in the queue"
    yield edited(launch, (setting(launch, "--max-running-requests", now // 2),), why)


def smaller_prefill_chunks(ask: Request) -> Iterator[Proposal]:
    """Prefill in chunks of half the size: smaller activations, and the server answers in between."""
    launch = ask.launch
    if launch is None:
        return
    now = launch.value("chunked_prefill_size")
    if not isinstance(now, int):
        told = ask.captures.get("chunk", "")
        now = int(told) if told.isdigit() else None
    page = launch.value("page_size", 1)
    if not isinstance(now, int) or now < 1024 or (now // 2) % (page if isinstance(page, int) and page else 1):
        return
    why = f"prefill chunks of {now // 2} tokens instead of {now}: smaller activations, slower prefill"
    yield edited(launch, (setting(launch, "--chunked-prefill-size", now // 2),), why)


def smaller_kv_cache(ask: Request) -> Iterator[Proposal]:
    """Cap the KV cache at half of the tokens that SGLang sized it for: the draft's own pools come on top."""
    launch, told = ask.launch, ask.captures.get("tokens", "")
    if launch is None or not told.isdigit() or int(told) < 4096:
        return
    if not launch.text_value("speculative_algorithm"):
        return
    wanted = int(told) // 2
    why = f"half of the {told} tokens that the target's cache was sized for, so that the draft's caches fit beside it"
    yield edited(launch, (setting(launch, "--max-total-tokens", wanted),), why, ceiling=Applicability.REVIEW)


def single_token_pages(ask: Request) -> Iterator[Proposal]:
    """Keep the KV cache in pages of one token, where it has larger ones."""
    launch = ask.launch
    now = launch.value("page_size") if launch else None
    if launch is None or not isinstance(now, int) or now < 2:
        return
    why = f"pages of one token instead of {now}: the loss is known with speculation and larger pages; a little slower"
    yield edited(launch, (setting(launch, "--page-size", 1),), why, ceiling=Applicability.REVIEW)


def enough_state_slots(ask: Request) -> Iterator[Proposal]:
    """As many state slots as the wanted number of requests needs."""
    launch, slots = ask.launch, ask.captures.get("slots", "")
    if launch is None or not slots.isdigit():
        return
    requests = launch.values.get("max_running_requests")
    if not isinstance(requests, int):
        return
    wanted = requests * int(slots)
    why = f"{requests} requests with {slots} state slots each need {wanted}; they take memory from the KV cache"
    yield edited(launch, (setting(launch, "--max-mamba-cache-size", wanted),), why, ceiling=Applicability.REVIEW)


def without_host_cache(ask: Request) -> Iterator[Proposal]:
    """Keep no KV cache in host memory."""
    launch = ask.launch
    if launch is None or not launch.is_set("enable_hierarchical_cache"):
        return
    changes = removal(launch, ("--enable-hierarchical-cache",)) + removal(launch, "--hicache-")
    if changes:
        why = "no KV cache in host memory: same answers, prefixes that do not fit on the GPU are computed again"
        yield edited(launch, changes, why)


def _fraction(ask: Request) -> float | None:
    """The share in force, as the server recorded it, the message says it, or somebody typed it."""
    value = ask.launch.value("mem_fraction_static") if ask.launch else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return _number(ask, "fraction")


def _minimum(ask: Request) -> float | None:
    """The share that the weights alone need."""
    told = _number(ask, "minimum")
    if told is not None:
        return told
    before, after = _number(ask, "before"), _number(ask, "after")
    return 1 - after / before if before and after is not None and after < before else None


def _number(ask: Request, name: str) -> float | None:
    try:
        return float(ask.captures[name])
    except (KeyError, ValueError):
        return None
