"""Mined pairs in Parquet: one row per reply, with the texts, ids and authors of its context, oldest first."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.artefacts.files import atomic_write
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError
from tertulia.corpus.mining.columns import to_arrow
from tertulia.corpus.mining.filters import FilteredMessages
from tertulia.corpus.mining.forest import Paths, as_lists
from tertulia.corpus.mining.segments import open_buffered
from tertulia.corpus.shards import mined_dialogue, read_rows

PAIRS, WHOLE = "pairs", "whole"
"""Names of the folders with the shards: pairs, and dialogues from root to leaf."""
FUNNEL = "funnel.json"
"""The counts of a run, written last: the folder is complete once it is there."""
_BUFFER = 1 << 17
"""Bytes of a shard that are written at once: most small shards are, as a whole."""
_TEXT = pa.string()
_ONCE = pa.dictionary(pa.int32(), _TEXT)
_LIST = pa.list_(_ONCE)
_HEAD = (("id", _TEXT), ("thread", _ONCE))
_TAIL = (("time", pa.float64()), ("kept", _ONCE))
PAIR_SCHEMA = pa.schema(
    [*_HEAD, ("context", _LIST), ("response", _TEXT), ("context_ids", _LIST), ("authors", _LIST), *_TAIL]
)
"""As written; it reads back as plain strings. `authors` are those of the context, then that of the response; `time` and
the fields in `kept`, a JSON object, are those of the response."""
WHOLE_SCHEMA = pa.schema([*_HEAD, ("texts", _LIST), ("ids", _LIST), ("authors", _LIST), *_TAIL])
"""`id`, `time` and `kept` are those of the last message, which has no reply."""


def pair_rows(filtered: FilteredMessages, paths: Paths) -> pa.Table:
    """Replies with their contexts as rows."""
    context, ends = paths.without_ends(), to_arrow(paths.ends)
    return pa.table(
        {
            "id": filtered.ids.take(ends),
            "thread": filtered.threads.take(ends).dictionary_encode(),
            "context": as_lists(context, filtered.texts),
            "response": filtered.texts.take(ends),
            "context_ids": as_lists(context, filtered.ids),
            "authors": as_lists(paths, filtered.authors),
            "time": filtered.times.take(ends),
            "kept": filtered.kept_fields.take(ends).dictionary_encode(),
        },
        PAIR_SCHEMA,
    )


def whole_rows(filtered: FilteredMessages, paths: Paths) -> pa.Table:
    """Dialogues from the root to a leaf as rows."""
    ends = to_arrow(paths.ends)
    return pa.table(
        {
            "id": filtered.ids.take(ends),
            "thread": filtered.threads.take(ends).dictionary_encode(),
            "texts": as_lists(paths, filtered.texts),
            "ids": as_lists(paths, filtered.ids),
            "authors": as_lists(paths, filtered.authors),
            "time": filtered.times.take(ends),
            "kept": filtered.kept_fields.take(ends).dictionary_encode(),
        },
        WHOLE_SCHEMA,
    )


def write_rows(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write one shard, which appears when it is complete."""
    with atomic_write(path, durable=True) as file:
        return write_rows_to(file, tables, schema)


def write_rows_to(file: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write each table as a row group. Every setting that affects the bytes is explicit here."""
    rows = 0
    settings = {
        "version": "2.6",
        "data_page_version": "1.0",
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [
            f"{f.name}.list.element" if f.type == _LIST else f.name for f in schema if f.type in (_LIST, _ONCE)
        ],
        "dictionary_pagesize_limit": 1 << 30,
        "write_statistics": False,
        "store_schema": False,  # with it, lists would read back as dictionaries
    }
    with open_buffered(file, _BUFFER) as sink, pq.ParquetWriter(sink, schema, **settings) as out:
        for table in tables:
            if table.num_rows:
                out.write_table(table, row_group_size=table.num_rows)
                rows += table.num_rows
    return rows


def is_mined(folder: Path) -> bool:
    """Whether the folder is a mined corpus that is complete."""
    return (folder / FUNNEL).is_file() and any((folder / PAIRS).glob("*.parquet"))


def shards(folder: Path, kind: str = PAIRS) -> list[Path]:
    """The shards of a mined corpus, in order."""
    files = sorted(file for file in (folder / kind).glob("*.parquet") if file.stem.isdigit())  # others are not ours
    if not files:
        raise DataError(f"No mined {kind} in {folder}.", hint="Create them with `tertulia corpus mine`.")
    return files


def read_pairs(folder: Path) -> Iterator[Dialogue]:
    """The pairs of a mined corpus as dialogues: the context, then the response; each turn names its message."""
    return (mined_dialogue(row) for shard in shards(folder) for row in read_rows(shard))


def read_whole(folder: Path) -> Iterator[Dialogue]:
    """The dialogues from root to leaf of a corpus mined with whole = true."""
    return (mined_dialogue(row) for shard in shards(folder, WHOLE) for row in read_rows(shard))
