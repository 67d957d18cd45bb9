"""What a message knew beside its text is kept with its pair: its time, and the fields that were asked for."""

import json
from pathlib import Path

import pytest

from tertulia.cli.main import run as tertulia
from tertulia.core.config import resolve
from tertulia.core.errors import ConfigError, UsageError
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig
from tertulia.corpus.mining.pairs import read_whole
from tertulia.corpus.mining.schemas import SCHEMAS, Cleaning, columns, get_schema
from tertulia.corpus.split import SplitConfig, split_dialogues

from .test_inputs import FORUM, as_parquet, comment, lines, run

DAY = 86_400


def test_time_score_and_community_of_a_reply_come_out_as_its_metadata(tmp_path: Path) -> None:
    first = comment("a", "t3_s", "good morning everybody") | {"created_utc": "100", "score": 7, "subreddit": "tea"}
    reply = comment("b", "t1_a", "good morning to you too") | {"created_utc": 160, "score": -3, "subreddit": 'te"a'}
    (tmp_path / "x.jsonl").write_bytes(lines([first, reply]))
    run(str(tmp_path / "x.jsonl"), tmp_path / "out", keep=["score,subreddit", "gilded"], whole=True)
    (pair,) = load_dialogues(tmp_path / "out")
    assert pair.meta == {"thread": "t3_s", "time": 160.0, "score": -3, "subreddit": 'te"a'}
    assert [dialogue.meta for dialogue in read_whole(tmp_path / "out")] == [pair.meta]


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_what_was_mined_can_be_split_by_time(tmp_path: Path, name: str) -> None:
    records = [
        {**record, "id": f"{record['id']}{day}", "thread": f"t{day}", "time": float(day * DAY + i)}
        | ({"parent": f"{record['parent']}{day}"} if "parent" in record else {})
        for day in range(10)
        for i, record in enumerate(FORUM)
    ]
    (tmp_path / name).write_bytes(lines(records) if name == "x.jsonl" else as_parquet(records))
    run(str(tmp_path / name), tmp_path / "out")
    parts = split_dialogues(load_dialogues(tmp_path / "out"), SplitConfig(by="time")).parts
    assert [len(part) for part in parts.values()] == [16, 2, 2]
    assert max(d.meta["time"] for d in parts["train"]) < min(d.meta["time"] for d in parts["valid"])
    with pytest.raises(SystemExit) as ended:
        tertulia(["corpus", "split", str(tmp_path / "out"), "--by", "time", "--out", str(tmp_path / "split")])
    assert ended.value.code == 0
    assert len((tmp_path / "split" / "train.jsonl").read_text().splitlines()) == 16


def test_times_are_read_however_they_are_written() -> None:
    import polars as pl

    written = ["12", "12.5", "1970-01-01T00:01:00Z", "1970-01-01 02:00:00+02:00", "soon", None, "NaN", "1e400"]
    frame = pl.DataFrame({"id": ["a"] * 8, "text": ["b"] * 8, "timestamp": written})
    schema = SCHEMAS["convokit"]
    absent = [pl.lit(None, pl.String).alias(name) for name in schema.polars if name not in frame.columns]
    seconds = columns(schema, frame.with_columns(absent), Cleaning())["time"].to_list()
    assert seconds == [12.0, 12.5, 60.0, 0.0, None, None, None, None]


def test_fields_are_kept_from_the_record_or_its_meta_as_json(tmp_path: Path) -> None:
    import polars as pl

    schema = get_schema("messages", {}, ("score", "topic", "flag"))
    records = [
        {"id": "a", "text": "x", "score": 5, "meta": {"topic": 'tea "green"\n', "rude": True}},
        {"id": "b", "text": "x", "meta": {"score": 1.5, "topic": "007"}, "flag": True},
        {"id": "c", "text": "x"},
    ]
    frame = columns(schema, pl.read_ndjson(lines(records), schema=schema.polars), Cleaning())
    kept = [value and json.loads(value) for value in frame["kept"].to_list()]
    assert kept == [{"score": 5, "topic": 'tea "green"\n'}, {"score": 1.5, "topic": "007", "flag": True}, None]
    assert frame["flags"].to_list() == [1, 0, 0]


def test_what_is_kept_in_any_case_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="time is kept in any case"):
        resolve(MineConfig, overrides={"keep": ["score,time"]})


def test_personal_data_is_replaced_where_it_is_kept_and_the_card_counts_it(tmp_path: Path) -> None:
    texts = ("does anybody know how to reach her", "write to ana.b@example.de about the tea", "or call +49 30 1234567")
    records = [
        {"id": f"m{i}", "thread": "t", "author": "p", "text": text} | ({"parent": f"m{i - 1}"} if i else {})
        for i, text in enumerate(texts)
    ]
    removed = {"id": "r", "thread": "t", "parent": "m0", "author": "tidy_bot", "text": "mail me at bot@example.de now"}
    (tmp_path / "x.jsonl").write_bytes(lines([*records, removed]))
    settings = {"scrub": True, "whole": True, "dialogues": True, "min_letters": 0.2}
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", **settings)
    assert outcome.replaced == {"email": 1, "phone": 1}  # once each, however many contexts hold it; not the removed one
    pairs, whole = list(load_dialogues(tmp_path / "out")), list(read_whole(tmp_path / "out"))
    assert [turn.text for turn in pairs[-1].turns] == [texts[0], "write to [EMAIL] about the tea", "or call [PHONE]"]
    assert whole[0].turns == pairs[-1].turns
    assert list(load_dialogues(tmp_path / "out" / "pairs.parquet")) == pairs
    assert not any(b"ana.b" in file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    card = (tmp_path / "out" / "README.md").read_text()
    for line in ("| removed: bot | 1 |", "| replaced: email | 1 |", "| read | 4 |", "| kept | 2 |", "path: "):
        assert line in card.replace("path:\n    - ", "path: ")
    with pytest.raises(UsageError, match="scrub"):
        run(str(tmp_path / "x.jsonl"), tmp_path / "out", **settings | {"scrub": False})
