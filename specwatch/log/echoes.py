"""What SGLang's one-line messages say about a run, by how they begin; wording of 0.4.2 to 0.5.23.

Only the start of a message counts: what follows may be a user's text. The order of trust is: a traceback says why,
`weak_cause` says only that something died, an echo says that a death was noticed.
"""

from __future__ import annotations

import re
from functools import cache

from specwatch.lazy import compiled
from specwatch.log import routine

BATCH = routine.BATCHES
"""What a scheduler writes after each batch, and so what a dead one cannot write."""

_ECHO = compiled(
    r"Received sigquit from a child proces|SIGQUIT received\b|kill_process_tree called: "
    r"|Sleeping \d+ seconds before crash|Pyspy (?:failed|dump)|All pyspy dump attempts failed"
    r"|CUDA (?:user-triggered )?coredump|Waiting [\d.]+ seconds for CUDA"
    r"|No live scheduler processes found|Scheduler or DataParallelController \d+ terminated with|Exit code: -?\d+"
    r"|(?:Killed|Aborted|Terminated)(?: \(core dumped\))?$|nanobind: leaked"
)
_DEATH = compiled(r"kill_process_tree called: .*include_parent=True|(?:Killed|Aborted)(?: \(core dumped\))?$")
_NOTICED = compiled(
    r"Received sigquit from a child proces|SIGQUIT received\b|kill_process_tree called: .*include_parent=True"
)
_ORDERLY = compiled(r"Gracefully exiting\.\.\.|INFO:     Finished server process \[\d+\]")

_SERVED = compiled(
    r'INFO:     \[?[\w.:]+\]?:\d+ - "POST /(?:v1/)?(?:generate|encode|classify|rerank|score|completions'
    r"|chat/completions|embeddings|responses|messages|api/chat|api/generate|invocations|vertex_generate)"
    r'\b\S* HTTP/[\d.]+" 2\d\d'
)
_PROGRESS = compiled(
    r"Load weight (?:begin|end)|KV Cache is allocated|Memory pool end|Capture \w+ |Init (?:torch distributed|parallel)"
    r"|max_total_num_tokens=|INFO:     (?:Started server process|Uvicorn running|Application startup complete)"
    r"|The server is fired up"
)
_LISTENS = compiled(r'INFO:     (?:Uvicorn running|Application startup complete|\S+ - ")|The server is fired up')
_SCHEDULER = compiled(
    r"Prefill batch|Decode batch|Load weight |KV Cache is allocated|Memory pool end|max_total_num_tokens="
)
_USERS = (
    *("Receive: ", "Receive OpenAI: ", "Finish: ", "Finish OpenAI: ", "[http_server] Error", '{"', "Invalid request"),
    *("Session opened", "session id ", "Duplicate request", "LoRA adapter", "Hit invalid", "Failed to compile"),
    *("WARNING:  Invalid HTTP", "Req Time Stats"),
)

HARD_WATCHDOG = compiled(r"(?:\w+ )?[Ww]atchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\)")
_CAUSE = compiled(
    HARD_WATCHDOG.pattern + r"|(?:ERROR: +)?\[Errno 98\] .*address already in use"
    r"|(?:Memory cgroup out of memory|Out of memory): Killed process \d+ \((?:python|sglang)"
)
_FAULT = compiled(
    r"Memory access fault by GPU node-\d+ \(Agent handle: "
    r"|Error: Failed to initialize the TMA descriptor 801$"
    r"|:0:\S*rocdevice\.cpp ?.{0,200}aborting with error : HSA_STATUS_ERROR_"
    r"|(?:munmap_chunk|free|malloc|realloc)\(\): (?:invalid|corrupted|unaligned|unsorted|mismatching|double free"
    r"|memory corruption|smallbin)"
    r"|double free or corruption \(|corrupted (?:size vs\. prev_size|double-linked list)"
)
ASSERTION = compiled(r"\S+\.(?:cu|cuh|cpp|h|hip):\d+: .{0,300}?Assertion `(?P<what>.*)` failed\.?")
_DIED = compiled(
    r"Subprocess [\w-]+ \(pid=\d+\) crashed with exit code|Rank \d+ scheduler is dead\. Please check"
    r"|\[rank\d+\]:\[[EF]\S* [\d:.]+ ProcessGroup\w+\.cpp:\d+\] .*(?:Watchdog caught collective operation timeout"
    r"|watchdog got stuck for \d|terminated with exception|connectFullMesh failed"
    r"|Received a dump signal due to a collective timeout)"
)
_WEAK_ERROR = compiled(
    r"(?:[\w.]*\.)?EOFError$|RuntimeError: Rank \d+ scheduler died during initialization"
    r"|(?:[\w.]*\.)?(?:BrokenPipeError|ConnectionResetError|DistBackendError|DistNetworkError)"
    r"|RuntimeError: (?:NCCL (?:error|communicator)"
    r"|.{0,120}(?:Connection closed by peer|Broken pipe|Connection reset by peer))"
    r"|ValueError: TP rank \d+ could finish the model loading|RuntimeError: Rank \d+ failed to pass monitoredBarrier"
    r"|(?:[\w.]*\.)?(?:SystemExit|KeyboardInterrupt|CancelledError)(?::|$)"
)


_CANCELLED = compiled(r"(?:[\w.]*\.)?CancelledError(?::|$)")


WORDINGS = (_ECHO, _CAUSE, _DIED, _ORDERLY, _PROGRESS, _LISTENS, _SCHEDULER, ASSERTION)
"""Everything that a message is asked for here, but for `is_about_users` and `is_weak_error`."""


@cache
def _something() -> re.Pattern[str]:
    """All of them in one; compiled when a log turns out to be long enough."""
    return re.compile("|".join(part.pattern for part in WORDINGS))


def says_something(text: str) -> bool:
    """Whether any function of this module but `is_about_users` and `is_weak_error` may know a message."""
    return _something().match(text) is not None


def is_echo(text: str) -> bool:
    """A consequence of a failure that was printed elsewhere, or noise around one."""
    return _ECHO.match(text) is not None


def notices_death(text: str) -> bool:
    """An echo that is worth showing when a run has nothing better: a process noticed that another one died."""
    return _NOTICED.match(text) is not None


def is_death(text: str) -> bool:
    """The server ends itself because of a failure."""
    return _DEATH.match(text) is not None


def is_orderly_end(text: str) -> bool:
    """The server ends as it was told to (SIGTERM, Ctrl-C)."""
    return _ORDERLY.match(text) is not None


def is_served(text: str) -> bool:
    """A client was given an answer that only a living scheduler can give."""
    return _SERVED.match(text) is not None


def is_progress(text: str) -> bool:
    """A step of a start-up that comes only when the step before went well."""
    return _PROGRESS.match(text) is not None


def shows_listening(text: str) -> bool:
    """From here on clients reach the server, and so its log."""
    return _LISTENS.match(text) is not None


def is_schedulers(text: str) -> bool:
    """Written by a scheduler, and so under its rank label where it has one."""
    return _SCHEDULER.match(text) is not None


def is_about_users(text: str) -> bool:
    """About one request, and likely to hold text of its sender."""
    return text.startswith(_USERS)


def is_cause(text: str) -> bool:
    """One line that says why a server ends."""
    return _CAUSE.match(text) is not None


def is_last_word(text: str) -> bool:
    """What a driver or the C library prints right before it ends the process; a rule has to know it as well."""
    return _FAULT.match(text) is not None


def is_weak_cause(text: str) -> bool:
    """One line that says that a process died, not why: a cause only where nothing better is printed."""
    return _DIED.match(text) is not None


def is_weak_error(error: str) -> bool:
    """An exception that the failure of another process brings about."""
    return _WEAK_ERROR.match(error) is not None


def is_cancelled(error: str) -> bool:
    """What every task of a server that stops, or of a client that hung up, ends with: alone it says nothing."""
    return _CANCELLED.match(error) is not None
