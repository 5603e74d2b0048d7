"""The HTTP side, served for real, against its own OpenAPI description: whatever is sent, it answers as described."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from webbox import House, get, lived_in

from specwatch.web.openapi import description
from specwatch.web.server import Front, Uvicorn


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return lived_in(tmp_path_factory.mktemp("api"))


@pytest.fixture(scope="module")
def url(house: House) -> Iterator[str]:
    app = house.app()
    front = Front("127.0.0.1:0", lambda: Uvicorn(app), lambda level, event, **fields: None)
    front.start()
    yield f"http://127.0.0.1:{front.port}"
    front.stop()


api = schemathesis.openapi.from_dict(description())


@api.parametrize()
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_it_answers_as_described(case: schemathesis.Case[Any], url: str) -> None:
    case.call_and_validate(base_url=url)


def test_nothing_that_was_sent_was_a_bug_of_ours(house: House, url: str) -> None:
    """Runs after the fuzzing, over the same application."""
    assert get(f"{url}/healthz")[0] == 200
    assert [event for event, _ in house.said if event == "request_failed"] == []


def test_the_description_is_served(url: str) -> None:
    assert json.loads(get(f"{url}/api/v1/openapi.json")[1]) == description()


def test_every_path_for_machines_is_described(url: str) -> None:
    """What is described is there, with the method that is described, and no other."""
    paths = description()["paths"]
    assert isinstance(paths, dict)
    for path, methods in paths.items():
        filled = re.sub(r"\{server\}", "llama", re.sub(r"\{finding\}", "0123456789ab", path))
        assert get(url + filled)[0] == (200 if "get" in methods else 405), path
