"""Changes a YAML text where a value stands, and nothing around it: comments, order, quotes and line ends stay.

Every operation writes a few characters, reads the whole text again, and compares all its documents with what they
should be now: a change that reached further, through an anchor or a merge key, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.layers import Splice, spliced
from specwatch.launch.yamlread import Path_, YamlRead
from specwatch.launch.yamlscalar import layer, render, writable_plain


@dataclass(frozen=True)
class YamlText(YamlRead):
    """A YAML text with its place in messages; each operation gives a new one."""

    def set(self, path: Path_, value: str, alike: Callable[[str], bool] | None = None) -> YamlText:
        """The text with another scalar at a path; what is `alike` is as good as the value itself."""
        node = self._there(path)
        old = layer(self.text, node)
        ways = [old.changed(value)] if old is not None else []
        if node.style not in ("|", ">"):
            start, end = node.start_mark.index, node.end_mark.index
            number = node.tag.endswith((":int", ":float")) and value.removeprefix("-").isdigit()
            styles = [node.style, '"'] if node.style or number or writable_plain(value) else ['"']
            ways += [[Splice(start, end, value if number and not style else render(value, style))] for style in styles]
        if node.start_mark.index == node.end_mark.index:  # nothing is written there yet
            ways = [[Splice(node.end_mark.index, node.end_mark.index, f" {render(value, None)}")]]
        text = self.value(path)
        for way in ways:
            new = replace(self, text=spliced(self.text, way))
            try:
                got = new.value(path)
            except ConfigError:
                continue
            same = got == value or (not isinstance(text, str) and str(got) == value)
            if same or (alike is not None and isinstance(got, str) and alike(got)):
                return self._proved(new, path, got)
        raise self._refused(path, "cannot be written in the style that it has")

    def replaced(self, path: Path_, value: Any, *, raw: bool = False) -> YamlText:
        """The text with a value of another kind at a path: a list or a string in place of what is there.

        With `raw` the value is written as it is: a number, `true`.
        """
        import yaml

        node = self._there(path)
        start, end = node.start_mark.index, self._leaf_end(node)
        if isinstance(node.value, list) and not node.flow_style:
            start = max(self.text.rfind(":", 0, start) + 1, 0)
        gap = "" if self.text[start - 1 : start] == " " else " "
        written = value if raw else _flow(value) if isinstance(value, list) else render(value, None)
        new = self._with(Splice(start, end, f"{gap}{written}"))
        got = yaml.safe_load(value) if raw else value
        if got == value and raw:
            raise self._refused(path, f"cannot be set to {value!r}")
        return self._proved(new, path, got)

    def insert(self, path: Path_, index: int, values: Sequence[str]) -> YamlText:
        """The text with more strings in the sequence at a path, before its element `index`."""
        node = self._there(path)
        if not node.value:
            return self._swap(node, f"[{', '.join(render(v, chr(34)) for v in values)}]", path, list(values))
        before = node.value[max(index - 1, 0)]
        style = before.style if before.style in ("'", '"') else None
        raws = [render(v, style if style else None if writable_plain(v) else '"') for v in values]
        if node.flow_style:
            new = self._into_flow(node, index, raws)
        elif index:
            dash = self._dash(before)
            new = self._below(before, [f"{dash}{raw}" for raw in raws])
        else:
            start = self._line(node.value[0].start_mark.index)
            new = self._with(Splice(start, start, "".join(f"{self._dash(before)}{raw}{self._end}" for raw in raws)))
        data = [*self.value(path)]
        data[index:index] = values
        return self._proved(new, path, data)

    def put(self, path: Path_, key: str, value: Any, behind: str | None = None) -> YamlText:
        """The text with a new key in the mapping at a path, behind another of its keys or the last one.

        `value` is a string, a list of strings, or a mapping of strings, or a list of such mappings.
        """
        node = self._there(path)
        name = key if writable_plain(key) else render(key, '"')
        if not node.value:
            return self._swap(node, f"{{{name}: {_flow(value)}}}", path, {key: value})
        if node.flow_style:
            last = node.value[-1][1]
            new = self._with(Splice(last.end_mark.index, last.end_mark.index, f", {name}: {_flow(value)}"))
        else:
            indent = " " * node.value[0][0].start_mark.column
            anchor = next(((k, v) for k, v in node.value if k.value == behind), node.value[-1])
            new = self._behind(self._pair_end(*anchor), [indent + line for line in _block(name, value)])
        return self._proved(new, (*path, key), value)

    def append_item(self, path: Path_, item: dict[str, str]) -> YamlText:
        """The text with one more mapping at the end of the sequence of mappings at a path."""
        node = self._there(path)
        last = node.value[-1]
        if node.flow_style:
            new = self._into_flow(node, len(node.value), [_flow(item)])
        else:
            dash = self._dash(last)
            keys = list(_block("", [item]))
            strip = len(keys[0]) - len(keys[0].lstrip())
            keys = [line[strip:] for line in keys[1:]] if not keys[0].strip(": ") else keys
            first, *rest = [line.strip().removeprefix("- ") for line in keys]
            new = self._below(last, [f"{dash}{first}", *(" " * len(dash) + line for line in rest)])
        return self._proved(new, path, [*self.value(path), item])

    def delete(self, path: Path_) -> YamlText:
        """The text without the element or key at a path; a collection that would be left empty goes too."""
        import yaml

        parent = self._there(path[:-1])
        if len(parent.value) == 1 and len(path) > 2:
            return self.delete(path[:-1])
        if isinstance(parent, yaml.MappingNode):
            index = next(i for i, (key, _) in enumerate(parent.value) if key.value == str(path[-1]))
            spans = [(key.start_mark.index, self._pair_end(key, value)) for key, value in parent.value]
        else:
            index = int(path[-1])
            spans = [(node.start_mark.index, self._leaf_end(node)) for node in parent.value]
        new = self._without(parent, spans, index)
        return self._proved(new, path, _GONE)

    def own(self, path: Path_, value: list[str]) -> YamlText:
        """The text with a list of its own for a key that has none: it stands behind an alias, or in a merge key."""
        node: Any = self.node(path[:-1])
        found = [key for key, _ in node.value if key.value == str(path[-1])] if node is not None else []
        if not found:
            return self.put(path[:-1], str(path[-1]), value)
        alias = re.compile(r"[ \t]*:[ \t]+\*[^\s,\]}]+").match(self.text, found[0].end_mark.index)
        if not alias or node is None:
            raise self._refused(path, "is shared with other places by an anchor")
        if node.flow_style:
            raw = f": {_flow(value)}"
        else:
            indent = " " * found[0].start_mark.column
            raw = self._end.join([":", *(indent + line for line in _block("", value)[1:])])
        return self._proved(self._with(Splice(alias.start(), alias.end(), raw)), path, value)

    # How

    def _there(self, path: Path_) -> Any:
        node = self.node(path)
        if node is None:
            raise self._refused(path, "is not written where it counts (a merge key, another file)")
        return node

    def _refused(self, path: Path_, reason: str) -> LaunchError:
        return LaunchError(f"{self.where}: {_shown(path)} {reason}; change it by hand")

    def _proved(self, new: YamlText, path: Path_, value: Any) -> YamlText:
        """The new text, if all its documents are the old ones but for the value at a path."""
        expected = replace(self).data  # a copy of its own
        holder: Any = expected
        for step in path[:-1]:
            holder = holder[step]
        if value is _GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = value
        try:
            same = new.data == expected
        except ConfigError:
            same = False
        if not same:
            why = "is shared with other places by an anchor" if self.shared(path) else "cannot be changed in place"
            raise self._refused(path, why)
        return new

    def _with(self, *splices: Splice) -> YamlText:
        return replace(self, text=spliced(self.text, splices))

    def _swap(self, node: Any, raw: str, path: Path_, value: Any) -> YamlText:
        return self._proved(self._with(Splice(node.start_mark.index, node.end_mark.index, raw)), path, value)

    @cached_property
    def _end(self) -> str:
        at = self.text.find("\n")
        return "\r\n" if at > 0 and self.text[at - 1] == "\r" else "\n"

    def _line(self, place: int) -> int:
        return self.text.rfind("\n", 0, place) + 1

    def _dash(self, node: Any) -> str:
        """What stands before a block sequence's element on its line, ready for the next one: indent, dash, blanks."""
        place = self.text.rfind("-", self._line(node.start_mark.index), node.start_mark.index)
        if place < 0:  # an anchor or tag, or the value on a line of its own
            raise LaunchError(f"{self.where}: line {node.start_mark.line + 1}: a list in a layout that is not known")
        column = place - self._line(place)
        return " " * column + "- "

    def _leaf_end(self, node: Any) -> int:
        """Where a node's own text ends: PyYAML's mark of a block collection lies behind the comments that follow."""
        if isinstance(node.value, list) and node.value and not node.flow_style:
            last = node.value[-1]
            return self._pair_end(*last) if isinstance(last, tuple) else self._leaf_end(last)
        end = int(node.end_mark.index)
        if getattr(node, "style", None) in ("|", ">"):
            while end and self.text[end - 1] in "\r\n":
                end -= 1
        return end

    def _pair_end(self, key: Any, value: Any) -> int:
        """Where a key's value ends; that of an alias stands elsewhere, and its name ends with the line."""
        if value.start_mark.index >= key.start_mark.index:
            return self._leaf_end(value)
        end = self.text.find("\n", key.end_mark.index)
        return len(self.text) if end < 0 else end

    def _below(self, node: Any, lines: Sequence[str]) -> YamlText:
        """The text with lines behind the line on which a node ends."""
        return self._behind(self._leaf_end(node), lines)

    def _behind(self, place: int, lines: Sequence[str]) -> YamlText:
        end = self.text.find("\n", place)
        end = len(self.text) if end < 0 else end - (self.text[end - 1] == "\r")
        return self._with(Splice(end, end, "".join(f"{self._end}{line}" for line in lines)))

    def _into_flow(self, node: Any, index: int, raws: Sequence[str]) -> YamlText:
        if not index:
            start = node.value[0].start_mark.index
            return self._with(Splice(start, start, "".join(f"{raw}, " for raw in raws)))
        before = node.value[index - 1]
        line, end = self._line(before.start_mark.index), before.end_mark.index
        own = not self.text[line : before.start_mark.index].strip()
        gap = f"{self._end}{self.text[line : before.start_mark.index]}" if own else " "
        tail = self.text[end:].split("\n", 1)[0].strip()
        if own and tail.startswith(",") and tail[1:].strip()[:1] in ("", "#"):
            end = self.text.find("\n", end)
            end -= self.text[end - 1] == "\r"
            return self._with(Splice(end, end, "".join(f"{gap}{raw}," for raw in raws)))
        return self._with(Splice(end, end, "".join(f",{gap}{raw}" for raw in raws)))

    def _without(self, parent: Any, spans: Sequence[tuple[int, int]], index: int) -> YamlText:
        start, end = spans[index]
        line = self._line(start)
        stop = self.text.find("\n", end)
        stop = len(self.text) if stop < 0 else stop + 1
        alone = not self.text[line:start].strip(" -") and (
            not parent.flow_style or self.text[end:stop].strip().lstrip(",").strip()[:1] in ("", "#")
        )
        if alone and not (parent.flow_style and index and index == len(spans) - 1 and "," not in self.text[end:stop]):
            if stop == len(self.text) and not self.text.endswith("\n") and line:
                line -= 2 if self.text[line - 2 : line] == "\r\n" else 1
            return self._with(Splice(line, stop, ""))
        if index + 1 < len(spans):
            return self._with(Splice(start, spans[index + 1][0], ""))
        if not parent.flow_style:
            raise LaunchError(f"{self.where}: a value that shares its line with others; change it by hand")
        return self._with(Splice(spans[index - 1][1], end, ""))


_GONE = object()


def _shown(path: Path_) -> str:
    return ".".join(str(step) for step in path[1:]) or "the document"


def _flow(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(inner)}" for name, inner in value.items()) + "}"
    return render(value, '"')


def _block(name: str, value: Any) -> list[str]:
    """A key and its value as lines of block style."""
    if isinstance(value, str):
        return [f"{name}: {value if writable_plain(value) else render(value, chr(34))}"]
    out = [f"{name}:"]
    for entry in value if isinstance(value, list) else [value]:
        dash = "  - " if isinstance(value, list) else "  "
        if isinstance(entry, str):
            out.append(f"{dash}{entry if writable_plain(entry) else render(entry, chr(34))}")
            continue
        for number, (key, inner) in enumerate(entry.items()):
            out.append(f"{dash if not number else ' ' * len(dash)}{_block(key, inner)[0]}")
    return out


__all__ = ["Path_", "YamlText"]
