"""Files that appear only when complete, JSON documents, digests, and decompression while reading."""

import errno
import fcntl
import gzip
import hashlib
import io
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TextIO

import orjson
import zstandard

from tertulia.artefacts.zstd import open_zstd
from tertulia.core.config import Config, to_toml
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError

COMPRESSED = (".gz", ".zst")
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)
"""What reading a compressed file raises if it is cut off or corrupt."""
UNREADABLE = (OSError, *DAMAGED)
"""What reading any file may raise."""
_UNFINISHED = ".unfinished"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing raises without naming the file."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_FINGERPRINT_LENGTH = 16


@contextmanager
def atomic_write(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path` when the block ends, and vanishes if the block raises.

    Several writers of one path do no harm: each has a temporary name of its own. With `durable` the bytes are on disk
    before the name appears, so that not even a power cut leaves an empty file behind.
    """
    unfinished = unfinished_path(path)
    try:
        yield unfinished
        if durable:
            _flush(unfinished)
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):  # its folder cannot be read: the first error says so
            unfinished.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno is None or not _is_of(error, unfinished):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def _flush(path: Path) -> None:
    """Wait until a file is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unfinished_path(path: Path) -> Path:
    """A temporary name beside a path, which no other writer has."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_UNFINISHED}")


def is_unfinished(path: Path) -> bool:
    """Whether it is what a killed writer left."""
    return path.name.endswith(_UNFINISHED)


def _is_of(error: OSError, unfinished: Path) -> bool:
    """Whether an error comes from writing this file, and not from something that is read or called meanwhile."""
    return error.errno in _FULL if error.filename is None else str(error.filename) == str(unfinished)


def remove_unfinished(folder: Path) -> int:
    """Remove temporary files that killed writers left in a folder; returns how many there were."""
    leftovers = list(folder.rglob(f"*{_UNFINISHED}"))
    for file in leftovers:
        file.unlink(missing_ok=True)
    return len(leftovers)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold a lock file while working in a folder; the system releases it when the process ends, however it ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"Another process is working in {path.parent}.", hint="Wait until it has ended.") from None
        yield


def write_json(path: Path, value: Json, *, durable: bool = False) -> None:
    """Write a JSON document atomically; the same value gives the same bytes."""
    with atomic_write(path, durable=durable) as file:
        file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def save_config(config: Config, path: Path) -> None:
    """Write the resolved config atomically, as TOML."""
    with atomic_write(path) as file:
        file.write_text(to_toml(config), encoding="utf-8")


def read_json(path: Path) -> Json:
    """Read a JSON document that `write_json` wrote."""
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path} is damaged: it is not valid JSON ({error}).") from None


def sha256_of(file: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def fingerprint(parts: Iterable[str]) -> str:
    """A short digest of some texts, in their order; each text is delimited, so ("ab", "c") differs from ("a", "bc").

    >>> fingerprint(["ab", "c"]) == fingerprint(["a", "bc"]), len(fingerprint([]))
    (False, 16)
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:_FINGERPRINT_LENGTH]


def open_bytes(path: Path | str) -> IO[bytes]:
    """Open a file for reading, decompressed on the fly if its name ends in .gz or .zst."""
    name = str(path)
    if name.endswith(".gz"):
        return gzip.open(name, "rb")  # type: ignore[return-value]
    if name.endswith(".zst"):
        return open_zstd(name)
    return Path(name).open("rb")


def open_text(path: Path | str) -> TextIO:
    """Like `open_bytes`, decoded as UTF-8 without its byte order mark.

    A byte that is not UTF-8 becomes a lone surrogate, so that it spoils its line and not the file. A file in UTF-16 is
    an error that says so.
    """
    data = open_bytes(path)
    try:
        if (head := data.peek(4)[:4])[:2] in _UTF16 or _has_wide_letters(head):  # type: ignore[attr-defined]
            raise DataError(
                f"{path} is UTF-16, not UTF-8.", hint=f"Convert it with: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"
            )
    except BaseException:
        data.close()
        raise
    return io.TextIOWrapper(data, encoding="utf-8-sig", errors="surrogateescape")


def _has_wide_letters(head: bytes) -> bool:
    """Whether the first letters take two bytes each, as plain letters do in UTF-16 without its mark."""
    return len(head) == 4 and (head[0::2] == b"\0\0") != (head[1::2] == b"\0\0")
