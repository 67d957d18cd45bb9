import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.text import ngrams, words
from tertulia.corpus.duplicates import similar_pairs
from tertulia.corpus.shingles import SIGNATURE, jaccard_sorted, joined_shingle_sets, shingle_sets, signatures

WORDS = [f"word{i}" for i in range(400)]


def reference_shingles(text: str, n: int = 3) -> list[int]:
    """What a set of n-grams is, in one line."""
    tokens = words(text)
    grams = ngrams(tokens, n) if len(tokens) >= n else iter([tuple(tokens)] if tokens else [])
    return sorted({zlib.crc32(" ".join(gram).encode()) for gram in grams})


def jaccard(a: str, b: str) -> float:
    x, y = set(reference_shingles(a)), set(reference_shingles(b))
    return len(x & y) / len(x | y)


def random_text(rng: random.Random, length: int = 30) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def test_signatures_estimate_the_jaccard_similarity():
    rng = random.Random(1)
    original = [rng.choice(WORDS) for _ in range(300)]
    changed = [w if rng.random() > 0.08 else "other" for w in original]
    a, b = " ".join(original), " ".join(changed)
    sets = shingle_sets([a, b])
    assert jaccard_sorted(sets.of(0), sets.of(1)) == jaccard(a, b)
    rows = signatures(sets)
    assert (rows[0] == rows[1]).mean() == pytest.approx(jaccard(a, b), abs=4 * 0.5 / SIGNATURE**0.5)


def test_finds_planted_duplicates_and_nothing_else():
    rng = random.Random(2)
    left = [random_text(rng) for _ in range(200)]
    right = [random_text(rng) for _ in range(200)]
    right[17] = left[3]
    right[90] = left[150] + " and a bit more"
    assert {(p.left, p.right) for p in similar_pairs(left, right, threshold=0.7)} == {(3, 17), (150, 90)}


def test_agrees_with_comparing_all_pairs():
    rng = random.Random(3)
    base = [random_text(rng, 12) for _ in range(30)]
    noisy = [" ".join(w if rng.random() > 0.1 else "x" for w in rng.choice(base).split()) for _ in range(60)]
    expected = {(i, j) for i, a in enumerate(base) for j, b in enumerate(noisy) if jaccard(a, b) >= 0.7}
    assert expected
    assert {(a.left, a.right) for a in similar_pairs(base, noisy, threshold=0.7)} == expected


def test_empty_texts_are_similar_to_nothing():
    assert list(similar_pairs(["", "...", "a b c"], ["", "!"])) == []


def test_hashes_are_the_same_on_every_machine():
    sets = shingle_sets(["to be or not to be"])
    assert sets.of(0).tolist() == [667535884, 1503753929, 3158539197, 4008488886]
    assert signatures(sets)[0, :2].tolist() == [5170628178856058889, 4538031149396754846]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.text(), st.sampled_from(["a b", "To be, or", "x" * 70 + " y", "日本 の"])), max_size=4)
    ),
    st.integers(1, 4),
)
def test_n_grams_of_all_texts_at_once_are_those_of_each(texts, n):
    sets = joined_shingle_sets(texts, n)
    assert [sets.of(i).tolist() for i in range(len(sets))] == [reference_shingles("\n".join(t), n) for t in texts]


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_every_text_with_words_is_similar_to_itself(text):
    assert [pair.similarity for pair in similar_pairs([text], [text])] == ([1.0] if words(text) else [])
