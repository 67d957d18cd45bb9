"""Write dialogues and exchanges in any format that has a writer; a file or folder appears only when complete."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

from tertulia.artefacts.outputs import write_output
from tertulia.core.dialogue import Dialogue, Exchange
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.readers.base import ENDINGS, OTHER_ENDINGS, AnyReader, Holds, Item
from tertulia.corpus.readers.files import create_text
from tertulia.corpus.registry import READERS
from tertulia.corpus.shards import write_parquet

T = TypeVar("T", bound=Item)
_ENDINGS = (*ENDINGS, *OTHER_ENDINGS)


def save_dialogues(dialogues: Iterable[Dialogue], path: Path, *, format: str = "tertulia") -> int:  # noqa: A002
    """Write dialogues; the file type follows from the path (`.parquet`, `.jsonl`, `.json`, ...). Returns how many."""
    if path.name.endswith(".parquet"):
        if format != "tertulia":
            raise UsageError(
                f"Parquet files contain Tertulia's own dialogues, not {format!r}.", hint="Write a .jsonl file instead."
            )
        with _writing(path):
            return write_parquet(dialogues, path)
    return _save(dialogues, path, format, "dialogues")


def save_exchanges(exchanges: Iterable[Exchange], path: Path, *, format: str = "exchanges") -> int:  # noqa: A002
    """Write exchanges; returns how many."""
    return _save(exchanges, path, format, "exchanges")


def check_target(path: Path, *, format: str = "tertulia") -> None:  # noqa: A002
    """Raise the errors of saving a file there now rather than after the work: an ending that no format has."""
    if not path.name.endswith(".parquet"):
        _reader_for(path, format)


def written_as(reader: AnyReader) -> tuple[str, ...]:
    """How a format is written: file endings, `a folder`, or nothing if it cannot be written."""
    if reader.write_folder:
        return ("a folder",)
    return reader.endings if reader.encode else ()


def _save(items: Iterable[T], path: Path, format_name: str, kind: Holds) -> int:
    if format_name in READERS and READERS.get(format_name).write_folder:
        reader: AnyReader = READERS.get(format_name)
    else:
        reader = _reader_for(path, format_name)
    if reader.holds != kind:
        raise UsageError(f"The format {format_name!r} contains {reader.holds}, not {kind}.")
    with _writing(path):
        if reader.write_folder:
            return _write_folder(items, path, reader.write_folder)
        return _write_file(items, path, reader)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Create the parent folder, and turn errors of the file system into clear ones."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from None


def _reader_for(path: Path, format_name: str) -> AnyReader:
    if not path.name.endswith(_ENDINGS):
        endings = (READERS.get(format_name).endings if format_name in READERS else ()) or _ENDINGS
        raise UsageError(
            f"Unrecognised file type: {path.name}", hint=f"Use one of these endings: {', '.join(endings)}."
        )
    reader: AnyReader = READERS.get(format_name)
    if reader.encode is None:
        raise UsageError(f"The format {format_name!r} can be read, but not written.")
    if not path.name.endswith(reader.endings):
        raise UsageError(
            f"Cannot write {format_name!r} to {path.name}.",
            hint=f"Use one of these endings: {', '.join(reader.endings)}.",
        )
    return reader


def _write_file(items: Iterable[T], path: Path, reader: AnyReader) -> int:
    counter = count()
    with (
        write_output(path) as unfinished,
        create_text(unfinished, gzipped=path.name.endswith(".gz")) as out,
    ):
        for piece in reader.pieces(_count_items(items, counter), path.name):
            out.write(piece)
    return next(counter)


def _count_items(items: Iterable[T], counter: Iterator[int]) -> Iterator[T]:
    for item in items:
        next(counter)
        yield item


def _write_folder(items: Iterable[T], path: Path, write: Callable[[Iterable[T], Path], int]) -> int:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} already exists and is not an empty folder.", hint="Choose another path.")
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
