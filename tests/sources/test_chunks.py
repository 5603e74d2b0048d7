"""Chunks hold the same lines, at the same offsets, as reading line by line."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specwatch.errors import SourceError
from specwatch.sources.blocks import BLOCK
from specwatch.sources.chunks import Chunk, Piece, chunks, cut, later_chunks
from specwatch.sources.once import LINE_CAP, RECORD_CAP, LongLine, Stats, decoded, read

SHORT = (b"\n", b"a\n", b"\r\n", b"\0\0x\n", b"x\0", b"\xff\n", b"no end", "\u2028\x85".encode())
LONG = (b"y" * (LINE_CAP - 1), b"z" * (LINE_CAP + 9), b"server_args=" + b"v" * (LINE_CAP * 2), b"w" * (RECORD_CAP + 5))
PIECES = st.sampled_from([*SHORT, *LONG, b"server_args=" + LONG[-1]])


def lines_of(blocks: list[bytes]) -> list[tuple[int, str]]:
    """Offset and text of all lines, the chunks split."""
    found = []
    for part in cut(blocks, Stats()):
        if not isinstance(part, Chunk):
            found.append((part.offset, part.text))
            continue
        assert part.data[:1] == b"\n"
        assert part.data[part.end - 1 : part.end] == b"\n"
        start, count = 1, 0
        while start < part.end:
            stop = part.data.index(b"\n", start)
            line = LongLine()
            line.add(part.data[start:stop])
            text = decoded(part.data[start:stop]) if stop - start <= LINE_CAP else line.text()
            found.append((part.offset + start, text))
            start, count = stop + 1, count + 1
        assert part.lines(1, part.end) == count
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES, max_size=12), sizes=st.lists(st.sampled_from([1000, 65536, 70000, 262144]), min_size=1))
def test_the_same_lines_as_one_by_one(tmp_path: Path, pieces: list[bytes], sizes: list[int]) -> None:
    data = b"much text, so that it is taken for some\n" * 2000 + b"".join(pieces)
    path = tmp_path / "log"
    path.write_bytes(data)
    blocks, at, turn = [], 0, 0
    while at < len(data):
        blocks.append(data[at : at + sizes[turn % len(sizes)]])
        at, turn = at + sizes[turn % len(sizes)], turn + 1
    expected = [(raw.offset, raw.text) for raw in read(str(path))]
    assert lines_of(blocks) == expected


def test_what_precedes_an_error_is_handed_out_first(tmp_path: Path) -> None:
    stats = Stats()
    parts: list[Chunk | Piece] = []
    with pytest.raises(SourceError, match="is a directory"):
        parts.extend(chunks(str(tmp_path), stats))

    def breaking_off() -> Iterator[bytes]:
        yield b"whole\nhalf"
        raise SourceError("breaks off")

    with pytest.raises(SourceError, match="breaks off"):
        parts.extend(cut(breaking_off(), stats))
    assert [type(part).__name__ for part in parts] == ["Chunk", "Piece"]
    assert parts[1][0] == "half"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.sampled_from([0, 1, 50, 4000, 30_000, BLOCK // 2, BLOCK - 1]), min_size=8, max_size=40))
def test_the_second_half_is_cut_as_the_whole(tmp_path: Path, lengths: list[int]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"x" * length + b"\n" for length in lengths))
    start = max(path.stat().st_size // BLOCK // 2, 1) * BLOCK
    whole = [part for part in chunks(str(path), Stats()) if isinstance(part, Chunk)]
    assert list(later_chunks(str(path), start)) == [part for part in whole if part.offset + part.end > start]


def test_of_a_compressed_log_there_is_no_second_half(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(random.Random(1).randbytes(8 * BLOCK)))
    assert list(later_chunks(str(path), 4 * BLOCK)) == []
