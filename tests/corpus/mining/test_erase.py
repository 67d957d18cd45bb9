"""Erased people are removed from every file, and everything else stays unchanged."""

import json
import shutil
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.erase import RECORD, erase, erase_again, verify
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig, mine, outcome_of
from tertulia.corpus.mining.pairs import read_pairs, read_whole

from .conftest import config


@pytest.fixture(scope="module")
def mined(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mined")
    mine(config(forum, out, dialogues=True))
    return out


@pytest.fixture
def corpus(mined: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mined, tmp_path / "corpus"))


def busiest(folder: Path) -> str:
    turns: dict[str, int] = {}
    for pair in read_pairs(folder):
        for turn in pair.turns:
            turns[turn.speaker] = turns.get(turn.speaker, 0) + 1
    return max(turns, key=lambda name: turns[name])


def mentions(dialogue: Dialogue, name: str) -> bool:
    return any(turn.speaker == name or name in turn.source for turn in dialogue.turns)


def test_an_erased_author_is_removed_from_every_file(corpus: Path) -> None:
    name = busiest(corpus)
    before, whole = list(read_pairs(corpus)), list(read_whole(corpus))
    assert not verify(corpus, authors=[name]).clean
    erased = erase(corpus, authors=[name], near="keep")
    after = list(read_pairs(corpus))
    verification = verify(corpus, authors=[name])
    assert verification.clean
    assert verification.rows > len(after)
    assert verification.files > 16
    assert erased.pairs == len(before) - len(after) > 0
    assert erased.whole == len(whole) - len(list(read_whole(corpus))) > 0
    assert erased.messages > 0
    assert not any(mentions(pair, name) for pair in after)
    kept = [pair for pair in before if not mentions(pair, name)]
    assert {pair.id for pair in after} <= {pair.id for pair in kept}
    assert len(kept) - len(after) < 0.02 * len(kept)  # rows that quote them
    assert all(pair in before for pair in after[:50])
    assert list(load_dialogues(corpus / "pairs.parquet")) == after
    assert outcome_of(corpus).funnel.pairs == len(after)
    for file in corpus.rglob("*"):
        assert not file.is_file() or name.encode() not in file.read_bytes(), file


def test_a_single_message_is_erased_by_id(corpus: Path) -> None:
    victim = next(read_pairs(corpus)).turns[0].source[0]
    erase(corpus, ids=[victim])
    assert verify(corpus, ids=[victim]).clean
    assert not any(mentions(pair, victim) for pair in read_pairs(corpus))


def test_unaffected_shards_keep_their_bytes(corpus: Path) -> None:
    before = {f: f.read_bytes() for f in corpus.rglob("0*.parquet")}
    victim = next(read_pairs(corpus)).id
    erased = erase(corpus, ids=[victim])
    assert 1 <= sum(f.read_bytes() != content for f, content in before.items()) == erased.shards <= 2


def test_erasing_an_unknown_author_changes_nothing(corpus: Path) -> None:
    before = {f: f.read_bytes() for f in corpus.rglob("*.parquet")}
    assert erase(corpus, authors=["unknown-author"]).pairs == 0
    assert {f: f.read_bytes() for f in corpus.rglob("*.parquet")} == before


def test_the_record_has_no_names_and_applies_to_a_corpus_mined_again(corpus: Path, forum: Path) -> None:
    name = busiest(corpus)
    erased = erase(corpus, authors=[name])
    record = (corpus / RECORD).read_text()
    assert name not in record
    (erasure,) = json.loads(record)["erasures"]
    assert len(erasure["hashes"]) == 1
    remaining = list(read_pairs(corpus))
    mine(config(forum, corpus, fresh=True))
    assert verify(corpus, authors=[name]).clean
    assert list(read_pairs(corpus)) == remaining
    assert erase_again(corpus).pairs == 0
    assert erased.pairs


def test_rows_that_quote_an_erased_message_are_removed(tmp_path: Path) -> None:
    chain = ["the oven light is out once more", "which one, the big one", "> the oven light is out\nhow sad"]
    records = [{"id": str(i), "thread": "t", "author": f"p{i}", "text": text} for i, text in enumerate(chain)]
    for record, parent in zip(records[1:], records, strict=False):
        record["parent"] = parent["id"]
    records.append({"id": "3", "thread": "t", "author": "p3", "text": "it is what it is", "parent": "1"})
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    out = tmp_path / "out"
    mine(MineConfig(source=str(tmp_path / "x.jsonl"), out=out, vocabulary=300, context=1))
    assert [pair.id for pair in read_pairs(out)] == ["1", "2", "3"]
    erase(out, authors=["p0"])
    assert [pair.id for pair in read_pairs(out)] == ["3"]


def test_erasing_needs_a_name_and_a_finished_corpus(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Nothing to erase"):
        erase(corpus)
    with pytest.raises(DataError, match="is not a mined corpus"):
        erase(tmp_path, authors=["ana"])
    (corpus / "_work").mkdir()
    with pytest.raises(DataError, match="not finished"):
        erase(corpus, authors=["ana"])
