"""Files that appear only when they are whole, and files that are unpacked while they are read."""

import fcntl
import gzip
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError

PACKED = (".gz", ".zst")
_UNFINISHED = ".unfinished"


@contextmanager
def appearing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to that becomes `path` at the end, or nothing at all.

    Two writers of one file do no harm: each has a name of its own until the end. With `durable` the bytes are on the
    disk before the name is there, so that not even a power cut leaves a file that is there and empty.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        yield unfinished
        if durable:
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock while working in a folder; the system lets go of it when the process ends, however it ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"Another run is at work in {path.parent.parent}.", hint="Wait until it is done.") from None
        yield


def sweep(folder: Path) -> int:
    """Remove what writers left who were killed; returns how many files that were."""
    left = list(folder.rglob(f"*{_UNFINISHED}"))
    for file in left:
        file.unlink(missing_ok=True)
    return len(left)


def write_json(path: Path, value: Json, *, durable: bool = False) -> None:
    """A JSON document, whole or not at all; the same value gives the same bytes."""
    with appearing(path, durable=durable) as file:
        file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_json(path: Path) -> Json:
    """A JSON document that we wrote."""
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        raise DataError(f"{path} is damaged.", hint="Mine once more with fresh = true.") from None


def open_bytes(path: str) -> IO[bytes]:
    """A file unpacked on the way (by the end of its name), as plain bytes."""
    if path.endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.endswith(".zst"):
        # Reddit's dumps are packed with a window of 2 GB, which a reader has to allow.
        unpacker = zstandard.ZstdDecompressor(max_window_size=2**31)
        packed = Path(path).open("rb")  # noqa: SIM115 - closed with the reader
        return io.BufferedReader(unpacker.stream_reader(packed, read_across_frames=True, closefd=True))
    return Path(path).open("rb")


def open_parquet(path: str) -> pq.ParquetFile:
    """A Parquet file, or a clear error."""
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}).") from None
