"""Dialogues in Parquet with an explicit schema: reading returns exactly what was written, turn by turn."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.artefacts.files import atomic_write
from tertulia.core.codec import dialogue_from_json, dialogue_to_json
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import DataError

_TURN = pa.struct(
    [("speaker", pa.string()), ("text", pa.string()), ("source", pa.list_(pa.string())), ("meta", pa.string())]
)
_PERSONA = pa.struct(
    [
        ("speaker", pa.string()),
        ("id", pa.string()),
        ("name", pa.string()),
        ("sentences", pa.list_(pa.string())),
        ("revised", pa.list_(pa.string())),
    ]
)
_EVIDENCE = pa.struct([("text", pa.string()), ("source", pa.string()), ("id", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("turns", pa.list_(_TURN), nullable=False),
        pa.field("personas", pa.list_(_PERSONA)),
        pa.field("evidence", pa.list_(_EVIDENCE)),
        pa.field("meta", pa.string()),
    ]
)
"""`meta` columns contain JSON, since every source records different things."""
_MINED_PAIR = {"id", "thread", "context", "response", "context_ids", "authors"}
_MINED_WHOLE = {"id", "thread", "texts", "ids", "authors"}
"""Columns of mined shards, which hold every text of a context once."""


def write_parquet(dialogues: Iterable[Dialogue], path: Path, *, rows: int = 2000) -> int:
    """Write dialogues to one Parquet file, `rows` per row group; returns how many there were."""
    count = 0
    with atomic_write(path) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for group in _groups(dialogues, rows):
            writer.write_table(pa.Table.from_pylist([dialogue_row(d) for d in group], schema=SCHEMA))
            count += len(group)
    return count


def open_parquet(path: Path | str) -> pq.ParquetFile:
    """Open a Parquet file, or raise a clear error."""
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}).") from None


def read_rows(path: Path) -> Iterator[dict[str, Json]]:
    """The rows of one Parquet file, streamed."""
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=2000):
            yield from batch.to_pylist()


def read_parquet(path: Path, *, row_groups: Sequence[int] | None = None) -> Iterator[Dialogue]:
    """The dialogues of one Parquet file, or of some of its row groups, streamed; a mined pair is a dialogue, too."""
    with open_parquet(path) as file:
        columns = set(file.schema_arrow.names)
        decode = mined_dialogue if columns >= _MINED_PAIR or columns >= _MINED_WHOLE else _dialogue
        if decode is _dialogue and (missing := {"id", "turns"} - columns):
            raise DataError(f"{path} does not contain dialogues: the column {sorted(missing)[0]!r} is missing.")
        try:
            for batch in file.iter_batches(batch_size=1000, row_groups=row_groups):
                yield from (decode(row) for row in batch.to_pylist())
        except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
            raise DataError(f"{path} does not contain dialogues, or is damaged ({error}).") from None


def mined_dialogue(row: dict[str, Json]) -> Dialogue:
    """A row of a mined shard, a pair or a dialogue from root to leaf; each turn names its message. Time and further
    fields, where they are known, are those of the last message."""
    if "response" in row:
        texts, ids = [*row["context"], row["response"]], [*row["context_ids"], row["id"]]
    else:
        texts, ids = row["texts"], row["ids"]
    messages = zip(row["authors"], texts, ids, strict=True)
    turns = tuple(Turn(author, text, source=(name,)) for author, text, name in messages)
    kept = json.loads(row["kept"]) if row.get("kept") else {}
    time = {} if row.get("time") is None else {"time": row["time"]}
    return Dialogue(id=row["id"], turns=turns, meta={**kept, "thread": row["thread"], **time})


def _groups(dialogues: Iterable[Dialogue], rows: int) -> Iterator[list[Dialogue]]:
    group: list[Dialogue] = []
    for dialogue in dialogues:
        group.append(dialogue)
        if len(group) == rows:
            yield group
            group = []
    if group:
        yield group


def dialogue_row(dialogue: Dialogue) -> dict[str, Json]:
    """A dialogue as a row of a Parquet file."""
    row = dialogue_to_json(dialogue)
    row["turns"] = [turn | {"meta": _dumps(turn.get("meta"))} for turn in row["turns"]]
    row["personas"] = [{"speaker": speaker} | persona for speaker, persona in row.get("personas", {}).items()]
    return row | {"meta": _dumps(row.get("meta"))}


def _dialogue(row: dict[str, Json]) -> Dialogue:
    value: dict[str, Json] = {
        "id": row["id"],
        "turns": [_clean(turn) | _meta(turn) for turn in row["turns"]],
        "personas": {p["speaker"]: _clean(p, without="speaker") for p in row.get("personas") or []},
        "evidence": [_clean(e) for e in row.get("evidence") or []],
    }
    return dialogue_from_json(value | _meta(row))


def _clean(value: dict[str, Json], without: str = "meta") -> dict[str, Json]:
    return {k: v for k, v in value.items() if v is not None and k not in (without, "meta")}


def _meta(value: dict[str, Json]) -> dict[str, Json]:
    return {"meta": json.loads(value["meta"])} if value.get("meta") else {}


def _dumps(meta: Json) -> str | None:
    return json.dumps(meta, ensure_ascii=False) if meta else None
