"""The input of mining: files, split into chunks that one worker can read alone.

Plain JSON lines are split into byte ranges, Parquet into row groups. A compressed file is read from its start by one
worker, block by block; several compressed files are read in parallel.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from tertulia import sample
from tertulia.artefacts.files import COMPRESSED, UNREADABLE, open_bytes
from tertulia.core.codec import dump_line, message_to_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.mining.lines import BYTE_ORDER_MARK
from tertulia.corpus.mining.schemas import detect_schema
from tertulia.corpus.shards import open_parquet

ENDINGS = tuple(f"{plain}{packed}" for plain in (".jsonl", ".ndjson", ".json") for packed in ("", *COMPRESSED))
_COMPRESSION_RATIO = 6
"""A guess at how much larger JSON lines are than compressed ones; it only affects the sizes of chunks."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input file."""

    path: str
    """Absolute: another machine that shares the disk must find it."""
    name: str
    size: int
    stamp: str
    """Time of its last change, or a hash of what came through a pipe."""
    schema: str
    """Name of the schema of its records."""

    @property
    def is_parquet(self) -> bool:
        """Whether it is a Parquet file."""
        return self.name.endswith(".parquet")

    @property
    def is_compressed(self) -> bool:
        """Whether it has to be read from its start."""
        return self.name.endswith(COMPRESSED)

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes of JSON lines it holds."""
        return self.size * (_COMPRESSION_RATIO if self.is_compressed or self.is_parquet else 1)

    def as_json(self) -> dict[str, Json]:
        """For the manifest, whose keys must not change; the folder of the file does not matter."""
        return {"name": self.name, "size": self.size, "stamp": self.stamp, "shape": self.schema}


class Chunk(NamedTuple):
    """A piece of a source that one worker reads."""

    source: Source
    start: int
    """First byte, or number of the row group."""
    end: int


def find_sources(targets: Iterable[str], *, schema: str | None, fields: Mapping[str, str], spool: Path) -> list[Source]:
    """The files of all targets. What is not a file (the sample, `-` for a pipe) is first written to `spool`."""
    sources = []
    for target in targets:
        if target == SAMPLE:
            lines = (dump_line(message_to_json(m)).encode() + b"\n" for m in sample.messages())
            sources.append(_spool(lines, spool / "sample.jsonl", "messages"))
        elif target == "-":
            sources.append(_spool(sys.stdin.buffer, spool / "stdin.jsonl", schema))
        else:
            sources += [_source(file, schema, fields) for file in _files(Path(target))]
    return sources


def _files(target: Path) -> list[Path]:
    if target.is_file():
        return [target]
    if not target.exists():
        raise DataError(
            f"File not found: {target}",
            hint=f"Give a file, a folder, - for a pipe, or {SAMPLE!r} for the bundled forum.",
        )
    files = sorted(f for f in target.iterdir() if f.name.endswith((*ENDINGS, ".parquet")) or _is_dump(f))
    lines = [f for f in files if ".json." not in f"{f.name}."]  # a ConvoKit folder has .json files about its messages
    if not (lines or files):
        raise DataError(f"No message files in {target}.", hint=f"File names must end in {', '.join(ENDINGS)}.")
    return lines or files


def _is_dump(file: Path) -> bool:
    """Reddit's monthly dumps: RC_2018-07.zst, RS_2018-07.zst."""
    return file.name.endswith(".zst") and file.name.startswith(("RC_", "RS_"))


def _source(file: Path, schema: str | None, fields: Mapping[str, str]) -> Source:
    status = file.stat()
    name = schema or ("messages" if fields else detect_schema(_first_record(file)))
    return Source(str(file.resolve()), file.name, status.st_size, str(status.st_mtime_ns), name)


def _spool(lines: Iterable[bytes], path: Path, schema: str | None) -> Source:
    digest, size = hashlib.blake2b(digest_size=16), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for line in lines:
            size += out.write(line)
            digest.update(line)
    schema = schema or detect_schema(_first_record(path))
    return Source(str(path.resolve()), path.name, size, digest.hexdigest(), schema)


def _first_record(file: Path) -> dict[str, Json]:
    """The first JSON object among a file's first lines; an empty one if there is none."""
    if file.name.endswith(".parquet"):
        return dict.fromkeys(open_parquet(file).schema_arrow.names)
    try:
        with open_bytes(file) as lines:
            for line, _ in zip(lines, range(100), strict=False):
                try:
                    record = orjson.loads(line.removeprefix(BYTE_ORDER_MARK))
                except orjson.JSONDecodeError:
                    continue
                if isinstance(record, dict):
                    return record
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file}: {error}.") from None
    return {}


def chunks_of(source: Source, *, size: int) -> list[Chunk]:
    """Split a source into chunks of about `size` bytes."""
    if source.is_parquet:
        groups = open_parquet(source.path).metadata.num_row_groups
        return [Chunk(source, i, i + 1) for i in range(groups)]
    if source.is_compressed:
        return [Chunk(source, 0, source.size)]
    return [Chunk(source, start, min(start + size, source.size)) for start in range(0, source.size, size)]
