"""Reads the command line of an sglang release out of its source: every flag, and every field of ServerArgs.

Mirrors what `ServerArgs.add_cli_args` registers (sglang/srt/server_args.py), and from 0.5.14 on what
`add_cli_args_from_dataclass` derives from annotations (sglang/srt/arg_groups/arg_utils.py). Nothing is imported.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specwatch.errors import ConfigError
from specwatch.launch.constants import UNKNOWN, ClassValue, Member, Module, Package

SUPPRESS = "==SUPPRESS=="


@dataclass(slots=True)
class Entry:
    """One flag as it is registered; an entry without names is a field that has no flag."""

    names: list[str]
    dest: str
    action: str = "store"
    nargs: str | None = None
    type: str | None = "str"
    choices: list[Any] | None = None
    default: Any = None
    const: Any = None
    required: bool = False
    deprecated: bool = False
    message: str = ""


@dataclass(slots=True)
class Field:
    """One field of ServerArgs: its annotation, its default, and the module that both are written in."""

    name: str
    annotation: ast.expr
    default: Any
    module: Module


@dataclass(slots=True)
class Extracted:
    """All that a release registers, in the order in which argparse sees it."""

    release: str
    entries: list[Entry] = field(default_factory=list)


def extract(path: Path) -> Extracted:
    """Read the flags of the sglang at `path`: a wheel, an installed `sglang` folder, or the folder above it.

    Raises ConfigError when there is no `ServerArgs.add_cli_args` in it.
    """
    package = Package(path)
    module = package.module("sglang.srt.server_args")
    owner = module.lookup("ServerArgs") if module else UNKNOWN
    if module is not None and not isinstance(owner, ClassValue):
        nodes = [n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == "ServerArgs"]
        owner = ClassValue(module, nodes[0]) if nodes else UNKNOWN
    if module is None or not isinstance(owner, ClassValue):
        raise ConfigError(f"{path}: no sglang/srt/server_args.py with a class ServerArgs; give a wheel or a folder")
    body = next((n for n in owner.node.body if isinstance(n, ast.FunctionDef) and n.name == "add_cli_args"), None)
    if body is None:
        raise ConfigError(f"{path}: ServerArgs has no add_cli_args; this release is laid out in an unknown way")
    fields = _fields(module, owner)
    reader = _Reader(module, {f.name: f for f in fields})
    reader.walk(body.body, fields)
    renamed = _renamed(owner)
    for entry in reader.entries:
        entry.dest = renamed.get(entry.dest, entry.dest)
    known = {entry.dest for entry in reader.entries}
    extra = [Entry(names=[], dest=f.name, type=None, default=f.default) for f in fields if f.name not in known]
    return Extracted(_release(package, path), [*reader.entries, *extra])


def _release(package: Package, path: Path) -> str:
    if path.suffix == ".whl" and path.name.count("-") >= 2:
        return path.name.split("-")[1]
    for info in sorted(path.parent.glob("sglang-*.dist-info")):
        return info.name.removeprefix("sglang-").removesuffix(".dist-info")
    for relative in ("_version.py", "version.py"):
        for node in ast.walk(ast.parse(package.text(relative) or "")):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id="__version__" | "version"), *_], value=ast.Constant(value=str(text))
                ):
                    return text
    return ""


def _renamed(owner: ClassValue) -> dict[str, str]:
    """Namespace names that `from_cli_args` moves to fields, as in `args.tp_size = args.tensor_parallel_size`."""
    out = {}
    for node in owner.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == "from_cli_args":
            for statement in node.body:
                match statement:
                    case ast.Assign(
                        targets=[ast.Attribute(value=ast.Name(id="args"), attr=new)],
                        value=ast.Attribute(value=ast.Name(id="args"), attr=old),
                    ):
                        out[old] = new
    return out


def _fields(module: Module, owner: ClassValue) -> list[Field]:
    """All fields in the order of the constructor, gathered from the namespaces where there are some (0.5.21+)."""
    own = _class_fields(owner)
    namespaces = module.lookup("_INPUT_NAMESPACES")
    if not isinstance(namespaces, list):
        return own
    gathered = [f for space in namespaces if isinstance(space, ClassValue) for f in _class_fields(space)]
    order_module = module.package.module("sglang.srt.arg_groups.field_order")
    order = order_module.lookup("POSITIONAL_FIELD_ORDER") if order_module else []
    place = {name: i for i, name in enumerate(order if isinstance(order, list) else [])}
    gathered.sort(key=lambda f: place.get(f.name, len(place)))
    return gathered + own


def _class_fields(owner: ClassValue) -> list[Field]:
    out = []
    for node in owner.node.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(node.annotation):
            continue
        default: Any = SUPPRESS if node.value is None else _field_default(owner.module, node.value)
        out.append(Field(node.target.id, node.annotation, default, owner.module))
    return out


def _field_default(module: Module, node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("field"):
        for keyword in node.keywords:
            if keyword.arg == "default":
                return plain(module.evaluate(keyword.value))
            if keyword.arg == "default_factory":
                factory = ast.unparse(keyword.value)
                if isinstance(keyword.value, ast.Lambda):
                    return plain(module.evaluate(keyword.value.body))
                return {"list": [], "dict": {}}.get(factory, UNKNOWN)
    return plain(module.evaluate(node))


def plain(value: Any) -> Any:
    """A value as JSON can hold it; enum members become their values."""
    if isinstance(value, Member):
        return plain(value.value)
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return UNKNOWN if UNKNOWN in items else items
    if value is None or isinstance(value, bool | int | float | str | dict):
        return value
    return UNKNOWN


class _Reader:
    """Walks the body of `add_cli_args` and collects what it registers."""

    def __init__(self, module: Module, fields: dict[str, Field]) -> None:
        self.module = module
        self.fields = fields
        self.local: dict[str, Any] = {}
        self.entries: list[Entry] = []

    def walk(self, body: list[ast.stmt], fields: list[Field]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.local[name] = self.module.evaluate(value, self.local)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument")) as call):
                    self.entries.append(self._registered(call))
                case ast.Expr(value=ast.Call(func=ast.Name(id="add_cli_args_from_dataclass"))):
                    self.entries.extend(e for f in fields if (e := _derived(f, self.module)) is not None)

    def _registered(self, call: ast.Call) -> Entry:
        names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        words = {k.arg: k.value for k in call.keywords if k.arg}
        dest = words.get("dest")
        entry = Entry(names, dest.value if isinstance(dest, ast.Constant) else names[0].lstrip("-").replace("-", "_"))  # type: ignore[arg-type]
        action = words.get("action")
        _set_action(entry, _word(action) if action else "store", self.module)
        if "type" in words:
            entry.type = _word(words["type"])
        if "nargs" in words:
            entry.nargs = _nargs(self.module.evaluate(words["nargs"]))
        if "choices" in words:
            entry.choices = _choices(self.module.evaluate(words["choices"], self.local))
        if "default" in words:
            entry.default = self._default(words["default"], entry)
        elif entry.action == "true":
            entry.default = False
        for key in ("const", "const_value"):
            if key in words:
                entry.const = plain(self.module.evaluate(words[key]))
        entry.required = "required" in words and self.module.evaluate(words["required"]) is True
        for key in ("error_message", "help"):
            if key in words and not entry.message and entry.action in ("refused", "raises"):
                text = self.module.evaluate(words[key], self.local)
                entry.message = text if isinstance(text, str) else ""
        if entry.action == "refused" and "error_message" not in words:
            entry.action = "ignored"
        return entry

    def _default(self, node: ast.expr, entry: Entry) -> Any:
        match node:
            case ast.Attribute(value=ast.Name(id="ServerArgs"), attr=name):
                return self._of_field(name)
            case ast.Call(func=ast.Name(id="_declared_default"), args=[ast.Constant(value=str(name))]):
                return self._of_field(name)
        if ast.unparse(node) == "argparse.SUPPRESS":
            return self._of_field(entry.dest)
        return plain(self.module.evaluate(node, self.local))

    def _of_field(self, name: str) -> Any:
        return self.fields[name].default if name in self.fields else UNKNOWN


def _word(node: ast.expr) -> str:
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
    return text.rsplit(".", 1)[-1]


def _nargs(value: Any) -> str | None:
    return None if value is None or value is UNKNOWN else str(value)


def _choices(value: Any) -> list[Any] | None:
    got = plain(list(value) if isinstance(value, dict) else value)
    # A list that only the running program knows is not enforced here.
    return got if isinstance(got, list) else None


_ACTIONS = {
    "store": "store",
    "store_true": "true",
    "store_false": "false",
    "BooleanOptionalAction": "optional",
    "LoRAPathAction": "lora",
    "DeprecatedStoreTrueAction": "true",
    "DeprecatedStoreConstAction": "const",
    "DeprecatedAliasStoreAction": "store",
    "DeprecatedAction": "refused",
}


def _set_action(entry: Entry, word: str, module: Module) -> None:
    entry.action = _ACTIONS.get(word, word)
    entry.deprecated = word.startswith("Deprecated")
    if entry.action in ("true", "false", "const", "optional", "refused"):
        entry.nargs, entry.type = "0", None
    if entry.action == "optional":
        entry.names = [form for name in entry.names for form in (name, f"--no-{name[2:]}")]
    if entry.action == "lora":
        owner = module.lookup(word)
        if isinstance(owner, ClassValue) and "{}" in ast.unparse(owner.node):
            entry.action = "lora-dict"  # up to 0.5.1: name=path pairs
    if word == "DeprecatedAction":
        owner = module.lookup(word)
        if isinstance(owner, ClassValue) and "raise ValueError" in ast.unparse(owner.node):
            entry.action = "raises"  # up to 0.5.7


def _derived(source: Field, table: Module) -> Entry | None:
    """The flag that a field's annotation stands for, None when it has none."""
    annotation = source.annotation
    if not (isinstance(annotation, ast.Subscript) and _word(annotation.value) in ("A", "Annotated")):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    meta = next((p for p in parts[1:] if isinstance(p, ast.Call) and _word(p.func) == "Arg"), None)
    if meta is None and not any(source.module.evaluate(p) is not UNKNOWN for p in parts[1:]):
        return None
    words = {k.arg: k.value for k in meta.keywords if k.arg} if meta else {}
    evaluate = source.module.evaluate
    if "no_cli" in words and evaluate(words["no_cli"]) is True:
        return None
    cli = evaluate(words["cli_name"]) if "cli_name" in words else None
    aliases = evaluate(words["aliases"]) if "aliases" in words else []
    names = [cli if isinstance(cli, str) else "--" + source.name.replace("_", "-"), *(aliases or [])]
    entry = Entry(names, source.name, default=None if source.default == SUPPRESS else source.default)
    if "action" in words:
        _set_action(
            entry, _word(words["action"]), table if _word(words["action"]) != "LoRAPathAction" else source.module
        )
        extra = evaluate(words["action_kwargs"]) if "action_kwargs" in words else None
        if isinstance(extra, dict) and "nargs" in extra:
            entry.nargs = _nargs(extra["nargs"])
        return entry
    _shape(entry, parts[0], words, source)
    required = evaluate(words["required"]) if "required" in words else None
    entry.required = required is True or (required is None and source.default == SUPPRESS)
    return entry


def _shape(entry: Entry, annotation: ast.expr, words: dict[str, ast.expr], source: Field) -> None:
    """Type, nargs and choices of a derived flag, by its annotated type."""
    inner = _not_none(annotation)
    evaluate = source.module.evaluate
    if "choices" in words:
        entry.choices = _choices(evaluate(words["choices"]))
    if "nargs" in words:
        entry.nargs = _nargs(evaluate(words["nargs"]))
    if "const" in words:
        entry.const = plain(evaluate(words["const"]))
    head = _word(inner.value) if isinstance(inner, ast.Subscript) else _word(inner)
    parser = _word(words["type_parser"]) if "type_parser" in words else None
    if head == "Literal" and isinstance(inner, ast.Subscript):
        literals = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        values = [evaluate(item) for item in literals]
        entry.choices = entry.choices or values
        entry.type = parser or (type(values[0]).__name__ if isinstance(values[0], int | float | str) else "str")
        entry.nargs = None
    elif head in ("List", "list") and parser is None:
        element = _word(inner.slice) if isinstance(inner, ast.Subscript) else "str"
        entry.type = element if element in ("int", "float") else "str"
        entry.nargs = entry.nargs or "+"
    elif head == "bool":
        entry.action, entry.nargs, entry.type, entry.choices = "true", "0", None, None
    else:
        entry.type = parser or (head if head in ("int", "float") else "str")


def _not_none(annotation: ast.expr) -> ast.expr:
    """`X` for `Optional[X]`, `X | None` and `Union[X, None]`."""
    if isinstance(annotation, ast.Subscript) and _word(annotation.value) == "Optional":
        return annotation.slice
    options: list[ast.expr] = []
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        options = [annotation.left, annotation.right]
    elif (
        isinstance(annotation, ast.Subscript)
        and _word(annotation.value) == "Union"
        and isinstance(annotation.slice, ast.Tuple)
    ):
        options = annotation.slice.elts
    real = [o for o in options if not (isinstance(o, ast.Constant) and o.value is None)]
    return real[0] if len(real) == 1 else annotation
