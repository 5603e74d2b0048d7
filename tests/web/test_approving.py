"""Approving a fix: who may, what is left for the one that acts, and that it takes nobody's word for it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from test_pages import JSON, ask
from webbox import FINDING, NOW, House, document, lived_in, seen

from specwatch.acting import approval
from specwatch.acting.proposals import Inbox, Proposal, dumps, leave, loads
from specwatch.errors import ConfigError
from specwatch.settings import Web
from specwatch.storage.actions import Actions, new
from specwatch.storage.store import Recovered

TOKEN = "0123456789abcdef0123456789abcdef"
PATH = f"/findings/llama/{FINDING}/approve"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def written(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = lived_in(tmp_path)
    web = Web(listen="127.0.0.1:9117", token_file=written(tmp_path / "token", f"{TOKEN}\n"))
    first, *rest = house.settings.servers
    house.settings = replace(house.settings, web=web, servers=(replace(first, target="systemd:sglang.service"), *rest))
    return house


def send(house: House, fix: str = "drop-speculation", token: str = TOKEN, path: str = PATH) -> int:
    return ask(house, path, "POST", headers=FORM, content=f"fix={fix}&token={token}".encode()).status_code


def left(house: House) -> list[Proposal]:
    with Inbox(house.folder) as inbox:
        return [taken.proposal for taken in inbox.entries()[0] if taken.proposal]


def test_the_form_says_what_will_run(house: House) -> None:
    assert PATH in ask(house, PATH.removesuffix("/approve")).text
    page = ask(house, PATH).text
    assert "systemd:sglang.service" in page
    assert "− --speculative-algorithm EAGLE" in page
    assert "Apply it and restart llama" in page
    assert 'type="password"' in page


def test_the_right_token_leaves_a_sealed_proposal(house: House) -> None:
    assert send(house) == 200
    (one,) = left(house)
    assert (one.server, one.finding, one.fix, one.created) == ("llama", FINDING, "drop-speculation", NOW)
    sealed = (TOKEN, one.server, one.finding, one.fix, one.occurrence, one.created)
    assert approval.is_sealed(one.approval, *sealed)
    assert house.said[-1][0] == "fix_approved"
    assert TOKEN not in json.dumps(house.said)
    assert send(house) == 200
    assert left(house)[0].occurrence != one.occurrence, "another approval is no replay"


def test_the_api_takes_a_bearer(house: House) -> None:
    headers = {**JSON, "Authorization": f"Bearer {TOKEN}"}
    answer = ask(house, f"/api/v1{PATH}", "POST", headers=headers, content=b'{"fix": "drop-speculation"}')
    assert answer.json() == {"approved": True, "server": "llama", "finding": FINDING, "fix": "drop-speculation"}
    assert len(left(house)) == 1
    wrong = ask(house, f"/api/v1{PATH}", "POST", headers=JSON, content=b'{"fix": "drop-speculation"}')
    assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "0", TOKEN.upper()])
def test_a_wrong_token_leaves_nothing(house: House, token: str) -> None:
    assert send(house, token=token) == 401
    assert left(house) == []
    assert house.said[-1][0] == "approval_refused"


def test_guessing_is_slowed_down(house: House) -> None:
    app_of = house.app()
    house.app = lambda take=None: app_of  # type: ignore[method-assign]
    assert [send(house, token="wrong") for _ in range(7)] == [401] * 5 + [429] * 2
    assert send(house) == 429, "nobody is heard"
    house.now += 61
    assert send(house) == 200


def test_what_cannot_be_approved(house: House) -> None:
    assert send(house, fix="matching-draft") == 409
    assert send(house, path="/findings/llama/aaaaaaaaaaaa/approve") == 404
    assert send(house, path="/findings/qwen/ffffffffffff/approve") == 409, "no target, and over"
    house.commit(Recovered(server="llama", at=NOW, because="it is ready"))
    assert send(house) == 409
    assert "does not fire any more" in ask(house, PATH).text
    assert left(house) == []


def lines(house: House) -> str:
    """The page of the approval as one line of text."""
    return " ".join(re.sub(r"<[^>]*>", " ", ask(house, PATH).text).split())


def test_the_form_says_what_the_policy_will_say(house: House) -> None:
    page = lines(house)
    assert "Does the mode allow it? yes a person asked for it" in page
    assert "Is it a fix that may be applied? yes drop-speculation is safe" in page
    assert "Is the server really down? asked when it is applied" in page
    assert "Is the cause proved? yes" in page
    assert "Is the breaker closed? yes" in page, "nothing was ever changed"
    house.statuses.clear()
    assert "Is it a fix that may be applied? asked when it is applied" in lines(house)


def changed(house: House, **changes: str) -> None:
    first, *rest = house.settings.servers
    house.settings = replace(house.settings, servers=(replace(first, **changes), *rest))  # type: ignore[arg-type]


def tripped(house: House) -> None:
    store = Actions(house.folder / "actions")
    store.trip("llama", "two attempts did not help", NOW)
    store.close()


BOUND: dict[str, tuple[Callable[[House], object], str]] = {
    "a script that nothing tells of": (
        lambda house: changed(house, target="script:/srv/run.sh"),
        "Is the server really down? No: could not tell: nothing but a health endpoint tells",
    ),
    "a server that answers": (
        lambda house: house.tally.up.update(llama=True),
        "Is the server really down? No: http://127.0.0.1:1/health answered when it was last asked",
    ),
    "an open breaker": (tripped, "Is the breaker closed? No: the breaker is open: two attempts did not help"),
    "an experimental rule": (
        lambda house: house.statuses.update({"some-rule": "experimental"}),
        "Is it a fix that may be applied? No: the rule is experimental",
    ),
    "a mode that binds people": (
        lambda house: setattr(
            house, "settings", replace(house.settings, policy=replace(house.settings.policy, mode="propose"))
        ),
        "Does the mode allow it? No: the mode is propose",
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_what_is_bound_to_be_refused_is_not_offered(house: House, name: str) -> None:
    change, says = BOUND[name]
    if name == "a server that answers":
        changed(house, health="http://127.0.0.1:1/health")
    assert 'type="radio"' in ask(house, PATH).text
    change(house)
    assert f"It would be refused. {says}" in lines(house)
    assert 'type="radio"' not in ask(house, PATH).text
    before = ask(house, PATH.removesuffix("/approve")).text
    assert "Nothing can be approved now." in before
    assert f"{PATH}" not in before
    assert send(house) == 409
    assert left(house) == []


def test_a_script_with_a_health_endpoint_is_asked_about_later(house: House) -> None:
    changed(house, target="script:/srv/run.sh", health="http://127.0.0.1:1/health")
    assert "Is the server really down? asked when it is applied" in lines(house)
    assert send(house) == 200


def test_of_several_fixes_only_the_untried_one_is_offered(house: House) -> None:
    fixes = json.loads(document())["fixes"]
    house.commit(seen(at=NOW - 1, fixes=[*fixes, {**fixes[0], "id": "shorter-draft"}]))
    store = Actions(house.folder / "actions")
    begun = new(server="llama", fix="drop-speculation", target="systemd:sglang.service", asked_by="person",
                fingerprint=FINDING, details={"written": True})  # fmt: skip
    store.advance(store.begin(begun, 1, NOW - 5000), "failed", NOW - 4000, because="no")
    store.reset("qwen", NOW)
    store.close()
    page = lines(house)
    assert "drop-speculation safe It would be refused. Is the fix untried for this finding? No:" in page
    assert ask(house, PATH).text.count('type="radio"') == 1
    assert send(house, fix="drop-speculation") == 409
    assert send(house, fix="shorter-draft") == 200


def test_what_was_done_and_cannot_be_read_is_asked_about_later(house: House) -> None:
    (house.folder / "actions").mkdir()
    (house.folder / "actions" / "actions.db").write_text("no database")
    assert "Is the breaker closed? asked when it is applied" in lines(house)
    assert send(house) == 200


def test_without_a_token_file_there_is_nothing_to_approve(house: House) -> None:
    house.settings = replace(house.settings, web=Web(listen="127.0.0.1:9117"))
    assert send(house) == 403
    assert "token_file is not set" in ask(house, PATH).text
    assert "/approve" not in ask(house, PATH.removesuffix("/approve")).text
    assert left(house) == []


def test_another_site_cannot_send_the_form(house: House) -> None:
    body = f"fix=drop-speculation&token={TOKEN}".encode()
    for origin in ("https://evil.example", "null", "http://198.51.100.7", "http://127.0.0.1:8080"):
        answer = ask(house, PATH, "POST", headers={**FORM, "Origin": origin}, content=body)
        assert answer.status_code == 403
    assert left(house) == []


def test_a_form_with_more_than_it_asks_for_is_not_read(house: House) -> None:
    body = f"fix=drop-speculation&token={TOKEN}&".encode() + b"&".join([b"a=1"] * 50)
    assert ask(house, PATH, "POST", headers=FORM, content=body).status_code == 400
    assert left(house) == []


def test_the_watcher_needs_the_digest_only(house: House) -> None:
    file = Path(house.settings.web.token_file)
    written(file.with_name("token.sha256"), hashlib.sha256(TOKEN.encode()).hexdigest() + "  -\n", 0o644)
    file.unlink()
    assert send(house) == 200
    assert send(house, token="wrong") == 401
    written(file.with_name("token.sha256"), "nonsense", 0o644)
    assert send(house) == 503


def test_a_token_that_can_be_guessed_from_its_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 20 characters"):
        approval.token_of(written(tmp_path / "t", "hunter2"))
    with pytest.raises(ConfigError, match="has mode 644"):
        approval.digest_of(written(tmp_path / "t", TOKEN, 0o644))


def test_an_approval_is_of_exactly_one_thing() -> None:
    what = ("llama", "aaaaaaaaaaaa", "drop-speculation", "0" * 32, 1.5)
    seal = approval.seal(TOKEN, *what)
    assert approval.is_sealed(seal, TOKEN, *what)
    for changed in (
        ("qwen", *what[1:]), ("llama", "b", *what[2:]), (*what[:2], "x", *what[3:]),
        (*what[:3], "1" * 32, 1.5), (*what[:4], 2.5),
    ):  # fmt: skip
        assert not approval.is_sealed(seal, TOKEN, *changed)
    assert not approval.is_sealed(seal, TOKEN[::-1], *what)


PROPOSAL = Proposal(
    server="llama", finding=FINDING, fix="drop-speculation", occurrence="0" * 32, created=NOW, specwatch="0.1.0"
)


def test_an_approval_survives_its_file() -> None:
    one = replace(PROPOSAL, approval="a" * 64)
    assert loads(dumps(one)) == one
    assert b"approval" not in dumps(PROPOSAL)
    for odd in ("1", "null", '"xyz"', '"' + "a" * 63 + '"'):
        text = dumps(one).decode().replace('"' + "a" * 64 + '"', odd)
        with pytest.raises(Exception, match="approval is none"):
            loads(text.encode())


Run = Callable[..., "CompletedProcess[str]"]


def answered(house: House, proposal: Proposal, token: str = TOKEN) -> str:
    """What the one that acts says of a proposal, from its own configuration and its audit log."""
    from specwatch.commands.apply_proposals import Options, run

    folder = house.folder
    written(folder / "acting-token", token)
    config = folder / "specwatch.toml"
    config.write_text(
        f'[[server]]\nname = "llama"\nlogs = ["{folder}/none.log"]\ntarget = "script:{folder}/start.sh"\n'
        f'[state]\ndir = "{folder}"\nactions = "{folder}/actions"\n[web]\ntoken_file = "{folder}/acting-token"\n'
    )
    leave(folder, proposal)
    assert run(Options(config=config, state=folder, insecure=True)) == 0
    assert not any((folder / "proposals").iterdir())
    return (folder / "actions" / "audit.jsonl").read_text()


def test_the_one_that_acts_refuses_a_forged_approval(house: House) -> None:
    import time

    forged = replace(PROPOSAL, created=time.time(), approval="a" * 64)
    assert "it was forged or changed" in answered(house, forged)


def test_the_one_that_acts_refuses_an_approval_with_another_token(house: House) -> None:
    assert send(house) == 200
    (one,) = left(house)
    assert "it was forged or changed" in answered(house, one, "f" * 32)


def test_the_one_that_acts_takes_a_right_one_and_finds_everything_out_anew(house: House) -> None:
    import time

    one = replace(PROPOSAL, created=time.time())
    sealed = approval.seal(TOKEN, one.server, one.finding, one.fix, one.occurrence, one.created)
    audit = answered(house, replace(one, approval=sealed))
    assert "forged" not in audit
    assert '"asked_by":"person"' in audit
    assert "none of its logs is there" in audit, "it went on to read the log itself"
