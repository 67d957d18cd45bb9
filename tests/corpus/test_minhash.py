import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.text import words
from tertulia.corpus.minhash import SIGNATURE, alike, jaccard, shingles, signatures

WORDS = [f"word{i}" for i in range(400)]


def text(rng: random.Random, length: int = 30) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def test_signatures_estimate_the_similarity():
    rng = random.Random(1)
    said = [rng.choice(WORDS) for _ in range(300)]
    changed = [w if rng.random() > 0.08 else "other" for w in said]
    a, b = shingles(" ".join(said)), shingles(" ".join(changed))
    rows = signatures([a, b])
    assert (rows[0] == rows[1]).mean() == pytest.approx(jaccard(a, b), abs=4 * 0.5 / SIGNATURE**0.5)


def test_finds_planted_copies_and_nothing_else():
    rng = random.Random(2)
    left = [text(rng) for _ in range(200)]
    right = [text(rng) for _ in range(200)]
    right[17] = left[3]
    right[90] = left[150] + " and a bit more"
    found = {(a.left, a.right) for a in alike(left, right, threshold=0.7)}
    assert found == {(3, 17), (150, 90)}


def test_agrees_with_comparing_everything():
    rng = random.Random(3)
    base = [text(rng, 12) for _ in range(30)]
    noisy = [" ".join(w if rng.random() > 0.1 else "x" for w in rng.choice(base).split()) for _ in range(60)]
    slow = {(i, j) for i, a in enumerate(base) for j, b in enumerate(noisy) if jaccard(shingles(a), shingles(b)) >= 0.7}
    assert slow
    assert {(a.left, a.right) for a in alike(base, noisy, threshold=0.7)} == slow


def test_empty_texts_are_like_nothing():
    assert list(alike(["", "...", "a b c"], ["", "!"])) == []


def test_hashes_are_the_same_everywhere():
    known = shingles("to be or not to be")
    assert sorted(known) == [667535884, 1503753929, 3158539197, 4008488886]
    assert signatures([known])[0, :2].tolist() == [5170628178856058889, 4538031149396754846]


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_every_text_is_like_itself(said):
    found = [a.similarity for a in alike([said], [said])]
    assert found == ([1.0] if words(said) else [])
