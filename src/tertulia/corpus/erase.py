"""The right to be forgotten: remove a person's messages, and everything derived from them, from a mined corpus.

Removed are every pair in which one of their messages is the response or part of the context, and every root-to-leaf
dialogue they take part in. Replies further down, more than a context away from their messages, are kept unless they
quote them: a row is removed too if a line that begins with ">" repeats part of an erased message of the same thread.
Also kept are counts (funnel.json records how many pairs there are now) and the subword model, which does not contain a
single person's words except as a piece that many others wrote too; `verify` looks for their name there.

The record of an erasure contains no name, only a salted hash, by which the same people are erased again when a corpus
is mined again in the same folder. Whoever has the folder and a guess can still check the guess: delete erased.json if
that must not be possible. The source is not changed: whoever keeps the dump must erase there too.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sentencepiece

from tertulia.artefacts.files import read_json, write_json
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.text import squash
from tertulia.corpus.mining.pairs import FUNNEL, PAIR_SCHEMA, PAIRS, WHOLE, WHOLE_SCHEMA, read_pairs, write_rows
from tertulia.corpus.shards import open_parquet, read_rows, write_parquet

RECORD = "erased.json"
_WORK, _DIALOGUES, _SUBWORDS = "_work", "pairs.parquet", "subwords.model"
_SCHEMAS = {PAIRS: PAIR_SCHEMA, WHOLE: WHOLE_SCHEMA}


class EraseConfig(Config):
    """Whose messages, or which messages, to erase from a mined corpus."""

    folder: Annotated[Path, Cli(argument=True)]
    """Folder of a mined corpus."""
    authors: Annotated[tuple[str, ...], Cli("--author")] = ()
    """Erase everything by this author; repeat the option for more."""
    ids: Annotated[tuple[str, ...], Cli("--id")] = ()
    """Erase the message with this id; repeat the option for more."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was removed."""

    pairs: int
    whole: int
    messages: int
    """Distinct messages of theirs that were in the corpus."""
    shards: int
    """Files that were rewritten."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was searched, and where traces are left; there should be none."""

    rows: int
    files: int
    traces: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is left."""
        return not self.traces


@dataclass(slots=True)
class _ErasedMessages:
    """The erased messages and their texts by thread, to find quotes of them."""

    texts: dict[str | None, list[str]] = field(default_factory=dict)
    keys: set[tuple[str | None, str]] = field(default_factory=set)


IsErased = Callable[[str, str], bool]
"""Whether a message, by author and id, is to be erased."""


def erase(folder: Path, *, authors: Iterable[str] = (), ids: Iterable[str] = ()) -> Erased:
    """Remove all messages of these authors, and those with these ids, from a mined corpus, and record the erasure.

    An interrupted erasure can be repeated; a shard is either unchanged or without them.
    """
    authors, ids = frozenset(authors), frozenset(ids)
    if not authors and not ids:
        raise UsageError("Nothing to erase was given.", hint="Name authors with --author, or messages with --id.")
    _check_mined(folder)
    salt = secrets.token_hex(16)
    hashes = sorted(_hash(salt, kind, name) for kind, names in (("a", authors), ("i", ids)) for name in names)
    erased = _erase(folder, lambda author, name: author in authors or name in ids)
    _record(folder, {"salt": salt, "hashes": hashes, "when": datetime.now(UTC).isoformat(timespec="seconds")})
    return erased


def erase_again(folder: Path) -> Erased:
    """Erase everyone who was erased from this folder before: for a corpus that was mined again."""
    if not (folder / RECORD).is_file():
        return Erased(0, 0, 0, 0)
    records = read_json(folder / RECORD)["erasures"]
    cache: dict[tuple[str, str], bool] = {}

    def matches(kind: str, name: str) -> bool:
        if (kind, name) not in cache:
            cache[kind, name] = any(_hash(r["salt"], kind, name) in r["hashes"] for r in records)
        return cache[kind, name]

    return _erase(folder, lambda author, name: matches("a", author) or matches("i", name))


def verify(folder: Path, *, authors: Iterable[str] = (), ids: Iterable[str] = ()) -> Verification:
    """Search all files of a mined corpus for traces of these authors or ids."""
    _check_mined(folder)
    names = {*authors, *ids}
    traces, rows = [], 0
    for shard in _shards(folder):
        for row in read_rows(shard):
            rows += 1
            if names & {row["id"], *row["authors"], *row.get("context_ids", []), *row.get("ids", [])}:
                traces.append(f"{shard.relative_to(folder)}: {row['id']}")
    if (folder / _DIALOGUES).is_file():
        for row in read_rows(folder / _DIALOGUES):
            rows += 1
            if names & {n for turn in row["turns"] for n in (turn["speaker"], *turn["source"])}:
                traces.append(f"{_DIALOGUES}: {row['id']}")
    others = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.suffix != ".parquet"]
    traces += [str(f.relative_to(folder)) for f in others if _mentions(f, names)]
    return Verification(rows, len(others) + len(_shards(folder)) + (folder / _DIALOGUES).is_file(), tuple(traces))


def _check_mined(folder: Path) -> None:
    if not (folder / FUNNEL).is_file() or (folder / _WORK).exists():
        raise DataError(
            f"{folder} is not a mined corpus, or mining is not finished.",
            hint="Finish mining it first with `tertulia corpus mine`.",
        )


def _hash(salt: str, kind: str, name: str) -> str:
    return hashlib.blake2b(f"{kind}:{name}".encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def _erase(folder: Path, is_erased: IsErased) -> Erased:
    # Two passes: the texts of all erased messages must be known before any row can be checked for quotes of them.
    erased = _ErasedMessages()
    for shard in _shards(folder):
        _collect(shard, is_erased, erased)
    dropped = {PAIRS: 0, WHOLE: 0}
    changed = 0
    for shard in _shards(folder):
        count = _rewrite(shard, is_erased, erased)
        dropped[shard.parent.name] += count
        changed += count > 0
    _update_funnel(folder)
    if changed and (folder / _DIALOGUES).is_file():
        write_parquet(read_pairs(folder), folder / _DIALOGUES)
    return Erased(dropped[PAIRS], dropped[WHOLE], len(erased.keys), changed)


def _shards(folder: Path) -> list[Path]:
    return [shard for kind in _SCHEMAS for shard in sorted((folder / kind).glob("*.parquet"))]


def _messages(row: dict[str, Json]) -> Iterator[tuple[str, str, str]]:
    """Author, id and text of every message in a row."""
    ids = row["ids"] if "ids" in row else [*row["context_ids"], row["id"]]
    texts = row["texts"] if "texts" in row else [*row["context"], row["response"]]
    return zip(row["authors"], ids, texts, strict=True)


def _collect(shard: Path, is_erased: IsErased, erased: _ErasedMessages) -> None:
    for row in read_rows(shard):
        for author, name, text in _messages(row):
            if is_erased(author, name) and (row["thread"], name) not in erased.keys:
                erased.keys.add((row["thread"], name))
                erased.texts.setdefault(row["thread"], []).append(squash(text))


def _rewrite(shard: Path, is_erased: IsErased, erased: _ErasedMessages) -> int:
    """Write a shard without the affected rows; returns how many there are. Unaffected shards keep their bytes."""
    schema = _SCHEMAS[shard.parent.name]
    kept: list[pa.Table] = []
    dropped = 0
    with open_parquet(shard) as file:
        for number in range(file.metadata.num_row_groups):
            table = file.read_row_group(number)
            stays = np.array([not _is_affected(row, is_erased, erased) for row in table.to_pylist()], np.bool_)
            dropped += len(stays) - int(stays.sum())
            kept.append(_select(table, stays, schema))
    if dropped:
        write_rows(shard, kept, schema)
    return dropped


def _is_affected(row: dict[str, Json], is_erased: IsErased, erased: _ErasedMessages) -> bool:
    texts = erased.texts.get(row["thread"], ())
    return any(is_erased(author, name) or (texts and _quotes(text, texts)) for author, name, text in _messages(row))


def _quotes(text: str, erased_texts: Iterable[str]) -> bool:
    if ">" not in text:
        return False
    lines = (squash(line.strip().lstrip("> ")) for line in text.split("\n") if line.strip().startswith(">"))
    return any(line and line in erased for line in lines for erased in erased_texts)


def _select(table: pa.Table, stays: npt.NDArray[np.bool_], schema: pa.Schema) -> pa.Table:
    """The rows that stay, with their lists encoded as dictionaries again, as shards are written."""
    table = table.filter(pa.array(stays)).combine_chunks()
    return pa.table({field.name: _encode(table[field.name], field.type) for field in schema}, schema)


def _encode(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values.dictionary_encode())
    return array.dictionary_encode() if pa.types.is_dictionary(kind) else array


def _update_funnel(folder: Path) -> None:
    """Update the numbers of pairs and dialogues; the counts of the rules stay as they were."""
    record = read_json(folder / FUNNEL)
    count = {kind: sum(open_parquet(s).metadata.num_rows for s in (folder / kind).glob("*")) for kind in _SCHEMAS}
    write_json(folder / FUNNEL, record | {"pairs": count[PAIRS], "whole": count[WHOLE]}, durable=True)


def _record(folder: Path, erasure: Json) -> None:
    before = read_json(folder / RECORD)["erasures"] if (folder / RECORD).is_file() else []
    write_json(folder / RECORD, {"erasures": [*before, erasure]}, durable=True)


def _mentions(file: Path, names: set[str]) -> bool:
    """Whether a file that is not a shard contains a name: a text file anywhere, the model as a piece of its own."""
    if file.name == _SUBWORDS:
        model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        pieces = (model.id_to_piece(i).removeprefix("\u2581") for i in range(model.vocab_size()))
        return any(len(piece) > 3 and piece in names for piece in pieces)
    content = file.read_text(encoding="utf-8", errors="replace")
    return any(f'"{name}"' in content for name in names)
