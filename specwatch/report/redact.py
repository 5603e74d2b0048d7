"""Keep secrets out of everything that specwatch prints or stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from specwatch.domain import Launch

HIDDEN = "<redacted>"
_NAME = re.compile(
    r"(?:^|[-_])(?:api[-_]?key|admin[-_]?key|key|token|secret|password|passwd|credential|credentials)$", re.IGNORECASE
)
# flags that end in such a word and hold no secret
_HARMLESS = re.compile(
    r"(?:mask|bos|eos|pad|num|max|draft|total|prefill)[-_](?:\w+[-_])*tokens?$|ssl[-_]keyfile$|stop[-_]token$",
    re.IGNORECASE,
)
_SHAPES = (
    re.compile(r"\b(hf_)[A-Za-z0-9]{8,}"),
    re.compile(r"\b(sk-)[A-Za-z0-9_-]{12,}"),
    re.compile(r"\b(ghp_|gho_|github_pat_)[A-Za-z0-9_]{16,}"),
    re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/@:'\"]*:[^\s/@'\"]+(?=@)"),
    re.compile(r"([?&](?:access_token|api_key|token|sig|signature|X-Amz-Signature)=)[^\s&'\"]+", re.IGNORECASE),
    re.compile(r"((?:api|admin)[-_]key['\"]?\s*[:= ]\s*['\"]?)(?!None\b)[^\s'\",}]+", re.IGNORECASE),
)


def secret_name(name: str) -> bool:
    """Whether a flag or a variable of this name holds a secret."""
    return bool(_NAME.search(name.lstrip("-"))) and not _HARMLESS.search(name)


def text(value: str) -> str:
    """A text with everything that looks like a secret taken out."""
    for shape in _SHAPES:
        value = shape.sub(lambda found: found[1] + HIDDEN, value)
    return value


def argv(tokens: Iterable[str]) -> tuple[str, ...]:
    """A command's tokens, the values of secret flags and of secret assignments taken out."""
    out: list[str] = []
    hide = False
    for token in tokens:
        name, equals, value = token.partition("=")
        if hide and not token.startswith("--"):
            out.append(HIDDEN)
            hide = False
            continue
        hide = False
        if equals and value and value != "None" and secret_name(name):
            out.append(f"{name}={HIDDEN}")
        else:
            hide = token.startswith("--") and not equals and secret_name(token)
            out.append(text(token))
    return tuple(out)


def env(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables, the values of secret ones taken out."""
    return {name: HIDDEN if secret_name(name) else text(value) for name, value in variables.items()}


def launch(command: Launch) -> Launch:
    """A launch to be shown: tokens and variables without the secrets, no text or values that still hold them."""
    return replace(command, argv=argv(command.argv), env=env(command.env), text="", values={}, recorded=None)
