"""What is said of a finding outside: the few texts that every receiver gets, short, without secrets, inert.

Pure. A document of the store has no secrets any more; they are taken out once more, because a text leaves here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from specwatch.report.text import clean, inert
from specwatch.report.times import iso
from specwatch.storage.store import Kept

LONGEST = 1000
"""Characters of one text; the page and `specwatch findings show` have the rest."""
LONGEST_COMMAND = 16_000
PREFIX = "specwatch_"
_MENTION = re.compile(r"<(?=[!@#])|(?<![\w.])@(?=(?:here|channel|everyone|all)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One finding as one receiver is told of it.

    `wanted` is what it is now, as in `storage.owing`; `began` and `ended` are seconds since
    1970, `ended` None while it fires.
    """

    wanted: str
    began: float
    ended: float | None
    finding: Kept
    url: str

    @property
    def state(self) -> str:
        """firing, looping (firing, in a crash loop) or resolved."""
        return self.wanted.partition(" ")[0]

    @property
    def firing(self) -> bool:
        """Whether it fires, in a crash loop or not."""
        return self.state != "resolved"

    @property
    def id(self) -> str:
        """The same for every attempt to tell this, another one for the next change: for receivers that tell apart."""
        return f"{self.finding.server}/{self.finding.fingerprint}/{self.wanted.replace(' ', '-')}/{self.began:.0f}"


def page(base: str, server: str, finding: str) -> str:
    """The address of a finding's page below `base` (`alerts.address`), empty where no page is served."""
    return f"{base}/findings/{server}/{finding}" if base else ""


def title(one: Kept) -> str:
    """What broke, in one line."""
    return short(_text(one, "title") or _text(one, "says") or "unknown crash", 200).replace("\n", " ")


def rule(one: Kept) -> str:
    """The rule's name, empty for a crash that none knows."""
    return short(_text(one, "rule"), 200)


def cause_name(one: Kept) -> str:
    """The name of the case within the rule, empty for none."""
    return short(_text(one, "cause"), 200)


def cause(one: Kept) -> str:
    """The first cause as a sentence."""
    return short(_text(one, "says") or _text(one, "title") or "unknown crash")


def evidence(one: Kept) -> str:
    """What proves it; where no file could, the line of the log on which it begins. Empty where there is neither."""
    facts = cast("list[Mapping[str, object]]", _table(one, "verdict").get("evidence") or [])
    if facts:
        return short("; ".join(f"{fact.get('fact')} = {fact.get('value')} ({fact.get('source')})" for fact in facts))
    root = _table(one, "root")
    if not root:
        return ""
    return short(f"{root.get('source')}:{root.get('line')}: {str(root.get('text') or '').strip()}")


def proof(one: Kept) -> str:
    """Whether it is proved, and if not why."""
    verdict = _table(one, "verdict")
    if verdict.get("status") == "broken":
        return "proved"
    because = short(str(verdict.get("because") or ""), 300)
    return f"not proved: {because}" if because else "not proved"


def status(one: Kept, state: str = "") -> str:
    """Whether it fires, how often it happened, and whether it is proved."""
    state = state or ("looping" if one.state == "firing" and one.looping else one.state)
    times = f", {one.occurrences} times" if one.occurrences > 1 else ""
    if state == "looping":
        return f"firing, crash loop{times}, {proof(one)}"
    if state == "firing":
        return f"firing{times}, {proof(one)}"
    because = short(one.because, 300)
    return f"resolved: {because}" if because else "resolved"


def fix(one: Kept) -> tuple[str, str, str]:
    """The first fix that is a command, else the first one: its command (empty: by hand), applicability, and why."""
    fixes = cast("Sequence[Mapping[str, object]]", one.document.get("fixes") or [])
    if not fixes:
        return "", "", ""
    chosen = next((found for found in fixes if found.get("command")), fixes[0])
    command = inert(str(chosen.get("command") or ""))  # without secrets already; as a text its quotes would not survive
    if len(command) > LONGEST_COMMAND:  # half a command is none
        command = ""
    why = "; ".join(str(chosen[name]) for name in ("why", "because") if chosen.get(name))
    return command, clean(str(chosen.get("applicability") or "")), short(why, 400)


def annotations_of(one: Kept, url: str, state: str = "") -> dict[str, str]:
    """The annotations of an alert that this finding explains; those that would be empty are left out."""
    command, applicability, why = fix(one)
    by_hand = f"by hand: {why} (specwatch findings show {one.fingerprint})" if why else ""
    found = {
        "cause": cause(one),
        "evidence": evidence(one),
        "fix": command or by_hand,
        "applicability": applicability,
        "status": status(one, state),
        "url": url,
    }
    return {PREFIX + name: text for name, text in found.items() if text}


def fields(message: Message) -> dict[str, object]:
    """A message as plain values: for webhooks, commands, and the details of a page."""
    one = message.finding
    command, applicability, why = fix(one)
    return {
        "delivery": message.id,
        "server": one.server,
        "id": one.fingerprint,
        "state": "firing" if message.firing else "resolved",
        "crash_loop": message.state == "looping",
        "severity": one.severity,
        "rule": rule(one) or None,
        "cause": cause_name(one),
        "title": title(one),
        "says": cause(one),
        "status": status(one, message.state),
        "because": short(one.because, 300),
        "evidence": evidence(one),
        "fix": {"command": command or None, "applicability": applicability, "why": why} if applicability else None,
        "occurrences": one.occurrences,
        "first_seen": iso(one.first_seen),
        "last_seen": iso(one.last_seen),
        "began": iso(message.began),
        "ended": iso(message.ended) if message.ended is not None else None,
        "url": message.url or None,
    }


def short(text: str, most: int = LONGEST) -> str:
    """A text without secrets, control characters and mentions of people, cut to `most` characters."""
    text = _MENTION.sub(lambda found: f"{found[0]} ", clean(text))
    return text if len(text) <= most else text[: most - 2] + " …"


def _text(one: Kept, name: str) -> str:
    value = one.document.get(name)
    return value if isinstance(value, str) else ""


def _table(one: Kept, name: str) -> Mapping[str, object]:
    value = one.document.get(name)
    return value if isinstance(value, dict) else {}
