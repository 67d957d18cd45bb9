"""One way in and out for dialogues: the bundled sample by name, or files and folders in any known format.

Files of JSON lines (packed or not) are recognised by their first record, `.parquet` by its schema; a folder means all
such files in it, in the order of their names.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from tertulia import sample
from tertulia.core.codec import Problems, dump_line, read_lines
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.corpus.readers.base import Reader
from tertulia.corpus.shards import read_parquet, write_parquet
from tertulia.corpus.table import READERS

T = TypeVar("T")
ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".parquet")
SAMPLE = "sample"


def load_dialogues(
    target: str | Path,
    *,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    problems: Problems | None = None,
) -> Iterator[Dialogue]:
    """The dialogues of the sample, a file or a folder. With `problems`, damaged lines are counted there, else refused.

    `split` picks the sample's split by name, and in a folder the files whose names begin with it.
    """
    if str(target) == SAMPLE:
        return iter(sample.dialogues(_sample_split(split)))
    return (d for file in files_of(Path(target), split=split) for d in _read(file, format, problems))


def save_dialogues(dialogues: Iterable[Dialogue], path: Path, *, format: str = "tertulia") -> int:  # noqa: A002
    """Write dialogues; the ending of the path says how (`.parquet`, `.jsonl`, `.jsonl.gz`). Returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".parquet"):
        if format != "tertulia":
            raise UsageError(f"Parquet holds Tertulia's own dialogues; {format!r} is written as .jsonl.")
        return write_parquet(dialogues, path)
    if not path.name.endswith(ENDINGS):
        raise UsageError(
            f"Cannot tell the format of {path.name!r}.", hint=f"Use one of these endings: {', '.join(ENDINGS)}."
        )
    encode = READERS.get(format).encode
    if encode is None:
        raise UsageError(f"The format {format!r} can be read, but not written.")
    partial = path.with_name(path.name + ".partial")
    count = 0
    try:
        with open_text(partial, write=True, gzipped=path.name.endswith(".gz")) as out:
            for count, dialogue in enumerate(dialogues, 1):  # noqa: B007 - the last count is the answer
                out.write(dump_line(encode(dialogue)) + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def files_of(target: Path, *, split: str | None = None) -> list[Path]:
    """The corpus files a path stands for."""
    if target.is_file():
        return [target]
    if not target.exists():
        raise DataError(f"There is no {target}.", hint=f"Give a file, a folder, or {SAMPLE!r} for the bundled corpus.")
    found = sorted(f for f in target.iterdir() if f.name.endswith(ENDINGS))
    found = [f for f in found if split is None or f.name.startswith(split)]
    if not found:
        of = f" of the split {split!r}" if split else ""
        raise DataError(f"There are no corpus files{of} in {target}.", hint=f"Files end in {', '.join(ENDINGS)}.")
    return found


def _read(file: Path, format_name: str | None, problems: Problems | None) -> Iterator[Dialogue]:
    if file.name.endswith(".parquet"):
        yield from read_parquet(file)
        return
    reader = READERS.get(format_name) if format_name else recognise(file)
    yield from read_file(file, reader.decode, problems)


def read_file(file: Path, decode: Callable[[Json], T], problems: Problems | None) -> Iterator[T]:
    """The records of one file of JSON lines, packed or not."""
    try:
        with open_text(file) as lines:
            yield from read_lines(lines, decode, source=str(file), problems=problems)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read to its end: {error}.") from None


def recognise(file: Path) -> Reader:
    """The reader for a file, by its first record that can be read."""
    try:
        with open_text(file) as lines:
            for line, _ in zip(lines, range(100), strict=False):
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                for reader in (READERS.get(name) for name in READERS):
                    if isinstance(record, dict) and reader.recognises(record):
                        return reader  # type: ignore[no-any-return]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read: {error}.") from None
    raise DataError(f"{file} is in no format we know.", hint=f"Known: {', '.join(READERS)}; name one with --format.")


def _sample_split(split: str | None) -> sample.Split | None:
    for known in sample.SPLITS:
        if split == known:
            return known
    if split is None:
        return None
    raise UnknownName("split of the sample", split, sample.SPLITS)


def open_text(path: Path, *, write: bool = False, gzipped: bool | None = None) -> IO[str]:
    """A text file, packed or not (by its name, unless said). A byte that is no UTF-8 spoils its line, not the file."""
    encoding, errors = ("utf-8", "replace") if write else ("utf-8-sig", "surrogateescape")
    if path.name.endswith(".gz") if gzipped is None else gzipped:
        return gzip.open(path, "wt" if write else "rt", encoding=encoding, errors=errors)
    return path.open("w" if write else "r", encoding=encoding, errors=errors)
