"""Serves the HTTP side from a thread of its own, so that nothing that happens in it can hold up or stop the watcher.

A port that is taken is an error at the start. What fails later is said (`web_failed`) and begun anew, after 1 s, then
twice as long each time up to a minute.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from specwatch.errors import ConfigError
from specwatch.watching.casework import Say

MOST_CONNECTIONS = 64
"""Connections that are answered; those beyond get 503."""
MOST_OPEN = 2 * MOST_CONNECTIONS
"""Connections that are held at all: the watcher needs file descriptors for its logs."""
MOST_THREADS = 8
"""Pages that are made at the same time; the unit allows few tasks, and the watcher's children need some."""
HEADER_WITHIN = 10.0
"""Seconds that the first request of a connection may take to come; later ones as long after the pause."""
TAKEN_WITHIN = 60.0
"""Seconds that a client may leave an answer untaken."""
IDLE = 15.0
"""Seconds between two requests of a connection."""
LONGEST_PAUSE = 60.0


class Serving(Protocol):
    """Answers requests on a socket."""

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop` is called. Raises whatever went wrong."""

    def stop(self) -> None:
        """Come to an end soon. May be called from any thread, also before `run`."""


class Front:
    """The thread. `make` gives a new server for each attempt."""

    def __init__(self, listen: str, make: Callable[[], Serving], say: Say, first_pause: float = 1.0) -> None:
        self._listen, self._make, self._say, self._pause = listen, make, say, first_pause
        self._first_pause = first_pause
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._serving: Serving | None = None
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._socket: socket.socket | None = None
        self.port = 0
        """The port that is listened on, once it is."""

    def start(self) -> None:
        """Listen. Raises ConfigError where the address cannot be had."""
        self._socket = bound(self._listen)
        self.port = self._socket.getsockname()[1]
        self._say("info", "web_started", listen=f"{urlsplit('//' + self._listen).hostname}:{self.port}")
        self._thread.start()

    def stop(self) -> None:
        """End it; waits a few seconds for answers that are under way."""
        self._ending.set()
        with self._lock:
            if self._serving is not None:
                self._serving.stop()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        if self._socket is not None:
            self._socket.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                listening = self._socket or bound(self._listen, self.port)
                self._socket = None
                with listening:
                    self._serve(listening)
                because = "it ended by itself"
            except (Exception, SystemExit) as error:  # whatever it is, the watcher goes on
                because = f"{type(error).__name__}: {error}"
            if self._ending.is_set():
                return
            self._say("error", "web_failed", because=because, says=f"tried again in {self._pause:.0f} s")
            self._ending.wait(self._pause)
            self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def _serve(self, listening: socket.socket) -> None:
        with self._lock:
            if self._ending.is_set():
                return
            self._serving = self._make()
        self._serving.run(listening)


def bound(listen: str, port: int | None = None) -> socket.socket:
    """A listening socket. Raises ConfigError where the address cannot be had."""
    parts = urlsplit(f"//{listen}")
    try:
        where = socket.getaddrinfo(
            parts.hostname, parts.port if port is None else port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(where[0], where[1])
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where[4])
            listening.listen(128)
        except OSError:
            listening.close()
            raise
    except (OSError, ValueError) as error:
        because = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"[web] listen = {listen!r}: {because}; choose a free address of this host, or stop who has it"
        ) from None
    return listening


class Uvicorn:
    """uvicorn, with limits on everything, without a log of its own."""

    def __init__(
        self,
        app: ASGIApp,
        header_within: float = HEADER_WITHIN,
        taken_within: float = TAKEN_WITHIN,
        idle: float = IDLE,
    ) -> None:
        limits = {"within": header_within, "taken_within": taken_within, "idle": idle}
        config = uvicorn.Config(
            app,
            http=type("Impatient", (_Impatient,), limits),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=math.ceil(idle),
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=32 * 1024,
        )
        self._server = uvicorn.Server(config)

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`."""
        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        current_default_thread_limiter().total_tokens = MOST_THREADS
        await self._server.serve(sockets=[listening])

    def stop(self) -> None:
        """Come to an end soon."""
        self._server.should_exit = True


class _Impatient(H11Protocol):
    """Cuts off whoever takes too long to ask, or to take the answer, and who comes when too many are there."""

    within, taken_within, idle = HEADER_WITHIN, TAKEN_WITHIN, IDLE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stalled: asyncio.TimerHandle | None = None
        self._late = self.loop.call_later(self.within, self._give_up)
        if len(self.connections) > MOST_OPEN:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=0)  # to be told of every byte that is not taken

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        self._taken()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._late.cancel()

    def on_response_complete(self) -> None:
        self._late.cancel()
        self._late = self.loop.call_later(self.idle + self.within, self._give_up)
        super().on_response_complete()  # begins with the next request, if it is there already

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.taken_within, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def _taken(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
