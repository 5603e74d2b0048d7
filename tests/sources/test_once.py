"""Reading logs: where lines end, what compression, how much memory, and what is refused by name."""

from __future__ import annotations

import gzip
import io
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from specwatch.errors import SourceError
from specwatch.sources.blocks import BLOCK, blocks
from specwatch.sources.once import LINE_CAP, RECORD_CAP, Raw, Stats, expand, read


def written(folder: Path, data: bytes, name: str = "server.log") -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def zstd(data: bytes) -> bytes:
    try:
        from compression import zstd as library  # type: ignore[import-not-found,unused-ignore]

        return bytes(library.compress(data))
    except ImportError:
        import zstandard

        return bytes(zstandard.ZstdCompressor().compress(data))


def texts(path: str) -> list[str]:
    return [raw.text for raw in read(path)]


def test_lines_have_number_offset_and_source(tmp_path: Path) -> None:
    path = written(tmp_path, "é\r\n\nlast".encode())
    stats = Stats()
    assert list(read(path, stats)) == [Raw(path, 1, 0, "é"), Raw(path, 2, 4, ""), Raw(path, 3, 5, "last")]
    assert (stats.bytes, stats.lines) == (9, 3)


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d\x0ce\x0bf\rg\x1ch"
    assert texts(written(tmp_path, f"{text}\nnext\n".encode())) == [text, "next"]


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    assert texts(written(tmp_path, b"caf\xe9 \xed\xa0\x80\n")) == ["caf\ufffd \ufffd\ufffd\ufffd"]


def test_an_empty_file(tmp_path: Path) -> None:
    assert texts(written(tmp_path, b"")) == []


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_the_content_decides_about_compression(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    data = pack(b"one\ntwo\n") + pack(b"three\n")  # as rotation with append leaves it
    assert texts(written(tmp_path, data, "plain.log")) == ["one", "two", "three"]
    assert texts(written(tmp_path, b"one\n", "misnamed.log.gz")) == ["one"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_broken_off_file_gives_what_it_has_and_then_says_so(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    noise = random.Random(1)
    lines = [f"line {n} {noise.random()}" for n in range(200_000)]
    path = written(tmp_path, pack("\n".join(lines).encode())[:-2000])
    got: list[str] = []
    with pytest.raises(SourceError, match="breaks off") as caught:
        got.extend(raw.text for raw in read(path))
    assert path in str(caught.value)
    assert len(got) > 100_000
    assert got[:-1] == lines[: len(got) - 1]


@pytest.mark.parametrize(("pack", "place"), [(gzip.compress, 1000), (zstd, 6)])
def test_a_damaged_file_says_so(tmp_path: Path, pack: object, place: int) -> None:
    assert callable(pack)
    data = bytearray(pack(random.Random(1).randbytes(300_000).hex().encode()))
    data[place : place + 200] = b"\xff" * 200
    with pytest.raises(SourceError, match=r"damaged"):
        texts(written(tmp_path, bytes(data)))


def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * 3_000_000 + b"\nshort\n" + b"y" * LINE_CAP)
    long, short, full = read(path)
    assert long.text.startswith("x" * LINE_CAP + " … [cut by specwatch: the line has 3000000 bytes]")
    assert (short.text, short.offset) == ("short", 3_000_001)
    assert full.text == "y" * LINE_CAP


def test_the_servers_own_record_may_be_longer(tmp_path: Path) -> None:
    record = b"[2026-05-01 10:00:00] server_args={'a': '" + b"x" * 500_000 + b"'}"
    path = written(tmp_path, record + b"\n" + record.replace(b"x", b"xxxx"))
    first, second = texts(path)
    assert first == record.decode()
    assert "[cut by specwatch" in second
    assert len(second) < RECORD_CAP + 100


def test_memory_stays_bounded_on_one_endless_line(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"x" * 200_000_000, 1))
    tracemalloc.start()
    (raw,) = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "200000000 bytes" in raw.text
    assert peak < 20_000_000


def test_a_small_file_that_decompresses_to_much_comes_in_small_blocks(tmp_path: Path) -> None:
    path = written(tmp_path, zstd(b"\n" * 50_000_000))
    sizes = [len(block) for block in blocks(path)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= BLOCK


def test_a_hole_left_by_truncation_is_no_line(tmp_path: Path) -> None:
    assert texts(written(tmp_path, b"\0" * 700_000 + b"[2026] first\nsecond\0\n")) == ["[2026] first", "second\0"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (random.Random(1).randbytes(5000), "is binary"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 200 + b"text", "is binary"),
        ("line\n".encode("utf-16"), "is UTF-16 text"),
        (b"LPKSHHRH" + b"\0" * 200, "journalctl -o json"),
        (gzip.compress(random.Random(1).randbytes(5000)), "is binary"),
    ],
)
def test_what_is_no_log_is_refused_by_name(tmp_path: Path, data: bytes, why: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(SourceError, match=why) as caught:
        texts(path)
    assert path in str(caught.value)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"missing\.log: no such file"):
        texts(str(tmp_path / "missing.log"))
    with pytest.raises(SourceError, match="is a directory"):
        texts(str(tmp_path))
    with pytest.raises(SourceError, match="cannot be read"):
        texts("nul\0.log")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SourceError, match=r"secret\.log: permission denied"):
        texts(str(tmp_path / "secret.log"))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, gzip.compress(b"one\ntwo"))
    os.close(writing)
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert list(read("-")) == [Raw("<stdin>", 1, 0, "one"), Raw("<stdin>", 2, 4, "two")]


def test_rotated_parts_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    names = ["server.log.10.gz", "server.log.2", "server.log.1", "server.log", "audit.txt", ".hidden.log", "model.json"]
    for age, name in enumerate(names):
        os.utime(written(tmp_path, b"x\n", name), (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "sub.log").mkdir()
    got = [Path(path).name for path in expand([str(tmp_path), "-", "other"])]
    assert got == ["audit.txt", "server.log.10.gz", "server.log.2", "server.log.1", "server.log", "-", "other"]


def test_parts_named_by_date_come_in_the_order_of_their_dates(tmp_path: Path) -> None:
    for name in ("server.log", "server.log-20260102.gz", "server.log-20260101.gz"):
        written(tmp_path, b"x\n", name)
    assert [Path(path).name for path in expand([str(tmp_path)])] == [
        "server.log-20260101.gz",
        "server.log-20260102.gz",
        "server.log",
    ]


def test_a_directory_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(SourceError, match="holds no log"):
        expand([str(tmp_path)])


def test_a_reader_that_stops_early_closes_the_file(tmp_path: Path) -> None:
    lines = read(written(tmp_path, b"one\ntwo\n"))
    assert next(lines).text == "one"
    lines.close()  # type: ignore[attr-defined]


def test_no_buffer_is_asked_for_all_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(-1 if size is None else size)
            return super().read(size)

    monkeypatch.setattr(Path, "open", lambda *_, **__: Counting(b"x\n" * 1_000_000))
    assert sum(1 for _ in read(str(tmp_path / "x.log"))) == 1_000_000
    assert all(0 < size <= 1 << 20 for size in asked)
