"""Mined pairs in Parquet: one row a reply, with the texts, ids and authors of its context, oldest first."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.mining.files import appearing, open_parquet
from tertulia.corpus.mining.forest import Lines, as_lists
from tertulia.corpus.mining.kernel import Judged

PAIRS, WHOLE = "pairs", "whole"
"""Names of the folders with the shards."""
_TEXT = pa.string()
_ONCE = pa.dictionary(pa.int32(), _TEXT)
_LIST = pa.list_(_ONCE)
_HEAD = (("id", _TEXT), ("thread", _ONCE))
PAIR_SCHEMA = pa.schema([*_HEAD, ("context", _LIST), ("response", _TEXT), ("context_ids", _LIST), ("authors", _LIST)])
"""As it is written; it reads as plain strings. `authors` are those of the context, then that of the response."""
WHOLE_SCHEMA = pa.schema([*_HEAD, ("texts", _LIST), ("ids", _LIST), ("authors", _LIST)])
"""`id` is that of the last message, which nobody answered."""


def pair_rows(judged: Judged, lines: Lines) -> pa.Table:
    """Replies with their contexts as rows."""
    before, ends = lines.without_ends(), pa.array(lines.ends)
    return pa.table(
        {
            "id": judged.ids.take(ends),
            "thread": judged.threads.take(ends).dictionary_encode(),
            "context": as_lists(before, judged.texts),
            "response": judged.texts.take(ends),
            "context_ids": as_lists(before, judged.ids),
            "authors": as_lists(lines, judged.authors),
        },
        PAIR_SCHEMA,
    )


def whole_rows(judged: Judged, lines: Lines) -> pa.Table:
    """Dialogues from the root to a leaf as rows."""
    ends = pa.array(lines.ends)
    return pa.table(
        {
            "id": judged.ids.take(ends),
            "thread": judged.threads.take(ends).dictionary_encode(),
            "texts": as_lists(lines, judged.texts),
            "ids": as_lists(lines, judged.ids),
            "authors": as_lists(lines, judged.authors),
        },
        WHOLE_SCHEMA,
    )


def write_rows(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    """One shard, each table a row group. Every setting that shapes the bytes is spelled out here."""
    rows = 0
    with (
        appearing(path, durable=True) as file,
        pq.ParquetWriter(
            file,
            schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=1,
            use_dictionary=[f"{f.name}.list.element" if f.type == _LIST else f.name for f in schema if f.type != _TEXT],
            dictionary_pagesize_limit=1 << 30,
            write_statistics=False,
            store_schema=False,  # with it, lists would read back as dictionaries
        ) as out,
    ):
        for table in tables:
            if table.num_rows:
                out.write_table(table, row_group_size=table.num_rows)
                rows += table.num_rows
    return rows


def shards(folder: Path, kind: str = PAIRS) -> list[Path]:
    """The shards of a mined corpus, in order."""
    found = sorted((folder / kind).glob("*.parquet"))
    if not found:
        raise DataError(f"There are no mined {kind} in {folder}.", hint="`tertulia corpus mine` makes them.")
    return found


def read_pairs(folder: Path) -> Iterator[Dialogue]:
    """The pairs of a mined corpus as dialogues: the context, then the response; turns name their messages."""
    for shard in shards(folder):
        for row in _rows(shard):
            texts, ids = [*row["context"], row["response"]], [*row["context_ids"], row["id"]]
            yield _dialogue(row, texts, ids)


def read_whole(folder: Path) -> Iterator[Dialogue]:
    """The dialogues from root to leaf of a corpus mined with whole = true."""
    for shard in shards(folder, WHOLE):
        for row in _rows(shard):
            yield _dialogue(row, row["texts"], row["ids"])


def _rows(shard: Path) -> Iterator[dict[str, Json]]:
    with open_parquet(str(shard)) as file:
        for batch in file.iter_batches(batch_size=2000):
            yield from batch.to_pylist()


def _dialogue(row: dict[str, Json], texts: list[str], ids: list[str]) -> Dialogue:
    said = zip(row["authors"], texts, ids, strict=True)
    turns = tuple(Turn(author, text, source=(name,)) for author, text, name in said)
    return Dialogue(id=row["id"], turns=turns, meta={"thread": row["thread"]})
