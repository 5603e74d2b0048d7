"""Reads constants out of Python source without importing it: lists of choices, defaults, enum members.

Works on an unpacked package or on a wheel file, follows `from sglang… import NAME`, and answers `UNKNOWN` for
everything that only running the code could tell.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specwatch.errors import ConfigError

MAX_MODULE_BYTES = 8_000_000


class Unknown:
    """The value of an expression that cannot be read without running it."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class ClassValue:
    """A class seen in source; its attributes are looked up lazily."""

    module: Module
    node: ast.ClassDef

    @property
    def is_enum(self) -> bool:
        """Whether iterating over the class yields its members."""
        return any("Enum" in ast.unparse(base) for base in self.node.bases)


@dataclass(frozen=True, slots=True)
class FunctionValue:
    """A function seen in source; a call without arguments yields its last `return`."""

    module: Module
    node: ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an enum."""

    name: str
    value: Any


class Package:
    """The source of a package named `name` below a folder or inside a wheel."""

    def __init__(self, path: Path, name: str = "sglang") -> None:
        self.path = path
        self.name = name
        self._modules: dict[str, Module | None] = {}
        self._read = self._reader()

    def _reader(self) -> Callable[[str], str | None]:
        if self.path.is_file():
            try:
                archive = zipfile.ZipFile(self.path)
            except (OSError, zipfile.BadZipFile) as error:
                raise ConfigError(f"{self.path}: expected a wheel or a folder of sglang, got {error}") from error
            names = frozenset(archive.namelist())

            def from_wheel(relative: str) -> str | None:
                member = f"{self.name}/{relative}"
                if member not in names or archive.getinfo(member).file_size > MAX_MODULE_BYTES:
                    return None
                return archive.read(member).decode("utf-8", "replace")

            return from_wheel
        root = self.path / self.name if (self.path / self.name).is_dir() else self.path

        def from_folder(relative: str) -> str | None:
            file = root / relative
            if not file.is_file() or file.stat().st_size > MAX_MODULE_BYTES:
                return None
            return file.read_text("utf-8", "replace")

        return from_folder

    def text(self, relative: str) -> str | None:
        """The text of a file of the package, None when there is none."""
        return self._read(relative)

    def module(self, dotted: str) -> Module | None:
        """A module by its full name, None when it is not part of the package or does not parse."""
        if dotted not in self._modules:
            self._modules[dotted] = self._load(dotted)
        return self._modules[dotted]

    def _load(self, dotted: str) -> Module | None:
        parts = dotted.split(".")
        if parts[0] != self.name:
            return None
        stem = "/".join(parts[1:])
        for relative in (f"{stem}.py", f"{stem}/__init__.py") if stem else ("__init__.py",):
            text = self.text(relative)
            if text is not None:
                try:
                    return Module(self, dotted, ast.parse(text))
                except SyntaxError:
                    return None
        return None


class Module:
    """One parsed module, its top-level names evaluated when asked for."""

    def __init__(self, package: Package, name: str, tree: ast.Module) -> None:
        self.package = package
        self.name = name
        self.tree = tree
        self._nodes: dict[str, list[ast.stmt]] = {}
        self._values: dict[str, Any] = {}
        for statement in _statements(tree.body):
            for bound in _bound_names(statement):
                self._nodes.setdefault(bound, []).append(statement)

    def lookup(self, name: str) -> Any:
        """The value of a top-level name, UNKNOWN when it has none that can be read."""
        if name not in self._values:
            self._values[name] = UNKNOWN  # a name that needs itself stays unknown
            value: Any = UNKNOWN
            for statement in self._nodes.get(name, self._nodes.get("*", [])):
                value = self._bind(name, statement, value)
                if value is not UNKNOWN and name not in self._nodes:
                    break
            self._values[name] = value
        return self._values[name]

    def _bind(self, name: str, statement: ast.stmt, before: Any) -> Any:
        match statement:
            case ast.ClassDef():
                return ClassValue(self, statement)
            case ast.FunctionDef():
                return FunctionValue(self, statement)
            case ast.ImportFrom(module=str(source), level=0):
                target = self.package.module(source)
                original = next((a.name for a in statement.names if (a.asname or a.name) == name), name)
                if target is None:
                    return UNKNOWN
                got = target.lookup(original)
                return got if got is not UNKNOWN else self.package.module(f"{source}.{original}") or UNKNOWN
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self.evaluate(value)
            case ast.AugAssign(op=ast.Add(), value=value):
                added = self.evaluate(value)
                return before + added if isinstance(before, list) and isinstance(added, list) else UNKNOWN
        return UNKNOWN

    def evaluate(self, node: ast.expr, local: dict[str, Any] | None = None) -> Any:
        """The value of an expression in this module; `local` names come first. UNKNOWN when it cannot be read."""
        return _Evaluator(self, local or {}).visit(node)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.Try):
            yield from _statements(statement.body)


def _bound_names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            return [name]
    return []


def class_attribute(owner: ClassValue, name: str) -> Any:
    """What `Class.name` is, for plain attributes and enum members."""
    found: Any = UNKNOWN
    local: dict[str, Any] = {}
    for statement in owner.node.body:
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(value, ast.expr):
            for bound in _bound_names(statement):
                local[bound] = owner.module.evaluate(value, local)
                if bound == name:
                    found = Member(name, local[bound]) if owner.is_enum else local[bound]
    return found


def members(owner: ClassValue) -> list[Member]:
    """The members of an enum in the order of its source."""
    names = [name for s in owner.node.body if isinstance(s, ast.Assign) for name in _bound_names(s)]
    return [m for m in (class_attribute(owner, name) for name in names) if isinstance(m, Member)]


class _Evaluator:
    """Evaluates the few forms of expression that constants are written in."""

    def __init__(self, module: Module, local: dict[str, Any]) -> None:
        self.module = module
        self.local = local

    def visit(self, node: ast.expr) -> Any:
        method = getattr(self, f"visit_{type(node).__name__}", None)
        return method(node) if method else UNKNOWN

    def visit_Constant(self, node: ast.Constant) -> Any:  # noqa: N802 - named after the node
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:  # noqa: N802
        return self.local[node.id] if node.id in self.local else self.module.lookup(node.id)

    def visit_List(self, node: ast.List) -> Any:  # noqa: N802
        return self._elements(node.elts)

    def visit_Tuple(self, node: ast.Tuple) -> Any:  # noqa: N802
        return self._elements(node.elts)

    def visit_Set(self, node: ast.Set) -> Any:  # noqa: N802
        return self._elements(node.elts)

    def _elements(self, nodes: list[ast.expr]) -> Any:
        out: list[Any] = []
        for item in nodes:
            value = self.visit(item.value if isinstance(item, ast.Starred) else item)
            if isinstance(item, ast.Starred):
                spread = self._iterate(value)
                if spread is None:
                    return UNKNOWN
                out.extend(spread)
            elif value is UNKNOWN:
                return UNKNOWN
            else:
                out.append(value)
        return out

    def visit_Dict(self, node: ast.Dict) -> Any:  # noqa: N802
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = self.visit(key) if key is not None else UNKNOWN
            if isinstance(name, Member):
                name = name.value
            if not isinstance(name, str | int | float | bool):
                return UNKNOWN
            out[name] = self.visit(value)
        return out

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:  # noqa: N802
        value = self.visit(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return UNKNOWN

    def visit_BinOp(self, node: ast.BinOp) -> Any:  # noqa: N802
        left, right = self.visit(node.left), self.visit(node.right)
        for kind in (list, str, int, float):
            if isinstance(left, kind) and isinstance(right, kind):
                if isinstance(node.op, ast.Add):
                    return left + right  # type: ignore[operator]
                if isinstance(node.op, ast.Mult) and kind in (int, float):
                    return left * right  # type: ignore[operator]
                if isinstance(node.op, ast.Pow) and kind is int and 0 <= right < 64:  # type: ignore[operator]
                    return left**right  # type: ignore[operator]
        return UNKNOWN

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:  # noqa: N802
        parts = [self.visit(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
        return "".join(map(str, parts)) if all(isinstance(p, str | int) for p in parts) else UNKNOWN

    def visit_Subscript(self, node: ast.Subscript) -> Any:  # noqa: N802
        owner, index = self.visit(node.value), self.visit(node.slice)
        if isinstance(owner, list) and isinstance(index, int) and -len(owner) <= index < len(owner):
            return owner[index]
        return UNKNOWN

    def visit_Attribute(self, node: ast.Attribute) -> Any:  # noqa: N802
        if ast.unparse(node) == "sys.maxsize":
            return 2**63 - 1
        owner = self.visit(node.value)
        if isinstance(owner, Member):
            return {"value": owner.value, "name": owner.name}.get(node.attr, UNKNOWN)
        if isinstance(owner, ClassValue):
            return class_attribute(owner, node.attr)
        if isinstance(owner, Module):
            return owner.lookup(node.attr)
        return UNKNOWN

    def visit_ListComp(self, node: ast.ListComp) -> Any:  # noqa: N802
        return self._comprehension(node.elt, node.generators)

    def visit_SetComp(self, node: ast.SetComp) -> Any:  # noqa: N802
        return self._comprehension(node.elt, node.generators)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:  # noqa: N802
        return self._comprehension(node.elt, node.generators)

    def _comprehension(self, element: ast.expr, generators: list[ast.comprehension]) -> Any:
        if len(generators) != 1 or generators[0].ifs or not isinstance(generators[0].target, ast.Name):
            return UNKNOWN
        items = self._iterate(self.visit(generators[0].iter))
        if items is None:
            return UNKNOWN
        bound = generators[0].target.id
        out = [_Evaluator(self.module, {**self.local, bound: item}).visit(element) for item in items]
        return UNKNOWN if UNKNOWN in out else out

    def visit_Call(self, node: ast.Call) -> Any:  # noqa: N802
        if isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "set", "frozenset", "sorted"):
            if not node.args:
                return []
            items = self._iterate(self.visit(node.args[0]))
            if items is None:
                return UNKNOWN
            return sorted(items) if node.func.id == "sorted" else items
        if isinstance(node.func, ast.Attribute) and not node.args:
            owner = self.visit(node.func.value)
            method = node.func.attr
            if isinstance(owner, dict) and method in ("keys", "values"):
                return list(owner) if method == "keys" else list(owner.values())
            if isinstance(owner, str) and method in ("lower", "upper"):
                return getattr(owner, method)()
            if isinstance(owner, list) and method == "copy":
                return owner
        if isinstance(node.func, ast.Name) and not node.args and not node.keywords:
            target = self.visit(node.func)
            if isinstance(target, FunctionValue):
                return returned(target)
        return UNKNOWN

    @staticmethod
    def _iterate(value: Any) -> list[Any] | None:
        if isinstance(value, list):
            return value
        if isinstance(value, dict):
            return list(value)
        if isinstance(value, ClassValue) and value.is_enum:
            return list(members(value))
        return None


def returned(function: FunctionValue) -> Any:
    """What a function without arguments returns at its last top-level `return`."""
    local: dict[str, Any] = {}
    value: Any = UNKNOWN
    for statement in function.node.body:
        if isinstance(statement, ast.ImportFrom):
            for name in _bound_names(statement):
                local[name] = function.module._bind(name, statement, UNKNOWN)
        elif isinstance(statement, ast.Assign):
            for name in _bound_names(statement):
                local[name] = function.module.evaluate(statement.value, local)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            value = function.module.evaluate(statement.value, local)
    return value
