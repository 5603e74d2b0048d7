"""Annotations are put into alerts; every byte that was there stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwatch.alerts.splice import LARGEST, Alert, NotAlertsError, enrich

NEW = {"specwatch_cause": 'a "quote"', "specwatch_fix": "run it"}


def always(alert: Alert) -> dict[str, str]:
    return NEW


def never(alert: Alert) -> dict[str, str]:
    return {}


PAYLOAD = rb"""{ "version":"4","groupKey":"{}:{alertname=\"Down\"}",   "truncatedAlerts": 0,
  "commonAnnotations": { "summary" : "down" },
  "alerts": [ {"status":"firing","labels":{"alertname":"Down"},"annotations":{"summary":"down"},
     "startsAt":"2026-11-30T12:00:00.123456789Z","fingerprint":"ab", "n": 12345678901234567890123.10e+2 } ] , "z":1.0}
"""


def test_what_is_not_known_comes_out_byte_for_byte() -> None:
    assert enrich(PAYLOAD, never) == PAYLOAD


def test_everything_but_the_annotations_keeps_its_bytes() -> None:
    out = enrich(PAYLOAD, always)
    added = b',"specwatch_cause":"a \\"quote\\"","specwatch_fix":"run it"'
    assert out.count(added) == 2, "in the alert, and in what is common to all alerts"
    assert out.replace(added, b"") == PAYLOAD
    (alert,) = json.loads(out)["alerts"]
    assert alert["annotations"] == {"summary": "down", **NEW}
    assert json.loads(out)["commonAnnotations"] == {"summary": "down", **NEW}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"labels":{}}', b'{"annotations":{"a":"b"},"labels":{}}'),
        (b'{"labels":{},"annotations":{}}', b'{"labels":{},"annotations":{"a":"b"}}'),
        (b'{"labels":{},"annotations": null }', b'{"labels":{},"annotations": {"a":"b"} }'),
        (b'[{"labels":{},"annotations":{"x":"y" }}]', b'[{"labels":{},"annotations":{"x":"y","a":"b" }}]'),
        (b'{"labels":{},"annotations":{"a":"mine"}}', b'{"labels":{},"annotations":{"a":"mine"}}'),
        (b'{"labels":{},"annotations":[]}', b'{"labels":{},"annotations":[]}'),
        (b'{"labels":{},"annotations":{},"annotations":{"x":"1"}}',
         b'{"labels":{},"annotations":{},"annotations":{"x":"1","a":"b"}}'),
        (b'\xef\xbb\xbf{"labels":{"x":"\xff"}}', b'\xef\xbb\xbf{"annotations":{"a":"b"},"labels":{"x":"\xff"}}'),
        (b"[]", b"[]"),
        (b"[1, null, {}]", b"[1, null, {}]"),
    ],
)  # fmt: skip
def test_shapes(before: bytes, after: bytes) -> None:
    assert enrich(before, lambda alert: {"a": "b"}) == after


def test_only_what_all_alerts_say_is_common() -> None:
    payload = {"commonAnnotations": {}, "alerts": [{"labels": {"n": "1"}}, {"labels": {"n": "2"}}]}
    out = json.loads(
        enrich(
            json.dumps(payload).encode(),
            lambda alert: {"specwatch_cause": "same", "specwatch_url": f"/{alert.labels['n']}"},
        )
    )
    assert out["commonAnnotations"] == {"specwatch_cause": "same"}
    mixed = json.loads(enrich(json.dumps(payload).encode(), lambda alert: NEW if alert.labels["n"] == "1" else {}))
    assert mixed["commonAnnotations"] == {}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"no", "not JSON"),
        (b'{"labels":{}', "not JSON"),
        (b'{"labels":{}} {}', "more than one"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"status":"firing"}', "no alerts"),
        (b'"text"', "no alerts"),
        (b" " * (LARGEST + 1), "larger than"),
    ],
)
def test_what_is_no_alert_is_said(body: bytes, says: str) -> None:
    with pytest.raises(NotAlertsError, match=says):
        enrich(body, always)


def test_numbers_too_long_for_python_pass() -> None:
    body = b'{"labels":{},"n":' + b"9" * 10_000 + b"}"
    assert enrich(body, always).endswith(body[1:])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
alerts = st.fixed_dictionaries(
    {"labels": st.dictionaries(st.text(), st.text(), max_size=3)},
    optional={"annotations": st.none() | st.dictionaries(st.text(), st.text(), max_size=3), "startsAt": values},
)


@given(st.lists(alerts, max_size=4), st.dictionaries(st.text(), values, max_size=3), st.booleans(), st.booleans())
def test_any_payload_keeps_all_and_gains_the_annotations(
    listed: list[dict[str, Any]], rest: dict[str, Any], ascii_only: bool, wide: bool
) -> None:
    payload = {**rest, "alerts": listed}
    body = json.dumps(payload, ensure_ascii=ascii_only, indent=2 if wide else None).encode("utf-8", "surrogatepass")
    assert enrich(body, never) == body
    out = json.loads(enrich(body, always).decode("utf-8", "surrogatepass"))
    for before, after in zip(listed, out["alerts"], strict=True):
        assert after["annotations"] == {**NEW, **(before.get("annotations") or {})}
        assert {**after, "annotations": 0} == {**before, "annotations": 0}
    changed = ("alerts", "commonAnnotations")
    assert {k: v for k, v in out.items() if k not in changed} == {k: v for k, v in rest.items() if k not in changed}
