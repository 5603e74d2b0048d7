"""The description of the HTTP side, OpenAPI 3.1: what the API answers, by which a test fuzzes it."""

from __future__ import annotations

from specwatch import __version__

Json = dict[str, object]

SERVER = r"^[\w.@:\-]{1,100}$"
"""As the configuration allows it: letters of any script."""
FINDING = "^[0-9a-f]{12}$"
FIX = "^[a-z0-9][a-z0-9-]{0,99}$"
STATES = ("firing", "resolved", "refuted", "superseded")

_TEXT: Json = {"type": "string"}
_MAYBE: Json = {"type": ["string", "null"]}
_TIME: Json = {"type": "string", "format": "date-time"}
_MAYBE_TIME: Json = {"type": ["string", "null"], "format": "date-time"}
_OBJECT: Json = {"type": "object"}


def _object(**properties: object) -> Json:
    return {"type": "object", "required": sorted(properties), "properties": properties}


def _array(of: object) -> Json:
    return {"type": "array", "items": of}


def _answer(says: str, kind: str = "application/json", schema: object = None) -> Json:
    return {"description": says, "content": {kind: {"schema": schema or _TEXT}}}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _query(name: str, says: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "description": says, "schema": schema}


def _path(name: str, pattern: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


_BAD = _answer("The request is wrong; the text says what was expected.", schema=_ref("Error"))
_NONE = _answer("There is none.", schema=_ref("Error"))
_LIMIT = _query("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 200, "default": 100})
_BY_SERVER = _query("server", "Only of this server.", {"type": "string", "pattern": SERVER})

FINDING_SCHEMA = {
    "type": "object",
    "description": "As in `specwatch diagnose --format json`, with its server and history; more fields may come.",
    "required": ["id", "server", "severity", "state", "state_because", "occurrences", "first_seen", "last_seen"],
    "properties": {
        "id": {"type": "string"},
        "server": _TEXT,
        "severity": {"enum": ["fatal", "degraded", "notice"]},
        "state": {"enum": list(STATES)},
        "state_because": _TEXT,
        "occurrences": {"type": "integer", "minimum": 0},
        "first_seen": _TIME,
        "last_seen": _TIME,
        "firing_since": _MAYBE_TIME,
        "crash_loop": {"type": "boolean"},
        "rule": _MAYBE,
        "says": _TEXT,
        "verdict": _OBJECT,
        "fixes": _array(_OBJECT),
    },
}
_ACTION = _object(
    id=_TEXT, server=_TEXT, fingerprint=_TEXT, time=_TIME, what=_TEXT, result=_TEXT, because=_TEXT
)  # fmt: skip
_SERVER_SCHEMA = _object(
    name=_TEXT,
    state={"enum": ["broken", "degraded", "fine", "unknown"]},
    since=_MAYBE_TIME,
    last_line=_MAYBE_TIME,
    up={"type": ["boolean", "null"]},
    firing=_array(_TEXT),
)
_SCHEMAS = {
    "Error": _object(error=_TEXT),
    "Finding": FINDING_SCHEMA,
    "Findings": _object(
        schema={"const": 1}, findings=_array(_ref("Finding")), next={"type": ["integer", "null"]}
    ),
    "OneFinding": _object(
        schema={"const": 1},
        finding=_ref("Finding"),
        moments=_array(_object(time=_TIME, kind={"enum": ["started", "ready", "crashed"]}, finding=_MAYBE)),
        actions=_array(_ref("Action")),
    ),
    "Server": _SERVER_SCHEMA,
    "Servers": _object(schema={"const": 1}, servers=_array(_ref("Server"))),
    "Action": _ACTION,
    "Actions": _object(schema={"const": 1}, actions=_array(_ref("Action"))),
    "Health": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}, "because": _TEXT}},
}  # fmt: skip


def _get(name: str, says: str, answers: Json, parameters: list[Json] | None = None) -> Json:
    return {"get": {"operationId": name, "summary": says, "parameters": parameters or [], "responses": answers}}


def _health(name: str, says: str) -> Json:
    good, bad = _answer("So it is.", schema=_ref("Health")), _answer("It is not so.", schema=_ref("Health"))
    return _get(name, says, {"200": good, "503": bad})


def description() -> Json:
    """The whole description."""
    one = [_path("server", SERVER), _path("finding", FINDING)]
    findings = [
        _BY_SERVER,
        _query("state", "Only in this state.", {"type": "string", "enum": list(STATES)}),
        _LIMIT,
        _query("offset", "How many to leave out.", {"type": "integer", "minimum": 0, "maximum": 1_000_000}),
    ]
    paths = {
        "/api/v1/findings": _get(
            "findings", "Findings, the one seen last first.",
            {"200": _answer("A page of them; `next` is the offset of the following page.", schema=_ref("Findings")),
             "400": _BAD}, findings,
        ),
        "/api/v1/findings/{server}/{finding}": _get(
            "finding", "One finding, with the log around it and what became of its server.",
            {"200": _answer("The finding.", schema=_ref("OneFinding")), "400": _BAD, "404": _NONE}, one,
        ),
        "/api/v1/findings/{server}/{finding}/approve": {"post": {
            "operationId": "approve",
            "summary": "Let the service that applies take one fix. It checks everything again, and may still say no.",
            "security": [{"token": []}],
            "parameters": one,
            "requestBody": {"required": True, "content": {"application/json": {"schema": {
                **_object(fix={"type": "string", "pattern": FIX}), "additionalProperties": False}}}},
            "responses": {
                "200": _answer("The approval was left for it.", schema=_object(
                    approved={"const": True}, server=_TEXT, finding=_TEXT, fix=_TEXT)),
                "400": _BAD,
                "401": _answer("That is not the token of [web] token_file.", schema=_ref("Error")),
                "403": _answer("[web] token_file is not set.", schema=_ref("Error")),
                "404": _NONE,
                "409": _answer("That cannot be approved, or not any more.", schema=_ref("Error")),
                "429": _answer("Too many wrong tokens.", schema=_ref("Error")),
                "503": _answer("It cannot be kept now.", schema=_ref("Error")),
            },
        }},
        "/api/v1/servers": _get(
            "servers", "All servers at a glance.",
            {"200": _answer("The servers.", schema=_ref("Servers")), "400": _BAD},
        ),
        "/api/v1/actions": _get(
            "actions", "What specwatch changed, the latest first.",
            {"200": _answer("The actions.", schema=_ref("Actions")), "400": _BAD}, [_BY_SERVER, _LIMIT],
        ),
        "/api/v1/openapi.json": _get(
            "openapi", "This description.", {"200": _answer("OpenAPI 3.1.", schema=_OBJECT)}
        ),
        "/healthz": _health("healthz", "Whether the loop lives."),
        "/readyz": _health("readyz", "Whether the loop lives and the store can be read and written."),
        "/metrics": _get("metrics", "The numbers, for Prometheus.", {"200": _answer("Text format.", "text/plain")}),
        "/alertmanager": {"post": {
            "operationId": "alertmanager",
            "summary": "Alerts of others (Alertmanager's webhook): annotated and sent on to [enrich] forward.",
            "requestBody": {"required": True, "content": {"application/json": {"schema": _OBJECT}}},
            "responses": {
                "200": _answer("Accepted: stored for every receiver. The body with its annotations.", schema=_OBJECT),
                "400": _BAD,
                "415": _answer("It is no JSON by its Content-Type.", schema=_ref("Error")),
                "503": _answer("It could be neither stored nor sent on: try again.", schema=_ref("Error")),
            },
        }},
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "specwatch",
            "version": __version__,
            "description": "What specwatch found on the servers that it watches. Read-only but for what says so.",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
