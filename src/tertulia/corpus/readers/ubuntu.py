"""The dialogues of the Ubuntu Dialogue Corpus (Lowe et al. 2015): one table, or one file per dialogue.

The table is `dialogueText.csv`, one row per line of the chat log; the files are `dialogs/FOLDER/NUMBER.tsv`, without
quoting. Every line is a turn, even if somebody writes two in a row: each has its own time (`date`) and addressee
(`to`), which are kept in `meta`. For the contexts and replies made from these dialogues see `ubuntu_pairs`.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.readers.base import (
    INVALID_UTF8,
    TextReader,
    content_id,
    is_valid_text,
    misfit,
    one_line,
    unix_lines,
    wrong_columns,
)
from tertulia.corpus.readers.records import Record
from tertulia.corpus.readers.tables import columns_of, csv_line, csv_rows

COLUMNS = ("folder", "dialogueID", "date", "from", "to", "text")
_TSV = ".tsv"
_ENDINGS = (_TSV, f"{_TSV}.gz")
_TSV_HEAD = re.compile(r"\n*(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\t\n]*)?\t[^\t\n]*\t[^\t\n]*\t")
"""A time (empty if a corpus without times was written), two names and a text."""
_FILE_NAME = re.compile(r"[\w-][\w .,:;#+=@-]*")


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Group rows into dialogues: consecutive ones with the same folder and number.

    A damaged row belongs to the dialogue around it, unless it begins like a row of another one.
    """
    start, damage = 0, ""
    rows: list[list[str]] = []
    for row in csv_rows(lines):
        cells: list[str] = row.value
        if tuple(cells) == COLUMNS:
            continue
        wrong = row.damage or wrong_columns(cells, len(COLUMNS))
        has_id = not wrong or (len(cells) > 2 and cells[1].endswith(_TSV))
        if rows and has_id and cells[:2] != rows[0][:2]:
            yield Record(start, rows, damage)
            rows, damage = [], ""
        start = start if rows else row.line
        if wrong and not damage:
            damage = wrong if row.line == start else f"{wrong} (line {row.line})"
        rows.append(cells)
    if rows:
        yield Record(start, rows, damage)


def decode(rows: list[list[str]]) -> Dialogue:
    """Decode the rows of a dialogue."""
    folder, name = rows[0][:2]
    return Dialogue(_id(folder, name), tuple(_turn(*row[2:]) for row in rows))


def encode(dialogue: Dialogue) -> str:
    """Encode a dialogue as one row per turn; texts are quoted, as in the published files."""
    if not dialogue.turns:
        raise misfit(dialogue.id, "it has no turns")
    folder, slash, name = dialogue.id.partition("/")
    columns = (folder, name + _TSV) if folder and slash else ("", dialogue.id + _TSV)
    quoted = (unix_lines(turn.text).replace('"', '""') for turn in dialogue.turns)
    rows = (csv_line((*columns, *_turn_columns(turn))) for turn in dialogue.turns)
    return "".join(f'{row[:-1]},"{text}"\n' for row, text in zip(rows, quoted, strict=True))


def join(dialogues: Iterable[Dialogue]) -> Iterator[str]:
    """The complete table. Consecutive dialogues with the same id would be read as one, so they are an error."""
    yield ",".join(COLUMNS) + "\n"
    previous = None
    for dialogue in dialogues:
        if dialogue.id == previous:
            raise misfit(dialogue.id, "the dialogue before it has the same id")
        previous = dialogue.id
        yield encode(dialogue)


def _id(folder: str, name: str) -> str:
    return f"{folder}/{name.removesuffix(_TSV)}" if folder else name.removesuffix(_TSV)


def _turn(date: str, speaker: str, to: str, text: str) -> Turn:
    return Turn(speaker, text, meta={key: value for key, value in (("date", date), ("to", to)) if value})


def _turn_columns(turn: Turn) -> tuple[str, str, str]:
    date, to = (value if isinstance(value := turn.meta.get(key), str) else "" for key in ("date", "to"))
    return date, turn.speaker, to


def cut_file(lines: Iterable[str]) -> Iterator[Record]:
    """All lines of a file as one record, without quoting; the text is what follows the third tab, including other tabs.

    >>> [r.value for r in cut_file(["2010-01-01T10:00:00.000Z\\tann\\t\\thi all\\n"])]
    [[['2010-01-01T10:00:00.000Z', 'ann', '', 'hi all']]]
    """
    damage = ""
    rows: list[list[str]] = []
    for number, line in enumerate(lines, 1):
        if not (text := line.rstrip("\n")):
            continue
        row = text.split("\t", 3)
        wrong = wrong_columns(row, 4) if is_valid_text(text) else INVALID_UTF8
        if wrong and not damage:
            damage = wrong if number == 1 else f"{wrong} (line {number})"
        rows.append(row)
    if rows:
        yield Record(1, rows, damage)


def decode_file(rows: list[list[str]], name: str = "") -> Dialogue:
    """Decode a dialogue; its id is the name of its file, or computed from the content."""
    return Dialogue(name or content_id(*(cell for row in rows for cell in row)), tuple(_turn(*row) for row in rows))


def beside(file: Path) -> Callable[[list[list[str]]], Dialogue]:
    """A decoder that takes the id from the path; the folder is part of it if it is a number, as in the original."""
    folder = file.absolute().parent.name
    name = _id(folder if folder.isdecimal() else "", file.name.removesuffix(".gz"))
    return lambda rows: decode_file(rows, name)


def files(folder: Path, split: str | None) -> Iterator[Path]:
    """The files of the numbered folders, by number; there are a million, so one folder is listed at a time."""
    numbered = sorted((f for f in folder.iterdir() if f.is_dir() and f.name.isdecimal()), key=lambda f: int(f.name))
    paths = (file for subfolder in numbered for file in _sorted_files(subfolder))
    first = list(islice(paths, 5))  # one of them may be damaged
    if not any(map(_is_dialogue, first)):
        return
    if split is not None:
        raise UsageError(f"{folder} has no splits: its folders are dialogues by length.", hint="Omit --split.")
    yield from chain(first, paths)


def _sorted_files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(_ENDINGS)]
    stems = {name: name.partition(".")[0] for name in names}
    names.sort(key=lambda name: (int(stem) if (stem := stems[name]).isdecimal() else -1, name))
    return (folder / name for name in names)


def _is_dialogue(file: Path) -> bool:
    try:
        with open_text(file) as text:
            return bool(_TSV_HEAD.match(text.read(1 << 12)))
    except (*UNREADABLE, DataError):
        return False


def write_folder(dialogues: Iterable[Dialogue], folder: Path) -> int:
    """Write one file per dialogue: 3/17.tsv for the id 3/17; otherwise the folder is the number of turns."""
    count = 0
    for count, dialogue in enumerate(dialogues, 1):  # noqa: B007 - the last value is the result
        if not dialogue.turns:
            raise misfit(dialogue.id, "it has no turns")
        subfolder, _, name = dialogue.id.partition("/")
        if not (subfolder.isdecimal() and name):
            subfolder, name = str(len(dialogue.turns)), dialogue.id
        if not _FILE_NAME.fullmatch(name):
            raise misfit(dialogue.id, "its id is not a valid file name")
        rows = (
            "\t".join(one_line(cell) for cell in (*_turn_columns(turn), turn.text)) + "\n" for turn in dialogue.turns
        )
        (folder / subfolder).mkdir(exist_ok=True)
        try:
            with (folder / subfolder / f"{name}{_TSV}").open("x", encoding="utf-8", errors="replace") as out:
                out.writelines(rows)
        except FileExistsError:
            raise misfit(dialogue.id, "there are two dialogues with this id") from None
    return count


READER = TextReader(
    name="ubuntu",
    recognises=lambda head: columns_of(head) == COLUMNS,
    cut=cut,
    decode=decode,
    encode=encode,
    join=join,
    endings=(".csv", ".csv.gz"),
)
FILES = TextReader(
    name="ubuntu-tsv",
    recognises=lambda head: bool(_TSV_HEAD.match(head)),
    cut=cut_file,
    decode=decode_file,
    beside=beside,
    files=files,
    write_folder=write_folder,
    endings=(),
)
