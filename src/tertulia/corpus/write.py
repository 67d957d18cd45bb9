"""Writing dialogues and exchanges in any format that has a writer; a file or folder appears only when it is whole."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

from tertulia.core.dialogue import Dialogue, Exchange
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.readers.base import ENDINGS, OTHER_ENDINGS, AnyReader, Holds, Item
from tertulia.corpus.readers.opening import open_text
from tertulia.corpus.shards import write_parquet
from tertulia.corpus.table import READERS

T = TypeVar("T", bound=Item)
_KNOWN = (*ENDINGS, *OTHER_ENDINGS)


def save_dialogues(dialogues: Iterable[Dialogue], path: Path, *, format: str = "tertulia") -> int:  # noqa: A002
    """Write dialogues; the ending of the path says how (`.parquet`, `.jsonl`, `.json`, ...). Returns how many."""
    if path.name.endswith(".parquet"):
        if format != "tertulia":
            raise UsageError(f"Parquet holds Tertulia's own dialogues; {format!r} is written as .jsonl.")
        with _writing(path):
            return write_parquet(dialogues, path)
    return _save(dialogues, path, format, "dialogues")


def save_exchanges(exchanges: Iterable[Exchange], path: Path, *, format: str = "exchanges") -> int:  # noqa: A002
    """Write exchanges; returns how many."""
    return _save(exchanges, path, format, "exchanges")


def check_target(path: Path, *, format: str = "tertulia") -> None:  # noqa: A002
    """Raise now what saving a file there would raise after the work: an ending that tells or fits no format."""
    if not path.name.endswith(".parquet"):
        _reader_for(path, format)


def written_as(reader: AnyReader) -> tuple[str, ...]:
    """How a format is written: endings of files, `a folder`, or nothing where it cannot be written."""
    if reader.write_folder:
        return ("a folder",)
    return reader.endings if reader.encode else ()


def _save(items: Iterable[T], path: Path, format_name: str, kind: Holds) -> int:
    if format_name in READERS and READERS.get(format_name).write_folder:
        reader: AnyReader = READERS.get(format_name)
    else:
        reader = _reader_for(path, format_name)
    if reader.holds != kind:
        raise UsageError(f"The format {format_name!r} holds {reader.holds}, not {kind}.")
    with _writing(path):
        if reader.write_folder:
            return _write_folder(items, path, reader.write_folder)
        return _write_file(items, path, reader)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder it goes into; a disk that is full or not ours is the world's fault."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from None


def _reader_for(path: Path, format_name: str) -> AnyReader:
    if not path.name.endswith(_KNOWN):
        known = READERS.get(format_name).endings if format_name in READERS else _KNOWN
        raise UsageError(
            f"Cannot tell the format of {path.name!r}.", hint=f"Use one of these endings: {', '.join(known or _KNOWN)}."
        )
    reader: AnyReader = READERS.get(format_name)
    if reader.encode is None:
        raise UsageError(f"The format {format_name!r} can be read, but not written.")
    if not path.name.endswith(reader.endings):
        raise UsageError(f"{path.name!r} cannot hold {format_name!r}.", hint=f"It ends in {', '.join(reader.endings)}.")
    return reader


def _write_file(items: Iterable[T], path: Path, reader: AnyReader) -> int:
    partial = path.with_name(path.name + ".partial")
    counter = count()
    try:
        with open_text(partial, write=True, gzipped=path.name.endswith(".gz")) as out:
            for piece in reader.pieces(_counted(items, counter), path.name):
                out.write(piece)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return next(counter)


def _counted(items: Iterable[T], counter: Iterator[int]) -> Iterator[T]:
    for item in items:
        next(counter)
        yield item


def _write_folder(items: Iterable[T], path: Path, write: Callable[[Iterable[T], Path], int]) -> int:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists already, and is not an empty folder.", hint="Choose another place.")
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        written = write(items, partial)
        if path.exists():
            path.rmdir()
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written
