"""Small logs for the tests of framing and incidents."""

from __future__ import annotations

from specwatch.domain import Incident, LogLine, Role
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler, Known
from specwatch.sources.once import Raw

ARGS = (
    "[2026-05-01 10:00:00] server_args={'model_path': '/models/target', 'speculative_algorithm': None, 'tp_size': 1}\n"
)
LISTENS = (
    "[2026-05-01 10:00:20] Load weight begin. avail mem=70.00 GB\n"
    "[2026-05-01 10:00:40] Load weight end. elapsed=20.00 s, type=LlamaForCausalLM\n"
    "[2026-05-01 10:00:50] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)\n"
    "[2026-05-01 10:00:55] Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00\n"
    '[2026-05-01 10:00:56] INFO:     127.0.0.1:39218 - "POST /generate HTTP/1.1" 200 OK\n'
    "[2026-05-01 10:00:57] The server is fired up and ready to roll!\n"
)
SERVING = ARGS + LISTENS
FRAMES = (
    '  File "/opt/sglang/srt/managers/scheduler.py", line 3253, in run_scheduler_process\n'
    "    scheduler.run_event_loop()\n"
    '  File "/opt/sglang/srt/managers/scheduler.py", line 1151, in run_event_loop\n'
    "    dispatch_event_loop(self)\n"
    "    ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
)


def crash(at: str, error: str = "ValueError: repeats can not be negative", rank: str = "") -> str:
    """A scheduler's last words."""
    return (
        f"[2026-05-01 {at}{rank}] Scheduler hit an exception: Traceback (most recent call last):\n{FRAMES}{error}\n\n"
    )


def death(at: str, pid: int = 4211) -> str:
    """What the main process writes when a scheduler has died."""
    return (
        f"[2026-05-01 {at}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
        f"[2026-05-01 {at}] kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}\n"
    )


def batch(at: str, rank: str = "") -> str:
    """What a scheduler writes after a batch."""
    return f"[2026-05-01 {at}{rank}] Decode batch, #running-req: 2, #token: 132, token usage: 0.03\n"


def served(at: str) -> str:
    """What uvicorn writes when a request was answered."""
    return f'[2026-05-01 {at}] INFO:     10.0.0.5:60932 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


STOP = (
    "[2026-05-01 11:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    "[2026-05-01 11:00:04] Gracefully exiting... Remaining number of requests 0.\n"
    "[2026-05-01 11:00:04] kill_process_tree called: parent_pid=4211, include_parent=False, pid=4211\n"
)


def framed(text: str, source: str = "server.log") -> list[LogLine]:
    """The log lines of a text."""
    raws, offset = [], 0
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        raws.append(Raw(source, number, offset, line))
        offset += len(line.encode()) + 1
    return list(Framer(source).frames(raws))


def found(text: str, known: Known | None = None) -> list[Incident]:
    """All incidents of a text."""
    assembler = Assembler(known)
    got = [incident for line in framed(text) for incident in assembler.feed(line)]
    return got + assembler.flush()


def standing(text: str, known: Known | None = None) -> list[str]:
    """The errors that a text proves: causes that nothing denies."""
    return [got.error for got in found(text, known) if got.role is Role.CAUSE and not got.outlived]
