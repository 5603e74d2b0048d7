from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specwatch.errors import ConfigError, LaunchError
from specwatch.launch import flags
from specwatch.launch.command import parse
from specwatch.launch.flags import table

DATA = Path(__file__).parent.parent / "data" / "launch"
ACTIONS = {
    "_HelpAction": "help",
    "_StoreAction": "store",
    "_StoreTrueAction": "true",
    "BooleanOptionalAction": "optional",
    "DeprecatedStoreTrueAction": "true",
    "DeprecatedStoreConstAction": "const",
    "LoRAPathAction": "lora",
}


def test_the_newest_table_equals_the_real_parser() -> None:
    dumped = json.loads((DATA / "parser-0.5.23.json").read_text())
    mine = table("0.5.23").flags
    assert [list(f.names) for f in mine] == [row[0] for row in dumped]
    for flag, (_, dest, action, nargs, kind, choices, default, required) in zip(mine, dumped, strict=True):
        assert (flag.dest, flag.action, flag.required) == (dest, ACTIONS[action], required)
        assert flag.nargs == (None if nargs is None else str(nargs))
        assert flag.type == kind or flag.action == "const"
        if flag.name == "--sampling-backend":  # a set: its order is nobody's
            assert {str(c) for c in flag.choices or ()} == set(choices)
        else:  # the dump holds choices as text
            assert (None if flag.choices is None else [str(c) for c in flag.choices]) == choices
        assert flag.action == "help" or flag.default == default


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.23", "0.5.23"),
        ("", "0.5.23"),
        ("unknown", "0.5.23"),
        ("0.5.17 (guess)", "0.5.17"),
        ("0.4.3.post4", "0.4.3.post4"),
        ("v0.4.3.post4-cu125", "0.4.3.post4"),
        ("0.4.3.post9", "0.4.3.post4"),
        ("0.3.6", "0.4.0"),
        ("v0.4.6-cu124", "0.4.6"),
        ("0.5.11.post1", "0.5.11"),
        ("0.5.11rc1", "0.5.11"),
        ("0.5.24", "0.5.23"),
        ("1.0.0", "0.5.23"),
    ],
)
def test_a_version_takes_the_nearest_release_that_is_not_newer(version: str, release: str) -> None:
    assert flags.known_release(version) == release
    assert table(version).release == release


def test_what_the_oldest_known_release_withdrew_an_older_one_may_have_taken() -> None:
    text = "python -m sglang.launch_server --model-path m --enable-flashinfer-mla --tp 8"
    assert parse(text, "0.4.4").value("tp_size") == 8
    with pytest.raises(LaunchError, match="is deprecated"):
        parse(text, "0.4.6")


def test_ninety_two_releases_in_order() -> None:
    assert len(flags.RELEASES) == 92
    assert flags.RELEASES[0] == "0.4.0"
    assert flags.RELEASES[-1] == "0.5.23"
    assert sorted(flags.RELEASES, key=flags.version_key) == list(flags.RELEASES)


@pytest.mark.parametrize(
    ("release", "token", "there"),
    [
        ("0.4.6.post1", "--pp-size", False),
        ("0.4.6.post2", "--pp-size", True),
        ("0.4.6", "--pp-size", True),
        ("0.4.6", "--tool-server", False),
        ("0.5.4", "--enable-ep-moe", True),
        ("0.5.4.post3", "--enable-ep-moe", False),
    ],
)
def test_a_post_release_has_flags_of_its_own_and_a_release_may_mean_its_posts(
    release: str, token: str, there: bool
) -> None:
    assert (table(release).exact(token) is not None) is there


def test_no_flag_is_missing_in_one_release_only() -> None:
    tables = [{name for flag in table(one).flags for name in flag.names} for one in flags.RELEASES]
    for before, between, after in zip(tables, tables[1:], tables[2:], strict=False):
        assert not (before & after) - between


@pytest.mark.parametrize(
    ("release", "token", "name"),
    [
        ("0.5.23", "--tp", "--tp-size"),
        ("0.5.23", "--tensor", "--tp-size"),
        ("0.5.23", "--speculative-algo", "--speculative-algorithm"),
        ("0.5.23", "--ep", "--ep-size"),
        ("0.5.1", "--speculative-draft", "--speculative-draft-model-path"),
        ("0.5.16", "--cuda-graph-max-bs", "--cuda-graph-max-bs"),
        ("0.4.6", "--tp", "--tp-size"),
        ("0.5.23", "--model=x", "--model-path"),
    ],
)
def test_spellings_resolve_by_release(release: str, token: str, name: str) -> None:
    assert table(release).resolve(token).name == name


def test_an_ambiguous_abbreviation_is_refused_in_the_words_of_argparse() -> None:
    with pytest.raises(LaunchError) as caught:
        table("0.5.23").resolve("--page")
    assert caught.value.refusal == (
        "sglang serve: error: ambiguous option: --page could match --page-size, --paged-experts-num-resident"
    )


def test_an_unknown_flag_is_refused_with_the_program_name_of_the_release() -> None:
    with pytest.raises(LaunchError, match="did you mean --enable-metrics") as caught:
        table("0.5.7").resolve("--enable_metrics")
    assert caught.value.refusal == "launch_server.py: error: unrecognized arguments: --enable_metrics"


def test_beyond_the_known_releases_nothing_is_claimed_of_an_unknown_flag() -> None:
    with pytest.raises(LaunchError) as caught:
        table("0.6.0").resolve("--flag-of-tomorrow")
    assert caught.value.refusal is None


def test_between_two_releases_flags_and_choices_of_both_count() -> None:
    before, between, after = table("0.4.10.post2"), table("0.5.0"), table("0.5.1")
    added = next(f.name for f in after.flags if before.exact(f.name) is None)
    assert between.resolve(added).name == added
    assert "lof" not in (before.resolve("--schedule-policy").choices or ())
    assert "lof" in (between.resolve("--schedule-policy").choices or ())
    free = table("0.4.4").resolve("--device")  # 0.4.4.post4 takes any
    assert free.choices is None


def test_by_dest_prefers_the_flag_that_is_not_deprecated() -> None:
    found = table("0.5.14").by_dest("cuda_graph_max_bs_decode")
    assert found is not None
    assert found.name == "--cuda-graph-max-bs-decode"
    assert table("0.5.14").by_dest("no_such_argument") is None


def test_prefixed_gives_every_speculative_flag() -> None:
    names = {flag.name for flag in table("0.5.11").prefixed("--speculative-")}
    assert "--speculative-dflash-block-size" in names
    assert all(name.startswith("--speculative-") for name in names)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--enable_metrics", "--enable-metrics"),
        ("--num-speculative-tokens", "--speculative-num-draft-tokens"),
        ("--speculative-algorihm", "--speculative-algorithm"),
        ("--max-model-len=4096", "--context-length"),
        ("--enable-metrics--speculative-algorithm", "--enable-metrics --speculative-algorithm"),
        ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
        ("--nothing-like-it-at-all", None),
    ],
)
def test_nearest(typed: str, meant: str | None) -> None:
    assert table("0.5.23").nearest(typed) == meant


def source_tree(root: Path, body: str) -> Path:
    srt = root / "sglang" / "srt"
    srt.mkdir(parents=True)
    (root / "sglang" / "version.py").write_text('__version__ = "0.9.1"\n')
    (srt / "other.py").write_text("import enum\nCHOICES = ['a', 'b']\nclass E(enum.Enum):\n    X = 'x'\n    Y = 'y'\n")
    (srt / "server_args.py").write_text(body)
    return root


def test_table_from_reads_add_argument_calls(tmp_path: Path) -> None:
    body = """
from sglang.srt.other import CHOICES, E
MORE = CHOICES + ["c"]
@dataclasses.dataclass
class ServerArgs:
    model_path: str
    alpha: str = "a"
    tp_size: int = 1
    secret: Optional[str] = compute()
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", type=str, required=True)
        parser.add_argument("--alpha", choices=MORE, default=ServerArgs.alpha)
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--beta", type=str, nargs="+", choices=[e.value for e in E])
        parser.add_argument("--gamma", action="store_true")
        parser.add_argument("--delta", choices=anything_at_run_time())
    @classmethod
    def from_cli_args(cls, args):
        args.tp_size = args.tensor_parallel_size
"""
    got = flags.table_from(source_tree(tmp_path, body))
    assert got.release == "0.9.1"
    alpha, beta, delta = got.resolve("--alpha"), got.resolve("--beta"), got.resolve("--delta")
    assert (alpha.choices, alpha.default) == (("a", "b", "c"), "a")
    assert (beta.choices, beta.nargs) == (("x", "y"), "+")
    assert delta.choices is None
    assert got.resolve("--tp").dest == "tp_size"
    assert got.fields["tp_size"] == 1
    assert got.resolve("--gamma").default is False
    assert got.fields["secret"] == flags.UNSTATED


def test_table_from_reads_annotated_fields(tmp_path: Path) -> None:
    body = """
from sglang.srt.other import CHOICES
@dataclasses.dataclass
class ServerArgs:
    model_path: A[str, Arg(help="h", aliases=["--model"])]
    ints: A[Optional[List[int]], "numbers"] = None
    mode: A[Literal["on", "off"], "mode"] = "on"
    flag: A[bool, "a flag"] = False
    hidden: A[bool, Arg(no_cli=True)] = False
    either: A[Optional[bool], Arg(help="h", action=argparse.BooleanOptionalAction)] = None
    size: A[int | None, Arg(help="h", type_parser=human_readable_int, cli_name="--the-size")] = None
    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
"""
    got = flags.table_from(source_tree(tmp_path, body) / "sglang")
    assert got.resolve("--model-path").required
    assert got.resolve("--model").name == "--model-path"
    assert (got.resolve("--ints").nargs, got.resolve("--ints").type) == ("+", "int")
    assert got.resolve("--mode").choices == ("on", "off")
    assert got.resolve("--flag").bare
    assert got.exact("--hidden") is None
    assert got.fields["hidden"] is False
    assert got.resolve("--no-either").action == "optional"
    assert (got.resolve("--the-size").dest, got.resolve("--the-size").type) == ("size", "human_readable_int")


def test_table_from_says_what_it_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server_args\.py"):
        flags.table_from(tmp_path)
    (tmp_path / "x.whl").write_text("no zip")
    with pytest.raises(ConfigError, match="expected a wheel"):
        flags.table_from(tmp_path / "x.whl")


def test_the_table_file_is_small_and_what_the_tool_writes(tmp_path: Path) -> None:
    import importlib.util

    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("make_flags", root / "tools" / "make_flags.py")
    assert spec is not None
    assert spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.write(tool.pack(tool.stored(flags.DATA)), tmp_path / "flags.jsonl")
    assert (tmp_path / "flags.jsonl").read_bytes() == flags.DATA.read_bytes()
    assert flags.DATA.stat().st_size < 250_000
