from __future__ import annotations

import pickle

import pytest

from specwatch.checks.subject import Answer, Check, Subject, broken
from specwatch.domain import Phase, Status
from specwatch.launch.command import parse
from specwatch.launch.unfilled import Unfilled, guarded
from specwatch.models.memory import MemoryModels

SERVER = "python -m sglang.launch_server"


def _reads(subject: Subject) -> Answer | None:
    return broken("literal", None, None) if subject.target_path else None


def _asks_env(subject: Subject) -> Answer | None:
    return Answer() if "SGLANG_X" in subject.launch.env and subject.env_flag("SGLANG_X") else None


def _host(subject: Subject) -> Answer | None:
    return Answer() if subject.launch.value("port") is None else None


def check(run: object) -> Check:
    return Check(name="x", phase=Phase.ARGUMENTS, mirrors="", run=run)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "command",
    [
        f"{SERVER} --model-path $MODEL",
        f'{SERVER} --model-path "$ROOT/a"',
        f"{SERVER} --model-path=${{ROOT:-/m}}/a",
        f"{SERVER} --model-path $(cat model)",
        f"{SERVER} --model-path `cat model`",
        f"{SERVER} --model-path ~/models/a",
        f"M=~/models; {SERVER} --model-path $M/a",
        f"M=$ROOT/a; {SERVER} --model-path $M",
        f"bash -c '{SERVER} --model-path $MODEL'",
        [*SERVER.split(), "--model-path", "$(MODEL)/a"],
        [*SERVER.split(), "--model-path", "~/a"],
    ],
)
def test_what_only_a_shell_could_tell_is_unknown(command: str | list[str]) -> None:
    launch = parse(command, "0.5.23")
    verdict = check(_reads)(launch, MemoryModels({}))
    assert verdict.status is Status.UNKNOWN
    assert f"model_path is {launch.values['model_path']}" in verdict.because


@pytest.mark.parametrize(
    "command",
    [
        f"{SERVER} --model-path /m/a --host $HOST",
        f"M=/m/a; {SERVER} --model-path $M",
        f"{SERVER} --model-path '/m/$a'",
        f"{SERVER} --model-path /m/~a",
        [*SERVER.split(), "--model-path", "/m/$a"],
    ],
)
def test_what_the_text_tells_is_read(command: str | list[str]) -> None:
    assert check(_reads)(parse(command, "0.5.23"), MemoryModels({})).cause == "literal"


def test_a_check_that_does_not_read_the_value_is_made() -> None:
    launch = parse(f"{SERVER} --model-path $MODEL --port $PORT", "0.5.23")
    assert check(_host)(launch, MemoryModels({})).status is Status.SOUND


def test_a_variable_that_only_a_shell_could_tell_is_unknown() -> None:
    for text in ("SGLANG_X=$Y ", "export SGLANG_X=$(y); ", "docker run -e SGLANG_X=$Y img ", "env SGLANG_X=$Y "):
        verdict = check(_asks_env)(parse(f"{text}{SERVER} --model-path /m/a", "0.5.23"), MemoryModels({}))
        assert verdict.status is Status.UNKNOWN, text
        assert "SGLANG_X is $" in verdict.because
    known = parse(f"Y=1; export SGLANG_X=$Y; {SERVER} --model-path /m/a", "0.5.23")
    assert check(_asks_env)(known, MemoryModels({})).status is Status.SOUND


def test_the_record_of_the_server_knows_the_value() -> None:
    from dataclasses import replace

    launch = replace(parse(f"{SERVER} --model-path $MODEL", "0.5.23"), recorded={"model_path": "/m/a"})
    assert check(_reads)(launch, MemoryModels({})).cause == "literal"


def test_the_guard_leaves_everything_else_as_it_is() -> None:
    launch = parse(f"{SERVER} --model-path $MODEL --tp 2", "0.5.23")
    kept = guarded(launch)
    assert kept.value("tp_size") == 2
    assert kept.value("port") is None
    assert sorted(kept.values) == ["model_path", "tp_size"]
    assert len(kept.values) == 2
    assert "model_path" in kept.values
    with pytest.raises(Unfilled, match=r"model_path is \$MODEL"):
        kept.value("model_path")
    assert guarded(parse(f"{SERVER} --model-path /m", "0.5.23")).values == {"model_path": "/m"}
    assert pickle.loads(pickle.dumps(Unfilled("x"))).args == ("x",)
