"""The input of mining: files on a disk, in an object store or on a web server, split into chunks that one worker can
read alone.

Plain JSON lines are split into byte ranges, Parquet into row groups, a Zstandard file on a disk at its frames. Any
other compressed file is read from its start by one worker, block by block.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tertulia import sample
from tertulia.artefacts.files import COMPRESSED, DAMAGED
from tertulia.artefacts.folders import Folder
from tertulia.artefacts.stores import filesystem, is_url, open_url, store_errors, version_of
from tertulia.artefacts.zstd import frames
from tertulia.core.codec import dump_line, message_to_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, MissingFile
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.mining.lines import BYTE_ORDER_MARK
from tertulia.corpus.mining.packed import open_packed
from tertulia.corpus.mining.schemas import detect_schema, get_schema
from tertulia.corpus.shards import open_parquet

ENDINGS = tuple(f"{plain}{packed}" for plain in (".jsonl", ".ndjson", ".json") for packed in ("", *COMPRESSED))
_COMPRESSION_RATIO = 6
"""A guess at how much larger JSON lines are than compressed ones; it only affects the sizes of chunks."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Source:
    """One input file."""

    path: str
    """A URL or an absolute path: another machine must find it."""
    name: str
    size: int
    stamp: str
    """Time of its last change, what a store calls its version, or a hash of what came through a pipe."""
    schema: str
    """Name of the schema of its records."""
    names_threads: bool = True
    """Whether its first record names a thread."""

    @property
    def is_parquet(self) -> bool:
        """Whether it is a Parquet file."""
        return self.name.endswith(".parquet")

    @property
    def is_compressed(self) -> bool:
        """Whether it has to be decompressed."""
        return self.name.endswith(COMPRESSED)

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes of JSON lines it holds."""
        return self.size * (_COMPRESSION_RATIO if self.is_compressed or self.is_parquet else 1)

    def open(self) -> Any:
        """The file's bytes, as they are."""
        return open_url(self.path) if is_url(self.path) else Path(self.path).open("rb")

    def open_parquet(self) -> pq.ParquetFile:
        """The file as Parquet, or a clear error."""
        if not is_url(self.path):
            return open_parquet(self.path)
        try:
            return pq.ParquetFile(open_url(self.path))
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{self.path} is not a readable Parquet file ({error}).") from None

    def as_json(self) -> dict[str, Json]:
        """For the manifest, whose keys must not change; the folder of the file does not matter."""
        return {"name": self.name, "size": self.size, "stamp": self.stamp, "shape": self.schema}


class Chunk(NamedTuple):
    """A piece of a source that one worker reads."""

    source: Source
    start: int
    """First byte, or number of the first row group."""
    end: int

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes of JSON lines it holds."""
        if self.source.is_parquet:
            return 0
        return (self.end - self.start) * (_COMPRESSION_RATIO if self.source.is_compressed else 1)


def find_sources(
    targets: Iterable[str], *, schema: str | None, fields: Mapping[str, str], work: Folder
) -> list[Source]:
    """The files of all targets. What is not a file (the sample, `-` for a pipe) is first written to `work`."""
    sources = []
    for target in targets:
        if target == SAMPLE:
            lines = (dump_line(message_to_json(m)).encode() + b"\n" for m in sample.messages())
            sources.append(_spool(lines, work, "sample.jsonl", "messages"))
        elif target == "-":
            sources.append(_spool(sys.stdin.buffer, work, "stdin.jsonl", schema))
        else:
            files = _stored(target) if is_url(target) else map(_on_disk, _files(Path(target)))
            sources += [_recognise(file, schema, fields) for file in files]
    return sources


def _files(target: Path) -> list[Path]:
    if target.is_file():
        return [target]
    if not target.exists():
        raise MissingFile(
            f"File not found: {target}",
            hint=f"Give a file, a folder, - for a pipe, or {SAMPLE!r} for the bundled forum.",
        )
    if not target.is_dir():
        raise DataError(
            f"{target} is neither a file nor a folder.", hint=f"Give what comes out of it through a pipe: - < {target}"
        )
    return [target / name for name in _message_files((f.name for f in target.iterdir()), str(target))]


def _message_files(names: Iterable[str], folder: str) -> list[str]:
    """Those names in a folder that are of message files."""
    files = sorted(name for name in names if name.endswith((*ENDINGS, ".parquet")) or _is_dump(name))
    lines = [name for name in files if ".json." not in f"{name}."]  # ConvoKit has .json files about its messages
    if not (lines or files):
        raise DataError(f"No message files in {folder}.", hint=f"File names must end in {', '.join(ENDINGS)}.")
    return lines or files


def _is_dump(name: str) -> bool:
    """Reddit's monthly dumps: RC_2018-07.zst, RS_2018-07.zst."""
    return name.endswith(".zst") and name.startswith(("RC_", "RS_"))


def _on_disk(file: Path) -> Source:
    status = file.stat()
    return Source(str(file.resolve()), file.name, status.st_size, str(status.st_mtime_ns), "")


def _stored(url: str) -> Iterator[Source]:
    """The file of a URL, or the files of a folder in a store."""
    fs, path = filesystem(url)
    try:
        with store_errors(url):
            information = fs.info(path)
            is_folder = information["type"] == "directory"
            entries = (
                {entry["name"].rsplit("/", 1)[1]: entry for entry in fs.ls(path, detail=True)} if is_folder else {}
            )
    except FileNotFoundError:
        raise MissingFile(f"File not found: {url}", hint="Check the address, and that you may read it.") from None
    if not is_folder:
        name = url.split("?")[0].rsplit("/", 1)[1]
        yield Source(url, name, _size(information, url), version_of(information), "")
        return
    for name in _message_files((n for n, entry in entries.items() if entry["type"] == "file"), url):
        address = f"{url.rstrip('/')}/{name}"
        yield Source(address, name, _size(entries[name], address), version_of(entries[name]), "")


def _size(information: Mapping[str, Any], url: str) -> int:
    size = information.get("size")
    if size is None:
        raise DataError(f"The server does not say how large {url} is.", hint="Download the file and mine the copy.")
    return int(size)


def _recognise(source: Source, schema: str | None, fields: Mapping[str, str]) -> Source:
    record = _first_record(source)  # in any case: it shows that the file can be read
    name = schema or ("messages" if fields else detect_schema(record))
    threads = get_schema(name, fields).names["thread"]
    names_threads = any(n in record if source.is_parquet else record.get(n) is not None for n in threads)
    return replace(source, schema=name, names_threads=names_threads or name == "reddit" or not record)


def _spool(lines: Iterable[bytes], work: Folder, name: str, schema: str | None) -> Source:
    digest, size = hashlib.blake2b(digest_size=16), 0
    work.make()
    with work.write(name) as file, file.open("wb") as out:
        for line in lines:
            size += out.write(line)
            digest.update(line)
    return _recognise(Source(work.location(name), name, size, digest.hexdigest(), ""), schema, {})


def _first_record(source: Source) -> dict[str, Json]:
    """The first JSON object among a file's first lines; an empty one if there is none."""
    if source.is_parquet:
        with source.open_parquet() as file:
            return dict.fromkeys(file.schema_arrow.names)
    try:
        with source.open() as raw, open_packed(raw, source.name) as lines:
            for number in range(100):
                line = lines.readline(_LONGEST_FIRST)
                if number == 0 and line.startswith(_UTF_16):
                    raise DataError(
                        f"{source.path} is UTF-16.", hint="Convert it: iconv -f UTF-16 -t UTF-8 OLD.jsonl > NEW.jsonl"
                    )
                if not line:
                    break
                try:
                    record = orjson.loads(line.removeprefix(BYTE_ORDER_MARK))
                except orjson.JSONDecodeError:
                    continue
                if isinstance(record, dict):
                    return record
    except DAMAGED:
        return {}  # reading it counts the damage, or refuses it if that was asked for
    except OSError as error:
        raise DataError(f"Cannot read {source.path}: {error}.") from None
    return {}


_LONGEST_FIRST = 64 << 20
"""Bytes of a line that are looked at for a first record."""


def chunks_of(source: Source, *, size: int) -> list[Chunk]:
    """Split a source into chunks of about `size` bytes of JSON lines."""
    if source.is_parquet:
        return [Chunk(source, start, end) for start, end in _row_groups(source, size)]
    if source.is_compressed:
        return [Chunk(source, start, end) for start, end in _frame_groups(source, size // _COMPRESSION_RATIO)]
    return [Chunk(source, start, min(start + size, source.size)) for start in range(0, source.size, size)]


def _row_groups(source: Source, size: int) -> Iterator[tuple[int, int]]:
    """Runs of row groups of about `size` bytes before compression."""
    with source.open_parquet() as file:
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]
    return _runs(sizes, size)


def _frame_groups(source: Source, size: int) -> Iterator[tuple[int, int]]:
    """Runs of frames of about `size` bytes, by their places in the file; the whole file if it cannot be divided."""
    if source.name.endswith(".zst") and not is_url(source.path) and source.size > size:
        try:
            all_frames = list(frames(source.path))
        except DAMAGED:  # reading it from its start tells what is wrong
            all_frames = []
        if len(all_frames) > 1:
            starts = [0, *(frame.start for frame in all_frames[1:]), source.size]
            sizes = [end - start for start, end in pairwise(starts)]
            return ((starts[first], starts[last]) for first, last in _runs(sizes, size))
    return iter([(0, source.size)])


def _runs(sizes: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Neighbouring items of about `size` in sum, as first index and the index after the last.

    >>> list(_runs([5, 5, 1, 1, 9, 20, 1], 10))
    [(0, 2), (2, 5), (5, 6), (6, 7)]
    """
    first = total = 0
    for i, item in enumerate(sizes):
        total += item
        if total >= size:
            yield first, i + 1
            first, total = i + 1, 0
    if first < len(sizes):
        yield first, len(sizes)
