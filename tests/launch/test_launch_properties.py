from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from launch_corpus import SAMPLES

from specwatch.domain import Change
from specwatch.errors import LaunchError
from specwatch.launch.argparser import parse_args
from specwatch.launch.command import edit, parse, render
from specwatch.launch.convert import Refusal
from specwatch.launch.flags import table
from specwatch.launch.server_args import parse as parse_record

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=30)
SAMPLE = st.sampled_from(SAMPLES)
FREE = ["--served-model-name", "--speculative-token-map", "--chat-template", "--api-key"]


@settings(max_examples=60, deadline=None)
@given(SAMPLE)
def test_no_changes_give_the_text_byte_for_byte(sample: object) -> None:
    text = sample.text  # type: ignore[attr-defined]
    assert edit(parse(text, "0.5.23"), []).text == text


@settings(max_examples=120, deadline=None)
@given(SAMPLE, st.sampled_from(FREE), TEXT)
def test_set_then_remove_gives_the_text_back(sample: object, flag: str, value: str) -> None:
    launch = parse(sample.text, "0.5.23")  # type: ignore[attr-defined]
    dest = table("0.5.23").resolve(flag).dest
    changed = edit(launch, [Change(op="set", name=flag, new=value)])
    assert changed.values[dest] == value
    assert {**launch.values, dest: value} == dict(changed.values)
    if dest not in launch.values:
        assert edit(changed, [Change(op="remove", name=flag)]).text == launch.text


@settings(max_examples=80, deadline=None)
@given(SAMPLE, TEXT)
def test_set_env_then_unset_gives_the_text_back(sample: object, value: str) -> None:
    launch = parse(sample.text, "0.5.23")  # type: ignore[attr-defined]
    changed = edit(launch, [Change(op="set_env", name="SPECWATCH_X", new=value)])
    assert changed.env["SPECWATCH_X"] == value
    assert changed.values == launch.values
    assert edit(changed, [Change(op="unset_env", name="SPECWATCH_X")]).text == launch.text


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FREE), TEXT), max_size=4), st.dictionaries(st.sampled_from("ABC"), TEXT))
def test_what_is_rendered_reads_the_same(pairs: list[tuple[str, str]], env: dict[str, str]) -> None:
    launch = parse(["python", "-m", "sglang.launch_server", "--model-path", "/m/a"], "0.5.23")
    changes = [Change(op="set", name=name, new=value) for name, value in pairs]
    changes += [Change(op="set_env", name=name, new=value) for name, value in env.items()]
    changed = edit(launch, changes)
    for shown in (render(changed), render(changed, width=40)):
        again = parse(shown, "0.5.23")
        assert (dict(again.values), dict(again.env), again.argv) == (
            dict(changed.values),
            dict(changed.env),
            changed.argv,
        )


@settings(max_examples=150, deadline=None)
@given(st.text("ab '\"\\$`|&;<>()#\n-={}", max_size=40))
def test_any_text_is_read_or_refused_with_a_reason(tail: str) -> None:
    try:
        launch = parse(f"python -m sglang.launch_server --model-path x {tail}", "0.5.23")
    except LaunchError:
        return
    assert edit(launch, []).text == launch.text


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(["--tp", "--tp=2", "2", "--", "-1", "-h2", "--page", "--x", "--lora-paths", "a b", "-"]))
)
def test_every_token_is_a_flag_a_value_or_left_over(tokens: list[str]) -> None:
    parsed = parse_args(table("0.5.23"), tokens, strict=False)
    taken = [i for one in parsed.given for i in range(one.at, one.at + one.taken + 1)]
    assert sorted([*taken, *parsed.extras]) == list(range(len(tokens)))
    try:
        strict = parse_args(table("0.5.23"), ["--model-path", "x", *tokens])
    except Refusal:
        return
    assert not strict.extras or any(one.flag.action == "help" for one in strict.given)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_record_is_read_without_an_error(text: str) -> None:
    parse_record(f"server_args=ServerArgs(model_path='/m/a', {text}")
    parse_record(text)
