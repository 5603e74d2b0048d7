"""The kinds of receivers: how many findings go into one message of each, and how one is made."""

from __future__ import annotations

from collections.abc import Sequence

from specwatch.alerts import alertmanager, otel, pagerduty, slack, webhook
from specwatch.alerts.base import Request
from specwatch.alerts.saying import Message
from specwatch.settings import Alert, Settings
from specwatch.storage.owing import RANKS, Receiver

MOST = {"alertmanager": 200, "slack": slack.MOST, "pagerduty": 1, "webhook": 100, "command": 100, "otel": 200}
"""Findings in one message."""


def receivers(settings: Settings) -> tuple[Receiver, ...]:
    """Everybody who is told of findings."""
    found = [Receiver(name=alert.name, least=RANKS[alert.severity]) for alert in settings.alerts]
    if settings.otel.endpoint:
        found.append(Receiver(name=otel.NAME, least=0))
    return tuple(found)


def compose(alert: Alert, messages: Sequence[Message], secret: str, now: float) -> Request:
    """The request that tells a receiver of these."""
    kinds = {
        "alertmanager": alertmanager.request,
        "slack": slack.request,
        "pagerduty": pagerduty.request,
        "webhook": webhook.request,
    }
    return kinds[alert.kind](alert, messages, secret, now)
