"""Opens a log and hands out its bytes in blocks, decompressed where its first bytes say gzip or zstandard.

The content decides, never the name: a rotated `server.log.1` may be compressed and a `.gz` may not be. Memory is
bounded for any input: a block that decompresses to gigabytes comes out in pieces.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from specwatch.errors import SourceError

BLOCK = 96 * 1024
"""Bytes read at a time: what is larger than 128 KiB the C library maps anew each time, at twice the price."""
STDIN = "<stdin>"

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_JOURNAL = b"LPKSHHRH"
_ZSTD_PIECE = 512
"""Bytes fed to python-zstandard at a time. It has no output limit; one piece can hold at most 128 blocks of 128 KiB."""


def name_of(path: str) -> str:
    """The name under which a path's lines are reported: `<stdin>` for `-`."""
    return STDIN if path == "-" else path


def blocks(path: str) -> Iterator[bytes]:
    """The decompressed bytes of a file, or of standard input for `-`, in blocks of about 96 KiB.

    Raises SourceError for what cannot be opened. Where a compressed file breaks off, everything before the break is
    handed out first and the error comes after it.
    """
    name = name_of(path)
    try:
        with _open(path) as file:
            first = file.read(BLOCK)
            if first.startswith(_JOURNAL):
                raise SourceError(f"{name}: is a binary systemd journal; pipe `journalctl -o json` in instead")
            rejoined = _Rejoined(first, file)
            if first.startswith(_GZIP):
                yield from _gunzip(rejoined, name)
            elif first.startswith(_ZSTD):
                yield from _unzstd(rejoined, name)
            else:
                yield from iter(lambda: rejoined.read(BLOCK), b"")
    except FileNotFoundError:
        raise SourceError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise SourceError(f"{name}: is a directory without a log in it") from None
    except PermissionError:
        raise SourceError(f"{name}: permission denied; run as a user who may read it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"{name}: cannot be read: {error}") from None


def later_blocks(path: str, start: int) -> Iterator[bytes]:
    """The blocks of a plain file from a place on, none of a compressed one. Raises OSError."""
    with Path(path).open("rb", buffering=0) as file:
        if not file.read(4).startswith((_GZIP, _ZSTD)):
            file.seek(start)
            yield from iter(lambda: file.read(BLOCK), b"")


def _open(path: str) -> IO[bytes]:
    if path == "-":
        return cast("IO[bytes]", io.FileIO(sys.stdin.fileno(), closefd=False))
    return Path(path).open("rb", buffering=0)


class _Rejoined(io.RawIOBase):
    """A stream with the bytes that were read to recognise it put back in front."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if self._first:
            got = self._first if size is None or size < 0 else self._first[:size]
            self._first = self._first[len(got) :]
            return got
        return self._rest.read(BLOCK if size is None or size < 0 else size) or b""


def _gunzip(file: _Rejoined, name: str) -> Iterator[bytes]:
    import gzip
    import zlib

    # read1, not read: one decompressed piece at a time, so that what precedes a break is handed out before the error
    with gzip.GzipFile(fileobj=cast("IO[bytes]", file)) as unzipped:
        while True:
            try:
                block = unzipped.read1(BLOCK)
            except EOFError:
                raise SourceError(f"{name}: the gzip data breaks off; what was before it has been read") from None
            except (OSError, zlib.error) as error:
                raise SourceError(f"{name}: the gzip data is damaged ({error})") from None
            if not block:
                return
            yield block


def _unzstd(file: _Rejoined, name: str) -> Iterator[bytes]:
    frames = _modern_frames(file) if sys.version_info >= (3, 14) else _older_frames(file)
    while True:
        try:
            block = next(frames)
        except StopIteration:
            return
        except EOFError:
            message = f"{name}: the zstandard data breaks off; what was before it has been read"
            raise SourceError(message) from None
        except Exception as error:
            # both libraries have an exception class of their own, and only one of them is importable here
            if type(error).__name__ != "ZstdError":
                raise
            raise SourceError(f"{name}: the zstandard data is damaged ({error})") from None
        # one piece may unpack to 16 MiB; a reader that splits it into lines wants no more than it asked for
        yield from (block[start : start + BLOCK] for start in range(0, len(block), BLOCK))


def _older_frames(file: _Rejoined) -> Iterator[bytes]:
    import zstandard

    frame, data = None, b""
    while True:
        data = data or file.read(BLOCK)
        if not data:
            if frame is not None:
                raise EOFError
            return
        for start in range(0, len(data), _ZSTD_PIECE):
            if frame is None:
                frame = zstandard.ZstdDecompressor().decompressobj()
            if block := frame.decompress(data[start : start + _ZSTD_PIECE]):
                yield block
            if frame.eof:
                data = frame.unused_data + data[start + _ZSTD_PIECE :]
                frame = None
                break
        else:
            data = b""


def _modern_frames(file: _Rejoined) -> Iterator[bytes]:
    from importlib import import_module

    zstd = import_module("compression.zstd")  # by name: older Pythons, which type-check this too, have no such module
    with zstd.ZstdFile(file) as unzipped:
        while block := unzipped.read1(BLOCK):
            yield bytes(block)
