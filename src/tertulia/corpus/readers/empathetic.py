"""EmpatheticDialogues (Rashkin et al. 2019): as JSON records, and as the original CSV.

The `speaker` describes a situation that made them feel an emotion (`meta`), the `listener` replies. The original CSV
has one utterance per row, no quoting, and `_comma_` for a comma; self-evaluations, tags and candidates are kept in
`meta`.
"""

from collections.abc import Iterable, Iterator

from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.corpus.readers.base import (
    Reader,
    TextReader,
    check_alternating,
    misfit,
    one_line,
    text_lines,
    text_of,
    texts_of,
)
from tertulia.corpus.readers.records import Record

SPEAKERS = ("speaker", "listener")
COLUMNS = ("conv_id", "utterance_idx", "context", "prompt", "speaker_idx", "utterance", "selfeval", "tags")
_COMMA = "_comma_"


def decode(record: Json) -> Dialogue:
    """Decode a JSON record; `utterence` is how the data spells it."""
    texts = texts_of(record["utterence"] if "utterence" in record else record["utterances"], "utterence")
    return Dialogue(
        id=text_of(record["conv_id"], "conv_id"),
        turns=tuple(Turn(SPEAKERS[i % 2], text) for i, text in enumerate(texts)),
        meta=_meta(emotion=text_of(record["label"], "label"), situation=text_of(record["prompt"], "prompt")),
    )


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue of two who alternate."""
    check_alternating(dialogue, format="EmpatheticDialogues as JSON")
    return {
        "conv_id": dialogue.id,
        "prompt": _meta_text(dialogue, "situation"),
        "label": _meta_text(dialogue, "emotion"),
        "utterence": [turn.text for turn in dialogue.turns],
    }


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Group rows into dialogues: consecutive ones with the same conv_id and increasing numbers."""
    start, damage = 0, ""
    rows: list[list[str]] = []
    for line in text_lines(lines):
        row = line.value.split(",")
        if row[0] == COLUMNS[0]:
            continue
        if rows and (row[0] != rows[-1][0] or _utterance_number(row) <= _utterance_number(rows[-1])):
            yield Record(start, rows, damage)
            rows, damage = [], ""
        start = start if rows else line.line
        if len(row) not in (8, 9):
            damage = damage or f"expected 8 or 9 columns on line {line.line}, got {len(row)}"
        damage = damage or line.damage
        rows.append(row)
    if rows:
        yield Record(start, rows, damage)


def _utterance_number(row: list[str]) -> int:
    return int(row[1]) if len(row) > 1 and row[1].isdecimal() and len(row[1]) < 10 else 0


def decode_rows(rows: list[list[str]]) -> Dialogue:
    """Decode the rows of a dialogue; the first row is the speaker's."""
    _, _, emotion, situation, first, _, selfeval, tags, *_ = rows[0]
    turns = []
    for row in rows:
        meta: dict[str, Json] = {}
        if len(row) == 9 and row[8]:
            meta["candidates"] = [_unescape(c).replace("_pipe_", "|") for c in row[8].split("|")]
        turns.append(Turn(SPEAKERS[row[4] != first], _unescape(row[5]), meta=meta))
    return Dialogue(
        id=rows[0][0],
        turns=tuple(turns),
        meta=_meta(
            emotion=_unescape(emotion),
            situation=_unescape(situation),
            selfeval=_unescape(selfeval),
            tags=_unescape(tags),
        ),
    )


def encode_rows(dialogue: Dialogue) -> str:
    """Encode a dialogue as one row per turn."""
    if len(dialogue.speakers) > 2:
        raise misfit(dialogue.id, "EmpatheticDialogues has one speaker and one listener")
    if not dialogue.turns or "," in dialogue.id or one_line(dialogue.id) != dialogue.id or not dialogue.id:
        raise misfit(dialogue.id, "EmpatheticDialogues' CSV needs at least one turn, and an id without commas")
    rows = []
    for number, turn in enumerate(dialogue.turns, 1):
        head = (dialogue.id, str(number), _meta_text(dialogue, "emotion"), _meta_text(dialogue, "situation"))
        speaker = str(dialogue.speakers.index(turn.speaker))
        row = [*head, speaker, turn.text, _meta_text(dialogue, "selfeval"), _meta_text(dialogue, "tags")]
        if isinstance(candidates := turn.meta.get("candidates"), list) and candidates:
            row.append("|".join(str(c).replace("|", "_pipe_") for c in candidates))
        rows.append(",".join(one_line(cell).replace(",", _COMMA) for cell in row))
    return "".join(f"{row}\n" for row in rows)


def _meta_text(dialogue: Dialogue, name: str) -> str:
    value = dialogue.meta.get(name, "")
    return value if isinstance(value, str) else ""


def _meta(**fields: str) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value}


def _unescape(text: str) -> str:
    return text.replace(_COMMA, ",")


READER = Reader(
    name="empathetic",
    recognises=lambda record: "conv_id" in record and "prompt" in record,
    decode=decode,
    encode=encode,
)
CSV = TextReader(
    name="empathetic-csv",
    recognises=lambda head: head.startswith("conv_id,utterance_idx,"),
    cut=cut,
    decode=decode_rows,
    encode=encode_rows,
    head=",".join(COLUMNS) + "\n",
    endings=(".csv", ".csv.gz"),
)
