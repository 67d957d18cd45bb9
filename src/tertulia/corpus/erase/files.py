"""Erase from any file that was made from a mined corpus: splits, test sets, conversions, exports of studies.

A file is a sequence of records, whatever its format: rows of Parquet or of a table, lines of JSON, entries of a JSON
document, dialogues of a text format. Records are removed or masked one by one; the others keep their bytes wherever
records are lines. A text file that is none of these is only searched, and its matches are listed.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.artefacts.files import UNREADABLE, atomic_write, open_text
from tertulia.core.codec import dialogue_from_json, dialogue_to_json, exchange_from_json, exchange_to_json
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.corpus.erase.records import Judgement, Near, RecordJudge
from tertulia.corpus.load import load_dialogues, load_exchanges, recognise
from tertulia.corpus.readers.base import AnyReader, Item, TextReader
from tertulia.corpus.readers.files import create_text
from tertulia.corpus.shards import open_parquet
from tertulia.corpus.write import save_dialogues, save_exchanges

_LINES, _DOCUMENTS, _TABLES = (".jsonl", ".ndjson"), (".json",), (".csv", ".tsv")
_TEXTS = (".txt", ".log", ".weechatlog", ".md", ".toml", ".svg", ".html", ".yaml", ".yml", "")
_PACKED = (".gz", ".zst")
_ROWS = 1000


@dataclass(slots=True)
class FileSearch:
    """What a search of one file found, and what was done about it."""

    records: int = 0
    removed: int = 0
    masked: int = 0
    near: list[Near] = field(default_factory=list)
    traces: list[Near] = field(default_factory=list)
    """What should be removed, and cannot: the file has no records that could be taken out."""
    unsearched: str = ""
    """Why the file could not be searched."""

    @property
    def is_changed(self) -> bool:
        """Whether the file has to be, or was, rewritten."""
        return bool(self.removed or self.masked)


Method = Callable[[Path, RecordJudge, FileSearch, bool], None]
"""Searches a file, and rewrites it if the last argument says so."""


def search_file(file: Path, judge: RecordJudge) -> FileSearch:
    """Search a file; nothing is written."""
    return _run(_method(file), file, judge, write=False)


def rewrite_file(file: Path, judge: RecordJudge) -> FileSearch:
    """Remove and mask what a search found in a file."""
    return _run(_method(file), file, judge, write=True)


def search_text(file: Path, judge: RecordJudge) -> FileSearch:
    """Search a file line by line, whatever its format; nothing is written."""
    return _run(_search_lines, file, judge, write=False)


def _run(method: Method | None, file: Path, judge: RecordJudge, *, write: bool) -> FileSearch:
    result = FileSearch()
    if method is None:
        result.unsearched = "not text"
        return result
    try:
        method(file, judge, result, write)
    except UnicodeError:
        result.unsearched = "not text"
    except (*UNREADABLE, DataError, ValueError, RecursionError, csv.Error, pa.ArrowException) as error:
        result.unsearched = f"cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    return result


def _method(file: Path) -> Method | None:
    plain = file.with_suffix("") if file.suffix in _PACKED else file
    if plain.suffix == ".parquet":
        return _sweep_parquet
    if plain.suffix in _LINES:
        return _sweep_lines
    if plain.suffix in _DOCUMENTS:
        return _sweep_document
    if plain.suffix in _TABLES:
        return _sweep_table
    return _sweep_text if plain.suffix in _TEXTS else None


def _note(result: FileSearch, judgement: Judgement, judge: RecordJudge, where: str) -> None:
    result.records += 1
    result.removed += judgement.remove
    result.masked += judgement.masked is not None
    if judge.near != "keep":
        result.near += [Near(where, kind, text) for kind, text in judgement.near]


def _sweep_parquet(file: Path, judge: RecordJudge, result: FileSearch, write: bool) -> None:
    with open_parquet(file) as source:
        schema = source.schema_arrow

        def kept() -> Iterator[list[Json]]:
            for batch in source.iter_batches(batch_size=_ROWS):
                rows = []
                for row in batch.to_pylist():
                    judgement = judge.judge(row)
                    _note(result, judgement, judge, f"{file.name}: {row.get('id', result.records)}")
                    if not judgement.remove:
                        rows.append(row if judgement.masked is None else judgement.masked)
                yield rows

        if not write:
            for _ in kept():
                pass
            return
        with (
            atomic_write(file, durable=True) as unfinished,
            pq.ParquetWriter(unfinished, schema, compression="zstd") as out,
        ):
            for rows in kept():
                if rows:
                    out.write_table(pa.Table.from_pylist(rows, schema=schema))


def _sweep_lines(file: Path, judge: RecordJudge, result: FileSearch, write: bool) -> None:
    def kept(lines: Iterable[str]) -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                record = line  # a damaged line is a text
            judgement = judge.judge(record)
            if line.strip():
                _note(result, judgement, judge, f"{file.name}, line {number}")
            if not judgement.remove:
                unmasked = judgement.masked is None
                yield line if unmasked else json.dumps(judgement.masked, ensure_ascii=False) + "\n"

    _rewrite_text(file, kept, write)


def _sweep_document(file: Path, judge: RecordJudge, result: FileSearch, write: bool) -> None:
    with open_text(file) as text:
        document = json.load(text)
    if not _is_collection(document):
        _search_lines(file, judge, result, write)
        return
    entries = enumerate(document) if isinstance(document, list) else document.items()
    kept: dict[Any, Json] = {}
    for key, entry in entries:
        # The key of an object is the id of a dialogue or the name of a speaker.
        judgement = judge.judge(entry if isinstance(document, list) else {"id": key, "speaker": key, "": entry})
        _note(result, judgement, judge, f"{file.name}, entry {key}")
        if not judgement.remove:
            unmasked = judgement.masked is None
            kept[key] = entry if unmasked else judgement.masked if isinstance(document, list) else judgement.masked[""]
    content = list(kept.values()) if isinstance(document, list) else kept
    if write:
        _rewrite_text(file, lambda _: [json.dumps(content, ensure_ascii=False, indent=1) + "\n"], write)


def _is_collection(document: Json) -> bool:
    """Whether a JSON document is a list or an object of records, rather than one record."""
    entries = document if isinstance(document, list) else document.values() if isinstance(document, dict) else ()
    return bool(entries) and all(isinstance(entry, dict | list) for entry in entries)


def _sweep_table(file: Path, judge: RecordJudge, result: FileSearch, write: bool) -> None:
    delimiter = "\t" if ".tsv" in file.name else ","

    def kept(lines: Iterable[str]) -> Iterator[str]:
        used: list[str] = []

        def tapped() -> Iterator[str]:
            for line in lines:
                used.append(line)
                yield line

        names: list[str] | None = None
        for row in csv.reader(tapped(), delimiter=delimiter):
            raw = "".join(used)
            used.clear()
            if names is None:  # if there is no head, the texts are searched all the same
                names = row
            record = {names[i].lower() if i < len(names) else "": cell for i, cell in enumerate(row)}
            judgement = judge.judge(record if len(record) == len(row) else row)
            _note(result, judgement, judge, f"{file.name}, row {result.records + 1}")
            if judgement.remove:
                continue
            if judgement.masked is None:
                yield raw
            else:
                out = io.StringIO()
                cells = judgement.masked if isinstance(judgement.masked, list) else judgement.masked.values()
                csv.writer(out, delimiter=delimiter, lineterminator="\n").writerow(cells)
                yield out.getvalue()

    _rewrite_text(file, kept, write)


def _sweep_text(file: Path, judge: RecordJudge, result: FileSearch, write: bool) -> None:
    """A text format of dialogues that can be written is rewritten; any other text is searched."""
    reader = _text_reader(file)
    if reader is None or file.name.endswith(".zst"):
        _search_lines(file, judge, result, write)
        return
    holds_dialogues = reader.holds == "dialogues"
    load: Callable[..., Iterator[Item]] = load_dialogues if holds_dialogues else load_exchanges
    kept: list[Item] = []
    for item in load(file, format=reader.name):
        judgement = judge.judge(dialogue_to_json(item) if isinstance(item, Dialogue) else exchange_to_json(item))
        _note(result, judgement, judge, f"{file.name}: {item.id}")
        if judgement.masked is not None:
            item = (dialogue_from_json if holds_dialogues else exchange_from_json)(judgement.masked)
        if not judgement.remove:
            kept.append(item)
    if write:
        save: Callable[..., int] = save_dialogues if holds_dialogues else save_exchanges
        save(kept, file, format=reader.name)


def _text_reader(file: Path) -> AnyReader | None:
    try:
        reader = recognise(file)
    except DataError:
        return None
    can_write = isinstance(reader, TextReader) and reader.encode is not None and file.name.endswith(reader.endings)
    return reader if can_write and not reader.beside else None


def _search_lines(file: Path, judge: RecordJudge, result: FileSearch, write: bool) -> None:
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            line.encode("utf-8")  # bytes that are not text raise an error
            result.records += 1
            judgement = judge.judge(line.rstrip("\n"))
            where = f"{file.name}, line {number}"
            if judgement.remove:
                result.traces.append(Near(where, "quote", line.strip()[:160]))
            elif judgement.masked is not None:
                result.traces.append(Near(where, "name", line.strip()[:160]))
            elif judge.near != "keep":
                result.near += [Near(where, kind, text) for kind, text in judgement.near]


def _rewrite_text(file: Path, kept: Callable[[Iterable[str]], Iterable[str]], write: bool) -> None:
    with _open_lines(file) as lines:
        if not write:
            for _ in kept(lines):
                pass
            return
        if file.name.endswith(".zst"):
            raise DataError("it is compressed by zstd, which is not written")
        with (
            atomic_write(file, durable=True) as unfinished,
            create_text(unfinished, gzipped=file.name.endswith(".gz")) as out,
        ):
            out.writelines(kept(lines))


def _open_lines(file: Path) -> IO[str]:
    text = open_text(file)
    text.reconfigure(newline="")  # type: ignore[attr-defined] # so that unchanged lines keep their ends
    return text
