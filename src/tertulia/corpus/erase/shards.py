"""The shards of a mined corpus, searched column by column: every distinct text of a row group is judged once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tertulia.artefacts.files import read_json, write_json
from tertulia.core.dialogue import Json
from tertulia.corpus.erase.matching import ErasedMessages, mask, snippet
from tertulia.corpus.erase.people import People
from tertulia.corpus.erase.records import RecordJudge
from tertulia.corpus.mining.pairs import FUNNEL, PAIR_SCHEMA, PAIRS, WHOLE, WHOLE_SCHEMA, write_rows
from tertulia.corpus.shards import open_parquet

_SCHEMAS = {PAIRS: PAIR_SCHEMA, WHOLE: WHOLE_SCHEMA}
_TEXTS, _NAMES = ("context", "response", "texts"), ("id", "context_ids", "ids")
_CLEAN, _NEAR, _QUOTE = range(3)
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class ShardSearch:
    """What a search of one shard found."""

    rows: int = 0
    removed: list[tuple[str, str]] = field(default_factory=list)
    """Thread and id of each row to remove."""
    masked: int = 0
    """Rows that stay with a text masked."""
    near: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Kind and snippet of the near matches that stay, by text."""


def shards_of(folder: Path) -> list[Path]:
    """All shards of a mined corpus, in order."""
    return [shard for kind in _SCHEMAS for shard in sorted((folder / kind).glob("*.parquet"))]


def collect(shard: Path, people: People, erased: ErasedMessages) -> None:
    """Add the erased messages that are in a shard."""
    for table in _groups(shard):
        ids = _any(table, ("id", "context_ids", "ids"), people.is_id)
        rows = table.filter(pa.array(ids | _any(table, ("authors",), people.is_author)))
        for row in rows.to_pylist():
            for author, name, text in _messages(row):
                if people.is_author(author) or people.is_id(name):
                    erased.add(row["thread"], name, text)


def collect_ambiguous(shard: Path, erased: ErasedMessages) -> None:
    """Note which ids of erased messages and removed rows other threads have, too."""
    names = {name for _, name in (*erased.messages, *erased.rows)}
    for table in _groups(shard):
        rows = table.filter(pa.array(_any(table, _NAMES, names.__contains__)))
        for row in rows.to_pylist():
            thread = row["thread"] or ""
            shared = names.intersection([row["id"], *row.get("context_ids", []), *row.get("ids", [])])
            erased.ambiguous |= {
                name for name in shared if (thread, name) not in erased.messages and (thread, name) not in erased.rows
            }


def search(shard: Path, judge: RecordJudge) -> ShardSearch:
    """What is to be done with a shard; nothing is written."""
    result = ShardSearch()
    for table in _groups(shard):
        _search(table, judge, result)
    return result


def rewrite(shard: Path, judge: RecordJudge) -> ShardSearch:
    """Remove and mask what `search` finds; a shard in which that is nothing keeps its bytes."""
    schema = _SCHEMAS[shard.parent.name]
    result = ShardSearch()
    kept = []
    for table in _groups(shard):
        stays = _search(table, judge, result)
        rows = table.filter(pa.array(stays)).combine_chunks()
        kept.append(pa.table({f.name: _column(rows[f.name], f, judge) for f in schema}, schema))
    if result.removed or result.masked:
        write_rows(shard, kept, schema)
    return result


def update_funnel(folder: Path) -> None:
    """Update the numbers of pairs and dialogues; the counts of the rules stay as they were."""
    record = read_json(folder / FUNNEL)
    count = {kind: sum(open_parquet(s).metadata.num_rows for s in (folder / kind).glob("*")) for kind in _SCHEMAS}
    updated = record | {"pairs": count[PAIRS], "whole": count[WHOLE]}
    if updated != record:
        write_json(folder / FUNNEL, updated, durable=True)


def _groups(shard: Path) -> Iterator[pa.Table]:
    with open_parquet(shard) as file:
        for number in range(file.metadata.num_row_groups):
            yield file.read_row_group(number)


def _messages(row: dict[str, Json]) -> Iterator[tuple[str, str, str]]:
    """Author, id and text of every message in a row."""
    ids = row["ids"] if "ids" in row else [*row["context_ids"], row["id"]]
    texts = row["texts"] if "texts" in row else [*row["context"], row["response"]]
    return zip(row["authors"], ids, texts, strict=True)


def _search(table: pa.Table, judge: RecordJudge, result: ShardSearch) -> Flags:
    """Search one row group; returns which rows stay."""
    people = judge.people
    near_texts: dict[str, tuple[str, str]] = {}

    def level(text: str) -> int:
        matches = judge.texts.find(text)
        if any(match.kind == "quote" for match in matches):
            return _QUOTE
        if matches and judge.near != "keep":
            near_texts[text] = (matches[0].kind, snippet(text, matches[0]))
            return _QUOTE if judge.near == "remove" else _NEAR
        return _CLEAN

    levels = _max(table, _TEXTS, level)
    removed = (levels == _QUOTE) | _any(table, ("authors",), people.is_author) | _any(table, _NAMES, people.is_id)
    removed |= _short_quotes(table, judge)
    near = (levels == _NEAR) & ~removed
    for row in table.select(["id", "thread"]).filter(pa.array(removed)).to_pylist():
        result.removed.append((row["thread"] or "", row["id"]))
    result.rows += table.num_rows
    if judge.near == "mask":
        result.masked += int(near.sum())
    elif near.any():
        for row in table.filter(pa.array(near)).to_pylist():
            result.near |= {text: near_texts[text] for _, _, text in _messages(row) if text in near_texts}
    stays: Flags = ~removed
    return stays


def _short_quotes(table: pa.Table, judge: RecordJudge) -> Flags:
    """Rows in a thread of an erased message with a quoted line that is part of it."""
    flags = _any(table, ("thread",), judge.erased.texts.__contains__) & _any(table, _TEXTS, lambda text: ">" in text)
    for i in np.flatnonzero(flags):
        row = table.slice(int(i), 1).to_pylist()[0]
        flags[i] = any(judge.texts.is_short_quote(text, row["thread"] or "") for _, _, text in _messages(row))
    return flags


def _any(table: pa.Table, names: tuple[str, ...], predicate: Callable[[str], bool]) -> Flags:
    return _max(table, names, predicate) > 0


def _max(table: pa.Table, names: tuple[str, ...], value_of: Callable[[str], int]) -> npt.NDArray[np.int8]:
    """For each row the largest value of any string in these columns; each distinct string is looked at once."""
    result = np.zeros(table.num_rows, np.int8)
    for name in names:
        if name in table.column_names and table.num_rows:
            column = _whole(table[name])
            is_list = pa.types.is_list(column.type)
            strings = (column.flatten() if is_list else column).fill_null("").dictionary_encode()
            values = np.array([value_of(string) for string in strings.dictionary.to_pylist()], np.int8)
            by_string = values[strings.indices.to_numpy()] if len(strings) else np.zeros(0, np.int8)
            if is_list:
                ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy())
                rows = np.repeat(np.arange(table.num_rows), np.diff(ends, prepend=0))
                np.maximum.at(result, rows, by_string)
            else:
                result = np.maximum(result, by_string)
    return result


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _column(column: pa.ChunkedArray, field: pa.Field, judge: RecordJudge) -> pa.Array:
    """A column as shards are written, its lists encoded as dictionaries; masked, if that was decided."""
    array = _whole(column)
    masked = judge.near == "mask" and field.name in _TEXTS
    if pa.types.is_list(field.type):
        values = array.flatten().dictionary_encode()
        if masked:
            values = _masked(values, judge)
        return pa.ListArray.from_arrays(_offsets(array), values)
    if masked:
        return _masked(array.dictionary_encode(), judge).cast(array.type)
    return array.dictionary_encode() if pa.types.is_dictionary(field.type) else array


def _offsets(array: pa.ListArray) -> pa.Array:
    lengths = array.value_lengths().to_numpy()
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), pa.int32())


def _masked(values: pa.DictionaryArray, judge: RecordJudge) -> pa.DictionaryArray:
    masked = [mask(text, judge.texts.find(text)) for text in values.dictionary.to_pylist()]
    return (
        pa.DictionaryArray.from_arrays(values.indices, pa.array(masked, pa.string()))
        .cast(pa.string())
        .dictionary_encode()
    )
