"""The words of a command that a YAML file holds, in lists or in strings, and edits of them where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specwatch.errors import LaunchError
from specwatch.launch import words
from specwatch.launch.layers import Layer, Splice, WordEdit, differences, spliced, word_edits
from specwatch.launch.yamltext import Path_, YamlText

Fill = Callable[[str], Layer]
"""What the reader of the file makes of a scalar: variables filled in."""


@dataclass(slots=True)
class Kept:
    """Values of variables that shall change where they are set, as the words that come from them change."""

    may: Callable[[str], bool]
    values: dict[str, str]

    def lowered(self, text: str, layer: Layer, splices: Sequence[Splice]) -> str:
        """The text below after splices of what it means; what lies in one variable that may change is kept for it."""
        out = []
        for splice in splices:
            named = layer.variable(splice)
            if named is not None and self.may(named[0]) and self.values.get(named[0], named[1]) == named[1]:
                self.values[named[0]] = named[1]
            else:
                out.append(layer.down(splice))
        return spliced(text, out)


@dataclass(frozen=True, slots=True)
class Holder:
    """One list or string at a path: the words that it gives."""

    path: Path_
    raw: tuple[str, ...]
    text: bool = False
    """One string that is split into words, not a list of them."""

    def filled(self, fill: Fill) -> tuple[str, ...]:
        """The words as the program gets them."""
        if self.text:
            return tuple(word.layer.value for word in words.split(fill(self.raw[0]).value))
        return tuple(fill(raw).value for raw in self.raw)


def holder(doc: YamlText, path: Path_) -> Holder | None:
    """The holder at a path, None where there is nothing. Raises LaunchError where it is neither list nor string."""
    value = doc.value(path)
    if value is None or value == []:
        return None
    if isinstance(value, str):
        return Holder(path, (value,), text=True)
    if isinstance(value, list) and not any(isinstance(entry, dict | list) for entry in value):
        return Holder(path, tuple(plain_text(entry) for entry in value))
    raise LaunchError(f"{doc.where}: {'.'.join(map(str, path[1:]))}: expected a list of words, or one string")


def plain_text(value: object) -> str:
    """A scalar of YAML as the text that programs get: truth values in small letters, nothing for null, 1.0 as 1."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return "" if value is None else ("true" if value else "false") if isinstance(value, bool) else str(value)


def write(doc: YamlText, holders: Sequence[Holder], new: Sequence[str], fill: Fill, kept: Kept) -> YamlText:
    """The document with the holders' words changed to `new`, each edit where its word stands."""
    old: list[str] = []
    starts = []
    for one in holders:
        starts.append(len(old))
        old += one.filled(fill)
    edits = word_edits(old, list(new))
    for number, one in reversed(list(enumerate(holders))):
        end = starts[number + 1] if number + 1 < len(holders) else len(old)
        own = _within(edits, starts[number], end, first=number == 0)
        if own:
            doc = _string(doc, one, own, fill, kept) if one.text else _list(doc, one, own, fill, kept)
    return doc


def _within(edits: Sequence[WordEdit], start: int, end: int, *, first: bool) -> list[WordEdit]:
    """The edits of words[start:end], counted from there; a new word belongs to the one before it."""
    out = []
    for edit in edits:
        if edit.start == edit.end:
            if start < edit.start <= end or (first and edit.start == 0):
                out.append(WordEdit(edit.start - start, edit.end - start, edit.new))
        elif edit.start < end and edit.end > start:
            out.append(WordEdit(max(edit.start, start) - start, min(edit.end, end) - start, edit.new))
    return out


def _list(doc: YamlText, one: Holder, edits: Sequence[WordEdit], fill: Fill, kept: Kept) -> YamlText:
    def lowered(index: int, new: str) -> str:
        layer = fill(one.raw[index])
        return kept.lowered(one.raw[index], layer, differences(layer.value, new))

    if doc.node(one.path) is None or doc.shared(one.path):
        raws = list(one.raw)
        for edit in reversed(edits):
            if edit.start == edit.end or not edit.new:
                raws[edit.start : edit.end] = [fill("").written(new, 0) for new in edit.new]
            else:
                raws[edit.start] = lowered(edit.start, edit.new[0])
        return doc.own(one.path, raws)
    for edit in reversed(edits):
        if edit.start == edit.end:
            doc = doc.insert(one.path, edit.start, [fill("").written(new, 0) for new in edit.new])
        elif not edit.new:
            for index in reversed(range(edit.start, edit.end)):
                doc = doc.delete((*one.path, index))
        else:
            raw = lowered(edit.start, edit.new[0])
            doc = doc.set((*one.path, edit.start), raw) if raw != one.raw[edit.start] else doc
    return doc


def _string(doc: YamlText, one: Holder, edits: Sequence[WordEdit], fill: Fill, kept: Kept) -> YamlText:
    layer = fill(one.raw[0])
    text = layer.value
    raw = kept.lowered(one.raw[0], layer, words.splices(text, words.split(text), edits))
    if raw == one.raw[0]:
        return doc
    if doc.node(one.path) is None:
        return doc.put(one.path[:-1], str(one.path[-1]), raw)
    new = Holder(one.path, (raw,), text=True).filled(fill)

    def alike(got: str) -> bool:
        try:
            return Holder(one.path, (got,), text=True).filled(fill) == new
        except LaunchError:
            return False

    return doc.set(one.path, raw, alike)
