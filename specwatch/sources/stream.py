"""Lines that come through a pipe and cannot be read again: standard input, and the output of a child."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from specwatch.sources.base import BUDGET, OFFSET_MASK, Splitter, place
from specwatch.sources.once import Raw

CHUNK = 64 * 1024


class Pipes:
    """One stream out of one or more descriptors, as their lines come. Implements `base.Source`.

    `passed` is given every chunk with its descriptor before anything is made of it, so that what is watched goes on to
    where it would have gone without us.
    """

    def __init__(
        self, stream: str, name: str, fds: Sequence[int], passed: Callable[[int, bytes], None] | None = None
    ) -> None:
        self._stream = stream
        self._name = name
        self._passed = passed
        self._splits = {fd: Splitter() for fd in fds}
        self._lines = self._offset = 0
        self._more = False
        for fd in fds:
            os.set_blocking(fd, False)

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._stream

    @property
    def more(self) -> bool:
        """Whether the budget was used up."""
        return self._more

    @property
    def ended(self) -> bool:
        """Whether all writers have gone."""
        return not self._splits

    def read(self, now: float) -> list[Raw]:  # noqa: ARG002 (a pipe knows no time)
        """What is there now."""
        raws: list[Raw] = []
        budget, self._more = BUDGET, False
        for fd, split in list(self._splits.items()):
            while budget > 0:
                try:
                    data = os.read(fd, CHUNK)
                except BlockingIOError:
                    break
                except OSError:
                    data = b""
                if self._passed and data:
                    self._passed(fd, data)
                if not data:
                    if split.pending:
                        self._add(raws, split.text())
                    del self._splits[fd]
                    break
                budget -= len(data)
                for _, text in split.feed(data):
                    self._add(raws, text)
        self._more = budget <= 0
        return raws

    def rest(self) -> Raw | None:
        """An unfinished line."""
        split = next((one for one in self._splits.values() if one.pending), None)
        return Raw(self._name, self._lines + 1, place(0, self._offset), split.text()) if split else None

    def broke(self) -> bool:
        """A pipe does not tell."""
        return False

    def mark(self) -> None:
        """Nothing can be read again."""

    def position(self) -> dict[str, object]:
        """Nothing can be read again."""
        return {"kind": "pipe"}

    def where(self, spot: int, number: int) -> tuple[int, int]:
        """Counted from the start of the pipe."""
        return number, spot & OFFSET_MASK

    def notes(self) -> list[str]:
        """Nothing to say."""
        return []

    def filenos(self) -> Sequence[int]:
        """The open descriptors."""
        return tuple(self._splits)

    def close(self) -> None:
        """Forget the descriptors; they belong to whoever opened them."""
        self._splits.clear()

    def _add(self, raws: list[Raw], text: str) -> None:
        self._lines += 1
        raws.append(Raw(self._name, self._lines, place(0, self._offset), text))
        self._offset += len(text.encode("utf-8", "replace")) + 1
