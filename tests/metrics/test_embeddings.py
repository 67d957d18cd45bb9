import math

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from tertulia.metrics.embeddings import WordVectors, average, extrema, greedy, nearness

RNG = np.random.default_rng(3)
SAID, REFERENCE = RNG.normal(size=(4, 6)), RNG.normal(size=(3, 6))


def test_average_is_the_cosine_of_the_means() -> None:
    assert average(SAID, REFERENCE) == pytest.approx(1 - cosine(SAID.mean(0), REFERENCE.mean(0)))


def test_extrema_by_hand() -> None:
    said = np.array([[1.0, -3.0, 2.0], [-0.5, 1.0, -2.0]])  # 1, -3, -2: a tie goes to the smallest
    assert extrema(said, np.array([[1.0, -3.0, -2.0]])) == pytest.approx(1)
    assert extrema(said, np.array([[1.0, 3.0, 2.0]])) == pytest.approx((1 - 9 - 4) / 14)


def test_greedy_word_by_word() -> None:
    def best(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.mean([max(1 - cosine(word, another) for another in other) for word in one]))

    expected = (best(SAID, REFERENCE) + best(REFERENCE, SAID)) / 2
    assert greedy(SAID, REFERENCE) == pytest.approx(expected)
    assert greedy(REFERENCE, SAID) == pytest.approx(expected)
    assert best(SAID, REFERENCE) != pytest.approx(expected)


def test_words_without_a_vector_are_left_out_and_counted() -> None:
    known = WordVectors.rows(["tea", "dog"], np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32))
    found = nearness([("Tea, please!", "tea"), ("who knows", "dog"), ("", ""), ("dog", "a dog and tea")], known)
    assert (found.words, found.unknown) == (3 + 3 + 0 + 5, 1 + 2 + 0 + 2)
    assert found.values[0].tolist() == [1, 1, 1]
    assert np.isnan(found.values[1:3]).all()
    half = 2 / math.sqrt(5)
    assert found.values[3] == pytest.approx([half, half, 0.75])


def test_a_vector_of_zeros_is_near_nothing() -> None:
    known = WordVectors.of({"tea": np.zeros(2), "dog": np.ones(2)})
    assert nearness([("tea", "dog"), ("tea", "tea")], known).values.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_words_and_rows_have_to_fit() -> None:
    with pytest.raises(ValueError, match="2 different words and 1 rows"):
        WordVectors.rows(["tea", "dog"], np.zeros((1, 2)))
