"""Reads a YAML text as nodes that know their place, and as values; within limits, as it may be a stranger's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specwatch.errors import ConfigError

if TYPE_CHECKING:
    import yaml

Path_ = tuple[int | str, ...]
"""The number of the document, then keys and indices."""

MAX_VALUES = 100_000
"""More values than this, aliases counted as often as they stand, is an attack and not a file of launches."""
MAX_TABS = 200


_TAG = "tag:yaml.org,2002:"
_TRUTHS = ("true", "false")


@dataclass(frozen=True)
class YamlRead:
    """A YAML text with its place in messages.

    `compose`: read as Docker Compose reads it (go-yaml 3): `yes` and `off`, 12:30 and `=` are texts.
    """

    text: str
    where: str
    compose: bool = False

    @cached_property
    def nodes(self) -> list[yaml.Node]:
        """The documents as nodes that know their place. Raises ConfigError."""
        import yaml

        text = self.text
        for _ in range(MAX_TABS):
            try:
                found = [node for node in yaml.compose_all(text, yaml.SafeLoader) if node is not None]
                return _as_texts(found) if self.compose else found
            except yaml.MarkedYAMLError as error:
                mark = error.problem_mark
                if mark is None or text[mark.index : mark.index + 1] != "\t":
                    raise ConfigError(f"{self.where}: not YAML: {error}") from error
                # Go's reader takes a tab between a value and a comment for a blank, PyYAML does not
                text = f"{text[: mark.index]} {text[mark.index + 1 :]}"
            except yaml.YAMLError as error:
                raise ConfigError(f"{self.where}: not YAML: {error}") from error
            except RecursionError as error:
                raise ConfigError(f"{self.where}: nested too deeply") from error
        raise ConfigError(f"{self.where}: more than {MAX_TABS} tabs where blanks are expected")

    @cached_property
    def data(self) -> list[Any]:
        """The documents as values, shared ones copied, so that each may be changed alone. Raises ConfigError."""
        import yaml

        again = YamlRead(self.text, self.where, self.compose)  # constructing changes the nodes of merge keys
        try:
            loaded = [yaml.constructor.SafeConstructor().construct_document(node) for node in again.nodes]
        except yaml.YAMLError as error:
            raise ConfigError(f"{self.where}: not YAML: {error}") from error
        except (RecursionError, ValueError) as error:
            raise ConfigError(f"{self.where}: not YAML that can be read: {error}") from error
        left = [MAX_VALUES]
        return [self._copied(value, left) for value in loaded]

    def _copied(self, value: Any, left: list[int], depth: int = 0) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > 100:
            raise ConfigError(f"{self.where}: more than {MAX_VALUES} values, or nested too deeply")
        if isinstance(value, dict):
            return {key: self._copied(inner, left, depth + 1) for key, inner in value.items()}
        return [self._copied(inner, left, depth + 1) for inner in value] if isinstance(value, list) else value

    def node(self, path: Path_) -> yaml.Node | None:
        """The node at a path; None where there is none, or where it comes from a merge key."""
        import yaml

        node: yaml.Node | None = self.nodes[int(path[0])] if int(path[0]) < len(self.nodes) else None
        for step in path[1:]:
            if isinstance(node, yaml.MappingNode):
                found = [value for key, value in node.value if key.value == str(step)]
                node = found[-1] if found else None
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
            else:
                return None
        return node

    def value(self, path: Path_) -> Any:
        """The value at a path, merge keys looked through; None where there is none."""
        value: Any = self.data
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def shared(self, path: Path_) -> bool:
        """Whether the value at a path, or one that it stands in, is used at another place too by an alias."""
        counted: dict[int, int] = {}
        todo: list[Any] = list(self.nodes)
        while todo:
            node = todo.pop()
            counted[id(node)] = counted.get(id(node), 0) + 1
            if counted[id(node)] == 1 and isinstance(node.value, list):
                for inner in node.value:
                    todo += inner if isinstance(inner, tuple) else [inner]
        return any(counted.get(id(self.node(path[:end])), 0) > 1 for end in range(1, len(path) + 1))


def _as_texts(documents: list[yaml.Node]) -> list[yaml.Node]:
    """The same documents, where what YAML 1.1 alone takes for something else is a text."""
    seen: set[int] = set()
    todo: list[Any] = list(documents)
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node.value, list):
            for inner in node.value:
                todo += inner if isinstance(inner, tuple) else [inner]
        elif node.style is None and (
            (node.tag == f"{_TAG}bool" and node.value.lower() not in _TRUTHS)
            or (node.tag in (f"{_TAG}int", f"{_TAG}float") and ":" in node.value)
            or node.tag == f"{_TAG}value"
        ):
            node.tag = f"{_TAG}str"
    return documents
