"""Zstandard files as a sequence of frames, and a reader that notices a file that was cut off.

A decompressor that reads across frames cannot tell a file that ends from one that was cut off in the middle of a frame:
it just stops. The layout of frames (RFC 8878: a header, blocks that each begin with their size, a checksum) tells, and
can be walked without decompressing anything. Frames also say where a large file may be divided among workers.
"""

import io
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

MAX_WINDOW = 2**31
"""Reddit's dumps use a window of 2 GB, which a reader has to allow explicitly."""
_MAGIC = 0xFD2FB528
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_DICTIONARY_BYTES = (0, 1, 2, 4)
_RLE, _RESERVED = 1, 3
"""Types of blocks: one byte that is repeated, and none."""


class Frame(NamedTuple):
    """A part of a file that can be decompressed by itself."""

    start: int
    end: int


def frames(path: Path | str) -> Iterator[Frame]:
    """The frames of a file, by their headers alone; EOFError if the last one is cut off, ZstdError if there is none."""
    with Path(path).open("rb") as file:
        if not Path(path).stat().st_size:
            raise EOFError("the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            start = 0
            while start < len(data):
                end, has_content = _frame_end(data, start)
                if end > len(data):
                    raise EOFError(f"it is cut off in the middle of the frame at byte {start:,}")
                if has_content:
                    yield Frame(start, end)
                start = end


def _frame_end(data: mmap.mmap, start: int) -> tuple[int, bool]:
    """Where the frame that begins here ends, or would end, and whether it has content."""
    magic = _number(data, start, 4)
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        return start + 8 + _number(data, start + 4, 4), False
    if magic != _MAGIC:
        raise zstandard.ZstdError(f"no frame begins at byte {start:,}")
    descriptor = _number(data, start + 4, 1)
    is_single = bool(descriptor & 0x20)
    content_bytes = (int(is_single), 2, 4, 8)[descriptor >> 6]
    position = start + 5 + (not is_single) + _DICTIONARY_BYTES[descriptor & 3] + content_bytes
    is_last = False
    while not is_last:
        header = _number(data, position, 3)
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            raise zstandard.ZstdError(f"the block at byte {position:,} is damaged")
        position += 3 + (1 if kind == _RLE else size)
    return position + (4 if descriptor & 4 else 0), True


def _number(data: mmap.mmap, position: int, size: int) -> int:
    """A little-endian number."""
    if position + size > len(data):
        raise EOFError(f"it is cut off after {len(data):,} bytes")
    return int.from_bytes(data[position : position + size], "little")


def open_zstd(path: Path | str) -> IO[bytes]:
    """The decompressed bytes of all frames; after the last of a file that was cut off, EOFError."""
    return io.BufferedReader(_CheckedReader(Path(path)))


class _CheckedReader(io.RawIOBase):
    """Decompresses, and at the end makes sure that it is the end. It can be read again from the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        compressed = self._path.open("rb")  # closed with the reader
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        self._reader: Any = decompressor.stream_reader(compressed, read_across_frames=True, closefd=True)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Its start can be returned to."""
        return True

    def tell(self) -> int:
        """Decompressed bytes read so far."""
        return int(self._reader.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Back to the start."""
        if whence == io.SEEK_SET and offset == 0:
            self._reader.close()
            self._open()
        elif (offset, whence) != (self.tell(), io.SEEK_SET) and (offset, whence) != (0, io.SEEK_CUR):
            raise io.UnsupportedOperation("only the start of compressed data can be sought")
        return self.tell()

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer; nothing is read at the end."""
        size = int(self._reader.readinto(buffer))
        if not size:
            for _ in frames(self._path):
                pass
        return size

    def close(self) -> None:
        """Close the file, too."""
        self._reader.close()
        super().close()
