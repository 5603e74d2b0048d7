"""What each kind of receiver gets: its limits kept, nothing injected, no secret of a log in it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import socket
from dataclasses import replace
from typing import Any

import pytest
from alertpost import START, document
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from specwatch.alerts import otel, transport
from specwatch.alerts.address import base, reached
from specwatch.alerts.base import Fate, Request
from specwatch.alerts.kinds import MOST, compose, receivers
from specwatch.alerts.saying import LONGEST_COMMAND, Message, annotations_of, page, short
from specwatch.alerts.slack import escaped
from specwatch.config import ALERT_KINDS
from specwatch.settings import Alert, Otel, Settings, Web
from specwatch.storage.owing import Receiver
from specwatch.storage.store import Kept

SENT = [kind for kind in ALERT_KINDS if kind != "command"]


def finding(fingerprint: str = "f1", **more: Any) -> Kept:
    content = document(fingerprint, **more)
    return Kept(
        server="llama", fingerprint=fingerprint, document=content, severity=str(content["severity"]), state="firing",
        because="", occurrences=1, first_seen=START, last_seen=START, looping=False, began=START,
    )  # fmt: skip


def message(state: str = "firing", url: str = "http://sw/findings/llama/f1", **more: Any) -> Message:
    kept = finding(**more)
    if state == "resolved":
        kept = replace(kept, state="resolved", because="the server is ready again")
    return Message(wanted=state, began=START, ended=None if state != "resolved" else START + 60, finding=kept, url=url)


def made(kind: str, *messages: Message, secret: str = "", **more: Any) -> Request:
    if kind == "otel":
        return otel.request(Otel(endpoint="http://c:4318"), messages, START + 90)
    alert = replace(Alert(kind=kind, name="r", url="http://r.example/x"), **more)
    return compose(alert, messages, secret, START + 90)


def content(request: Request) -> Any:
    return json.loads(request.body)


# Alertmanager


def test_alertmanager_fires_for_a_while_and_resolves() -> None:
    fires, ends = content(made("alertmanager", message(), message("resolved")))
    assert fires["labels"] == {
        "alertname": "SpecwatchFinding",
        "server": "llama",
        "rule": "standalone-vocab-mismatch",
        "cause": "vocabularies-differ",
        "severity": "fatal",
        "fingerprint": "f1",
    }
    assert fires["labels"] == ends["labels"]
    assert (fires["startsAt"], fires["endsAt"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:06:30Z")
    assert ends["endsAt"] == "2027-01-15T08:01:00Z"
    assert fires["generatorURL"] == "http://sw/findings/llama/f1"
    assert fires["annotations"]["specwatch_fix"].startswith("python -m sglang.launch_server")
    assert ends["annotations"]["specwatch_status"] == "resolved: the server is ready again"


def test_alertmanager_without_page_rule_or_sense_of_time() -> None:
    (alert,) = content(made("alertmanager", replace(message(url="", rule=None), began=START + 999)))
    assert "generatorURL" not in alert
    assert "rule" not in alert["labels"], "empty labels are none"
    (ended,) = content(made("alertmanager", replace(message("resolved"), began=START + 70)))
    assert ended["startsAt"] <= ended["endsAt"]


def test_alertmanager_addresses_labels_and_token() -> None:
    request = made(
        "alertmanager", message(), secret="t0ken", url="http://a/prefix/", labels=(("severity", "page"), ("team", "x"))
    )
    assert request.url == "http://a/prefix/api/v2/alerts"
    assert request.headers["Authorization"] == "Bearer t0ken"
    assert content(request)[0]["labels"]["severity"] == "page"
    assert content(request)[0]["labels"]["team"] == "x"
    assert made("alertmanager", url="http://a/api/v2/alerts").url == "http://a/api/v2/alerts"


# Slack


def texts(blocks: list[dict[str, Any]]) -> list[str]:
    found = []
    for block in blocks:
        found += [one["text"] for one in [*block.get("elements", []), *([block["text"]] if "text" in block else [])]]
    return found


def test_slack_stays_within_its_limits() -> None:
    huge = message(
        title="t" * 5000, says="&" * 9000, url="http://sw/" + "u" * 200,
        verdict={"status": "unknown", "because": "<" * 4000, "evidence": []}, root={"text": ">" * 9000},
    )  # fmt: skip
    body = content(made("slack", *[huge] * MOST["slack"]))
    assert len(body["blocks"]) <= 50
    assert all(len(text) <= 3000 for text in texts(body["blocks"]))
    assert len(body["text"]) <= 3000
    assert all(len(block["text"]["text"]) <= 150 for block in body["blocks"] if block["type"] == "header")
    for text in texts(body["blocks"]):
        assert not re.search(r"&(?!amp;|lt;|gt;)", text.replace("<http://", "")), "no escape was cut in two"


def test_slack_calls_nobody_and_links_nothing_of_a_log() -> None:
    evil = "<!channel> <@U123> <http://evil|click> @here & `code`"
    body = content(made("slack", message(title=evil, says=evil, verdict={"status": "unknown", "because": evil})))
    for text in [body["text"], *texts(body["blocks"])]:
        assert "<!" not in text
        assert "<@" not in text
        assert "@here" not in text
        assert set(re.findall(r"<[^>]*>", text)) <= {"<http://sw/findings/llama/f1|open>"}


def test_slack_shows_the_whole_command_or_none() -> None:
    whole = content(made("slack", message()))
    assert any(
        "```python -m sglang.launch_server --model-path '/models/target x'```" in t for t in texts(whole["blocks"])
    )
    for command in ("x" * 3000, "a ``` b"):
        fix = {"id": "f", "applicability": "safe", "why": "w", "command": command}
        shown = texts(content(made("slack", message(fixes=[fix])))["blocks"])
        assert not any("xxxx" in text or "```" in text for text in shown)
        assert any("specwatch findings show f1" in text for text in shown)


def test_slack_says_what_is_resolved() -> None:
    body = content(made("slack", message("resolved"), message()))
    assert body["text"] == "llama: 1 firing, 1 resolved"
    shown = "\n".join(texts(body["blocks"]))
    assert ":white_check_mark: *llama* resolved: STANDALONE" in shown
    assert "resolved: the server is ready again" in shown
    assert content(made("slack", message("resolved")))["text"].startswith("resolved: llama: STANDALONE")


def test_slacks_address_may_be_the_secret() -> None:
    request = made("slack", message(), secret="https://hooks.example/T/B/x", url="")
    assert request.url == "https://hooks.example/T/B/x"
    assert request.url in request.secrets
    assert escaped("<&>") == "&lt;&amp;&gt;"


# PagerDuty


def test_pagerduty_triggers_and_resolves_one_incident() -> None:
    fires, ends = (content(made("pagerduty", message(state), secret="key")) for state in ("firing", "resolved"))
    assert (fires["event_action"], ends["event_action"]) == ("trigger", "resolve")
    assert fires["dedup_key"] == ends["dedup_key"] == "specwatch/llama/f1"
    assert fires["payload"]["severity"] == "critical"
    assert fires["payload"]["summary"] == "llama: STANDALONE draft model does not share the target's vocabulary"
    assert fires["payload"]["custom_details"]["fix"]["command"].startswith("python")
    assert fires["routing_key"] == "key"
    assert fires["links"] == [{"href": "http://sw/findings/llama/f1", "text": "the finding"}]
    assert made("pagerduty", message(), url="").url == "https://events.pagerduty.com/v2/enqueue"


def test_pagerduty_stays_within_its_limits() -> None:
    fix = {"id": "f", "applicability": "safe", "why": "w" * 9999, "command": "x" * (LONGEST_COMMAND + 1)}
    request = made("pagerduty", message(title="é" * 5000, says="é" * 100_000, fixes=[fix], cause="c" * 9999))
    assert len(content(request)["payload"]["summary"]) <= 1024
    assert len(request.body) < 512 * 1024
    assert content(request)["payload"]["custom_details"]["fix"]["command"] is None, "half a command is none"


# webhook


def test_a_webhook_is_signed() -> None:
    request = made("webhook", message(), secret="key")
    stamp = request.headers["X-Specwatch-Timestamp"]
    digest = hmac.new(b"key", stamp.encode() + b"." + request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-Specwatch-Signature"] == f"sha256={digest}"
    assert stamp == f"{START + 90:.0f}"
    assert "X-Specwatch-Signature" not in made("webhook", message()).headers


def test_a_webhook_tells_states_apart() -> None:
    fires, loops, ends = content(made("webhook", message(), message("looping"), message("resolved")))["findings"]
    assert [one["state"] for one in (fires, loops, ends)] == ["firing", "firing", "resolved"]
    assert loops["crash_loop"]
    assert loops["status"] == "firing, crash loop, proved"
    assert (fires["ended"], ends["ended"]) == (None, "2027-01-15T08:01:00Z")
    assert len({one["delivery"] for one in (fires, loops, ends)}) == 3


# OpenTelemetry


def test_log_records_of_opentelemetry() -> None:
    told = ExportLogsServiceRequest()
    told.ParseFromString(made("otel", message(), message("resolved", severity="degraded")).body)
    (resource,) = told.resource_logs
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "specwatch"
    fires, ends = resource.scope_logs[0].log_records
    assert fires.body.string_value == "/models/draft has 384 tokens, /models/target has 320"
    assert (fires.severity_number, fires.severity_text) == (21, "FATAL")
    assert fires.time_unix_nano == int(START * 1e9)
    attributes = {a.key: a.value.string_value for a in fires.attributes}
    assert attributes["specwatch.server"] == "llama"
    assert attributes["specwatch.rule"] == "standalone-vocab-mismatch"
    assert attributes["specwatch.cause"] == "vocabularies-differ"
    assert attributes["specwatch.verdict"] == "broken"
    assert attributes["specwatch.fingerprint"] == "f1"
    assert (ends.severity_number, ends.time_unix_nano) == (9, int((START + 60) * 1e9))
    assert made("otel").url == "http://c:4318/v1/logs"


# all of them

SECRETS = {
    "token of the Hub": "hf_abcDEFghiJKLmnoPQRstu",
    "api key": "--api-key s3cr3tv4lue",
    "password in a URL": "http://user:s3cr3tv4lue@host/",
    "bearer": "Authorization: Bearer s3cr3tv4lue0123",
    "variable": "AWS_SECRET_ACCESS_KEY=s3cr3tv4lue",
}


@pytest.mark.parametrize("kind", [*SENT, "otel"])
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_no_secret_of_a_log_reaches_a_receiver(kind: str, secret: str) -> None:
    told = message(
        title=secret, says=secret, cause=secret, root={"source": secret, "line": 1, "text": secret},
        verdict={"status": "unknown", "because": secret,
                 "evidence": [{"fact": "a", "value": secret, "source": secret}]},
        fixes=[{"id": "x", "applicability": "safe", "why": secret, "because": secret, "command": "python"}],
    )  # fmt: skip
    told = replace(told, finding=replace(told.finding, because=secret))
    for state in ("firing", "resolved"):
        body = made(kind, replace(told, wanted=state)).body.decode("utf-8", "replace")
        assert "s3cr3tv4lue" not in body
        assert "abcDEFghiJKLmnoPQRstu" not in body


@pytest.mark.parametrize("kind", [*SENT, "otel"])
def test_control_characters_of_a_log_reach_no_receiver(kind: str) -> None:
    evil = "\x1b[31mred\x07 \u202ereversed\x9b2J"
    body = made(kind, message(title=evil, says=evil, root={"text": evil}, verdict={"status": "unknown"})).body
    data = body if kind == "otel" else json.dumps(json.loads(body), ensure_ascii=False).encode()
    assert b"red" in data
    assert not any(part in data for part in (b"\x1b[31m", b"red\x07", "\u202e".encode(), "\x9b".encode()))


@pytest.mark.parametrize("kind", [*SENT, "otel"])
@pytest.mark.parametrize("broken", [{"verdict": None}, {"root": []}, {"fixes": None}, {"rule": 7}, {"says": None}])
def test_a_document_of_another_shape_is_told_as_far_as_it_goes(kind: str, broken: dict[str, Any]) -> None:
    assert made(kind, message(**broken)).body


def test_texts_are_cut_and_mention_nobody() -> None:
    assert short("x" * 2000) == "x" * 998 + " …"
    assert short("@channel <!here> mail@here.example <@U1>") == "@ channel < !here> mail@here.example < @U1>"
    assert annotations_of(finding(), "") == {k: v for k, v in annotations_of(finding(), "u").items() if v != "u"}


def test_links_lead_to_the_page_where_there_is_one() -> None:
    assert page(base(Web()), "a", "b") == ""
    assert page(base(Web(listen="127.0.0.1:9117")), "a", "b") == "http://127.0.0.1:9117/findings/a/b"
    assert page(base(Web(listen="127.0.0.1:9117", url="https://sw/")), "a", "b") == "https://sw/findings/a/b"
    for everywhere in ("0.0.0.0:9117", "[::]:9117"):
        assert page(base(Web(listen=everywhere)), "a", "b") == f"http://{socket.gethostname()}:9117/findings/a/b"
        assert page(base(Web(listen=everywhere, url="https://sw")), "a", "b") == "https://sw/findings/a/b"
    assert reached("[::]:9117", "gpu-7") == "gpu-7:9117"
    assert [reached(one) for one in ("[::1]:1", "gpu-7:1")] == ["[::1]:1", "gpu-7:1"]


def test_receivers_and_their_least_severity() -> None:
    settings = Settings(
        alerts=(Alert(kind="slack", name="s"), Alert(kind="slack", name="t", severity="fatal")),
        otel=Otel(endpoint="http://c"),
    )
    assert receivers(settings) == (
        Receiver(name="s", least=2),
        Receiver(name="t", least=3),
        Receiver(name="otel", least=0),
    )


# answers


def test_what_an_answer_means_and_says() -> None:
    from datetime import UTC, datetime

    import httpx

    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    request = Request(url="https://hooks.example/T/B/x", body=b"", secrets=("k3y",))

    def judged(code: int, after: str = "", said: bytes = b"") -> Any:
        return transport.judged(code, httpx.Headers({"Retry-After": after}), said, request, now)

    assert judged(500).fate is judged(429).fate is Fate.LATER
    assert judged(404).fate is judged(301).fate is Fate.NEVER
    assert judged(400).content
    assert not judged(401).content
    assert judged(503, "30").retry_after == 30.0
    assert judged(503, "Mon, 30 Nov 2026 12:01:00 GMT").retry_after == 60.0
    assert judged(503, "-5").retry_after == judged(503, "soon").retry_after == 0.0
    assert judged(503, "999999").retry_after == 3600.0
    told = judged(500, said=b"no k3y at https://hooks.example/T/B/x \x1b[1m" + b"y" * 5000).error
    assert "k3y" not in told
    assert "/T/B/x" not in told
    assert "\x1b" not in told
    assert len(told) <= 300
