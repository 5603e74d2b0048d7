"""Our findings as alerts of Prometheus' Alertmanager, by its API v2 (`POST /api/v2/alerts`, api/v2/openapi.yaml).

An alert lives by being sent again: each carries an end in the near future, as Prometheus' own do, so that it resolves
by itself when nobody refreshes it, and fires again after either side was restarted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specwatch.alerts.base import Request
from specwatch.alerts.saying import Message, annotations_of, cause, cause_name, rule, title
from specwatch.report.times import iso
from specwatch.settings import Alert

REFRESH = 60.0
"""Seconds after which what fires is sent again."""
HOLD = 300.0
"""Seconds for which an alert fires without being sent again."""
PATH = "/api/v2/alerts"


def request(alert: Alert, messages: Sequence[Message], secret: str, now: float) -> Request:
    """All of the messages as one request; `secret` is a bearer token or empty."""
    url = alert.url.rstrip("/")
    headers = {"Content-Type": "application/json"}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    body = json.dumps([_alert(alert, one, now) for one in messages])
    return Request(
        url=url if url.endswith(PATH) else url + PATH,
        body=body.encode(),
        headers=headers,
        secrets=(secret,) if secret else (),
    )


def _alert(alert: Alert, one: Message, now: float) -> dict[str, object]:
    finding = one.finding
    labels = {
        "alertname": "SpecwatchFinding",
        "server": finding.server,
        "rule": rule(finding),
        "cause": cause_name(finding),
        "severity": finding.severity,
        "fingerprint": finding.fingerprint,
        **dict(alert.labels),
    }
    ends = now + HOLD if one.ended is None else min(one.ended, now)
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {
            "summary": f"{finding.server}: {title(finding)}",
            "description": cause(finding),
            **annotations_of(finding, one.url, one.state),
        },
        "startsAt": iso(min(one.began, ends)),
        "endsAt": iso(ends),
        **({"generatorURL": one.url} if one.url else {}),
    }
