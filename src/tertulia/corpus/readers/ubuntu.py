"""The dialogues of the Ubuntu Dialogue Corpus (Lowe et al. 2015): one table, or a file for each.

The table is `dialogueText.csv`, a row for each line of the room; the files are `dialogs/FOLDER/NUMBER.tsv`, without
quoting. Every line is a turn, also where somebody writes two in a row: each has its own time (`date`) and addressee
(`to`), which stay in `meta`. The contexts and replies made of these dialogues are another matter: `ubuntu_pairs`.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.readers.base import TextReader, flat, is_whole, name_of
from tertulia.corpus.readers.opening import open_text
from tertulia.corpus.readers.records import Record
from tertulia.corpus.readers.tables import columns_of, csv_line, csv_rows, unix_lines

COLUMNS = ("folder", "dialogueID", "date", "from", "to", "text")
_TSV = ".tsv"
_ENDINGS = (_TSV, f"{_TSV}.gz")
_TSV_HEAD = re.compile(r"\n*(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\t\n]*)?\t[^\t\n]*\t[^\t\n]*\t")
"""A time (none where a corpus without times was written), two names and a text."""
_FILE_NAME = re.compile(r"[\w-][\w .,:;#+=@-]*")


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Rows as dialogues: those that follow each other with the same folder and number.

    A damaged row that does not begin like one of another dialogue counts to the one it stands in.
    """
    start, damage = 0, ""
    rows: list[list[str]] = []
    for row in csv_rows(lines):
        cells: list[str] = row.value
        if tuple(cells) == COLUMNS:
            continue
        wrong = row.damage or ("" if len(cells) == len(COLUMNS) else f"{len(cells)} columns, not {len(COLUMNS)}")
        begins = not wrong or (len(cells) > 2 and cells[1].endswith(_TSV))
        if rows and begins and cells[:2] != rows[0][:2]:
            yield Record(start, rows, damage)
            rows, damage = [], ""
        start = start if rows else row.line
        if wrong and not damage:
            damage = wrong if row.line == start else f"{wrong} (line {row.line})"
        rows.append(cells)
    if rows:
        yield Record(start, rows, damage)


def decode(rows: list[list[str]]) -> Dialogue:
    """The rows of one dialogue."""
    folder, name = rows[0][:2]
    return Dialogue(_id(folder, name), tuple(_turn(*row[2:]) for row in rows))


def encode(dialogue: Dialogue) -> str:
    """A row for each turn; texts stand in quotes, as in the published files."""
    if not dialogue.turns:
        raise misfit(dialogue.id, "something must be said in it")
    folder, slash, name = dialogue.id.partition("/")
    place = (folder, name + _TSV) if folder and slash else ("", dialogue.id + _TSV)
    quoted = (unix_lines(turn.text).replace('"', '""') for turn in dialogue.turns)
    rows = (csv_line((*place, *_about(turn))) for turn in dialogue.turns)
    return "".join(f'{row[:-1]},"{text}"\n' for row, text in zip(rows, quoted, strict=True))


def join(dialogues: Iterable[Dialogue]) -> Iterator[str]:
    """The whole table. Of two neighbours of the same name one would be made: they are refused."""
    yield ",".join(COLUMNS) + "\n"
    before = None
    for dialogue in dialogues:
        if dialogue.id == before:
            raise misfit(dialogue.id, "the one before it has the same id")
        before = dialogue.id
        yield encode(dialogue)


def _id(folder: str, name: str) -> str:
    return f"{folder}/{name.removesuffix(_TSV)}" if folder else name.removesuffix(_TSV)


def _turn(date: str, speaker: str, to: str, text: str) -> Turn:
    return Turn(speaker, text, meta={key: value for key, value in (("date", date), ("to", to)) if value})


def _about(turn: Turn) -> tuple[str, str, str]:
    date, to = (value if isinstance(value := turn.meta.get(key), str) else "" for key in ("date", "to"))
    return date, turn.speaker, to


def misfit(name: str, why: str, hint: str = "Write it in another format.") -> DataError:
    """What is said of a dialogue or exchange that cannot be written."""
    return DataError(f"{name!r} does not fit the Ubuntu corpus' layout: {why}.", hint=hint)


def cut_file(lines: Iterable[str]) -> Iterator[Record]:
    """All lines of a file as one dialogue, without quoting; what follows the third tab is the text, more tabs included.

    >>> [r.value for r in cut_file(["2010-01-01T10:00:00.000Z\\tann\\t\\thi all\\n"])]
    [[['2010-01-01T10:00:00.000Z', 'ann', '', 'hi all']]]
    """
    damage = ""
    rows: list[list[str]] = []
    for number, line in enumerate(lines, 1):
        if not (text := line.rstrip("\n")):
            continue
        row = text.split("\t", 3)
        wrong = "" if len(row) == 4 else f"{len(row)} columns, not 4"
        wrong = wrong if is_whole(text) else "half a character: not valid UTF-8"
        if wrong and not damage:
            damage = wrong if number == 1 else f"{wrong} (line {number})"
        rows.append(row)
    if rows:
        yield Record(1, rows, damage)


def decode_file(rows: list[list[str]], name: str = "") -> Dialogue:
    """A dialogue under its file's name, or one made of its content."""
    return Dialogue(name or name_of(*(cell for row in rows for cell in row)), tuple(_turn(*row) for row in rows))


def beside(file: Path) -> Callable[[list[list[str]]], Dialogue]:
    """A decoder that knows where the file lies: a folder counts where it is a number, as in the original."""
    folder = file.absolute().parent.name
    name = _id(folder if folder.isdecimal() else "", file.name.removesuffix(".gz"))
    return lambda rows: decode_file(rows, name)


def files(folder: Path, split: str | None) -> Iterator[Path]:
    """The files of the numbered folders, by number: a million of them, so no more than one folder's at a time."""
    numbered = sorted((f for f in folder.iterdir() if f.is_dir() and f.name.isdecimal()), key=lambda f: int(f.name))
    found = (file for inside in numbered for file in _in_order(inside))
    first = list(islice(found, 5))  # one of them may be damaged
    if not any(map(_is_dialogue, first)):
        return
    if split is not None:
        raise UsageError(f"{folder} has no splits: it holds all dialogues by their length.", hint="Leave --split out.")
    yield from chain(first, found)


def _in_order(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(_ENDINGS)]
    stems = {name: name.partition(".")[0] for name in names}
    names.sort(key=lambda name: (int(stem) if (stem := stems[name]).isdecimal() else -1, name))
    return (folder / name for name in names)


def _is_dialogue(file: Path) -> bool:
    try:
        with open_text(file) as text:
            return bool(_TSV_HEAD.match(text.read(1 << 12)))
    except (OSError, EOFError):
        return False


def write_folder(dialogues: Iterable[Dialogue], folder: Path) -> int:
    """A file for each dialogue. An id like 3/17 says where; else its folder is the number of turns, as there."""
    count = 0
    for count, dialogue in enumerate(dialogues, 1):  # noqa: B007 - the last number is the answer
        if not dialogue.turns:
            raise misfit(dialogue.id, "something must be said in it")
        place, _, name = dialogue.id.partition("/")
        if not (place.isdecimal() and name):
            place, name = str(len(dialogue.turns)), dialogue.id
        if not _FILE_NAME.fullmatch(name):
            raise misfit(dialogue.id, "its name must do as a file's")
        rows = ("\t".join(flat(cell) for cell in (*_about(turn), turn.text)) + "\n" for turn in dialogue.turns)
        (folder / place).mkdir(exist_ok=True)
        try:
            with (folder / place / f"{name}{_TSV}").open("x", encoding="utf-8", errors="replace") as out:
                out.writelines(rows)
        except FileExistsError:
            raise misfit(dialogue.id, "there are two dialogues of this id") from None
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
