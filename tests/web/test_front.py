"""The thread that serves: ports that are taken, servers that fail, clients that dawdle."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from webbox import get, until

from specwatch.errors import ConfigError
from specwatch.web.server import MOST_OPEN, Front, Serving, Uvicorn


class Said:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((event, str(fields.get("because", ""))))

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


async def hello(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", hello)])


class Broken:
    """A server that fails at once."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def run(self, listening: socket.socket) -> None:
        raise self._error

    def stop(self) -> None:
        pass


def test_a_taken_port_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        front = Front(f"127.0.0.1:{taken.getsockname()[1]}", lambda: Uvicorn(APP), Said())
        with pytest.raises(ConfigError, match=r"\[web\] listen = .*: Address already in use; choose a free address"):
            front.start()


@pytest.mark.parametrize("listen", ["no-such-host.invalid:1", "192.0.2.1:1", "127.0.0.1:99999"])
def test_an_address_that_is_not_ours(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"\[web\] listen"):
        Front(listen, lambda: Uvicorn(APP), Said()).start()


def test_what_fails_is_said_and_begun_anew_on_the_same_port() -> None:
    said = Said()
    servers: list[Serving] = [Broken(RuntimeError("a bug")), Broken(SystemExit(3)), Uvicorn(APP)]
    front = Front("127.0.0.1:0", lambda: servers.pop(0), said, first_pause=0.01)
    front.start()
    try:
        url = f"http://127.0.0.1:{front.port}/"
        until(lambda: not servers and said.events().count("web_failed") == 2)
        until(lambda: _answers(url))
        assert get(url) == (200, "hello")
        assert [because for event, because in said.lines if event == "web_failed"] == [
            "RuntimeError: a bug",
            "SystemExit: 3",
        ]
    finally:
        front.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "web"]


def _answers(url: str) -> bool:
    try:
        return get(url)[0] == 200
    except OSError:
        return False


def test_it_ends_while_it_waits_to_begin_anew() -> None:
    said = Said()
    front = Front("127.0.0.1:0", lambda: Broken(RuntimeError("x")), said, first_pause=1000.0)
    front.start()
    until(lambda: "web_failed" in said.events())
    front.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "web"]


def test_a_client_that_sends_no_request_is_put_off() -> None:
    front = Front("127.0.0.1:0", lambda: Uvicorn(APP, header_within=0.2), Said())
    front.start()
    try:
        for start in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
            with closing(socket.create_connection(("127.0.0.1", front.port), timeout=20)) as client:
                client.sendall(start)
                assert client.recv(100) in (b"",), "closed without an answer"
        assert get(f"http://127.0.0.1:{front.port}/") == (200, "hello")
    finally:
        front.stop()


def test_a_client_that_stops_within_its_second_request_is_put_off() -> None:
    front = Front("127.0.0.1:0", lambda: Uvicorn(APP, header_within=0.2, idle=0.2), Said())
    front.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", front.port), timeout=20)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: client.recv(4096).endswith(b"hello"))
            client.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            assert client.recv(100) == b"", "closed without an answer"
    finally:
        front.stop()


def test_a_client_that_does_not_take_the_answer_is_put_off() -> None:
    async def large(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("x" * 32 * 1024 * 1024)

    front = Front("127.0.0.1:0", lambda: Uvicorn(Starlette(routes=[Route("/", large)]), taken_within=0.3), Said())
    front.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", front.port), timeout=20)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

            def is_cut() -> bool:
                try:
                    client.sendall(b"\r\n")
                except OSError:
                    return True
                return False

            until(is_cut)
    finally:
        front.stop()


def test_more_connections_than_are_held_are_cut_at_once() -> None:
    front = Front("127.0.0.1:0", lambda: Uvicorn(APP), Said())
    front.start()
    clients: list[socket.socket] = []
    try:
        for _ in range(MOST_OPEN + 1):
            clients.append(socket.create_connection(("127.0.0.1", front.port), timeout=5))
        assert clients[-1].recv(1) == b"", "not only once it was late"
    finally:
        for client in clients:
            client.close()
        front.stop()


def test_headers_without_end_are_refused() -> None:
    front = Front("127.0.0.1:0", lambda: Uvicorn(APP), Said())
    front.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", front.port), timeout=20)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
            assert client.recv(100).startswith(b"HTTP/1.1 400")
        assert get(f"http://127.0.0.1:{front.port}/") == (200, "hello")
    finally:
        front.stop()
