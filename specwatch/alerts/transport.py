"""One POST with a deadline for all of it, and what its answer means for trying again."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specwatch.alerts.base import Fate, Outcome, Request
from specwatch.alerts.saying import short

if TYPE_CHECKING:
    import httpx

MOST_ANSWER = 2048
"""Bytes of an answer that are read, for the reason in it."""
LONGEST_REST = 3600.0
"""Seconds that a receiver may ask to be left alone for."""
AGAIN = frozenset({408, 425, 429})
"""Answers of the 4xx that are no judgement of the request."""
CONTENT = frozenset({400, 413, 422})
"""Answers that judge what was said."""


def client() -> httpx.AsyncClient:
    """What requests are made with: no redirects, proxies and certificates as the environment says."""
    import httpx

    return httpx.AsyncClient(
        follow_redirects=False,
        timeout=None,  # noqa: S113 - `post` has one deadline for all of it
        limits=httpx.Limits(max_keepalive_connections=0),  # minutes lie between two messages
        mounts=dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]")),  # never through a proxy
        headers={"User-Agent": "specwatch"},
    )


async def post(using: httpx.AsyncClient, request: Request, deadline: float, now: datetime | None = None) -> Outcome:
    """Make the request; `deadline` seconds are for all of it, however slowly the receiver answers. Never raises."""
    import httpx

    try:
        async with asyncio.timeout(deadline):
            async with using.stream(
                "POST", request.url, content=request.body, headers=dict(request.headers)
            ) as response:
                if response.is_success:
                    return Outcome(fate=Fate.SENT)
                said = b""
                async for chunk in response.aiter_raw():
                    said += chunk
                    if len(said) > MOST_ANSWER:
                        break
                return judged(response.status_code, response.headers, said, request, now or datetime.now(UTC))
    except TimeoutError:
        return Outcome(fate=Fate.LATER, error=f"{place(request.url)}: no answer within {deadline:g} s")
    except (httpx.UnsupportedProtocol, httpx.InvalidURL):
        return Outcome(fate=Fate.NEVER, error="the address is no http:// or https:// URL")
    except (httpx.HTTPError, OSError, ValueError) as error:
        return Outcome(fate=Fate.LATER, error=hidden(f"{place(request.url)}: {reason(error)}", request))


def reason(error: BaseException) -> str:
    """What the innermost of the errors behind one says: "Connection refused", not "All connection attempts failed"."""
    inner: BaseException | None = error
    while inner is not None:
        error = inner
        inner = error.__cause__ or (error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__context__)
    if isinstance(error, OSError) and error.strerror:
        called = error.strerror.startswith("Connect call failed")  # asyncio's words, with the address for a reason
        return os.strerror(error.errno) if called and error.errno else error.strerror
    return str(error) or type(error).__name__


def judged(code: int, headers: httpx.Headers, said: bytes, request: Request, now: datetime) -> Outcome:
    """What an answer that is no success means."""
    text = " ".join(said[:MOST_ANSWER].decode("utf-8", "replace").split())
    error = hidden(f"{place(request.url)} answered {code}{f': {text}' if text else ''}", request)
    if 300 <= code < 400:
        return Outcome(fate=Fate.NEVER, error=f"{error} (a redirect; give the final address)")
    if code < 500 and code not in AGAIN:
        return Outcome(fate=Fate.NEVER, error=error, content=code in CONTENT)
    return Outcome(fate=Fate.LATER, error=error, retry_after=rest(headers.get("Retry-After", ""), now))


def rest(retry_after: str, now: datetime) -> float:
    """Seconds of a `Retry-After` header (RFC 9110, 10.2.3): a number or a date; 0 for anything else."""
    try:
        return max(0.0, min(float(int(retry_after)), LONGEST_REST))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(retry_after)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, min((at - now).total_seconds(), LONGEST_REST))
    except (ValueError, TypeError, OverflowError):
        return 0.0


def place(url: str) -> str:
    """A URL as it may be shown: its path may be a secret, as Slack's is."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError:
        return "the receiver"


def hidden(text: str, request: Request) -> str:
    """A text without the request's secrets, for our log and our store."""
    for secret in sorted((*request.secrets, request.url), key=len, reverse=True):
        text = text.replace(secret, "<redacted>")
    return short(text, 300)
