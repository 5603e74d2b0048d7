"""Chooses the anchors of a rule book: a few short texts, of which every message that a rule knows holds one.

A log can be searched for a few dozen texts at the speed of memory, and for thousands at a tenth of that. Most messages
share words (`Error: `), and a text that no healthy line holds costs nothing where it is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

LENGTH = 5
"""Characters of an anchor at least; no pattern begins with fewer literal ones (`pattern.SHORTEST`)."""
MOST = 300
"""Anchors at most; a search for more of them is no faster than one line by line."""
_LONGEST = 12
_LOOKED_AT = 60
"""Characters of a beginning in which an anchor is looked for."""
_LINES = (
    "[2026-01-01 01:01:01 DP0 TP0 EP0 PP0] Decode batch. #running-req: 11, #full token: 1, #token: 1, swa token: 1, "
    "#swa token: 1, full token usage: 0.01, token usage: 0.01, swa token usage: 0.01, mamba num: 1, mamba usage: 0.01, "
    "accept len: 1.01, accept rate: 0.01, pre-allocated usage: 0.01, #prealloc-req: 1, #transfer-req: 1, "
    "#retracted-req: 1, #pending-token: 1, cpu graph: True, cuda graph: False, npu graph: True, backend: full, "
    "gen throughput (token/s): 1.01, #queue-req: 1, ",
    "[2026-01-01 01:01:01 TP0] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 1, token usage: 0.01, "
    "#running-req: 1, #queue-req: 1, #prealloc-req: 1, #inflight-req: 1, #unbootstrapped-req: 1, timestamp: 1, "
    "input throughput (token/s): 1.01, cuda graph: False",
    '[2026-01-01 01:01:01] INFO:     10.0.0.1:10001 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    '"GET /health_generate HTTP/1.1" 503 Service Unavailable "GET /v1/models HTTP/1.1" 404 Not Found',
    '"POST /v1/completions HTTP/1.1" 400 Bad Request "POST /v1/embeddings HTTP/1.1" 499 "POST /generate HTTP/1.1"',
    '"GET /metrics HTTP/1.1" 200 OK "GET /get_model_info HTTP/1.1" "GET /server_info HTTP/1.1" 500 Internal Server Er',
    "[2026-01-01 01:01:01] Receive: obj=GenerateReqInput(rid='00000000000000000000000000000000', text='', "
    "sampling_params={'temperature': 0.01, 'max_new_tokens': 1, 'top_p': 1.0, 'stop': None}, stream=True, "
    "return_logprob=False, input_ids=[1, 1], image_data=None, lora_path=None)",
    "[2026-01-01 01:01:01] Finish: obj=GenerateReqInput(), out={'text': '', 'output_ids': [1], 'meta_info': {'id': '' "
    "'finish_reason': {'type': 'length', 'length': 1}, 'prompt_tokens': 1, 'completion_tokens': 1, 'e2e_latency': 1}}",
)
"""What healthy servers write all the time: words of these lines make no anchor."""
_NEVER_ASKED = ("Decode batch", "Prefill batch", "INFO:", "Receive: ", "Finish: ")
"""How messages begin that no rule is asked about (`log/routine.py`)."""
_DIGITS = str.maketrans("23456789", "11111111")


def choose(beginnings: Iterable[str]) -> tuple[str, ...]:
    """Texts of ASCII, of which each of the given beginnings of messages holds one; none where that takes too many.

    Words of healthy lines are taken only where a beginning has no others.
    """
    healthy = {piece for line in _LINES for piece in _pieces(line.translate(_DIGITS), len(line))}
    holders: dict[str, set[str]] = {}
    chosen: set[str] = set()
    for beginning in {beginning[:_LOOKED_AT] for beginning in beginnings if not beginning.startswith(_NEVER_ASKED)}:
        pieces = {piece for piece in _pieces(beginning, _LOOKED_AT) if piece.translate(_DIGITS) not in healthy}
        for piece in pieces:
            holders.setdefault(piece, set()).add(beginning)
        if not pieces:
            chosen.add(beginning)
    for anchor, held in _cover(holders):
        chosen.add(_widened(anchor, held))
        if len(chosen) > MOST:
            break
    return tuple(sorted(chosen)) if len(chosen) <= MOST and all(map(str.isascii, chosen)) else ()


def _cover(holders: dict[str, set[str]]) -> Iterator[tuple[str, set[str]]]:
    """Pieces that together stand in all beginnings, those in most of them first, each with those that it adds."""
    covered: set[str] = set()
    # a word's beginning is rarer than the space before it, and the first characters decide how fast a text is found
    heap = [(-len(held), piece[:1] == " ", piece) for piece, held in holders.items()]
    heapify(heap)
    while heap:
        count, spaced, piece = heappop(heap)
        left = holders[piece] - covered
        if len(left) == -count:
            covered |= left
            yield piece, left
        elif left:
            heappush(heap, (-len(left), spaced, piece))


def _pieces(text: str, most: int) -> Iterable[str]:
    for at in range(min(len(text), most) - LENGTH + 1):
        piece = text[at : at + LENGTH]
        if piece.isascii() and piece.isprintable():
            yield piece


def _widened(anchor: str, beginnings: Iterable[str]) -> str:
    """The anchor with the text around it that all of the beginnings share: the longer, the rarer in prose."""
    for step in (1, -1):
        while len(anchor) < _LONGEST:
            found = {_neighbour(beginning, anchor, step) for beginning in beginnings}
            char = found.pop()
            if found or not char or not char.isascii() or not char.isprintable() or (step < 0 and char == " "):
                break
            anchor = anchor + char if step > 0 else char + anchor
    return anchor


def _neighbour(beginning: str, anchor: str, step: int) -> str:
    at = beginning.index(anchor)
    return beginning[at + len(anchor) :][:1] if step > 0 else beginning[:at][-1:]
