"""The pages and the API over a store, in this process: what they say, what they refuse, what they escape."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from webbox import FINDING, NOW, House, lived_in, seen

from specwatch.alerts.splice import LARGEST as LARGEST_ALERTS
from specwatch.errors import SpecwatchError
from specwatch.settings import Web
from specwatch.web.app import Take
from specwatch.web.guard import LARGEST


def ask(
    house: House,
    path: str,
    method: str = "GET",
    *,
    headers: dict[str, str] | None = None,
    content: bytes | AsyncIterator[bytes] | None = None,
    take: Take = lambda body: body,
    host: str = "127.0.0.1:9117",
    params: dict[str, str] | None = None,
) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=house.app(take))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9117") as client:
            sent = {"Host": host, **(headers or {})}
            return await client.request(method, path, headers=sent, content=content, params=params)

    return asyncio.run(go())


@pytest.fixture
def house(tmp_path: Path) -> House:
    return lived_in(tmp_path)


def test_the_overview_says_what_is_broken_since_when_and_what_to_run(house: House) -> None:
    page = ask(house, "/").text
    assert "1 of 2 servers broken" in page
    assert "the draft does not fit" in page
    assert "crash loop" in page
    assert "python" in page
    assert "proved on the model files" in page
    assert '<time datetime="2027-01-15T07:10:00Z" title="2027-01-15 07:10:00 UTC">07:10 UTC</time> (50 min ago)' in page
    assert "Lately over" in page
    assert "it is ready again" in page


def test_what_may_be_broken_unseen_is_never_called_fine(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.tally.last_line["llama"] = NOW - 3
    assert "Nothing is broken" in ask(house, "/").text
    for doubt, words in (
        ("storing", "The store cannot be written"),
        ("behind", "The log of llama is still being read; behind for 60 s."),
        ("up", "The health endpoint of llama fails, and its log does not say why"),
    ):
        house.tally.storing = doubt != "storing"
        house.tally.behind_since = {"llama": NOW - 60} if doubt == "behind" else {}
        house.tally.up = {"llama": doubt != "up"}
        page = ask(house, "/").text
        assert words in page
        assert "Could not tell whether anything is broken" in page
        assert "Nothing is broken" not in page
    house.commit(seen())
    assert "does not say why" not in ask(house, "/").text, "a finding says it"


def test_the_empty_overview_is_calm(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.tally.last_line["llama"] = NOW - 3
    page = ask(house, "/").text
    assert "<h1>Nothing is broken</h1>" in page
    assert "3 s ago" in page
    assert 'class="copy"' not in page


def test_an_overview_without_servers_says_what_to_do(tmp_path: Path) -> None:
    assert "No server is known yet" in ask(House(tmp_path, servers=()), "/").text


def test_what_may_be_missing_is_said(house: House) -> None:
    assert "still being read" not in ask(house, "/").text
    house.tally.storing = False
    house.tally.behind_since = {"qwen": NOW - 90}
    page = ask(house, "/").text
    assert "The store cannot be written" in page
    assert "The log of qwen is still being read; behind for 90 s." in page


def test_a_loop_that_hangs_is_never_calm(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.tally.last_line["llama"] = NOW - 3
    house.now = 100.0 + 600
    page = ask(house, "/").text
    assert "Nothing is broken" not in page
    assert "Could not tell whether anything is broken" in page
    assert "finished its last turn 600 s ago" in page


def test_more_servers_than_the_overview_shows_are_all_named(tmp_path: Path) -> None:
    house = House(tmp_path)
    names = [f"s{n}" for n in range(60)]
    house.commit(*(seen(name, f"{n:012x}", NOW - 5000 + m) for n in range(12) for m, name in enumerate(names)))
    page = ask(house, "/").text
    assert "60 of 62 servers broken" in page
    assert "20 more servers are named below." in page
    assert page.count("7 more</a>") == 40
    assert all(f'<a href="/servers/{name}">{name}</a>' in page for name in names)
    servers = {one["name"]: one for one in ask(house, "/api/v1/servers").json()["servers"]}
    assert all(servers[name]["state"] == "broken" and len(servers[name]["firing"]) == 12 for name in names)


def test_the_page_of_a_finding_has_cause_proof_fix_log_runs(house: House) -> None:
    lines = [
        {"line": n, "kind": "context", "ranks": [], "time": None, "text": f"start {n}"} for n in range(1, 31)
    ] + [
        {"line": 31, "kind": "cause", "ranks": ["TP1"], "time": "2027-01-15T08:00:00", "text": "Traceback"},
        {"line": 32, "kind": "root", "ranks": ["TP1"], "time": None, "text": "ValueError: no"},
        {"line": 33, "kind": "echo", "ranks": ["TP0"], "time": None, "text": "ValueError: no"},
    ]  # fmt: skip
    house.commit(seen(at=NOW - 10, excerpt=json.dumps({"cut": False, "lines": lines})))
    page = ask(house, f"/findings/llama/{FINDING}").text
    assert "vocab_size = <strong>320</strong>" in page
    assert "says /models/a/config.json" in page
    assert "− --speculative-algorithm EAGLE" in page
    assert "<summary>22 lines before</summary>" in page
    assert "<summary>1 line of echoes (TP0)</summary>" in page
    assert re.search(
        r'<li class="root" id="root"><span class="n">32</span>\s*<span class="text"><span class="rank h2">TP1', page
    )
    assert "4 crashes and 3 starts in the last" in page
    assert "specwatch has changed nothing on this server." in page
    assert "4 times, first" in page


def test_the_page_of_a_server(house: House) -> None:
    page = ask(house, "/servers/llama").text
    assert "llama: broken" in page
    assert f"/findings/llama/{FINDING}" in page
    assert ask(house, "/servers/nobody").status_code == 404


def test_the_audit_page_shows_the_latest_entries(house: House) -> None:
    assert "Nothing was ever changed." in ask(house, "/audit").text
    (house.folder / "actions").mkdir()
    entries = [
        {"seq": n, "at": NOW - 5, "actor": {"user": "root"}, "event": "action_applied", "server": "llama",
         "body": {"fix": "drop-speculation", "state": "applied"}} for n in (1, 2)
    ]  # fmt: skip
    log = "\n".join(map(json.dumps, entries)) + '\n{"torn'
    (house.folder / "actions" / "audit.jsonl").write_text(log)
    page = ask(house, "/audit").text
    assert page.index("no. 2, ") < page.index("no. 1, ")
    assert "<strong>action applied drop-speculation</strong> on" in page
    assert ", by root" in page


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202egnp.\x00{{7*7}}"


def test_everything_from_a_log_is_escaped_and_inert(house: House) -> None:
    line = {"line": 1, "kind": "root", "ranks": [HOSTILE], "time": HOSTILE, "text": HOSTILE}
    change = {"op": "set", "flag": HOSTILE, "old": HOSTILE, "new": HOSTILE}
    fix = {"id": HOSTILE, "applicability": HOSTILE, "why": HOSTILE, "because": HOSTILE, "rechecked": True,
           "changes": [change], "command": HOSTILE}  # fmt: skip
    house.commit(
        seen("llama", "aaaaaaaaaaaa", NOW - 1, excerpt=json.dumps({"cut": True, "lines": [line]}),
             title=HOSTILE, says=HOSTILE, rule=HOSTILE, fixes=[fix],
             verdict={"status": HOSTILE, "because": HOSTILE, "evidence": [
                 {"fact": HOSTILE, "value": HOSTILE, "source": HOSTILE}]},
             root={"source": HOSTILE, "line": 1, "time": HOSTILE, "ranks": [HOSTILE], "text": HOSTILE},
             launch={"sglang": HOSTILE, "argv": [HOSTILE], "env": {HOSTILE: HOSTILE}})
    )  # fmt: skip
    for path in ("/", "/servers/llama", "/findings/llama/aaaaaaaaaaaa"):
        answer = ask(house, path)
        assert answer.status_code == 200
        page = answer.text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "&lt;script&gt;" in page
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
        assert "{{7*7}}" in page
    body = ask(house, "/api/v1/findings/llama/aaaaaaaaaaaa").content
    assert body.isascii()


def test_documents_of_other_versions_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    house = House(tmp_path)
    fact = seen()
    for odd in ("{}", '{"fixes": [1, {}], "verdict": [], "root": null, "launch": 3, "says": {"a": 1}}'):
        house.commit(type(fact)(**{**{n: getattr(fact, n) for n in fact.__slots__}, "document": odd}))
        for path in ("/", f"/findings/llama/{FINDING}", "/servers/llama", "/metrics", "/api/v1/findings"):
            assert ask(house, path).status_code == 200, path


def test_the_api_gives_the_same(house: House) -> None:
    first = ask(house, "/api/v1/findings?limit=1").json()
    assert first["next"] == 1
    assert [one["id"] for one in first["findings"]] == [FINDING]
    assert first["findings"][0]["crash_loop"] is True
    assert first["findings"][0]["firing_since"] == "2027-01-15T07:10:00Z"
    assert "excerpt" not in first["findings"][0]
    rest = ask(house, "/api/v1/findings?limit=1&offset=1").json()
    assert (rest["next"], rest["findings"][0]["server"]) == (None, "qwen")
    assert ask(house, "/api/v1/findings?state=resolved&server=llama").json()["findings"] == []
    one = ask(house, f"/api/v1/findings/llama/{FINDING}").json()
    assert [moment["kind"] for moment in one["moments"]] == ["started", "crashed"] * 3
    servers = ask(house, "/api/v1/servers").json()["servers"]
    assert [(one["name"], one["state"], one["firing"]) for one in servers] == [
        ("llama", "broken", [FINDING]),
        ("qwen", "fine", []),
    ]
    assert ask(house, "/api/v1/actions").json() == {"schema": 1, "actions": []}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/findings?limit=0", 400),
        ("/api/v1/findings?limit=1e3", 400),
        ("/api/v1/findings?limit=%D9%A3", 400),
        ("/api/v1/findings?stat=firing", 400),
        ("/api/v1/findings?state=dead", 400),
        ("/api/v1/findings?server=a%0Ab", 400),
        ("/api/v1/findings?limit=1&limit=2", 400),
        ("/api/v1/findings/llama/000000000000", 404),
        ("/api/v1/findings/llama/zzz", 404),
        ("/api/v1/nothing", 404),
        ("/static/../app.py", 404),
        ("/static/app.py", 404),
        ("/findings/llama/../../etc", 404),
    ],
)
def test_what_is_wrong_is_said(house: House, path: str, status: int) -> None:
    answer = ask(house, path)
    assert answer.status_code == status
    if path.startswith("/api"):
        assert answer.json()["error"]


def test_every_answer_carries_the_headers_that_bind_a_browser(house: House) -> None:
    for path in ("/", "/nothing", "/metrics", "/api/v1/servers", "/static/specwatch.js"):
        headers = ask(house, path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == ("max-age=3600" if "static" in path else "no-store")


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("127.0.0.1:9117", True), ("localhost", True), ("[::1]:9117", True), ("10.2.3.4:9117", True),
        ("watch.example.org", True), ("watch.example.org.:443", True),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("localhost@evil.example", False),
        ("localhost/evil", False), ("", False), ("watch.example.org.evil.example", False), ("[::1", False),
    ],
)  # fmt: skip
def test_a_stranger_s_name_for_us_is_refused(house: House, host: str, fine: bool) -> None:
    assert ask(house, "/", host=host).status_code == (200 if fine else 421)


def test_a_server_may_be_named_in_any_script(tmp_path: Path) -> None:
    house = House(tmp_path, servers=("größe-大",))
    house.commit(seen("größe-大"))
    assert ask(house, "/servers/größe-大").status_code == 200
    assert ask(house, f"/findings/größe-大/{FINDING}").status_code == 200
    found = ask(house, "/api/v1/findings", params={"server": "größe-大"}).json()["findings"]
    assert [one["server"] for one in found] == ["größe-大"]


def test_other_methods_are_refused(house: House) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE"):
        assert ask(house, "/", method).status_code == 405
    assert ask(house, "/alertmanager").status_code == 405


JSON = {"Content-Type": "application/json"}


def test_alerts_are_taken_and_given_back(house: House) -> None:
    answer = ask(house, "/alertmanager", "POST", headers=JSON, content=b'{"a": 1}', take=lambda body: body + b" ")
    assert (answer.status_code, answer.content) == (200, b'{"a": 1} ')


def test_alerts_that_nobody_could_keep_are_to_be_sent_again(house: House) -> None:
    def take(body: bytes) -> bytes:
        raise SpecwatchError("no room")

    answer = ask(house, "/alertmanager", "POST", headers=JSON, content=b"{}", take=take)
    assert answer.status_code == 503
    assert "no room" in answer.json()["error"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({}, b"{}", 415),
        (JSON, b"{", 400),
        ({**JSON, "Origin": "https://evil.example"}, b"{}", 403),
        ({**JSON, "Origin": "null"}, b"{}", 403),
        ({**JSON, "Origin": "http://127.0.0.1:9117"}, b"{}", 200),
        (JSON, b"[1]", 400),
        (JSON, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 200),
        (JSON, b'{"a": ' + b"9" * 5000 + b"}", 200),
        (JSON, b'{"a": "\xff\xfe"}', 200),
        (JSON, b'{"a": "\x00"}', 200),
        (JSON, b'"' + b"x" * LARGEST_ALERTS + b'"', 413),
        ({**JSON, "Origin": "http://198.51.100.7"}, b"{}", 403),
        ({**JSON, "Origin": "https://watch.example.org"}, b"{}", 200),
    ],
)
def test_what_is_no_alert_is_refused(house: House, headers: dict[str, str], body: bytes, status: int) -> None:
    assert ask(house, "/alertmanager", "POST", headers=headers, content=body).status_code == status


def test_a_body_of_unknown_length_is_bounded_too(house: House) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(LARGEST_ALERTS // 1048576 + 2):
            yield b"x" * 1048576

    assert ask(house, "/alertmanager", "POST", headers=JSON, content=pieces()).status_code == 413


def test_thousands_of_alerts_in_one_body_are_taken(house: House) -> None:
    body = b'{"alerts": [' + b", ".join([b'{"labels": {"a": "' + b"x" * 400 + b'"}}'] * 4000) + b"]}"
    assert len(body) > LARGEST
    answer = ask(house, "/alertmanager", "POST", headers=JSON, content=body)
    assert (answer.status_code, answer.content) == (200, body)
    assert ask(house, "/api/v1/findings", "POST", headers=JSON, content=body).status_code == 413


def test_a_page_that_fails_takes_no_other_with_it(house: House) -> None:
    def take(body: bytes) -> bytes:
        raise RuntimeError("a bug")

    answer = ask(house, "/alertmanager", "POST", headers=JSON, content=b"{}", take=take)
    assert answer.status_code == 500
    assert "a bug" not in answer.text
    assert house.said[-1][0] == "request_failed"
    assert "a bug" in str(house.said[-1][1]["because"])


def test_health_is_that_of_the_loop(house: House) -> None:
    assert ask(house, "/healthz").json() == {"ok": True}
    assert ask(house, "/readyz").json() == {"ok": True}
    house.now = 100.0 + 181
    answer = ask(house, "/healthz")
    assert answer.status_code == 503
    assert "181 s ago" in answer.json()["because"]
    house.now, house.tally.storing = 101.0, False
    assert ask(house, "/healthz").status_code == 200
    assert ask(house, "/readyz").status_code == 503


def test_a_store_that_is_gone_is_said_and_come_back_to(house: House) -> None:
    (house.folder / "specwatch.db").rename(house.folder / "aside")
    assert ask(house, "/").status_code == 503
    assert ask(house, "/api/v1/servers").status_code == 503
    assert ask(house, "/readyz").status_code == 503
    assert ask(house, "/metrics").status_code == 200
    (house.folder / "aside").rename(house.folder / "specwatch.db")
    assert ask(house, "/").status_code == 200


def test_without_a_url_only_our_own_names_count(tmp_path: Path) -> None:
    house = House(tmp_path, web=Web(listen="watch.internal:9117"))
    assert ask(house, "/healthz", host="watch.internal:9117").status_code == 200
    assert ask(house, "/healthz", host="watch.example.org").status_code == 421
    house.settings = replace(house.settings, web=Web(listen="0.0.0.0:9117"))
    name = socket.gethostname()
    assert ask(house, "/healthz", host=f"{name}:9117").status_code == 200, "what its links call it"
    assert ask(house, "/healthz", host=f"{name}.evil.example:9117").status_code == 421


def ratio(one: str, two: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_pair_of_colours_can_be_read(house: House) -> None:
    """WCAG 2.2 AA, contrast of text: 4.5 to 1, in the light and in the dark."""
    css = ask(house, "/static/specwatch.css").text
    light, dark = css.split("@media (prefers-color-scheme: dark)")
    for part in (light, dark.partition("\n}\n")[0]):
        colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))
        hues = [f"h{n}" for n in range(1, 9)]
        pairs = [(ink, "card") for ink in ("ink", "soft", "link", "bad", "warn", "good", *hues)]
        pairs += [(ink, "paper") for ink in ("ink", "soft", "link", "bad", "warn", "good")]
        pairs += [("ink", "bad-bg"), ("ink", "warn-bg"), ("ink", "good-bg"), ("soft", "bad-bg"), ("ink", "code")]
        pairs += [("bad", "bad-bg"), ("warn", "warn-bg"), ("good", "good-bg"), ("good", "bad-bg"), ("warn", "bad-bg")]
        pairs += [("ink", "root"), *((hue, "root") for hue in hues)]
        for ink, ground in pairs:
            assert ratio(colour[ink], colour[ground]) >= 4.5, (ink, ground, ratio(colour[ink], colour[ground]))
