"""What is mined: files as they are, cut into tasks that a worker can read alone.

Plain JSON lines are cut into byte ranges, Parquet into row groups. A packed file is read from its start by one worker,
block by block; several packed files are read side by side.
"""

import hashlib
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
import zstandard

from tertulia import sample
from tertulia.core.codec import dump_line, message_to_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.mining.files import PACKED, open_bytes, open_parquet
from tertulia.corpus.mining.lines import BYTE_ORDER_MARK
from tertulia.corpus.mining.shapes import recognise

ENDINGS = tuple(f"{plain}{packed}" for plain in (".jsonl", ".ndjson", ".json") for packed in ("", *PACKED))
_UNPACKED = 6
"""A guess at how much larger JSON lines are than packed ones; it only steers the sizes of parts."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input file."""

    path: str
    """Absolute: another machine that shares the disk must find it."""
    name: str
    size: int
    stamp: str
    """Time of its last change, or a hash of what came through a pipe."""
    shape: str

    @property
    def is_parquet(self) -> bool:
        """Whether it is a Parquet file."""
        return self.name.endswith(".parquet")

    @property
    def is_packed(self) -> bool:
        """Whether it has to be read from its start."""
        return self.name.endswith(PACKED)

    @property
    def weight(self) -> int:
        """About how many bytes of JSON lines it holds."""
        return self.size * (_UNPACKED if self.is_packed or self.is_parquet else 1)

    def as_json(self) -> dict[str, Json]:
        """For the manifest: where a file lies does not matter."""
        return {name: value for name, value in asdict(self).items() if name != "path"}


class Part(NamedTuple):
    """A part of a source that one worker reads."""

    source: Source
    start: int
    """First byte, or number of the row group."""
    end: int


def find_sources(targets: Iterable[str], *, shape: str | None, fields: Mapping[str, str], spool: Path) -> list[Source]:
    """The files that the targets stand for. What is none (the sample, `-` for a pipe) is written to `spool` first."""
    found = []
    for target in targets:
        if target == SAMPLE:
            lines = (dump_line(message_to_json(m)).encode() + b"\n" for m in sample.messages())
            found.append(_spooled(lines, spool / "sample.jsonl", "messages"))
        elif target == "-":
            found.append(_spooled(sys.stdin.buffer, spool / "stdin.jsonl", shape))
        else:
            found += [_source(file, shape, fields) for file in _files(Path(target))]
    return found


def _files(target: Path) -> list[Path]:
    if target.is_file():
        return [target]
    if not target.exists():
        raise DataError(
            f"There is no {target}.", hint=f"Give a file, a folder, - for a pipe, or {SAMPLE!r} for the bundled forum."
        )
    found = sorted(f for f in target.iterdir() if f.name.endswith((*ENDINGS, ".parquet")) or _is_dump(f))
    lines = [f for f in found if ".json." not in f"{f.name}."]  # a ConvoKit folder has .json files about its messages
    if not (lines or found):
        raise DataError(f"There are no files of messages in {target}.", hint=f"Files end in {', '.join(ENDINGS)}.")
    return lines or found


def _is_dump(file: Path) -> bool:
    """Reddit's monthly dumps: RC_2018-07.zst, RS_2018-07.zst."""
    return file.name.endswith(".zst") and file.name.startswith(("RC_", "RS_"))


def _source(file: Path, shape: str | None, fields: Mapping[str, str]) -> Source:
    about = file.stat()
    name = shape or ("messages" if fields else recognise(_first_record(file)))
    return Source(str(file.resolve()), file.name, about.st_size, str(about.st_mtime_ns), name)


def _spooled(lines: Iterable[bytes], path: Path, shape: str | None) -> Source:
    digest, size = hashlib.blake2b(digest_size=16), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for line in lines:
            size += out.write(line)
            digest.update(line)
    return Source(str(path.resolve()), path.name, size, digest.hexdigest(), shape or recognise(_first_record(path)))


def _first_record(file: Path) -> dict[str, Json]:
    """The first of a file's first lines that is a JSON object; an empty one where there is none."""
    if file.name.endswith(".parquet"):
        return dict.fromkeys(open_parquet(str(file)).schema_arrow.names)
    try:
        with open_bytes(str(file)) as lines:
            for line, _ in zip(lines, range(100), strict=False):
                try:
                    record = orjson.loads(line.removeprefix(BYTE_ORDER_MARK))
                except orjson.JSONDecodeError:
                    continue
                if isinstance(record, dict):
                    return record
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from None
    return {}


def parts_of(source: Source, *, size: int) -> list[Part]:
    """Cut a source into parts of about `size` bytes."""
    if source.is_parquet:
        groups = open_parquet(source.path).metadata.num_row_groups
        return [Part(source, i, i + 1) for i in range(groups)]
    if source.is_packed:
        return [Part(source, 0, source.size)]
    return [Part(source, start, min(start + size, source.size)) for start in range(0, source.size, size)]
