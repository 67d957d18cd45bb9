"""Batched embedding metrics against a per-pair implementation with SciPy's cosine, and by hand."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from tertulia.core.errors import UsageError
from tertulia.core.text import words
from tertulia.metrics import embeddings
from tertulia.metrics.embeddings import NAMES, TextPairs, WordVectors, pair_similarities
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.registry import metric_named

RNG = np.random.default_rng(3)


def peer(one: np.ndarray, other: np.ndarray) -> list[float]:
    """Average, extrema and greedy of the words of two texts, word by word."""

    def extreme(vectors: np.ndarray) -> list[float]:
        return [max(column) if max(column) > abs(min(column)) else min(column) for column in vectors.T.tolist()]

    def best(some: np.ndarray, others: np.ndarray) -> float:
        return float(np.mean([max(1 - cosine(word, another) for another in others) for word in some]))

    return [
        1 - cosine(one.mean(0), other.mean(0)),
        1 - cosine(extreme(one), extreme(other)),
        (best(one, other) + best(other, one)) / 2,
    ]


@pytest.mark.parametrize("block", [1, embeddings.BLOCK])
def test_batches_have_the_figures_of_single_pairs(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "BLOCK", block)
    vocabulary = [f"w{i}" for i in range(30)]
    vectors = WordVectors.rows(vocabulary, RNG.normal(size=(30, 6)))
    texts = [" ".join(RNG.choice(vocabulary, size=size)) for size in RNG.integers(1, 15, size=60)]
    pairs = [*zip(texts[:30], texts[30:], strict=True), (texts[0], texts[0]), (texts[1], texts[0])]
    expected = [peer(*(vectors.matrix[[vectors.index[w] for w in words(text)]] for text in pair)) for pair in pairs]
    assert np.array(measured(pairs, vectors)) == pytest.approx(np.array(expected), abs=1e-9)


def test_extrema_by_hand() -> None:
    vectors = WordVectors.of(
        {
            "a": np.array([1.0, -3.0, 2.0]),
            "b": np.array([-0.5, 1.0, -2.0]),  # with a: 1, -3, -2; a tie goes to the smallest
            "c": np.array([1.0, -3.0, -2.0]),
            "d": np.array([1.0, 3.0, 2.0]),
        }
    )
    values = pair_similarities(TextPairs.of([("a b", "c"), ("d", "b a")]), vectors, "extrema")
    assert values == pytest.approx([1, (1 - 9 - 4) / 14])


def test_a_source_is_asked_once_for_each_word() -> None:
    asked: list[set[str]] = []

    def source(wanted):  # type: ignore[no-untyped-def]
        asked.append(set(wanted))
        return {word: np.array([1.0, len(word)]) for word in wanted if word != "nothing"}

    vectors = WordVectors.lazy(source)
    assert measured([("tea", "tea"), ("nothing", "tea")], vectors)[0] == pytest.approx([1, 1, 1])
    assert vectors.missing_share(["tea nothing", "tea coffee"]) == pytest.approx(1 / 4)
    assert measured([("coffee", "coffee")], vectors) == [pytest.approx([1, 1, 1])]
    assert asked == [{"tea", "nothing"}, {"coffee"}]


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
