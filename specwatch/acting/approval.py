"""A person's approval of one fix: the word of somebody who knows the token, which the one that acts can check.

The token stands in `[web] token_file`, for root alone. Beside it, in `FILE.sha256`, stands its SHA-256, and that is all
that the watcher needs: it knows a right token when somebody types one, and cannot make one up. The approval itself is
an HMAC with the token over what is approved, made when the token was given, and checked by the service that applies,
which reads the token. Where there is no `FILE.sha256` the watcher reads the token itself; then a watcher that was taken
over could approve what it likes, within what `[policy]` lets a person do.

What no check can help: a watcher that was taken over sees the token of whoever types it there afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from specwatch.config import secret
from specwatch.errors import ConfigError

SHORTEST = 20
"""Characters of a token at least: its digest may be read by more than root."""


def digest_of(token_file: str) -> bytes:
    """What a right token has as its SHA-256. Raises ConfigError where neither file says."""
    beside = Path(f"{token_file}.sha256")
    try:
        text = beside.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return _digest(token_of(token_file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{beside}: cannot be read: {error}") from None
    found = re.match(r"([0-9a-fA-F]{64})(?:\s|$)", text)
    if not found:
        raise ConfigError(f"{beside}: expected 64 hex digits: run `tr -d '\\n' <{token_file} | sha256sum >{beside}`")
    return bytes.fromhex(found[1])


def token_of(token_file: str) -> str:
    """The token. Raises ConfigError where it cannot be read, or is too short to be one."""
    token = secret(token_file)
    if len(token) < SHORTEST:
        raise ConfigError(f"{token_file}: expected a token of at least {SHORTEST} characters: `openssl rand -hex 32`")
    return token


def is_right(given: str, digest: bytes) -> bool:
    """Whether somebody gave the right token; takes as long for a wrong one."""
    return hmac.compare_digest(_digest(given), digest)


def seal(token: str, server: str, finding: str, fix: str, occurrence: str, created: float) -> str:
    """The approval of one fix for one finding, as 64 hex digits."""
    what = "\0".join(("specwatch approval 1", server, finding, fix, occurrence, repr(created)))
    return hmac.new(token.encode(), what.encode(), hashlib.sha256).hexdigest()


def is_sealed(approval: str, token: str, server: str, finding: str, fix: str, occurrence: str, created: float) -> bool:
    """Whether an approval is one, and of exactly this."""
    return hmac.compare_digest(seal(token, server, finding, fix, occurrence, created), approval)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
