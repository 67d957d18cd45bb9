"""Reading compressed files: from their start, or only some frames of them.

A Zstandard file may be a sequence of frames, each of which can be decompressed by itself. Lines do not end where frames
do. A worker that reads some frames skips the line that began before them, and at their end reads on into the next
frame until its last line is complete: every line belongs to the frames that hold the line break before it.
"""

import gzip
import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import zstandard

from tertulia.artefacts.zstd import MAX_WINDOW

_PIECE = 1 << 17
"""Compressed bytes read at once."""


class FramePiece(NamedTuple):
    """Some decompressed bytes."""

    content: bytes
    is_beyond: bool
    """Whether they come from a frame that begins at or behind the end."""


def open_packed(file: IO[bytes], name: str) -> Any:
    """The decompressed bytes of a file that is open, by the ending of its name; a file that is cut off raises
    EOFError at its end."""
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if name.endswith(".zst"):
        return io.BufferedReader(_Decompressed(file), _PIECE)
    return file


def decompressed(file: IO[bytes], *, end: int | None = None) -> Iterator[FramePiece]:
    """The content of all frames from here on; `end` is where the frames of interest end."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    frame, is_inside, position = decompressor.decompressobj(), False, file.tell()
    is_beyond = end is not None and position >= end
    while packed := file.read(_PIECE):
        position += len(packed)
        while packed:
            content = frame.decompress(packed)
            if content:
                yield FramePiece(content, is_beyond)
            is_inside, packed = not frame.eof, frame.unused_data
            if frame.eof:
                frame = decompressor.decompressobj()
                is_beyond = end is not None and position - len(packed) >= end
    if is_inside:
        raise EOFError("it is cut off in the middle of a frame")


def lines_of_frames(file: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    """The lines that belong to the frames between two places of a file, in pieces that end anywhere."""
    file.seek(start)
    is_skipping = start > 0
    for content, is_beyond in decompressed(file, end=end):
        line_break = content.find(b"\n")
        if is_skipping and is_beyond:
            return  # no line break in these frames: no line belongs to them
        if is_skipping and line_break >= 0:
            is_skipping = False
            yield content[line_break + 1 :]
        elif is_beyond and line_break >= 0:
            yield content[: line_break + 1]
            return
        elif not is_skipping:
            yield content


class _Decompressed(io.RawIOBase):
    """All frames of a file as one stream."""

    def __init__(self, file: IO[bytes]) -> None:
        self._pieces = decompressed(file)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer; nothing is read at the end."""
        if not len(self._rest):
            self._rest = memoryview(next(self._pieces, FramePiece(b"", False)).content)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
