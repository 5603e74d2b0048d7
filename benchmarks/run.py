"""Measures specwatch beside its peers, in one run on the same log with the same messages: `python benchmarks/run.py`.

Every figure is the best of some runs that take turns, so that a busy machine slows all of them alike. Compare ratios
within one table, not figures of two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import logs

RULE = """title = "case {at}"
severity = "fatal"
role = "cause"
status = "experimental"
[docs]
what = "measured"
why = "measured"
limits = "made for a measurement"
[[pattern]]
name = "case"
line = '''{literal}(?P<value>\\d{{1,9}})$'''
[cause.case]
says = "case {at}"
todo = "nothing"
[[example]]
name = "case"
log = '''
[2026-01-05 08:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process
    scheduler.run_event_loop()
{text}
'''
captures = {{ value = "{value}" }}
cause = "case"
status = "unknown"
[[counterexample]]
name = "quoted"
log = '''[2026-01-05 08:00:00] Receive: obj=GenerateReqInput(text='{text}')'''
"""
SPECWATCH = (sys.executable, "-m", "specwatch.cli")


@dataclass(frozen=True)
class Program:
    """One contender: its command, what its output has to hold, and how much of the log it is given."""

    name: str
    command: tuple[str, ...]
    holds: str = ""
    share: float = 1.0


@dataclass
class Result:
    """The best time in seconds and the largest memory in KiB."""

    seconds: float = 1e9
    memory: int = 0


def measure(program: Program, environment: dict[str, str]) -> tuple[float, int]:
    """One run: seconds of the wall clock, and peak memory in KiB."""
    with tempfile.TemporaryFile() as out:
        begun = time.perf_counter()
        child = subprocess.Popen(program.command, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        took = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if program.holds and program.holds.encode() not in out.read():
            raise SystemExit(f"{program.name}: found nothing; {' '.join(program.command)[:200]}")
    return took, usage.ru_maxrss


def contest(programs: list[Program], environment: dict[str, str], repeat: int) -> dict[str, Result]:
    """All programs in turn, `repeat` times."""
    results = {program.name: Result() for program in programs}
    for _ in range(repeat):
        for program in programs:
            took, memory = measure(program, environment)
            best = results[program.name]
            best.seconds, best.memory = min(best.seconds, took), max(best.memory, memory)
    return results


def rules(folder: Path, count: int, environment: dict[str, str]) -> Path:
    """A directory with `count` rules that are proved, as they are from the second start on."""
    directory = folder / f"rules-{count}"
    directory.mkdir()
    for at, (literal, text) in enumerate(logs.messages(count)):
        value = text.removeprefix(literal)
        (directory / f"case-{at}.toml").write_text(RULE.format(at=at, literal=literal, text=text, value=value))
    code = (
        "import json, sys; from pathlib import Path; from specwatch.proof import content; "
        "from specwatch.rulebook.rule import load; from specwatch.commands.common import cache_file; "
        "cache = cache_file('proved-rules.json'); cache.parent.mkdir(parents=True, exist_ok=True); "
        "old = json.loads(cache.read_text()) if cache.exists() else []; "
        "cache.write_text(json.dumps(old + [content(load(path)) for path in Path(sys.argv[1]).glob('*.toml')]))"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True, env=environment)
    return directory


def peers(folder: Path, log: Path, count: int) -> Iterator[Program]:
    """The other programs that are installed, each as its users would look for these messages."""
    literals = folder / f"literals-{count}"
    literals.write_text("".join(f"{literal}\n" for literal, _ in logs.messages(count)))
    yield Program("wc -l", ("wc", "-l", str(log)))
    if shutil.which("rg"):
        yield Program("ripgrep -c -F -f", ("rg", "-c", "-F", "-f", str(literals), str(log)), "4")
    if shutil.which("grep"):
        yield Program("grep -F -f", ("grep", "-F", "-f", str(literals), str(log)), "got")


def slow_peers(folder: Path, log: Path, count: int) -> Iterator[Program]:
    """Those that take seconds for a megabyte: on the last part of the log only."""
    share = 2 * 2**20 / log.stat().st_size
    part = folder / "part.log"
    with log.open("rb") as whole:
        whole.seek(-2 * 2**20, os.SEEK_END)
        part.write_bytes(whole.read().partition(b"\n")[2])
    known = [literal for literal, _ in logs.messages(count)]
    if shutil.which("lnav"):
        script = folder / f"lnav-{count}"
        script.write_text("".join(f":filter-in {literal}\\d+\n" for literal in known))
        yield Program("lnav -n", ("lnav", "-n", "-f", str(script), str(part)), "", share)
    if shutil.which("mtail"):
        program = folder / f"case-{count}.mtail"
        rows = "".join(f"/{literal}\\d+/ {{ found++\n }}\n" for literal in known)
        program.write_text(f"counter found\n{rows}")
        command = ("mtail", "--one_shot", "--progs", str(program), "--logs", str(part), "--logtostderr")
        yield Program("mtail --one_shot", command, "", share)
    if shutil.which("sec"):
        conf = folder / f"sec-{count}.conf"
        conf.write_text(
            "".join(f"type=single\nptype=regexp\npattern={x}\\d+\ndesc=$0\naction=write - %s\n\n" for x in known)
        )
        yield Program("sec", ("sec", f"--conf={conf}", f"--input={part}", "--notail"), "got", share)
    if shutil.which("fail2ban-regex"):
        filters = folder / f"fail2ban-{count}.conf"
        rows = "\n            ".join(f"^.*{x}<F-ID>\\d+</F-ID>$" for x in known)
        filters.write_text(f"[Definition]\nfailregex = {rows}\n")
        yield Program("fail2ban-regex", ("fail2ban-regex", str(part), str(filters)), "", share)


def row(*cells: object) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def throughput(arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Time for one large log, by number of rules."""
    log = folder / "server.log"
    crashes = [text for _, text in logs.messages(min(arguments.patterns))]
    crashes = [crashes[at % len(crashes)] for at in range(len(logs.CRASHES))]
    lines = logs.write(log, arguments.size * 2**20, crashes)
    size = log.stat().st_size
    subprocess.run(["cat", str(log)], check=True, stdout=subprocess.DEVNULL)  # into the page cache
    yield f"One log of {size / 2**20:.0f} MiB, {lines} lines, best of {arguments.repeat}.\n"
    yield row("messages", "program", "s", "MB/s", "peak MiB", "time over ripgrep", "time over `wc -l`")
    yield row(*["---"] * 7)
    for count in arguments.patterns:
        directory = rules(folder, count, environment)
        own = Program(
            "specwatch diagnose",
            (*SPECWATCH, "diagnose", "--all", "--rules", str(directory), "--format", "json", str(log)),
            '"rule": "case-',
        )
        measure(own, environment)  # the first start reads the rules, later ones need not
        others = [
            Program(f"the same, {how}", (*what, *own.command, *more), own.holds)
            for how, what, more in (
                ("one core", (), ("--jobs", "1")),
                ("with Hyperscan only", ("env", "SPECWATCH_ENGINE=hyperscan"), ()),
                ("with aho-corasick only", ("env", "SPECWATCH_ENGINE=aho-corasick"), ()),
                ("with the standard library only", ("env", "SPECWATCH_ENGINE=standard"), ()),
            )
        ]
        programs = [own, *others, *peers(folder, log, count)]
        results = contest(programs, environment, arguments.repeat)
        if count == arguments.slow_peers:
            slow = list(slow_peers(folder, log, count))
            programs += slow
            results |= contest(slow, environment, 1)
        for program in programs:
            got = results[program.name]
            whole = got.seconds / program.share
            over = [
                f"{whole / results[name].seconds:.2f}" if name in results else ""
                for name in ("ripgrep -c -F -f", "wc -l")
            ]
            speed = f"{size / whole / 1e6:.3g}"
            yield row(count, program.name, f"{whole:.2f}", speed, f"{got.memory / 1024:.0f}", *over)


def starts(arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Time to start, over an interpreter that does nothing."""
    small, healthy = folder / "small.log", folder / "healthy.log"
    logs.write(small, 2**15, [])
    with small.open("a") as sink:
        sink.write(logs.crash("[2026-01-05 08:01:00", "ValueError: unheard of", [7, 70, 700]))
    example = Path(__file__).resolve().parents[1] / "examples"
    fixed = ("--path-map", f"/models={example / 'models'}", "--format", "json")
    logs.write(healthy, 2**15, [])
    programs = [
        Program("python -c pass", (sys.executable, "-c", "pass")),
        Program("--version", (*SPECWATCH, "--version")),
        Program("--help", (*SPECWATCH, "--help")),
        Program("diagnose, 32 KiB, healthy", (*SPECWATCH, "diagnose", str(healthy))),
        Program("diagnose, 32 KiB, a crash that no rule knows", (*SPECWATCH, "diagnose", str(small))),
        Program("diagnose, 4 KiB, proved and fixed", (*SPECWATCH, "diagnose", str(example / "server.log"), *fixed)),
    ]
    results = contest(programs, environment, max(9, arguments.repeat))
    base = results["python -c pass"].seconds
    yield row("start", "ms", "over `python -c pass`", "peak MiB")
    yield row(*["---"] * 4)
    for name, got in results.items():
        yield row(name, f"{got.seconds * 1e3:.0f}", f"{got.seconds / base:.1f}", f"{got.memory / 1024:.0f}")


def growth(arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Memory and time by size of the log, and for compressed ones."""
    yield row("log", "MiB", "s", "peak MiB", "over unpacking alone + plain")
    yield row(*["---"] * 5)
    whole = folder / "server.log"
    for size in sorted({1, 16, 64, arguments.size}):
        part = folder / f"part-{size}.log"
        with part.open("wb") as sink:
            subprocess.run(["head", "-c", str(size * 2**20), str(whole)], check=True, stdout=sink)
        programs = [Program("plain", (*SPECWATCH, "diagnose", str(part)))]
        if size == 64:
            for tool, suffix in (("gzip", ".gz"), ("zstd", ".zst")):
                if shutil.which(tool):
                    subprocess.run([tool, "-k", "-q", str(part)], check=True)
                    programs.append(Program(suffix, (*SPECWATCH, "diagnose", f"{part}{suffix}")))
                    programs.append(Program(f"{tool} -dc alone", (tool, "-dc", f"{part}{suffix}")))
        results = contest(programs, environment, arguments.repeat)
        for name, got in results.items():
            alone = results.get({".gz": "gzip -dc alone", ".zst": "zstd -dc alone"}.get(name, ""))
            over = f"{got.seconds / (alone.seconds + results['plain'].seconds):.2f}" if alone else ""
            yield row(name, size, f"{got.seconds:.2f}", f"{got.memory / 1024:.0f}", over)


def side_by_side(arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Two logs one after the other, and on two cores."""
    half = folder / "half.log"
    with half.open("wb") as sink:
        subprocess.run(["head", "-c", str(arguments.size * 2**19), str(folder / "server.log")], check=True, stdout=sink)
    both = (*SPECWATCH, "diagnose", str(half), str(half))
    programs = [Program(f"--jobs {jobs}", (*both, "--jobs", str(jobs))) for jobs in (1, 2)]
    results = contest(programs, environment, arguments.repeat)
    yield row(f"two logs of {arguments.size // 2} MiB", "s", "times as fast")
    yield row(*["---"] * 3)
    for name, got in results.items():
        yield row(name, f"{got.seconds:.2f}", f"{results['--jobs 1'].seconds / got.seconds:.2f}")


def shapes(_arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The same lines as shippers and runtimes write them."""
    with (folder / "server.log").open("rb") as whole:
        lines = whole.read(64 * 2**20).decode().split("\n")[:-1]
    at = "2026-01-05T08:00:00.000000000Z"
    made: dict[str, Callable[[str], str]] = {
        "plain": lambda line: line,
        "CRI (a pod's file)": lambda line: f"{at} stderr F {line}",
        "Docker's JSON": lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": at}),
        "a service's name in front": lambda line: f"web-1  | {line}",
        "coloured": lambda line: f"\x1b[32m{line[:21]}\x1b[0m{line[21:]}",
        "journald's JSON": lambda line: json.dumps(
            {
                "_PID": "7",
                "_SYSTEMD_UNIT": "sglang.service",
                "MESSAGE": line,
                "__REALTIME_TIMESTAMP": "1767600000000000",
            }
        ),
        "a JSON formatter": lambda line: json.dumps(
            {"asctime": line[1:20], "levelname": "INFO", "message": line.partition("] ")[2] or line}
        ),
    }
    yield row("shape", "MB/s", "lines/s")
    yield row(*["---"] * 3)
    programs = []
    for name, shape in made.items():
        path = folder / f"shape-{len(programs)}.log"
        path.write_text("".join(f"{shape(line)}\n" for line in lines))
        programs.append(Program(name, (*SPECWATCH, "diagnose", str(path))))
    for program, got in zip(programs, contest(programs, environment, 3).values(), strict=True):
        size = Path(program.command[-1]).stat().st_size
        yield row(program.name, f"{size / got.seconds / 1e6:.0f}", f"{len(lines) / got.seconds:,.0f}")


def inside(_arguments: argparse.Namespace, _folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """What one line costs: framed and judged as a tail does, a long one, a long record of arguments."""
    code = """
import json, time
from specwatch.log.framing import Framer
from specwatch.log.incidents import Assembler
from specwatch.sources.once import Raw
from specwatch.rulebook.book import load_directories
from specwatch.launch.server_args import recorded
book = load_directories().book
def took(lines):
    framer, assembler = Framer("x"), Assembler(book.role_of)
    begun = time.perf_counter()
    for number, text in enumerate(lines, 1):
        for line in framer.feed(Raw("x", number, number * 200, text)):
            assembler.feed(line)
    return time.perf_counter() - begun
head = "[2026-01-05 08:00:00 TP0] "
batch = head + "Decode batch, #running-req: 3, #token: 1200, token usage: 0.10, gen throughput (token/s): 812.00"
record = head.replace(" TP0", "") + "server_args=ServerArgs(" + ", ".join(f"option_{n}={n}" for n in range(1170)) + ")"
best = lambda f: min(f() for _ in range(5))
def parse():
    begun = time.perf_counter(); recorded.__wrapped__(record.partition("] ")[2]); return time.perf_counter() - begun
print(json.dumps({
    "tail, one routine line (us)": best(lambda: took([batch] * 20000)) / 20000 * 1e6,
    "a line of 20 KB (ms)": best(lambda: took([head + "word " * 4000])) * 1e3,
    "a line of 1 MB (ms)": best(lambda: took([head + "word " * 200000])) * 1e3,
    "a line of 2 MB (ms)": best(lambda: took([head + "word " * 400000])) * 1e3,
    "server_args of 20 KB, parsed (ms)": best(parse) * 1e3,
}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    yield row("inside", "")
    yield row("---", "---")
    for name, value in json.loads(done.stdout).items():
        yield row(name, f"{value:.2f}")


PARTS: tuple[Callable[[argparse.Namespace, Path, dict[str, str]], Iterator[str]], ...] = (
    throughput,
    starts,
    growth,
    side_by_side,
    shapes,
    inside,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="MiB of the large log")
    parser.add_argument("--patterns", type=int, nargs="+", default=[2, 50, 300, 3000, 13000])
    parser.add_argument(
        "--slow-peers", type=int, default=50, metavar="N", help="with how many messages they are measured"
    )
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "XDG_CACHE_HOME": name, "LC_ALL": "C"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        package = Path(__file__).resolve().parents[1] / "specwatch"
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(package)], check=False, env=environment)
        print(f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
        for part in PARTS:
            for line in part(arguments, folder, environment):
                print(line, flush=True)
            print()


if __name__ == "__main__":
    main()
