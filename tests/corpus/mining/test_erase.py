"""Whoever is erased is gone, from every file, and what does not hold them stays as it was."""

import json
import shutil
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.erase import RECORD, erase, erase_again, prove
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
    said: dict[str, int] = {}
    for pair in read_pairs(folder):
        for turn in pair.turns:
            said[turn.speaker] = said.get(turn.speaker, 0) + 1
    return max(said, key=lambda name: said[name])


def holds(dialogue: Dialogue, name: str) -> bool:
    return any(turn.speaker == name or name in turn.source for turn in dialogue.turns)


def test_an_author_is_gone_from_every_file(corpus: Path) -> None:
    name = busiest(corpus)
    before, whole = list(read_pairs(corpus)), list(read_whole(corpus))
    assert not prove(corpus, authors=[name]).clean
    erased = erase(corpus, authors=[name])
    after = list(read_pairs(corpus))
    proof = prove(corpus, authors=[name])
    assert proof.clean
    assert proof.rows > len(after)
    assert proof.files > 16
    assert erased.pairs == len(before) - len(after) > 0
    assert erased.whole == len(whole) - len(list(read_whole(corpus))) > 0
    assert erased.messages > 0
    assert not any(holds(pair, name) for pair in after)
    kept = [pair for pair in before if not holds(pair, name)]
    assert {pair.id for pair in after} <= {pair.id for pair in kept}
    assert len(kept) - len(after) < 0.02 * len(kept)  # who quotes them
    assert all(pair in before for pair in after[:50])
    assert list(load_dialogues(corpus / "pairs.parquet")) == after
    assert outcome_of(corpus).funnel.pairs == len(after)
    for file in corpus.rglob("*"):
        assert not file.is_file() or name.encode() not in file.read_bytes(), file


def test_single_messages_by_id(corpus: Path) -> None:
    victim = next(read_pairs(corpus)).turns[0].source[0]
    erase(corpus, ids=[victim])
    assert prove(corpus, ids=[victim]).clean
    assert not any(holds(pair, victim) for pair in read_pairs(corpus))


def test_shards_without_them_keep_their_bytes(corpus: Path) -> None:
    before = {f: f.read_bytes() for f in corpus.rglob("0*.parquet")}
    victim = next(read_pairs(corpus)).id
    erased = erase(corpus, ids=[victim])
    assert 1 <= sum(f.read_bytes() != content for f, content in before.items()) == erased.shards <= 2


def test_nobody_leaves_all_as_it_was(corpus: Path) -> None:
    before = {f: f.read_bytes() for f in corpus.rglob("*.parquet")}
    assert erase(corpus, authors=["nobody-of-that-name"]).pairs == 0
    assert {f: f.read_bytes() for f in corpus.rglob("*.parquet")} == before


def test_the_record_names_nobody_and_frees_a_corpus_mined_anew(corpus: Path, forum: Path) -> None:
    name = busiest(corpus)
    erased = erase(corpus, authors=[name])
    record = (corpus / RECORD).read_text()
    assert name not in record
    (erasure,) = json.loads(record)["erasures"]
    assert len(erasure["hashes"]) == 1
    left = list(read_pairs(corpus))
    mine(config(forum, corpus, fresh=True))
    assert prove(corpus, authors=[name]).clean
    assert list(read_pairs(corpus)) == left
    assert erase_again(corpus).pairs == 0
    assert erased.pairs


def test_who_quotes_them_goes_too(tmp_path: Path) -> None:
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


def test_what_cannot_be_erased(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Name whom"):
        erase(corpus)
    with pytest.raises(DataError, match="no mined corpus"):
        erase(tmp_path, authors=["ana"])
    (corpus / "_work").mkdir()
    with pytest.raises(DataError, match="not done"):
        erase(corpus, authors=["ana"])
