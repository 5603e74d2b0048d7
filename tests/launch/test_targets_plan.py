"""Changes of launches where they live: over files as people write them, whatever the kind."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from targets_corpus import RELEASE, applied, asked, got, laid_out, one

from specwatch.domain import Change
from specwatch.errors import LaunchError
from specwatch.launch.rewriting import LONGEST
from specwatch.launch.targets import DISK, Files, Rewrite, plan

ALL = [
    *("compose/anchors.yaml#one", "compose/anchors.yaml#two", "compose/block-list.yaml#llm"),
    *("compose/crlf.yaml#sglang", "compose/dotenv.yaml#sglang", "compose/flow-lines.yaml#sglang"),
    *("compose/flow-list.yml#sglang", "compose/folded.yaml#sglang", "compose/literal.yaml#sglang"),
    *("compose/plain-lines.yaml#sglang", "kubernetes/deployment.yaml#sglang", "kubernetes/job.yaml#sglang"),
    *("kubernetes/list.yaml#server", "kubernetes/lws.yaml#sglang-leader", "kubernetes/lws.yaml#sglang-worker"),
    *("kubernetes/pod.yaml#sglang", "kubernetes/statefulset.yaml#sglang", "script/args.sh"),
    *("script/array.sh", "script/conf.sh", "script/docker.sh"),
    *("script/exec.sh", "script/heredoc.sh", "script/ssh.sh"),
    *("systemd/args.service", "systemd/bash.service", "systemd/continued.service"),
    *("systemd/docker.service", "systemd/oneshot.service", "systemd/plain.service"),
    *("systemd/reset.service", "systemd/sglang@llama.service", "systemd/wrapped.service"),
]
SHARED = {"compose/anchors.yaml#one", "compose/anchors.yaml#two", "compose/block-list.yaml#llm"}
"""Those whose list or environment comes from an anchor: they get their own copy."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Files]]:
    return laid_out(tmp_path_factory.mktemp("targets"))


def change(op: str, name: str, new: str | None = None) -> Change:
    return Change(op=op, name=name, new=new)


def test_every_launch_of_the_corpus_is_named_here(corpus: dict[str, tuple[str, Files]]) -> None:
    assert sorted(corpus) == sorted(ALL)


@pytest.mark.parametrize("name", ALL)
def test_no_changes_are_no_edits(corpus: dict[str, tuple[str, Files]], name: str) -> None:
    target, files = corpus[name]
    assert plan(target, [], RELEASE, files) == ()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "changes",
    [
        [change("set", "--page-size", "1")],
        [change("set", "--disable-cuda-graph", "")],
        [
            change("set", "--cuda-graph-bs-decode", "1 2 4"),
            change("set", "--served-model-name", 'it\'s $HOME 100% "x" ; $(id)'),
        ],
        [change("set", "--host", "127.0.0.1"), change("remove", "--host")],
    ],
    ids=["new", "bare", "values", "set-and-remove"],
)
def test_flags(corpus: dict[str, tuple[str, Files]], name: str, changes: list[Change]) -> None:
    target, files = corpus[name]
    expected = asked(one(target, files), changes)
    files = applied(files, plan(target, changes, RELEASE, files))
    assert got(one(target, files)) == expected


@pytest.mark.parametrize("name", sorted({*ALL} - {"compose/plain-lines.yaml#sglang", "script/conf.sh"}))
@pytest.mark.parametrize("op", ["set", "remove"])
def test_a_flag_that_is_there(corpus: dict[str, tuple[str, Files]], name: str, op: str) -> None:
    target, files = corpus[name]
    changes = [change(op, "--tp-size", "64" if op == "set" else None)]
    argv, env = asked(one(target, files), changes)
    files = applied(files, plan(target, changes, RELEASE, files))
    now_argv, now_env = got(one(target, files))
    assert now_argv == argv
    if name == "systemd/args.service":
        assert shlex.split(now_env["SGLANG_ARGS"]) == list(argv[3:])
        env = {**env, "SGLANG_ARGS": now_env["SGLANG_ARGS"]}
    assert now_env == env


@pytest.mark.parametrize("name", ALL)
def test_variables(corpus: dict[str, tuple[str, Files]], name: str) -> None:
    target, files = corpus[name]
    before = got(one(target, files))[1]
    changes = [change("set_env", "SW_NEW", "a b"), change("set_env", "NCCL_DEBUG", "50%$1")]
    files = applied(files, plan(target, changes, RELEASE, files))
    assert got(one(target, files))[1] == {**before, "SW_NEW": "a b", "NCCL_DEBUG": "50%$1"}
    files = applied(
        files, plan(target, [change("unset_env", "NCCL_DEBUG"), change("unset_env", "SW_NEW")], RELEASE, files)
    )
    before.pop("NCCL_DEBUG", None)
    assert got(one(target, files))[1] == before


@pytest.mark.parametrize("name", [name for name in ALL if name not in SHARED])
def test_what_is_set_and_taken_out_again_leaves_the_files_as_they_were(
    corpus: dict[str, tuple[str, Files]], name: str
) -> None:
    target, files = corpus[name]
    there = [change("set", "--page-size", "1"), change("set", "--log-level-http", "error")]
    first = plan(target, there, RELEASE, files)
    files = applied(files, first)
    again = plan(target, [change("remove", "--page-size"), change("remove", "--log-level-http")], RELEASE, files)
    assert files.edits == {edit.path: edit.after for edit in first if isinstance(edit, Rewrite)}
    assert [edit.path for edit in again if isinstance(edit, Rewrite)] == list(files.edits)
    assert {e.path: e.before for e in first if isinstance(e, Rewrite)} == applied(files, again).edits


# Values


TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=20)
ODD = st.sampled_from(
    [
        *(
            "-x",
            "--tp",
            "'",
            '"',
            "\\",
            "\\'\"",
            "$",
            "$$",
            "${HOME}",
            "$(id)",
            "`id`",
            "%",
            "%n",
            "%%",
            ";",
            "#",
            " #",
        ),
        *(
            "a\nb",
            "\n",
            " ",
            "\t",
            "a: b",
            "a:",
            "- a",
            "*a",
            "&a",
            "!a",
            "|",
            ">",
            "{}",
            "[]",
            ",",
            "yes",
            "null",
            "1e3",
        ),
        *("~", "\x85", "\u2028", "\ufeff", "\x7f", "\x01", "é", "🙂", "$SGLANG_ARGS", "@x", "^", "<", "<<EOF"),
    ]
)
BLOCKS = {"compose/folded.yaml#sglang", "compose/literal.yaml#sglang", "kubernetes/statefulset.yaml#sglang"}


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(ALL), st.one_of(TEXT, ODD))
def test_any_value_of_a_flag_arrives_as_it_is(corpus: dict[str, tuple[str, Files]], name: str, value: str) -> None:
    target, files = corpus[name]
    changes = [change("set", "--served-model-name", value)]
    try:
        edits = plan(target, changes, RELEASE, files)
    except LaunchError:
        # a block of YAML holds no line ends of a value, and no control characters
        assert name in BLOCKS
        assert not value.isprintable()
        return
    after = applied(files, edits)
    assert got(one(target, after)) == asked(one(target, files), changes)


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(ALL), st.sampled_from(["SW_NEW", "NCCL_DEBUG", "SGLANG_LOG_MS", "HF_HOME"]), st.one_of(TEXT, ODD)
)
def test_any_value_of_a_variable_arrives_as_it_is(
    corpus: dict[str, tuple[str, Files]], name: str, variable: str, value: str
) -> None:
    target, files = corpus[name]
    before = got(one(target, files))[1]
    try:
        edits = plan(target, [change("set_env", variable, value)], RELEASE, files)
    except LaunchError:
        assert (name, variable) == ("kubernetes/statefulset.yaml#sglang", "SGLANG_LOG_MS")  # exported in a block
        assert not value.isprintable()
        return
    after = applied(files, edits)
    assert got(one(target, after))[1] == {**before, variable: value}


@pytest.mark.parametrize("name", ["compose/folded.yaml#sglang", "kubernetes/pod.yaml#sglang", "systemd/plain.service"])
@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (change("set", "--served-model-name", "a\0b"), "NUL"),
        (change("set", "--served-model-name", "x" * (LONGEST + 1)), "bytes"),
        (change("set", "--served-model-name", "x" * 1_000_001), "bytes"),
        (change("set_env", "A", "a\0b"), "NUL"),
        (change("set_env", "A=B", "1"), "no name"),
        (change("set_env", "A"), "no value"),
        (change("set", "--tp-size", "two"), "invalid int value"),
        (change("set", "--tp-size", "2; reboot"), "invalid int value"),
        (change("set", "--load-format", "none-such"), "invalid choice"),
        (change("set", "--no-such-flag", "1"), "no flag"),
        (change("set", "--trust-remote-code", "yes"), "takes no value"),
        (change("set", "--shm-size", "1g; reboot"), "no value of an option"),
        (change("remove", "--draft-attention-backend"), "not in the launch"),
        (change("unset_env", "NOWHERE"), "not set"),
        (change("set", "--served-model-name", "\ud800"), "Unicode"),
    ],
)
def test_what_cannot_be_is_refused(
    corpus: dict[str, tuple[str, Files]], name: str, wanted: Change, complaint: str
) -> None:
    target, files = corpus[name]
    with pytest.raises(LaunchError, match=complaint):
        plan(target, [wanted], RELEASE, files)


def test_a_folder_or_several_launches_are_refused(corpus: dict[str, tuple[str, Files]]) -> None:
    path = corpus["compose/anchors.yaml#one"][0].removeprefix("compose:").removesuffix("#one")
    with pytest.raises(LaunchError, match=r"holds 2 launches; name one of compose:.*#one, compose:.*#two"):
        plan(path, [change("set", "--page-size", "1")], RELEASE)
    with pytest.raises(LaunchError, match="a directory"):
        plan(str(Path(path).parent), [change("set", "--page-size", "1")], RELEASE)


def test_a_bare_path_is_known_by_its_content(corpus: dict[str, tuple[str, Files]]) -> None:
    for name in ("compose/folded.yaml#sglang", "kubernetes/pod.yaml#sglang", "script/exec.sh", "systemd/plain.service"):
        target, files = corpus[name]
        path = target.partition(":")[2].partition("#")[0]
        path = path if "/" in path else f"{files.units[1]}/{path}"
        after = applied(DISK, plan(path, [change("set", "--page-size", "1")], RELEASE))
        assert "--page-size" in " ".join(got(one(path, after))[0])
