"""What every request passes first: whose name it calls us by, how large and how slow it may be, what answers must say.

**The Host header** holds off DNS rebinding: a page of a stranger whose name was pointed at 127.0.0.1 calls us by that
name. A plain address, `localhost`, the host we listen on (where that is 0.0.0.0 or [::]: this machine's name) and that
of `[web] url` are ours.
**Cross-site requests** that change something are refused by their Origin, and because they cannot send JSON unasked.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specwatch.alerts.address import reached
from specwatch.alerts.splice import LARGEST as LARGEST_ALERTS
from specwatch.settings import Web

LARGEST = 1024 * 1024
"""Bytes that the body of a request may have."""
ALERTS = "/alertmanager"
"""Where alerts of others come: a group of thousands of them is large, and one that is refused is lost."""
BODY_WITHIN = 15.0
"""Seconds that a body may take to come."""

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"clipboard-write=(self)"),
    (b"cache-control", b"no-store"),
)

Refuse = Callable[[Scope, int, str], Awaitable[tuple[bytes, bytes]]]
"""Gives the media type and the body of an answer with that status and text."""
Failed = Callable[[str, BaseException], None]


def is_ours(host: str, web: Web) -> bool:
    """Whether a Host header names us."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        listens = urlsplit(f"//{reached(web.listen)}").hostname or ""
        linked = urlsplit(web.url).hostname or ""
    except ValueError:
        return False
    if not name or any(c in host for c in "/@?# "):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {"localhost", listens.lower(), linked.lower()} - {""}
    return True


def is_own_page(origin: str, host: str, web: Web) -> bool:
    """Whether an Origin is the page that the request was sent to, or, behind a proxy, that of `[web] url`.

    Not whether it could name us: a stranger's page may stand at a plain address, too.
    """
    linked = urlsplit(web.url)
    own = {f"http://{host}", f"https://{host}", f"{linked.scheme}://{linked.netloc}"}
    return origin.lower() in {one.lower() for one in own}


def most(path: str) -> int:
    """Bytes that the body of a request for a path may have."""
    return LARGEST_ALERTS if path == ALERTS else LARGEST


class Guard:
    """Wraps the application. `web` gives the settings in force, `failed` is told of what went wrong inside."""

    def __init__(self, app: ASGIApp, web: Callable[[], Web], refuse: Refuse, failed: Failed) -> None:
        self._app, self._web, self._refuse, self._failed = app, web, refuse, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", ())}
                message["headers"] = [*message.get("headers", ()), *(one for one in HEADERS if one[0] not in own)]
            await send(message)

        async def refused(status: int, text: str) -> None:
            kind, body = await self._refuse(scope, status, text)
            headers = [
                (b"content-type", kind),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            await answered({"type": "http.response.start", "status": status, "headers": headers})
            await answered({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

        status, text = self._unfit(scope)
        if status:
            await refused(status, text)
            return
        try:
            await self._app(scope, _bounded(receive, most(scope["path"])), answered)
        except Exception as error:  # one bad page must not take the others with it; Starlette has answered it
            self._failed(scope["path"], error)

    def _unfit(self, scope: Scope) -> tuple[int, str]:
        """The status and the reason why a request is refused unread, 0 where it is not."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        web = self._web()
        host = headers.get(b"host", b"").decode("latin-1")
        if sum(name == b"host" for name, _ in scope["headers"]) != 1 or not is_ours(host, web):
            return 421, f"This is not {host[:100] or 'a host without a name'}: set [web] url to the name that you use."
        origin = headers.get(b"origin", b"").decode("latin-1")
        if scope["method"] == "POST" and origin and not is_own_page(origin, host, web):
            return 403, "A change has to come from a page of specwatch itself; behind a proxy, set [web] url to it."
        length = headers.get(b"content-length", b"0")
        limit = most(scope["path"])
        if not length.isdigit() or int(length) > limit:
            return 413, f"The body is larger than {limit} bytes."
        return 0, ""


def _bounded(receive: Receive, limit: int) -> Receive:
    """The body of a request, as far as it may go."""
    size = 0
    loop = asyncio.get_running_loop()
    until = loop.time() + BODY_WITHIN
    over = False

    async def bounded() -> Message:
        nonlocal size, over
        if over:  # what comes now is only that the client went away
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"The body did not come within {BODY_WITHIN:.0f} s.") from None
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, f"The body is larger than {limit} bytes.")
        over = not message.get("more_body", False)
        return message

    return bounded
