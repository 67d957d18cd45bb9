import json
import math
from pathlib import Path

import numpy as np
import pytest

from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError
from tertulia.talk.bots.tfidf import TfidfBot, TfidfOptions
from tertulia.talk.tfidf_index import MessageReply, TfidfIndex, _rows, mixed, pairs_of

DIALOGUES = [
    Dialogue("1", (Turn("a", "do you sail"), Turn("b", "every week"), Turn("a", "how nice"))),
    Dialogue("2", (Turn("a", "do you bake bread"), Turn("b", "never, I burn bread 🙂"))),
]


@pytest.fixture
def index() -> TfidfIndex:
    return TfidfIndex.from_dialogues(iter(DIALOGUES))


def test_pairs_name_their_source_turns() -> None:
    assert pairs_of(DIALOGUES[0]) == [
        MessageReply("", "do you sail", "1#0"),
        MessageReply("do you sail", "every week", "1#1"),
        MessageReply("every week", "how nice", "1#2"),
    ]
    assert pairs_of(Dialogue("3", ())) == []


def test_opening_turns_are_indexed(index: TfidfIndex) -> None:
    assert [index.pairs[i].reply for i in index.openers] == ["do you sail", "do you bake bread"]


def test_vectors_have_unit_length_or_are_zero(index: TfidfIndex) -> None:
    lengths = np.sqrt((index.vectors(["do you sail", "SAIL?", "quantum", ""]).toarray() ** 2).sum(axis=1))
    assert lengths.tolist() == pytest.approx([1, 1, 0, 0])


def similarity_of(index: TfidfIndex, text: str) -> np.ndarray:
    return index.search(index.query(text))


def test_a_search_finds_what_the_product_of_matrices_does() -> None:
    sampled = TfidfBot.build("", TfidfOptions()).index
    rows = sampled.vectors([row.text for row in _rows(sampled.pairs)])
    for text in ("do you have any pets?", "I, I and I again: do you sail", "quantum", "", "the " * 90 + "sea"):
        expected = (sampled.vectors([text]) @ rows.T).toarray()[0]
        assert similarity_of(sampled, text) == pytest.approx(expected, abs=1e-5)
    own, persona = sampled.query("do you have any pets?"), sampled.query("i have two dogs. i sail.")
    both = sampled.vectors(["do you have any pets?", "i have two dogs. i sail."]).toarray()
    vector = both[0] + 0.5 * both[1]
    expected = rows @ (vector / np.linalg.norm(vector))
    assert sampled.search(mixed(own, persona, 0.5)) == pytest.approx(expected, abs=1e-5)
    texts = ["two dogs and a cat", "", "the sea"]
    assert sampled.products(own, texts) == pytest.approx(list(sampled.vectors(texts) @ both[0]), abs=1e-5)


def test_similarity_is_the_cosine_with_each_message(index: TfidfIndex) -> None:
    similarity = similarity_of(index, "do you sail")
    assert similarity.shape == (5,)
    assert similarity[1] == pytest.approx(1.0, abs=1e-6)
    assert 0 < similarity[4] < 1
    assert similarity[0] == similarity[2] == 0


def test_weights_agree_with_the_formula() -> None:
    """tf is 1 + log(count), idf is 1 + log((1 + texts) / (1 + texts with the word)), rows of unit length."""
    index = TfidfIndex.from_pairs(
        [MessageReply("tea tea milk", "tea", "x"), MessageReply("milk", "sugar", "y")], max_ngram=1
    )
    idf = {w: 1 + math.log(5 / (1 + n)) for w, n in {"tea": 2, "milk": 2, "sugar": 1}.items()}
    raw = [(1 + math.log(2)) * idf["tea"], idf["milk"]]
    length = math.hypot(*raw)
    vector = index.vectors(["tea tea milk"]).toarray()[0]
    assert sorted(vector.tolist()) == pytest.approx(sorted([0.0, raw[0] / length, raw[1] / length]), abs=1e-6)


def test_bigrams_count_if_requested() -> None:
    both = [MessageReply("not bad at all", "x y", "1"), MessageReply("bad not all at", "y x", "2")]
    plain, paired = (TfidfIndex.from_pairs(both, max_ngram=n) for n in (1, 2))
    assert np.ptp(similarity_of(plain, "not bad at all")) == pytest.approx(0, abs=1e-6)
    first, second = similarity_of(paired, "not bad at all")
    assert first > second


@pytest.mark.parametrize("pairs", [[], [MessageReply("", "", "1")], [MessageReply("🙂", "!!", "1")]])
def test_no_words_to_index_is_an_error(pairs: list[MessageReply]) -> None:
    with pytest.raises(DataError, match="no words to index"):
        TfidfIndex.from_pairs(pairs)


def test_a_saved_index_loads_the_same(index: TfidfIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "deep" / "index")
    loaded = TfidfIndex.load(tmp_path / "deep" / "index")
    assert loaded.pairs == index.pairs
    assert loaded.fingerprint == index.fingerprint
    assert loaded.max_ngram == index.max_ngram == 2
    query = ["do you bake", "a week"]
    assert (loaded.vectors(query) != index.vectors(query)).nnz == 0
    assert [similarity_of(loaded, text).tolist() for text in query] == [
        similarity_of(index, text).tolist() for text in query
    ]


def test_saving_again_over_a_larger_index_leaves_nothing_behind(index: TfidfIndex, tmp_path: Path) -> None:
    index.save(tmp_path)
    smaller = TfidfIndex.from_dialogues(DIALOGUES[:1], max_ngram=1)
    smaller.save(tmp_path)
    loaded = TfidfIndex.load(tmp_path)
    assert (loaded.pairs, loaded.max_ngram) == (smaller.pairs, 1)


def test_the_fingerprint_distinguishes_indexes(index: TfidfIndex) -> None:
    assert index.fingerprint == TfidfIndex.from_dialogues(DIALOGUES).fingerprint
    others = [TfidfIndex.from_dialogues(DIALOGUES, max_ngram=1), TfidfIndex.from_dialogues(DIALOGUES[::-1])]
    assert index.fingerprint not in {other.fingerprint for other in others}


def change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


DAMAGE = {
    "no manifest": lambda f: (f / MANIFEST).unlink(),
    "manifest is not JSON": lambda f: (f / MANIFEST).write_text("{"),
    "manifest is a list": lambda f: (f / MANIFEST).write_text("[]"),
    "manifest without fingerprints": lambda f: (f / MANIFEST).write_text('{"format": 1, "max_ngram": 2}'),
    "no pairs": lambda f: (f / "pairs.jsonl").unlink(),
    "pairs cut short": lambda f: (f / "pairs.jsonl").write_bytes((f / "pairs.jsonl").read_bytes()[:-9]),
    "a pair lost": lambda f: (f / "pairs.jsonl").write_text((f / "pairs.jsonl").read_text().partition("\n")[2]),
    "pairs of numbers": lambda f: (f / "pairs.jsonl").write_text("[1, 2, 3]\n"),
    "pairs not UTF-8": lambda f: (f / "pairs.jsonl").write_bytes(b'["\xff", "", ""]\n'),
    "no words": lambda f: (f / "vocabulary.json").write_text("{}"),
    "words changed": lambda f: flip(f / "vocabulary.json"),
    "weights empty": lambda f: (f / "idf.npy").write_bytes(b""),
    "weights changed": lambda f: flip(f / "idf.npy"),
    "weights missing": lambda f: (f / "idf.npy").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_refused(index: TfidfIndex, tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    index.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=r"(damaged|incomplete|earlier version).*\n.*[Bb]uild it again from its data"):
        TfidfIndex.load(tmp_path)


def test_an_index_of_another_format_is_refused(index: TfidfIndex, tmp_path: Path) -> None:
    index.save(tmp_path)
    change(tmp_path / MANIFEST, format=99)
    with pytest.raises(DataError, match=r"newer Tertulia \(format 99; this one reads 2\)"):
        TfidfIndex.load(tmp_path)
