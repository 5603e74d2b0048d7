"""Dropping or changing what speculates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specwatch.domain import Applicability, Status, Verdict
from specwatch.fixes import FIXES, Edit, Request
from specwatch.launch.command import parse
from specwatch.models.memory import MemoryModels

NOTHING = Verdict(check="", status=Status.UNKNOWN)


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        (
            "FOO=1 python -m sglang.launch_server --model m --speculative-algo EAGLE --speculative-num-steps=3 --tp 2",
            "FOO=1 python -m sglang.launch_server --model m --tp 2",
        ),
        (
            "sglang serve m --speculative-adaptive --decrypted-draft-config-file x --enable-multi-layer-eagle",
            "sglang serve m --decrypted-draft-config-file x --enable-multi-layer-eagle",
        ),
        (
            "docker run img python3 -m sglang.launch_server --model m \\\n  --speculative-algorithm NGRAM \\\n  --tp 2",
            "docker run img python3 -m sglang.launch_server --model m \\\n  --tp 2",
        ),
    ],
)
def test_every_speculative_flag_goes_and_nothing_else(typed: str, left: str) -> None:
    launch = parse(typed, "0.5.23")
    ask = Request(launch=launch, verdict=NOTHING, models=MemoryModels({}))
    (proposal,) = FIXES["drop-speculation"](ask)
    assert proposal.launch
    assert proposal.launch.text == left
    assert all(change.op == "remove" and change.name.startswith("--speculative-") for change in proposal.changes)


@pytest.mark.parametrize(("value", "level"), [("0.5", Applicability.REVIEW), ("1.0", Applicability.SAFE)])
@pytest.mark.parametrize("kind", ["single", "acc"])
def test_thresholds_below_one_change_the_outputs(kind: str, value: str, level: Applicability) -> None:
    text = f"sglang serve m --speculative-algorithm EAGLE --speculative-accept-threshold-{kind} {value}"
    ask = Request(launch=parse(text, "0.5.23"), verdict=NOTHING, models=MemoryModels({}))
    (proposal,) = FIXES["drop-speculation"](ask)
    assert proposal.ceiling is level


def test_variables_beside_the_command_stay_in_force() -> None:
    launch = parse("A=1 sglang serve m --speculative-algorithm NGRAM", "0.5.23")
    launch = replace(launch, env={**launch.env, "B": "2"})
    (proposal,) = FIXES["drop-speculation"](Request(launch=launch, verdict=NOTHING, models=MemoryModels({})))
    assert proposal.launch
    assert dict(proposal.launch.env) == {"A": "1", "B": "2"}
    assert proposal.launch.text == "A=1 sglang serve m"


def test_nothing_to_drop() -> None:
    launch = parse("sglang serve m", "0.5.23")
    assert not list(FIXES["drop-speculation"](Request(launch=launch, verdict=NOTHING, models=MemoryModels({}))))


def test_without_a_launch_the_change_is_named() -> None:
    (proposal,) = FIXES["drop-speculation"](Request(launch=None, verdict=NOTHING, models=MemoryModels({})))
    assert proposal.launch is None
    assert proposal.changes[0].name == "--speculative-algorithm"


def test_the_draft_tells_its_algorithm() -> None:
    known = MemoryModels({"/d": {"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}})
    launch = parse("sglang serve m --speculative-algorithm STANDALONE --speculative-draft-model-path /d", "0.5.23")
    (proposal,) = FIXES["fitting-algorithm"](Request(launch=launch, verdict=NOTHING, models=known))
    assert proposal.launch
    assert proposal.launch.value("speculative_algorithm") == "DFLASH"


def ask(command: str, release: str = "0.5.23", captures: dict[str, str] | None = None, **edit: object) -> Request:
    verdict = Verdict(check="c", status=Status.BROKEN, facts={"limit": 2048, "path": "/x y"})
    return Request(
        launch=parse(command, release),
        verdict=verdict,
        models=MemoryModels({}),
        captures=captures or {},
        edit=Edit(**edit),  # type: ignore[arg-type]
        why="to {limit}",
    )


def command_after(request: Request) -> str | None:
    found = [proposal.launch.text for proposal in FIXES["change"](request) if proposal.launch]
    return found[0] if found else None


def test_a_rule_may_spell_out_an_edit() -> None:
    request = ask(
        "A=1 sglang serve m --page-size 16 --context-length 9000",
        set={"--context-length": "{limit}"},
        remove=("--page-size",),
        set_env={"B": "2"},
        unset_env=("A",),
    )
    assert command_after(request) == "B=2 sglang serve m --context-length 2048"
    (proposal,) = FIXES["change"](request)
    assert proposal.why == "to 2048"


def test_a_flag_is_spelled_for_its_release() -> None:
    names = {"--cuda-graph-max-bs-decode|--cuda-graph-max-bs": "16"}
    assert command_after(ask("sglang serve m", "0.5.23", set=names)) == "sglang serve m --cuda-graph-max-bs-decode 16"
    old = command_after(ask("python -m sglang.launch_server --model-path m", "0.5.7", set=names))
    assert old == "python -m sglang.launch_server --model-path m --cuda-graph-max-bs 16"
    assert command_after(ask("sglang serve m", set={"--no-such-flag": "1"})) is None


def test_values_are_quoted() -> None:
    assert (
        command_after(ask("sglang serve m", set={"--tokenizer-path": "{path}"}))
        == "sglang serve m --tokenizer-path '/x y'"
    )


def test_of_the_log_only_numbers_enter_a_command() -> None:
    edit = {"--context-length": "{seen}"}
    assert (
        command_after(ask("sglang serve m", captures={"seen": "512"}, set=edit))
        == "sglang serve m --context-length 512"
    )
    for value in ("512; rm -rf /", "$(id)", "--host", "", "1e9", "９"):
        assert command_after(ask("sglang serve m", captures={"seen": value}, set=edit)) is None


def test_an_edit_that_changes_nothing_is_none() -> None:
    assert command_after(ask("sglang serve m --page-size 1", set={"--page-size": "1"})) is None
    assert command_after(ask("sglang serve m", remove=("--page-size",))) is None


CACHED = "/root/.cache/huggingface/hub/models--lab--head/snapshots/0a1b"


@pytest.mark.parametrize(
    ("named", "draft", "others", "offered"),
    [
        ("lab/head", "lab/head", "", True),
        ("/models/head", "/models/head/", "", True),
        (CACHED, "lab/head", "", True),
        (CACHED, "lab/heads", "", False),
        ("/models/target", "/models/head", "", False),  # what cannot be read is the target
        ("/models/target", "/models/target", "", False),  # and the draft lies in the same folder
        ("lab/words", "lab/words", "--tokenizer-path lab/words", False),
    ],
)
def test_speculation_goes_where_the_draft_alone_cannot_be_read(
    named: str, draft: str, others: str, offered: bool
) -> None:
    text = f"sglang serve /models/target {others} --speculative-algorithm EAGLE --speculative-draft-model-path {draft}"
    launch = parse(text, "0.5.23")
    ask = Request(launch=launch, verdict=NOTHING, models=MemoryModels({}), captures={"model": named})
    proposals = list(FIXES["drop-named-draft"](ask))
    assert len(proposals) == offered
    assert all(one.launch and one.launch.text.split() == ["sglang", "serve", "/models/target"] for one in proposals)


@pytest.mark.parametrize(("role", "level"), [("decode", Applicability.REVIEW), ("null", Applicability.SAFE)])
def test_one_of_two_roles_is_not_changed_alone(role: str, level: Applicability) -> None:
    text = f"sglang serve m --disaggregation-mode {role} --speculative-algorithm EAGLE"
    ask = Request(launch=parse(text, "0.5.23"), verdict=NOTHING, models=MemoryModels({}))
    (proposal,) = FIXES["drop-speculation"](ask)
    assert proposal.ceiling is level
    assert ("other role" in proposal.why) == (role == "decode")


def test_an_old_switch_that_chose_the_backend_goes_with_the_choice() -> None:
    launch = parse("python -m sglang.launch_server --model-path m --enable-flashinfer-mla --tp 8", "0.4.4")
    edit = Edit(set={"--attention-backend": "triton"})
    request = Request(launch=launch, verdict=NOTHING, models=MemoryModels({}), edit=edit, why="another backend")
    (proposal,) = FIXES["change"](request)
    assert proposal.launch
    assert proposal.launch.argv[3:] == ("--model-path", "m", "--tp", "8", "--attention-backend", "triton")
