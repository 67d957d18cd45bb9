"""Folders for work in progress: on a disk, or in an object store.

Both have what resuming needs: a file appears only when it is complete, and who lists the folder sees every file that
was completed before. On a disk the first comes from renaming, in a store from uploads, which show nothing until they
end. What a store does not have is a lock; `create` stands in where one of several writers must win.
"""

import os
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson

from tertulia.artefacts.files import atomic_write, remove_unfinished
from tertulia.artefacts.stores import filesystem, is_url, store_errors
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError

_SMALL_UPLOAD = 32 << 20
"""Bytes up to which a file is uploaded by one request."""


class ByteRange(NamedTuple):
    """Some bytes of a file."""

    name: str
    start: int
    end: int


class Folder(Hashable, Protocol):
    """Where files are kept. It can be pickled: a worker on another machine opens the same folder."""

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk."""
        ...

    def location(self, name: str = "") -> str:
        """The path or URL of a file, or of the folder itself."""
        ...

    def subfolder(self, name: str) -> "Folder":
        """A folder in this one."""
        ...

    def make(self) -> None:
        """Make sure that files can be written into it."""
        ...

    def sizes(self) -> dict[str, int]:
        """The files in the folder, without subfolders, and their sizes; empty if there is no such folder."""
        ...

    def read(self, name: str) -> bytes:
        """A file; FileNotFoundError if there is none."""
        ...

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Parts of files, in this order; a store is asked for many at a time."""
        ...

    def write(self, name: str, *, durable: bool = False) -> AbstractContextManager[Path]:
        """A path on disk to write to; what is there when the block ends becomes the file, at once and complete."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write a small file unless there is one already; says whether it was written."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there do not matter."""
        ...


def open_folder(target: Path | str) -> Folder:
    """The folder of a path or a URL."""
    return StoreFolder(str(target).rstrip("/")) if is_url(target) else DiskFolder(str(Path(target).resolve()))


def read_json_from(folder: Folder, name: str) -> Json:
    """A JSON document."""
    try:
        return orjson.loads(folder.read(name))
    except orjson.JSONDecodeError as error:
        raise DataError(f"{folder.location(name)} is damaged: it is not valid JSON ({error}).") from None


def write_json_to(folder: Folder, name: str, value: Json, *, durable: bool = False) -> None:
    """A JSON document; the same value gives the same bytes."""
    with folder.write(name, durable=durable) as file:
        file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@dataclass(frozen=True, slots=True)
class DiskFolder:
    """A folder on a disk, which may be shared by several machines."""

    path: str
    """Absolute: another machine that shares the disk must find it."""

    @property
    def is_local(self) -> bool:
        """It is."""
        return True

    def location(self, name: str = "") -> str:
        """A path."""
        return os.path.join(self.path, name) if name else self.path  # noqa: PTH118 - called for every segment

    def subfolder(self, name: str) -> "DiskFolder":
        """A folder in this one."""
        return DiskFolder(self.location(name))

    def make(self) -> None:
        """Create it."""
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def sizes(self) -> dict[str, int]:
        """The files in the folder."""
        try:
            with os.scandir(self.path) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except FileNotFoundError:
            return {}

    def read(self, name: str) -> bytes:
        """A file."""
        return Path(self.location(name)).read_bytes()

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Parts of files, one after the other."""
        return [self._read_range(*part) for part in ranges]

    def _read_range(self, name: str, start: int, end: int) -> bytes:
        descriptor = os.open(self.location(name), os.O_RDONLY)
        try:
            content = os.pread(descriptor, end - start, start)
            while len(content) < end - start and (
                more := os.pread(descriptor, end - start - len(content), start + len(content))
            ):
                content += more  # one call reads at most 2 GB
        finally:
            os.close(descriptor)
        return content

    def write(self, name: str, *, durable: bool = False) -> AbstractContextManager[Path]:
        """A temporary path that is renamed."""
        return atomic_write(Path(self.location(name)), durable=durable)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one: who works in the folder holds its lock, so nobody comes in between."""
        if Path(self.location(name)).exists():
            return False
        with self.write(name, durable=True) as file:
            file.write_bytes(content)
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            Path(self.location(name)).unlink(missing_ok=True)

    def remove_unfinished(self) -> int:
        """Remove what killed writers left, in subfolders, too."""
        return remove_unfinished(Path(self.path))


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The files of an object store whose names begin with a URL."""

    url: str

    @property
    def is_local(self) -> bool:
        """It is not."""
        return False

    def location(self, name: str = "") -> str:
        """A URL."""
        return f"{self.url}/{name}" if name else self.url

    def subfolder(self, name: str) -> "StoreFolder":
        """A folder in this one."""
        return StoreFolder(self.location(name))

    def make(self) -> None:
        """Nothing: a store has no folders. That it can be reached and written to shows with the first file."""

    def sizes(self) -> dict[str, int]:
        """The files in the folder."""
        fs, root = filesystem(self.url)
        try:
            with store_errors(self.url):
                entries = fs.ls(root, detail=True, refresh=True)
        except FileNotFoundError:
            return {}
        files = (entry for entry in entries if entry["type"] == "file" and entry["name"].rstrip("/") != root)
        return {entry["name"].rsplit("/", 1)[1]: int(entry["size"]) for entry in files}

    def read(self, name: str) -> bytes:
        """A file."""
        fs, root = filesystem(self.url)
        with store_errors(self.location(name)):
            return bytes(fs.cat_file(f"{root}/{name}"))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Parts of files, requested at the same time."""
        if not ranges:
            return []
        fs, root = filesystem(self.url)
        paths = [f"{root}/{part.name}" for part in ranges]
        with store_errors(self.url):
            return list(
                fs.cat_ranges(paths, [part.start for part in ranges], [part.end for part in ranges], on_error="raise")
            )

    @contextmanager
    def write(self, name: str, *, durable: bool = False) -> Iterator[Path]:
        """A temporary file that is uploaded; a store keeps what it has confirmed."""
        fs, root = filesystem(self.url)
        with tempfile.TemporaryDirectory(prefix="tertulia-") as folder:
            file = Path(folder) / Path(name).name
            yield file
            with store_errors(self.location(name)):
                if file.stat().st_size <= _SMALL_UPLOAD:
                    fs.pipe_file(f"{root}/{name}", file.read_bytes())
                else:
                    fs.put_file(str(file), f"{root}/{name}")

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one: by a conditional request where the store has these (S3, Google), otherwise
        by looking first; the caller reads what is there afterwards."""
        fs, root = filesystem(self.url)
        with store_errors(self.location(name)):
            try:
                return _create(fs, f"{root}/{name}", content)
            except FileExistsError:
                return False

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        fs, root = filesystem(self.url)
        paths = [f"{root}/{name}" for name in names]
        with store_errors(self.url):
            for start in range(0, len(paths), 1000):  # as many as one request of S3 may name
                try:
                    fs.rm(paths[start : start + 1000])
                except FileNotFoundError:
                    for path in paths[start : start + 1000]:
                        if fs.exists(path):
                            fs.rm_file(path)


def _create(fs: Any, path: str, content: bytes) -> bool:
    try:
        fs.pipe_file(path, content, mode="create")
    except (TypeError, NotImplementedError):  # a store whose package knows no conditional requests
        if fs.exists(path):
            return False
        fs.pipe_file(path, content)
    return True
