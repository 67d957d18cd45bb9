import math

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from tertulia.core.errors import UsageError
from tertulia.metrics.embeddings import NAMES, WordVectors, average, extrema, greedy
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.registry import metric_named

RNG = np.random.default_rng(3)
REPLY, REFERENCE = RNG.normal(size=(4, 6)), RNG.normal(size=(3, 6))


def test_average_is_the_cosine_of_the_means() -> None:
    assert average(REPLY, REFERENCE) == pytest.approx(1 - cosine(REPLY.mean(0), REFERENCE.mean(0)))


def test_extrema_by_hand() -> None:
    reply = np.array([[1.0, -3.0, 2.0], [-0.5, 1.0, -2.0]])  # 1, -3, -2: a tie goes to the smallest
    assert extrema(reply, np.array([[1.0, -3.0, -2.0]])) == pytest.approx(1)
    assert extrema(reply, np.array([[1.0, 3.0, 2.0]])) == pytest.approx((1 - 9 - 4) / 14)


def test_greedy_word_by_word() -> None:
    def best(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.mean([max(1 - cosine(word, another) for another in other) for word in one]))

    expected = (best(REPLY, REFERENCE) + best(REFERENCE, REPLY)) / 2
    assert greedy(REPLY, REFERENCE) == pytest.approx(expected)
    assert greedy(REFERENCE, REPLY) == pytest.approx(expected)
    assert best(REPLY, REFERENCE) != pytest.approx(expected)


def measured(pairs: list[tuple[str, str]], vectors: WordVectors) -> list[list[float]]:
    """One row per pair: average, extrema, greedy."""
    batch = [ReplyExample(*pair) for pair in pairs]
    columns = [metric_named(name).measure(batch, {"word_vectors": vectors})[0] for name in NAMES]
    return np.stack(columns, axis=1).tolist()


def test_words_without_a_vector_are_left_out_and_counted() -> None:
    known = WordVectors.rows(["tea", "dog"], np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32))
    pairs = [("Tea, please!", "tea"), ("who knows", "dog"), ("", ""), ("dog", "a dog and tea")]
    rows = measured(pairs, known)
    assert rows[0] == [1, 1, 1]
    assert np.isnan(rows[1:3]).all()
    half = 2 / math.sqrt(5)
    assert rows[3] == pytest.approx([half, half, 0.75])
    assert known.missing_share(text for pair in pairs for text in pair) == pytest.approx(5 / 11)
    assert math.isnan(known.missing_share([""]))


def test_a_zero_vector_has_a_cosine_of_zero() -> None:
    known = WordVectors.of({"tea": np.zeros(2), "dog": np.ones(2)})
    assert measured([("tea", "dog"), ("tea", "tea")], known) == [[0, 0, 0], [0, 0, 0]]


def test_words_and_rows_must_match() -> None:
    with pytest.raises(ValueError, match="2 different words do not match 1 rows"):
        WordVectors.rows(["tea", "dog"], np.zeros((1, 2)))


def test_without_vectors_the_metric_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match="needs word_vectors"):
        metric_named("embedding greedy").measure([ReplyExample("tea", "tea")])
