"""Which messages of an sglang's source have a rule: a wheel or a folder is read by `ast`, nothing of it is imported."""

from __future__ import annotations

import ast
import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specwatch.domain import Frame
from specwatch.errors import ConfigError
from specwatch.rulebook.book import Rulebook
from specwatch.rulebook.laws import messages

SCOPE = (
    "sglang/srt/speculative/",
    "sglang/srt/arg_groups/speculative_hook.py",
    "sglang/srt/models/dflash.py",
)
"""The files whose messages the rules are held against: speculative decoding and its arguments."""

HOLE = "\0"
_FILLERS = ("7", "'x'", "x", "[1, 2]", "-1", "(1, 2)", "0.5", "None")
_MOST_FILLED = 4  # beyond that many holes, all get the same filler
_TELLING = 20  # characters of its own by which a message cannot be taken for that of another place


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One place that raises a text: the exception's class, and the text with HOLE for each value."""

    file: str
    line: int
    function: str
    exception: str
    template: str

    @property
    def shown(self) -> str:
        """The message as a person reads it."""
        return f"{self.exception}: {self.template.replace(HOLE, '{…}')}"

    @property
    def frame(self) -> Frame:
        """The innermost frame of the traceback that it leaves."""
        return Frame(file=self.file, line=self.line, function=self.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The sites of a source, each with the id of the rule that knows its message; None where none does."""

    release: str
    rules: tuple[tuple[Site, str | None], ...]

    @property
    def missing(self) -> tuple[Site, ...]:
        """The sites without a rule."""
        return tuple(site for site, rule in self.rules if rule is None)


def coverage(source: Path, book: Rulebook, scope: Sequence[str] = SCOPE) -> Coverage:
    """Hold the rules against an sglang: a wheel, or the folder `sglang` or the one it lies in.

    Raises ConfigError where there is none.
    """
    known = _examples(book)
    found = tuple((site, rule_of(site, book, known)) for site in sites(source, scope))
    return Coverage(release=release(source), rules=found)


def release(source: Path) -> str:
    """The version of an sglang, by the name of the wheel or of the metadata beside the folder; "" if neither tells."""
    names = [source.name] if source.is_file() else [path.name for path in _root(source).glob("sglang-*.dist-info")]
    versions = (found[1] for name in names if (found := re.match(r"sglang-([^-]+?)(?:-|\.dist-info$)", name)))
    return next(versions, "")


def sites(source: Path, scope: Sequence[str] = SCOPE) -> Iterator[Site]:
    """The message sites of an sglang, in the order of files and lines. Raises ConfigError where there is none."""
    found = False
    for name, text in _files(source, scope):
        found = True
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ConfigError(f"{source}: {name} is not Python that this Python reads: {error}") from error
        yield from sorted(_of_tree(name, tree), key=lambda site: site.line)
    if not found:
        expected = "expected a wheel of sglang or the folder it lies in"
        raise ConfigError(f"{source}: holds none of {', '.join(scope)}; {expected}")


def _root(source: Path) -> Path:
    return source.parent if source.name == "sglang" else source


def _files(source: Path, scope: Sequence[str]) -> Iterator[tuple[str, str]]:
    wanted = tuple(scope)
    if not source.is_file():
        root = _root(source)
        for path in sorted((root / "sglang").rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name.startswith(wanted):
                yield name, path.read_text("utf-8", "replace")
        return
    try:
        with zipfile.ZipFile(source) as wheel:
            for name in sorted(wheel.namelist()):
                if name.endswith(".py") and name.startswith(wanted):
                    yield name, wheel.read(name).decode("utf-8", "replace")
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{source}: not a wheel: {error}") from error


def _of_tree(name: str, tree: ast.Module) -> Iterator[Site]:
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    stack: list[tuple[ast.AST, str]] = [(tree, "<module>")]
    while stack:
        node, function = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        stack += [(child, function) for child in ast.iter_child_nodes(node)]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            template = _template(node.exc.args[0], constants)
            exception = ast.unparse(node.exc.func).rpartition(".")[2]
        elif isinstance(node, ast.Assert) and node.msg is not None:
            template, exception = _template(node.msg, constants), "AssertionError"
        else:
            continue
        if exception == "KeyError":  # its text is shown as a literal
            template = repr(template.replace(HOLE, "{}")).replace("{}", HOLE)
        if re.search(r"[A-Za-z]{3}", template.replace(HOLE, "")):
            yield Site(file=name, line=node.lineno, function=function, exception=exception, template=template)


def _template(node: ast.expr, constants: dict[str, str]) -> str:
    """The text of an expression, HOLE where only the running program knows."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part, constants) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return HOLE
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left, constants) + _template(node.right, constants)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return re.sub(r"\{[^{}]*\}", HOLE, _template(node.func.value, constants))
    if isinstance(node, ast.Name):
        return constants.get(node.id, HOLE)
    return HOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A message out of a rule's own examples, and the log that it stands in."""

    text: str
    rule: str
    log: str


def _examples(book: Rulebook) -> tuple[_Known, ...]:
    return tuple(
        _Known(text=text, rule=rule.id, log=example.log)
        for rule in book.rules.values()
        for example in rule.examples
        for text in messages(example.log)
        if any(pattern.regex.match(text) for pattern in rule.patterns if not pattern.is_region)
    )


def rule_of(site: Site, book: Rulebook, known: Sequence[_Known] = ()) -> str | None:
    """The id of the rule that knows a site's message, None where none does.

    A rule knows it if its pattern matches the message with some values in its holes, or if a message of its own
    examples, which hold values as real servers print them, is this one.
    """
    for sample in _samples(site):
        found = book.look_up(sample, frames=(site.frame,))
        if found:
            return found[1].id
    return next((one.rule for one in known if _is_from(one, site)), None)


def _samples(site: Site) -> Iterator[str]:
    """The message with values in its holes, in the ways in which they may look."""
    pieces = site.template.split(HOLE)
    holes = len(pieces) - 1
    fillings: Iterable[Sequence[str]] = (
        itertools.product(_FILLERS, repeat=holes) if holes <= _MOST_FILLED else ([one] * holes for one in _FILLERS)
    )
    for filling in fillings:
        text = "".join(itertools.chain.from_iterable(itertools.zip_longest(pieces, filling, fillvalue="")))
        yield f"{site.exception}: {text}"


def _is_from(known: _Known, site: Site) -> bool:
    """Whether a real message can be that of a site; one that is mostly values must come from the site's file."""
    start = f"{site.exception}: "
    if not known.text.startswith(start):
        return False
    values = r"[^\n]{1,400}?".join(re.escape(piece) for piece in site.template.split(HOLE))
    if not re.match(values, known.text[len(start) :]):
        return False
    return len(site.template.replace(HOLE, "")) >= _TELLING or f"/{site.file}" in known.log
