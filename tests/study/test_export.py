"""Exports: one row per judgement, safe in spreadsheets, the same in three formats."""

import csv
import io
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl
import pytest

from tertulia.study.config import StudyConfig
from tertulia.study.export import COLUMNS, csv_safe, export_rows, write_csv, write_jsonl, write_parquet
from tertulia.study.presets import study_from_toml

PAIRWISE = 'preset = "pairwise-static"\nitems = "items.jsonl"\n[[bots]]\nname = "ann"\n[[bots]]\nname = "bob"\n'
CHAT = 'preset = "ssa-interactive"\n[[bots]]\nname = "ann"\nspec = "tfidf:data"\n'
CHAT += '[[bots]]\nname = "bob"\nspec = "generic"\n'


@dataclass(frozen=True)
class Label:
    study: str = "s"
    unit: str = "u1"
    bots: tuple[str, ...] = ("ann", "bob")
    side_order: tuple[int, ...] = (1, 0)
    participant: str = "p1"
    assignment: str = "a1"
    state: str = "submitted"
    number: int = 0
    target: str = "unit"
    question: str = "quality"
    value: Any = "A"
    created: datetime = datetime(2026, 5, 4, tzinfo=UTC)
    seconds: float | None = 2.5
    current: bool = True
    conversation: str | None = None
    conversations: tuple[str, ...] = ()
    turn_text: str | None = None
    reply: dict[str, Any] | None = field(default=None)


@pytest.fixture(scope="module")
def pairwise() -> StudyConfig:
    return study_from_toml(PAIRWISE, "study.toml")


PAYLOADS = {
    "u1": {
        "context": [{"speaker": "x", "text": "Hello\nthere"}],
        "responses": ["**Ann** speaks", "=BOB()"],
        "source": "item-1",
    }
}


def test_a_choice_names_the_bot_and_texts_are_as_shown(pairwise: StudyConfig) -> None:
    (row,) = export_rows(pairwise, [Label()], payloads=PAYLOADS)
    assert list(row) == list(COLUMNS)
    assert (row["chosen_bot"], row["bot"], row["value"]) == ("bob", None, "A")
    assert (row["shown_a"], row["shown_b"]) == ("=BOB()", "Ann speaks")
    assert row["context"] == [{"speaker": "1", "text": "Hello\nthere"}]
    assert row["source"] == "item-1"
    (tie,) = export_rows(pairwise, [Label(value="tie")], payloads=PAYLOADS)
    assert tie["chosen_bot"] is None


def test_generated_responses_have_their_records_by_side(pairwise: StudyConfig) -> None:
    records = [{"provenance": {"bot": name, "seed": n}, "seconds": n} for n, name in enumerate(("ann", "bob"))]
    payloads = {"u1": PAYLOADS["u1"] | {"provenance": records}}
    choice, side = export_rows(pairwise, [Label(), Label(target="side:A", value=3)], payloads=payloads)
    assert (choice["reply_a"], choice["reply_b"], choice["seed"]) == (records[1], records[0], None)
    assert (side["bot"], side["bot_spec"], side["seed"], side["latency_seconds"]) == ("bob", "bob", 1, 1)


def test_a_label_of_a_turn_has_its_provenance() -> None:
    config = study_from_toml(CHAT, "study.toml")
    provenance = {"bot": "tfidf:data", "checkpoint": "ab12", "settings": {"top_k": 3}, "seed": 7, "version": "1"}
    label = Label(
        bots=("ann", "bob"),
        target="turn:t1",
        question="sensible",
        value=True,
        conversation="c2",
        conversations=("c1", "c2"),
        turn_text="Hi!",
        reply={"provenance": provenance, "seconds": 0.25},
    )
    (row,) = export_rows(config, [label])
    assert (row["bot"], row["side"], row["text"], row["value_number"]) == ("ann", "B", "Hi!", 1.0)
    assert (row["bot_spec"], row["checkpoint"], row["seed"], row["latency_seconds"]) == ("tfidf:data", "ab12", 7, 0.25)
    assert row["settings"] == {"top_k": 3}
    (single,) = export_rows(config, [replace(label, bots=("bob",), side_order=(0,), reply=None)])
    assert (single["bot"], single["bot_spec"], single["checkpoint"]) == ("bob", "generic", None)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "＝"])
def test_a_text_that_begins_like_a_formula_is_defused(start: str) -> None:
    assert csv_safe(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"


def test_numbers_and_plain_texts_stay_as_they_are() -> None:
    assert [csv_safe(value) for value in (-3, 0.5, "a=b", "", False)] == ["-3", "0.5", "a=b", "", "false"]


def test_all_formats_hold_the_same_rows(pairwise: StudyConfig) -> None:
    labels = [Label(number=n, participant=f"p{n}", value=value) for n, value in enumerate(["A", "B", "tie", "A"])]
    rows = list(export_rows(pairwise, labels, payloads=PAYLOADS))
    files = [io.BytesIO() for _ in range(3)]
    for write, file in zip((write_csv, write_jsonl, write_parquet), files, strict=True):
        write(rows, file)
    from_csv = list(csv.DictReader(io.StringIO(files[0].getvalue().decode(), newline="")))
    from_json = [json.loads(line) for line in files[1].getvalue().splitlines()]
    from_parquet = pl.read_parquet(io.BytesIO(files[2].getvalue())).to_dicts()
    assert from_json == rows
    assert [row["participant"] for row in from_csv] == [row["participant"] for row in from_parquet]
    assert from_csv[0]["shown_a"] == "'=BOB()"
    assert from_parquet[0]["shown_a"] == "=BOB()"
    assert json.loads(from_csv[0]["context"]) == json.loads(from_parquet[0]["context"]) == from_json[0]["context"]
    assert '"p0"' in files[0].getvalue().decode()  # quoted, so that no separator can split it


def test_an_empty_export_has_columns(pairwise: StudyConfig) -> None:
    files = [io.BytesIO() for _ in range(2)]
    write_csv([], files[0])
    write_parquet([], files[1])
    assert files[0].getvalue().decode().count(",") == len(COLUMNS) - 1
    assert pl.read_parquet(io.BytesIO(files[1].getvalue())).columns == list(COLUMNS)


class Held(NamedTuple):
    id: str
    speaker: str
    text: str


def test_a_label_of_a_chat_has_what_was_said_before() -> None:
    config = study_from_toml(CHAT, "study.toml")
    texts = (("u1", "user", "hi"), ("b1", "bot", "**Hello**"), ("u2", "user", "so?"), ("b2", "bot", "Yes."))
    chats = {"c1": [Held(*turn) for turn in texts], "c2": [Held(f"{n}x", s, text) for n, s, text in texts]}
    one = Label(bots=("ann",), side_order=(0,), target="turn:b2", conversation="c1", conversations=("c1",))
    (row,) = export_rows(config, [one], chats=chats)
    assert row["context"] == [
        {"speaker": "1", "text": "hi"},
        {"speaker": "2", "text": "Hello"},
        {"speaker": "1", "text": "so?"},
    ]
    both = replace(one, bots=("ann", "bob"), side_order=(0, 1), target="turn:b1x", conversations=("c1", "c2"))
    first, whole, unheld = export_rows(
        config, [both, replace(both, target="unit"), replace(one, conversations=("c3",))], chats=chats
    )
    assert [turn["text"] for turn in first["shown_b"]] == ["hi", "Hello"]
    assert first["shown_a"] == first["shown_b"]
    assert len(whole["shown_a"]) == len(whole["shown_b"]) == 4
    assert (first["context"], unheld["context"]) == (None, None)
