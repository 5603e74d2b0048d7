"""What a request asks for, read strictly: whatever is not understood is refused with what was expected."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from specwatch.web import openapi

_SERVER = re.compile(openapi.SERVER.removesuffix("$") + r"\Z")
_FINDING = re.compile(openapi.FINDING.removesuffix("$") + r"\Z")
_GENEROUS = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False)
_FIX = re.compile(openapi.FIX.removesuffix("$") + r"\Z")


def is_server(name: str) -> bool:
    """Whether that may be the name of a server."""
    return _SERVER.match(name) is not None


def named(request: Request) -> tuple[str, str]:
    """The server and the finding of a path. Raises HTTPException where they cannot be any."""
    server, finding = request.path_params["server"], request.path_params["finding"]
    if not _SERVER.match(server) or not _FINDING.match(finding):
        raise HTTPException(404, "Expected the name of a server and the twelve digits of a finding.")
    return server, finding


def only(request: Request, *names: str) -> None:
    """Raises HTTPException for a parameter that is not one of those, or stands twice."""
    for name in request.query_params:
        if name not in names:
            says = f"expected one of {', '.join(names)}" if names else "expected none"
            raise HTTPException(400, f"{name[:100]}: is no parameter here; {says}")
    if len(request.query_params.multi_items()) > len(request.query_params):
        raise HTTPException(400, "a parameter stands twice")


def server_name(given: str | None) -> str:
    """The server that a parameter names, empty without one. Raises HTTPException."""
    if given is not None and not _SERVER.match(given):
        raise HTTPException(400, "server: expected a name of letters, digits and . _ @ : -")
    return given or ""


def integer(given: str | None, name: str, least: int, most: int, default: int) -> int:
    """The number that a parameter gives. Raises HTTPException where it is none from `least` to `most`."""
    if given is None:
        return default
    if not re.fullmatch(r"[0-9]{1,7}", given) or not least <= int(given) <= most:
        raise HTTPException(400, f"{name}: expected a number from {least} to {most}")
    return int(given)


def form_of(body: bytes) -> dict[str, str]:
    """What a form of ours sent. Raises HTTPException for more than that."""
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=10))
    except ValueError:
        raise HTTPException(400, "More fields than the form has.") from None


def fix_of(body: bytes) -> str:
    """The fix that the body of an approval names, empty where it is none."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    fix = given.get("fix") if isinstance(given, dict) and set(given) == {"fix"} else None
    return fix if isinstance(fix, str) and _FIX.match(fix) else ""


def is_object(body: bytes) -> bool:
    """Whether a body is a JSON object, as generously as those read it who take it: what is refused here is lost."""
    try:
        return isinstance(_GENEROUS.decode(body.decode("utf-8", "surrogateescape").lstrip("\ufeff")), dict)
    except RecursionError:
        return True  # whoever takes it lets it pass unchanged
    except ValueError:
        return False
