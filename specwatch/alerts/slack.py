"""Findings as a message of Slack's incoming webhooks (api.slack.com: Block Kit, "Formatting text").

Limits of Slack: 50 blocks a message, 3,000 characters a text, 150 a header. `&`, `<` and `>` are escaped, so that no
text of a log becomes a link or calls a channel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from specwatch.alerts.base import Request
from specwatch.alerts.saying import Message, cause, evidence, fix, rule, status, title
from specwatch.report.times import iso
from specwatch.settings import Alert

MOST = 10
"""Findings in one message: at most 4 blocks each, and one above them."""
LONGEST_TEXT = 3000
_SIGNS = {"fatal": ":red_circle:", "degraded": ":large_orange_circle:", "notice": ":large_blue_circle:"}


def request(alert: Alert, messages: Sequence[Message], secret: str, _now: float) -> Request:
    """All of the messages as one; `secret` is the webhook's address where the configuration does not name it."""
    blocks: list[dict[str, object]] = []
    if len(messages) > 1:
        blocks.append({"type": "header", "text": {"type": "plain_text", "text": _headline(messages)[:150]}})
    for one in messages:
        blocks += _blocks(one)
    content = {
        "text": escaped(_headline(messages))[:LONGEST_TEXT],  # what a notification on a phone shows
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }
    url = alert.url or secret
    return Request(
        url=url, body=json.dumps(content).encode(), headers={"Content-Type": "application/json"}, secrets=(url,)
    )


def escaped(text: str) -> str:
    """A text that Slack shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _headline(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        one = messages[0]
        return f"{'firing' if one.firing else 'resolved'}: {one.finding.server}: {title(one.finding)}"
    servers = {one.finding.server for one in messages}
    firing = sum(one.firing for one in messages)
    counts = [
        f"{firing} firing" if firing else "",
        f"{len(messages) - firing} resolved" if firing < len(messages) else "",
    ]
    where = next(iter(servers)) if len(servers) == 1 else f"{len(servers)} servers"
    return f"{where}: {', '.join(filter(None, counts))}"


def _blocks(one: Message) -> list[dict[str, object]]:
    finding = one.finding
    sign = _SIGNS.get(finding.severity, "") if one.firing else ":white_check_mark:"
    word = finding.severity if one.firing else "resolved"
    lines = [f"{sign} *{escaped(finding.server)}* {word}: {escaped(title(finding))}"]
    if not one.firing:
        lines.append(escaped(status(finding, one.state)))
    elif cause(finding) != title(finding):
        lines.append(escaped(cause(finding)))
    blocks = [_section("\n".join(lines))]
    if one.firing:
        blocks += _fix(one)
    facts = [f"{status(finding, one.state)}", evidence(finding)] if one.firing else []
    facts += [f"since {iso(one.began)}", rule(finding) or "no rule", finding.fingerprint]
    text = _cut(escaped("  ·  ".join(filter(None, facts))))
    if one.url:
        text = f"{_cut(text, LONGEST_TEXT - len(one.url) - 30)}  ·  <{escaped(one.url)}|open>"
    blocks.append({"type": "context", "elements": [_text(text)]})
    blocks.append({"type": "divider"})
    return blocks


def _fix(one: Message) -> list[dict[str, object]]:
    command, applicability, why = fix(one.finding)
    if not applicability:
        return []
    head = f"*Fix* [{applicability}] {escaped(why)}"
    block = f"{head}\n```{escaped(command)}```"
    if command and "```" not in command and len(block) <= LONGEST_TEXT:
        return [_section(block)]
    return [_section(f"{head}\nthe whole of it: `specwatch findings show {one.finding.fingerprint}`")]


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": _text(_cut(text))}


def _text(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _cut(text: str, most: int = LONGEST_TEXT) -> str:
    """At most that long, and not ending within an escape."""
    if len(text) <= most:
        return text
    cut = text[: most - 2]
    tail = cut.rfind("&")
    return (cut[:tail] if tail >= 0 and ";" not in cut[tail:] else cut) + " …"
