"""Findings for a program of somebody: JSON, signed where there is a key.

`X-Specwatch-Signature: sha256=HEX` is the HMAC-SHA256 (RFC 2104) of `TIMESTAMP.BODY` with the key, TIMESTAMP being the
header `X-Specwatch-Timestamp` (seconds since 1970): who checks both can tell a forged request and an old one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence

from specwatch import __version__
from specwatch.alerts.base import Request
from specwatch.alerts.saying import Message, fields
from specwatch.report.times import iso
from specwatch.settings import Alert


def request(alert: Alert, messages: Sequence[Message], secret: str, now: float) -> Request:
    """All of the messages as one request; `secret` is the key that signs it, or empty."""
    return signed(alert.url, document(alert.name, messages, now), secret, now)


def document(name: str, messages: Sequence[Message], now: float) -> bytes:
    """The JSON that webhooks and commands get."""
    return json.dumps(
        {
            "schema": 1,
            "specwatch": __version__,
            "receiver": name,
            "sent": iso(now),
            "findings": [fields(one) for one in messages],
        }
    ).encode()


def signed(url: str, body: bytes, secret: str, now: float) -> Request:
    """A POST of JSON, signed where there is a key."""
    headers = {"Content-Type": "application/json"}
    if secret:
        stamp = f"{now:.0f}"
        digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        headers |= {"X-Specwatch-Timestamp": stamp, "X-Specwatch-Signature": f"sha256={digest}"}
    return Request(url=url, body=body, headers=headers, secrets=(secret,) if secret else ())
