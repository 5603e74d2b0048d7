"""Findings as OpenTelemetry log records, sent by OTLP over HTTP (opentelemetry.io: Logs Data Model, OTLP/HTTP).

The records are made and encoded by OpenTelemetry's own packages (the extra `otel`); they are sent as everything else
is, so that they are kept and tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

from specwatch import __version__
from specwatch.alerts.base import Request
from specwatch.alerts.saying import Message, cause, fields
from specwatch.errors import ConfigError
from specwatch.settings import Otel

NAME = "otel"
"""Its name among the receivers."""
PATH = "/v1/logs"
_NUMBERS = {"fatal": 21, "degraded": 13, "notice": 9}
_WORDS = {21: "FATAL", 13: "WARN", 9: "INFO"}


def require() -> None:
    """Raises ConfigError where the packages of the extra are missing."""
    try:
        import opentelemetry.exporter.otlp.proto.common._log_encoder
        import opentelemetry.sdk._logs  # noqa: F401
    except ImportError:
        raise ConfigError("[otel] needs OpenTelemetry: pip install 'specwatch[otel]'") from None


def request(otel: Otel, messages: Sequence[Message], now: float) -> Request:
    """All of the messages as one request."""
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    resource = Resource({"service.name": "specwatch", "service.version": __version__})
    scope = InstrumentationScope("specwatch", __version__)
    records = []
    for one in messages:
        number = _NUMBERS.get(one.finding.severity, 9) if one.firing else 9
        at = one.began if one.ended is None else one.ended
        record = LogRecord(
            timestamp=int(at * 1e9),
            observed_timestamp=int(now * 1e9),
            severity_text=_WORDS[number],
            severity_number=SeverityNumber(number),
            body=cause(one.finding),
            attributes=_attributes(one),
            event_name="specwatch.finding",
        )
        records.append(ReadableLogRecord(record, resource, scope))
    url = otel.endpoint.rstrip("/")
    return Request(
        url=url if url.endswith(PATH) else url + PATH,
        body=encode_logs(records).SerializeToString(),
        headers={"Content-Type": "application/x-protobuf", **otel.headers},
        secrets=tuple(value for value in otel.headers.values() if value),
    )


def _attributes(one: Message) -> dict[str, str | int | bool]:
    plain = fields(one)
    verdict = one.finding.document.get("verdict")
    found = {
        "server": one.finding.server,
        "fingerprint": one.finding.fingerprint,
        "rule": plain["rule"],
        "cause": plain["cause"],
        "severity": plain["severity"],
        "state": plain["state"],
        "crash_loop": plain["crash_loop"],
        "verdict": verdict.get("status") if isinstance(verdict, dict) else None,
        "occurrences": plain["occurrences"],
        "evidence": plain["evidence"],
        "url": plain["url"],
    }
    return {
        f"specwatch.{name}": value for name, value in found.items() if isinstance(value, (str, int)) and value != ""
    }
