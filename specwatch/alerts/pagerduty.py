"""Findings as events of PagerDuty's Events API v2 (developer.pagerduty.com: "Send an event")."""

from __future__ import annotations

import json
from collections.abc import Sequence

from specwatch.alerts.base import Request
from specwatch.alerts.saying import Message, fields, rule, title
from specwatch.report.times import iso
from specwatch.settings import Alert

URL = "https://events.pagerduty.com/v2/enqueue"
LONGEST_SUMMARY = 1024
SEVERITIES = {"fatal": "critical", "degraded": "warning", "notice": "info"}


def request(alert: Alert, messages: Sequence[Message], secret: str, now: float) -> Request:
    """The one message as an event: triggers or resolves the incident of a finding. `secret` is the routing key."""
    (one,) = messages
    finding = one.finding
    event: dict[str, object] = {
        "routing_key": secret,
        "event_action": "trigger" if one.firing else "resolve",
        "dedup_key": f"specwatch/{finding.server}/{finding.fingerprint}",
    }
    if one.firing:
        event |= {
            "client": "specwatch",
            **({"client_url": one.url, "links": [{"href": one.url, "text": "the finding"}]} if one.url else {}),
            "payload": {
                "summary": f"{finding.server}: {title(finding)}"[:LONGEST_SUMMARY],
                "source": finding.server,
                "severity": SEVERITIES.get(finding.severity, "error"),
                "timestamp": iso(min(one.began, now)),
                "class": rule(finding) or "unknown",
                "group": finding.server,
                "custom_details": fields(one),  # some 20 KB at most, of 512
            },
        }
    return Request(
        url=alert.url or URL,
        body=json.dumps(event).encode(),
        headers={"Content-Type": "application/json"},
        secrets=(secret,) if secret else (),
    )
