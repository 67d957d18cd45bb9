import json
import math
from pathlib import Path

import numpy as np
import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError
from tertulia.talk.lexical import Pair, TfidfIndex, pairs_of
from tertulia.talk.spec import MANIFEST

TALKS = [
    Dialogue("1", (Turn("a", "do you sail"), Turn("b", "every week"), Turn("a", "how nice"))),
    Dialogue("2", (Turn("a", "do you bake bread"), Turn("b", "never, I burn bread 🙂"))),
]


@pytest.fixture
def index() -> TfidfIndex:
    return TfidfIndex.from_dialogues(iter(TALKS))


def test_pairs_lead_back_to_their_turns() -> None:
    assert pairs_of(TALKS[0]) == [
        Pair("", "do you sail", "1#0"),
        Pair("do you sail", "every week", "1#1"),
        Pair("every week", "how nice", "1#2"),
    ]
    assert pairs_of(Dialogue("3", ())) == []


def test_openers_are_known(index: TfidfIndex) -> None:
    assert [index.pairs[i].reply for i in index.openers] == ["do you sail", "do you bake bread"]


def test_vectors_have_unit_length_or_none(index: TfidfIndex) -> None:
    lengths = np.sqrt((index.vectors(["do you sail", "SAIL?", "quantum", ""]).toarray() ** 2).sum(axis=1))
    assert lengths.tolist() == pytest.approx([1, 1, 0, 0])


def test_similarity_is_the_cosine_with_each_message(index: TfidfIndex) -> None:
    near = index.similarity(index.vectors(["do you sail"])).toarray()[0]
    assert near.shape == (5,)
    assert near[1] == pytest.approx(1.0, abs=1e-6)
    assert 0 < near[4] < 1
    assert near[0] == near[2] == 0


def test_weights_agree_with_a_second_working() -> None:
    """tf is 1 + log(count), idf is 1 + log((1 + texts) / (1 + texts with the word)), rows of unit length."""
    index = TfidfIndex.from_pairs([Pair("tea tea milk", "tea", "x"), Pair("milk", "sugar", "y")], max_ngram=1)
    idf = {w: 1 + math.log(5 / (1 + n)) for w, n in {"tea": 2, "milk": 2, "sugar": 1}.items()}
    raw = [(1 + math.log(2)) * idf["tea"], idf["milk"]]
    length = math.hypot(*raw)
    vector = index.vectors(["tea tea milk"]).toarray()[0]
    assert sorted(vector.tolist()) == pytest.approx(sorted([0.0, raw[0] / length, raw[1] / length]), abs=1e-6)


def test_pairs_of_words_count_where_asked_for() -> None:
    both = [Pair("not bad at all", "x y", "1"), Pair("bad not all at", "y x", "2")]
    plain, paired = (TfidfIndex.from_pairs(both, max_ngram=n) for n in (1, 2))
    query = ["not bad at all"]
    assert np.ptp(plain.similarity(plain.vectors(query)).toarray()) == pytest.approx(0, abs=1e-6)
    first, second = paired.similarity(paired.vectors(query)).toarray()[0]
    assert first > second


@pytest.mark.parametrize("pairs", [[], [Pair("", "", "1")], [Pair("🙂", "!!", "1")]])
def test_nothing_to_index_is_a_clear_error(pairs: list[Pair]) -> None:
    with pytest.raises(DataError, match="not a single word"):
        TfidfIndex.from_pairs(pairs)


def test_what_was_saved_loads_the_same(index: TfidfIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "deep" / "index")
    again = TfidfIndex.load(tmp_path / "deep" / "index")
    assert again.pairs == index.pairs
    assert again.fingerprint == index.fingerprint
    assert again.max_ngram == index.max_ngram == 2
    query = ["do you bake", "a week"]
    assert (again.vectors(query) != index.vectors(query)).nnz == 0
    assert (again.similarity(again.vectors(query)) != index.similarity(index.vectors(query))).nnz == 0


def test_saving_again_over_a_larger_index_leaves_nothing_behind(index: TfidfIndex, tmp_path: Path) -> None:
    index.save(tmp_path)
    smaller = TfidfIndex.from_dialogues(TALKS[:1], max_ngram=1)
    smaller.save(tmp_path)
    again = TfidfIndex.load(tmp_path)
    assert (again.pairs, again.max_ngram) == (smaller.pairs, 1)


def test_the_fingerprint_tells_indexes_apart(index: TfidfIndex) -> None:
    assert index.fingerprint == TfidfIndex.from_dialogues(TALKS).fingerprint
    others = [TfidfIndex.from_dialogues(TALKS, max_ngram=1), TfidfIndex.from_dialogues(TALKS[::-1])]
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
    with pytest.raises(DataError, match=r"damaged .*\nBuild it anew"):
        TfidfIndex.load(tmp_path)


def test_an_index_of_another_format_is_refused(index: TfidfIndex, tmp_path: Path) -> None:
    index.save(tmp_path)
    change(tmp_path / MANIFEST, format=99)
    with pytest.raises(DataError, match="has format 99; this version reads format 1"):
        TfidfIndex.load(tmp_path)
