"""A study's labels in long format: one row per judgement, with everything it refers to, as CSV, JSON lines or Parquet.

    rows = export_rows(config, store.rows(study), payloads={unit.id: unit.payload for unit in store.units(study)})
    write_csv(rows, file)

Participants are pseudonyms: identities never get here. Rows are made and written one after the other, so that an export
of any size needs little memory. A spreadsheet runs a cell that begins with "=" or the like as a formula, and the texts
here are strangers': `csv_safe` defuses them.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import IO, Literal, Protocol, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.core.dialogue import Json
from tertulia.study.assignment import chosen_index
from tertulia.study.blinding import task_view, turns_view
from tertulia.study.config import StudyConfig
from tertulia.study.questions import SIDES, Question
from tertulia.study.units import Unit

T = TypeVar("T")
ExportFormat = Literal["csv", "jsonl", "parquet"]
ROWS_PER_BATCH = 1000
"""Rows that are encoded at once."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet take a cell for a formula, with the full-width forms that East Asian versions accept."""

COLUMNS: dict[str, pa.DataType] = {
    "study": pa.string(),
    "unit": pa.string(),
    "source": pa.string(),
    "participant": pa.string(),
    "assignment": pa.string(),
    "assignment_state": pa.string(),
    "label": pa.int64(),
    "current": pa.bool_(),
    "target": pa.string(),
    "question": pa.string(),
    "kind": pa.string(),
    "value": pa.string(),
    "value_number": pa.float64(),
    "created": pa.string(),
    "seconds": pa.float64(),
    "bots": pa.string(),
    "side_order": pa.string(),
    "bot": pa.string(),
    "side": pa.string(),
    "chosen_bot": pa.string(),
    "conversation": pa.string(),
    "text": pa.string(),
    "context": pa.string(),
    "shown_a": pa.string(),
    "shown_b": pa.string(),
    "evidence": pa.string(),
    "persona": pa.string(),
    "bot_spec": pa.string(),
    "checkpoint": pa.string(),
    "settings": pa.string(),
    "seed": pa.int64(),
    "latency_seconds": pa.float64(),
    "version": pa.string(),
    "reply_a": pa.string(),
    "reply_b": pa.string(),
}
"""The columns in order, with their types in Parquet; lists and tables are JSON there and in CSV.

`bot_spec` to `version` are about the bot that the label is about. For a choice between two responses, `reply_a` and
`reply_b` have the records of both, if they were generated for the study."""
REPLIES = "provenance"
"""Where a unit's payload has the records of its generated responses, by bot."""
TURN, BOT = "turn:", "bot"
"""How the target of a label names a turn, and who speaks in a chat beside the participant."""


class LabelledTurn(Protocol):
    """A turn of a chat that was held for a study."""

    @property
    def id(self) -> str:
        """Its id, which targets of labels name."""

    @property
    def speaker(self) -> str:
        """`user` or `bot`."""

    @property
    def text(self) -> str:
        """What was said."""


class ExportedLabel(Protocol):
    """What an export needs of a label: a row of the study store."""

    @property
    def study(self) -> str:
        """Id of the study."""

    @property
    def unit(self) -> str:
        """Id of the unit."""

    @property
    def bots(self) -> tuple[str, ...]:
        """The unit's bots."""

    @property
    def side_order(self) -> tuple[int, ...]:
        """The index of the bot on each side."""

    @property
    def participant(self) -> str:
        """The rater's pseudonym."""

    @property
    def assignment(self) -> str:
        """Id of the assignment."""

    @property
    def state(self) -> str:
        """State of the assignment."""

    @property
    def number(self) -> int:
        """Position among the assignment's labels."""

    @property
    def target(self) -> str:
        """What was judged."""

    @property
    def question(self) -> str:
        """Id of the question."""

    @property
    def value(self) -> Json:
        """The answer."""

    @property
    def created(self) -> datetime:
        """When it was given."""

    @property
    def seconds(self) -> float | None:
        """How long it took."""

    @property
    def current(self) -> bool:
        """Whether it counts."""

    @property
    def conversation(self) -> str | None:
        """The conversation of the turn."""

    @property
    def conversations(self) -> tuple[str, ...]:
        """The assignment's conversations, by side."""

    @property
    def turn_text(self) -> str | None:
        """The turn that was judged."""

    @property
    def reply(self) -> Mapping[str, Json] | None:
        """The bot's record of that turn."""


def export_rows(
    config: StudyConfig,
    rows: Iterable[ExportedLabel],
    *,
    payloads: Mapping[str, Mapping[str, Json]] | None = None,
    chats: Mapping[str, Sequence[LabelledTurn]] | None = None,
) -> Iterator[dict[str, Json]]:
    """One flat row per label, with all `COLUMNS`. Without the units' payloads, only chats have their texts.

    `bot` is the bot that the label is about; for a choice between two, `chosen_bot` is the one that won (none in a
    tie). Texts are those that the participant saw: without Markdown, by side. `chats` are the conversations that were
    held for the study, by id: with them, a label of a chat has what was said before.
    """
    for label in rows:
        yield _row(config, label, (payloads or {}).get(label.unit), chats or {})


def judged_bot(label: ExportedLabel) -> str | None:
    """The bot that a label is about; None if it is about two of them, or none."""
    if len(label.bots) < 2:
        return label.bots[0] if label.bots else None
    side = judged_side(label)
    return label.bots[label.side_order[SIDES.index(side)]] if side else None


def judged_side(label: ExportedLabel) -> str | None:
    """The side that a label is about, by its target or by the conversation of its turn."""
    kind, _, name = label.target.partition(":")
    if kind == "side" and name in SIDES:
        return name
    if kind == "turn" and len(label.conversations) > 1 and label.conversation in label.conversations:
        return SIDES[label.conversations.index(label.conversation)]
    return None


def chosen_bot(question: Question | None, label: ExportedLabel) -> str | None:
    """The bot that was preferred, in a question about two bots."""
    if question is None or question.kind != "side" or len(label.bots) < 2 or not isinstance(label.value, str):
        return None
    index = chosen_index(label.value, label.side_order)
    return None if index is None else label.bots[index]


def value_as_number(question: Question | None, value: Json) -> float | None:
    """Yes and no as 1 and 0, votes as 1 and -1, and numbers as they are; None for words.

    >>> value_as_number(None, True), value_as_number(None, 4), value_as_number(None, "A")
    (1.0, 4.0, None)
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if question is not None and question.kind == "vote":
        return {"up": 1.0, "down": -1.0}.get(str(value))
    return None


def _row(
    config: StudyConfig,
    label: ExportedLabel,
    payload: Mapping[str, Json] | None,
    chats: Mapping[str, Sequence[LabelledTurn]],
) -> dict[str, Json]:
    question = config.question(label.question)
    side = judged_side(label)
    bot = judged_bot(label)
    replies = (payload or {}).get(REPLIES) or [None] * len(label.bots)
    reply = label.reply or (replies[label.bots.index(bot)] if bot else None) or {}
    provenance = reply.get("provenance") or {}
    shown_replies = [replies[i] for i in label.side_order if i < len(replies)] if len(label.bots) > 1 else []
    described = config.bot(bot) if bot else None
    shown = {**chat_shown(label, chats), **_shown(config, label, payload)}
    return {
        "study": label.study,
        "unit": label.unit,
        "source": _as_text((payload or {}).get("source")),
        "participant": label.participant,
        "assignment": label.assignment,
        "assignment_state": label.state,
        "label": label.number,
        "current": label.current,
        "target": label.target,
        "question": label.question,
        "kind": question.kind if question else None,
        "value": label.value,
        "value_number": value_as_number(question, label.value),
        "created": label.created.isoformat(),
        "seconds": label.seconds,
        "bots": list(label.bots),
        "side_order": list(label.side_order),
        "bot": bot,
        "side": side,
        "chosen_bot": chosen_bot(question, label),
        "conversation": label.conversation,
        "text": label.turn_text if label.turn_text is not None else _judged_text(label, shown, side),
        "context": shown.get("context"),
        "shown_a": _shown_at(shown, 0),
        "shown_b": _shown_at(shown, 1),
        "evidence": shown.get("evidence"),
        "persona": shown.get("persona", shown.get("own_persona")),
        "bot_spec": provenance.get("bot") or (described.spec or None if described else None),
        "checkpoint": provenance.get("checkpoint"),
        "settings": provenance.get("settings"),
        "seed": provenance.get("seed"),
        "latency_seconds": reply.get("seconds"),
        "version": provenance.get("version"),
        **dict(zip(("reply_a", "reply_b"), (*shown_replies, None, None), strict=False)),
    }


def _shown(config: StudyConfig, label: ExportedLabel, payload: Mapping[str, Json] | None) -> Mapping[str, Json]:
    if payload is None:
        return {}
    unit = Unit(label.unit, label.bots, payload)
    return task_view(config, unit, label.side_order, config.languages[0], ended=True)


def chat_shown(label: ExportedLabel, chats: Mapping[str, Sequence[LabelledTurn]]) -> dict[str, Json]:
    """What was said in the chats that a label is about: before the labelled turn, or with two chats, up to it.

    A label of two whole chats has both of them; one of a single whole chat has nothing.
    """
    sides = [chats.get(conversation, ()) for conversation in label.conversations]
    labelled = label.target.removeprefix(TURN) if label.target.startswith(TURN) else None
    ends = [[turn.id for turn in side].index(labelled) for side in sides if labelled in [turn.id for turn in side]]
    if not all(sides) or (labelled is not None and not ends):
        return {}
    turns = [[{"speaker": turn.speaker, "text": turn.text} for turn in side] for side in sides]
    if len(sides) == 2:
        stop = ends[0] + 1 if ends else None
        return {"conversations": [{"turns": turns_view(side[:stop], BOT)} for side in turns]}
    return {"context": turns_view(turns[0][: ends[0]], BOT)} if len(sides) == 1 and ends else {}


def _shown_at(shown: Mapping[str, Json], index: int) -> Json:
    """The response, the turns of the conversation or the persona that stood at a side."""
    for name, part in (("responses", "text"), ("conversations", "turns"), ("personas", "sentences")):
        if len(shown.get(name, ())) > index:
            return shown[name][index][part]
    return None


def _judged_text(label: ExportedLabel, shown: Mapping[str, Json], side: str | None) -> str | None:
    """The response, or the sentence of it, that a label of a fixed item is about; None if it is about several."""
    responses = shown.get("responses", ())
    response = responses[SIDES.index(side) if side else 0] if len(responses) == 1 or (responses and side) else None
    if response is None:
        return None
    kind, _, number = label.target.partition(":")
    parts: Sequence[str] = response.get("sentences", ())
    if kind == "sentence" and number.isdigit() and int(number) < len(parts):
        return parts[int(number)]
    return str(response["text"])


def csv_safe(value: Json) -> str:
    """A value as the text of a CSV cell that no spreadsheet runs as a formula.

    >>> csv_safe("=HYPERLINK(0)"), csv_safe(-1), csv_safe(True), csv_safe(["a"]), csv_safe(None)
    ("'=HYPERLINK(0)", '-1', 'true', '["a"]', '')
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # a negative number is no formula
    text = _as_text(value) or ""
    return f"'{text}" if text.startswith(FORMULA_STARTS) or text.lstrip().startswith(FORMULA_STARTS) else text


def csv_lines(rows: Iterable[Mapping[str, Json]]) -> Iterator[bytes]:
    """CSV with a header, in blocks. All cells are quoted: a semicolon in a text must not begin a new cell anywhere."""
    header = [list(COLUMNS)]
    cells = chain(header, ([csv_safe(row.get(name)) for name in COLUMNS] for row in rows))
    for block in _batches(cells):
        text = io.StringIO(newline="")
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows(block)
        yield text.getvalue().encode("utf-8", "replace")


def jsonl_lines(rows: Iterable[Mapping[str, Json]]) -> Iterator[bytes]:
    """JSON lines, in blocks; lists and tables stay what they are."""
    for block in _batches(rows):
        yield b"".join(orjson.dumps(dict(row), option=orjson.OPT_APPEND_NEWLINE) for row in block)


def write_csv(rows: Iterable[Mapping[str, Json]], file: IO[bytes]) -> None:
    """Write rows as CSV."""
    file.writelines(csv_lines(rows))


def write_jsonl(rows: Iterable[Mapping[str, Json]], file: IO[bytes]) -> None:
    """Write rows as JSON lines."""
    file.writelines(jsonl_lines(rows))


def write_parquet(rows: Iterable[Mapping[str, Json]], file: IO[bytes]) -> None:
    """Write rows as Parquet. Columns have the same types in every export, also in an empty one."""
    schema = pa.schema(list(COLUMNS.items()))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for block in _batches(rows):
            columns = [[_cell(row.get(name), kind) for row in block] for name, kind in COLUMNS.items()]
            writer.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True)), schema=schema))


EXPORT_WRITERS: dict[ExportFormat, Callable[[Iterable[Mapping[str, Json]], IO[bytes]], None]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}


def _cell(value: Json, kind: pa.DataType) -> Json:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return _as_text(value)
    return float(value) if pa.types.is_floating(kind) else value


def _as_text(value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while block := list(islice(iterator, ROWS_PER_BATCH)):
        yield block
