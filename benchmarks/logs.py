"""Writes the log of a serving SGLang server, and catalogues of messages; the same numbers give the same bytes."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

BEGINNING = datetime(2026, 1, 5, 8)
CRASHES = (0.2, 0.5, 0.8, 0.999)
"""Where in the log, by its length, a rank fails; only the last one is not followed by its own batches."""
FRAME = '  File "/opt/sglang/srt/managers/scheduler.py", line {}, in run_event_loop\n    dispatch(self)\n'
PATHS = ("/v1/chat/completions", "/generate", "/v1/embeddings", "/health")
WARNINGS = (
    "Request {:08x} was aborted: the client went away",
    "max_new_tokens {} does not fit into the remaining context and was cut",
    "The chat template of '/models/m{}' names no system role",
)
_SUBJECTS = (
    "attention backend,draft model,hidden size,kv cache,lora adapter,mask token,page size,quantization,radix cache"
)
_VERBS = (
    "cannot be combined with,does not fit,is not supported with,must be divisible by,must not be larger than,requires"
)
_KINDS = "AssertionError,NotImplementedError,RuntimeError,ValueError"


def messages(count: int) -> list[tuple[str, str]]:
    """Distinct messages, each as the literal text before its value and whole; a longer list begins as a shorter one."""
    made = []
    for at in range(count):
        parts = [words.split(",") for words in (_KINDS, _SUBJECTS, _VERBS, _SUBJECTS)]
        picked, rest = [], at
        for words in parts:
            rest, index = divmod(rest, len(words))
            picked.append(words[index])
        kind, first, verb, second = picked
        literal = f"{kind}: case {at}: {first} {verb} {second}, got "
        made.append((literal, f"{literal}{at % 977}"))
    return made


def write(path: Path, size: int, crashes: list[str], seed: int = 1) -> int:
    """Write about `size` bytes with the given messages as crashes of rank TP0; gives the number of lines."""
    rng = random.Random(seed)
    due = [(int(size * at), text) for at, text in zip(CRASHES, crashes, strict=False)]
    written = lines = 0
    tick = 0.0
    with path.open("w", encoding="utf-8", newline="\n") as sink:
        head = f"[{BEGINNING:%Y-%m-%d %H:%M:%S}]"
        block = [f"{head} server_args=ServerArgs(model_path='/models/target', tp_size=2, host='0.0.0.0', port=30000)\n"]
        while written < size:
            while len(block) < min(400, size // 1000):
                tick += 0.004
                head = f"[{BEGINNING + timedelta(seconds=int(tick)):%Y-%m-%d %H:%M:%S}"
                block.append(_line(rng, head))
            if due and written >= due[0][0]:
                _, text = due.pop(0)
                block.append(crash(head, text, [rng.randrange(100, 4000) for _ in range(6)]))
            data = "".join(block)
            written += sink.write(data)
            lines += data.count("\n")
            block = []
    return lines


def crash(head: str, text: str, lines: list[int]) -> str:
    """What a scheduler writes when it dies: `head` is its header without the rank, `lines` those of its frames."""
    frames = "".join(map(FRAME.format, lines))
    return f"{head} TP0] Scheduler hit an exception: Traceback (most recent call last):\n{frames}{text}\n"


def _line(rng: random.Random, head: str) -> str:
    kind, rank = rng.random(), rng.randrange(2)
    if kind < 0.00005:
        error = f"json.decoder.JSONDecodeError: Expecting value: line 1 column {rng.randrange(99)} (char 0)"
        trace = FRAME.format(rng.randrange(4000)) * 3
        return f"{head}] Error in request handler: Traceback (most recent call last):\n{trace}{error}\n"
    if kind < 0.012:
        return f"{head} TP{rank}] {rng.choice(WARNINGS).format(rng.randrange(9999))}\n"
    if kind < 0.52:
        return (
            f"{head} TP{rank}] Decode batch, #running-req: {rng.randrange(1, 64)}, #token: {rng.randrange(400_000)}, "
            f"token usage: {rng.random():.2f}, accept len: {1 + 3 * rng.random():.2f}, cuda graph: True, "
            f"gen throughput (token/s): {4000 * rng.random():.2f}, #queue-req: {rng.randrange(8)}\n"
        )
    if kind < 0.68:
        return (
            f"{head} TP{rank}] Prefill batch, #new-seq: {rng.randrange(1, 9)}, #new-token: {rng.randrange(8192)}, "
            f"#cached-token: {rng.randrange(8192)}, token usage: {rng.random():.2f}\n"
        )
    verb, path = ("GET", PATHS[-1]) if rng.random() < 0.25 else ("POST", rng.choice(PATHS[:-1]))
    return (
        f'{head}] INFO:     10.0.0.{rng.randrange(9)}:{rng.randrange(32768, 60999)} - "{verb} {path} HTTP/1.1" 200 OK\n'
    )
