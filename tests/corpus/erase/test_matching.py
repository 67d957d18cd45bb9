"""What counts as a name, a quote and a near match in the texts of others, and whose records are removed."""

import json
from pathlib import Path

import pytest

from tertulia.core.errors import UsageError
from tertulia.corpus.erase import erase
from tertulia.corpus.erase.files import rewrite_file, search_file
from tertulia.corpus.erase.matching import ErasedMessages, TextMatcher
from tertulia.corpus.erase.people import NamedPeople, RecordedPeople, salted_hashes
from tertulia.corpus.erase.records import NearDecision, RecordJudge
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining.pairs import read_pairs
from tertulia.corpus.readers.files import create_text

OWN = "the blue kettle sings louder than my old neighbour every morning"


def judge(near: NearDecision = "list") -> RecordJudge:
    erased = ErasedMessages()
    erased.add("t1", "m1", f"> somebody else wrote this long line before me today\n{OWN}")
    erased.rows.add(("t1", "m2"))
    return RecordJudge(NamedPeople(["Ana", "x"], ["m9"]), erased, near=near)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("@ana: look", True),
        ("thanks /u/Ana!", True),
        ("ANA's idea", True),
        ("ask ana- she knows", True),
        ("banana, anatomy, ana-maria, ana_2", False),
        ("an x in the equation", False),
        ("ping @x please", True),
    ],
)
def test_names_are_whole_words_and_short_ones_need_a_sign(text: str, named: bool) -> None:
    assert bool(NamedPeople(["Ana", "x"], []).mentions(text)) == named
    recorded = RecordedPeople([{"salt": "00", "hashes": salted_hashes("00", ["Ana"], []), "near": "mask"}])
    assert bool(recorded.mentions(text)) == (named and "@x" not in text)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("they say the blue kettle sings louder than my old aunt", ["quote"]),
        ("The blue kettle, sings LOUDER...", ["shared words"]),
        ("> blue kettle sings louder than\nhow so?", ["quote"]),
        ("the blue kettle is cold", []),
        ("somebody else wrote this long line before me today", []),
    ],
)
def test_quotes_are_runs_of_words_and_lines_that_they_quoted_are_not_theirs(text: str, kinds: list[str]) -> None:
    assert [match.kind for match in judge().texts.find(text)] == kinds


def test_a_quote_as_short_as_a_word_counts_in_the_same_thread_only() -> None:
    texts = TextMatcher(NamedPeople(["Ana"], []), judge().erased)
    assert texts.is_short_quote("> kettle\nwhat?", "t1")
    assert not texts.is_short_quote("> kettle\nwhat?", "t2")


def test_records_are_removed_by_author_by_id_within_their_thread_and_by_quote() -> None:
    removes = judge().judge
    assert removes({"speaker": "ANA", "text": "hi"}).remove
    assert removes({"id": "m1#3", "meta": {"thread": "t1"}}).remove
    assert removes({"id": "m2/false"}).remove
    assert not removes({"id": "m2", "meta": {"thread": "other"}}).remove
    assert removes({"turns": [{"source": ["m9"]}], "meta": {"thread": "other"}}).remove
    assert removes({"personas": {"ana": {"sentences": []}}}).remove
    assert removes({"meta": json.dumps({"x": {"author": "ana"}})}).remove
    assert not removes({"text": "ana"}).remove
    assert removes({"text": "ana"}).near == [("name", "ana")]
    assert judge("mask").judge({"text": "ask ana", "n": 1}).masked == {"text": "ask [erased]", "n": 1}


def test_an_id_that_other_threads_have_identifies_nothing_without_its_thread() -> None:
    erased = ErasedMessages(messages={("t1", "1")}, ambiguous={"1"})
    records = RecordJudge(NamedPeople(["ana"], []), erased, near="list")
    assert not records.judge({"id": "1"}).remove
    assert records.judge({"id": "1", "meta": {"thread": "t1"}}).remove


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json", "x.csv", "x.tsv"])
def test_the_records_that_stay_keep_their_bytes(tmp_path: Path, name: str) -> None:
    rows = [{"speaker": s, "text": t} for s, t in [("bo", "é, \t1"), ("ana", "hi"), ("cy", 'a "b"\n')]]
    table = "\t" if ".tsv" in name else ","
    cells = [table.join(json.dumps(v, ensure_ascii=False).replace('\\"', '""') for v in row.values()) for row in rows]
    lines = ["speaker,text".replace(",", table), *cells] if "json" not in name else [json.dumps(r) for r in rows]
    text = json.dumps(rows, indent=1) if name == "x.json" else "".join(f"{line}\r\n" for line in lines)
    file = tmp_path / name
    with create_text(file) as out:
        out.write(text)
    search = search_file(file, judge())
    assert (search.removed, search.near, search.traces) == (1, [], [])
    rewrite_file(file, judge())
    again = search_file(file, judge())
    assert (again.removed, again.records) == (0, search.records - 1)
    if name == "x.jsonl":
        assert file.read_bytes().decode() == f"{lines[0]}\r\n{lines[2]}\r\n"


def test_a_file_that_is_not_records_is_listed_and_a_binary_one_said_not_to_be_searched(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(f"by ana:\n{OWN}\n")
    search = search_file(tmp_path / "notes.md", judge())
    assert [(t.where, t.kind) for t in search.traces] == [("notes.md, line 2", "quote")]
    assert [(n.where, n.kind) for n in search.near] == [("notes.md, line 1", "name")]
    (tmp_path / "weights.safetensors").write_bytes(b"\xff\x00")
    assert search_file(tmp_path / "weights.safetensors", judge()).unsearched == "not text"
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert "cannot be read" in search_file(tmp_path / "broken.parquet", judge()).unsearched


def test_an_erasure_that_waits_for_a_decision_keeps_its_journal_and_nothing_else(tmp_path: Path) -> None:
    texts = [OWN, "no idea what you mean by that", "the blue kettle sings louder today", "what a day it was for us"]
    records = [{"id": f"m{i}", "thread": "t", "author": f"p{i}", "text": text} for i, text in enumerate(texts)]
    for record, parent in zip(records[1:], records, strict=False):
        record["parent"] = parent["id"]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    out = tmp_path / "out"
    mine(MineConfig(source=str(tmp_path / "x.jsonl"), out=out, vocabulary=300, context=1))
    with pytest.raises(UsageError, match="Nothing to erase"):
        erase(out)
    erased = erase(out, authors=["p0"])
    assert [near.kind for near in erased.verification.near] == ["shared words"]
    assert (out / "erasing.json").is_file()
    decided = erase(out, near="remove")
    assert (decided.verification.clean, decided.pairs) == (True, 2)
    assert [pair.id for pair in read_pairs(out)] == []
    assert not (out / "erasing.json").exists()
