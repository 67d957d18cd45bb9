"""A person's wish to be forgotten: their messages, and everything made from them, leave a mined corpus.

What goes: every pair in which one of their messages is the response or part of the context, and every whole dialogue
they take part in. What hangs below their messages stays where they are out of sight, more than a context away, unless
it quotes them: a line that begins with ">" and repeats a part of an erased message of the same thread takes its row
along. What also stays: counts (funnel.json keeps how many pairs there are now) and the subword model, in which a single
person's words do not stand, except as a piece that many others wrote too; `prove` looks for their name there.

The record of an erasure holds no name, only a salted hash, by which a corpus mined anew in the same folder is freed of
the same people again. Whoever holds the folder and a guess can still check the guess: delete erased.json if that must
not be. The source is not ours to change: whoever keeps the dump erases there too.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sentencepiece

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.text import squash
from tertulia.corpus.mining.files import open_parquet, read_json, write_json
from tertulia.corpus.mining.pairs import PAIR_SCHEMA, PAIRS, WHOLE, WHOLE_SCHEMA, read_pairs, write_rows
from tertulia.corpus.shards import write_parquet

RECORD = "erased.json"
_FUNNEL, _WORK, _DIALOGUES, _SUBWORDS = "funnel.json", "_work", "pairs.parquet", "subwords.model"
_SCHEMAS = {PAIRS: PAIR_SCHEMA, WHOLE: WHOLE_SCHEMA}


@dataclass(frozen=True, slots=True)
class Erased:
    """What was taken out."""

    pairs: int
    whole: int
    messages: int
    """Different messages of theirs that stood in the corpus."""
    shards: int
    """Files that were written anew."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was looked through, and where something was found; nothing should be."""

    rows: int
    files: int
    found: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is left."""
        return not self.found


@dataclass(slots=True)
class _Traces:
    """What erased messages said, by thread, to find who quotes them."""

    said: dict[str | None, list[str]] = field(default_factory=dict)
    messages: set[tuple[str | None, str]] = field(default_factory=set)


Gone = Callable[[str, str], bool]
"""Whether a message, by author and id, is to be forgotten."""


def erase(folder: Path, *, authors: Iterable[str] = (), ids: Iterable[str] = ()) -> Erased:
    """Take all messages of these authors, and those with these ids, out of a mined corpus, and record that it was done.

    An interrupted erasure is simply done again; a shard is either as it was or without them.
    """
    authors, ids = frozenset(authors), frozenset(ids)
    if not authors and not ids:
        raise UsageError("Name whom or what to erase.", hint="Give authors or ids.")
    _must_be_mined(folder)
    salt = secrets.token_hex(16)
    hashes = sorted(_hash(salt, kind, name) for kind, names in (("a", authors), ("i", ids)) for name in names)
    erased = _take_out(folder, lambda author, name: author in authors or name in ids)
    _note(folder, {"salt": salt, "hashes": hashes, "when": datetime.now(UTC).isoformat(timespec="seconds")})
    return erased


def erase_again(folder: Path) -> Erased:
    """Take out whoever was erased from this folder before: for a corpus that was mined anew."""
    if not (folder / RECORD).is_file():
        return Erased(0, 0, 0, 0)
    records = read_json(folder / RECORD)["erasures"]
    known: dict[tuple[str, str], bool] = {}

    def matches(kind: str, name: str) -> bool:
        if (kind, name) not in known:
            known[kind, name] = any(_hash(r["salt"], kind, name) in r["hashes"] for r in records)
        return known[kind, name]

    return _take_out(folder, lambda author, name: matches("a", author) or matches("i", name))


def prove(folder: Path, *, authors: Iterable[str] = (), ids: Iterable[str] = ()) -> Proof:
    """Read everything again and say where something is left of these authors or ids."""
    _must_be_mined(folder)
    names = {*authors, *ids}
    found, rows = [], 0
    for shard in _shards(folder):
        for row in _rows(shard):
            rows += 1
            if names & {row["id"], *row["authors"], *row.get("context_ids", []), *row.get("ids", [])}:
                found.append(f"{shard.relative_to(folder)}: {row['id']}")
    if (folder / _DIALOGUES).is_file():
        for row in _rows(folder / _DIALOGUES):
            rows += 1
            if names & {n for turn in row["turns"] for n in (turn["speaker"], *turn["source"])}:
                found.append(f"{_DIALOGUES}: {row['id']}")
    others = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.suffix != ".parquet"]
    found += [str(f.relative_to(folder)) for f in others if _mentions(f, names)]
    return Proof(rows, len(others) + len(_shards(folder)) + (folder / _DIALOGUES).is_file(), tuple(found))


def _must_be_mined(folder: Path) -> None:
    if not (folder / _FUNNEL).is_file() or (folder / _WORK).exists():
        raise DataError(f"{folder} holds no mined corpus, or one that is not done.", hint="Mine it to its end first.")


def _hash(salt: str, kind: str, name: str) -> str:
    return hashlib.blake2b(f"{kind}:{name}".encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def _take_out(folder: Path, gone: Gone) -> Erased:
    traces = _Traces()
    for shard in _shards(folder):
        _collect(shard, gone, traces)
    dropped = {PAIRS: 0, WHOLE: 0}
    changed = 0
    for shard in _shards(folder):
        count = _rewrite(shard, gone, traces)
        dropped[shard.parent.name] += count
        changed += count > 0
    _count_anew(folder)
    if changed and (folder / _DIALOGUES).is_file():
        write_parquet(read_pairs(folder), folder / _DIALOGUES)
    return Erased(dropped[PAIRS], dropped[WHOLE], len(traces.messages), changed)


def _shards(folder: Path) -> list[Path]:
    return [shard for kind in _SCHEMAS for shard in sorted((folder / kind).glob("*.parquet"))]


def _rows(shard: Path) -> Iterator[dict[str, Json]]:
    with open_parquet(str(shard)) as file:
        for batch in file.iter_batches(batch_size=2000):
            yield from batch.to_pylist()


def _messages(row: dict[str, Json]) -> Iterator[tuple[str, str, str]]:
    """Author, id and text of every message in a row."""
    ids = row["ids"] if "ids" in row else [*row["context_ids"], row["id"]]
    texts = row["texts"] if "texts" in row else [*row["context"], row["response"]]
    return zip(row["authors"], ids, texts, strict=True)


def _collect(shard: Path, gone: Gone, traces: _Traces) -> None:
    for row in _rows(shard):
        for author, name, text in _messages(row):
            if gone(author, name) and (row["thread"], name) not in traces.messages:
                traces.messages.add((row["thread"], name))
                traces.said.setdefault(row["thread"], []).append(squash(text))


def _rewrite(shard: Path, gone: Gone, traces: _Traces) -> int:
    """Write a shard without the rows that must go; returns how many those are. Untouched shards keep their bytes."""
    schema = _SCHEMAS[shard.parent.name]
    kept: list[pa.Table] = []
    dropped = 0
    with open_parquet(str(shard)) as file:
        for number in range(file.metadata.num_row_groups):
            table = file.read_row_group(number)
            stays = np.array([not _must_go(row, gone, traces) for row in table.to_pylist()], np.bool_)
            dropped += len(stays) - int(stays.sum())
            kept.append(_as_written(table, stays, schema))
    if dropped:
        write_rows(shard, kept, schema)
    return dropped


def _must_go(row: dict[str, Json], gone: Gone, traces: _Traces) -> bool:
    said = traces.said.get(row["thread"], ())
    return any(gone(author, name) or (said and _quotes(text, said)) for author, name, text in _messages(row))


def _quotes(text: str, said: Iterable[str]) -> bool:
    if ">" not in text:
        return False
    lines = (squash(line.strip().lstrip("> ")) for line in text.split("\n") if line.strip().startswith(">"))
    return any(line and line in one for line in lines for one in said)


def _as_written(table: pa.Table, stays: npt.NDArray[np.bool_], schema: pa.Schema) -> pa.Table:
    """Rows with their lists as dictionaries again, as shards are written."""
    table = table.filter(pa.array(stays)).combine_chunks()
    return pa.table({field.name: _encoded(table[field.name], field.type) for field in schema}, schema)


def _encoded(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values.dictionary_encode())
    return array.dictionary_encode() if pa.types.is_dictionary(kind) else array


def _count_anew(folder: Path) -> None:
    """The funnel of what is there now; what the rules did stays as it was counted."""
    record = read_json(folder / _FUNNEL)
    count = {kind: sum(open_parquet(str(s)).metadata.num_rows for s in (folder / kind).glob("*")) for kind in _SCHEMAS}
    write_json(folder / _FUNNEL, record | {"pairs": count[PAIRS], "whole": count[WHOLE]}, durable=True)


def _note(folder: Path, erasure: Json) -> None:
    before = read_json(folder / RECORD)["erasures"] if (folder / RECORD).is_file() else []
    write_json(folder / RECORD, {"erasures": [*before, erasure]}, durable=True)


def _mentions(file: Path, names: set[str]) -> bool:
    """Whether a name stands in a file that is no shard: in a text file anywhere, in the model as a piece of its own."""
    if file.name == _SUBWORDS:
        model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        pieces = (model.id_to_piece(i).removeprefix("\u2581") for i in range(model.vocab_size()))
        return any(len(piece) > 3 and piece in names for piece in pieces)
    content = file.read_text(encoding="utf-8", errors="replace")
    return any(f'"{name}"' in content for name in names)
