import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from tertulia.core.score import Score
from tertulia.metrics.diversity import distinct
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import estimate

texts_of_letters = st.lists(st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join), max_size=5)


@settings(max_examples=100, deadline=None)
@given(texts_of_letters, st.integers(1, 3))
def test_distinct_is_types_over_tokens(texts: list[str], n: int) -> None:
    grams = []
    for text in texts:
        parts = text.split()
        grams += ["-".join(parts[i : i + n]) for i in range(len(parts)) if i + n <= len(parts)]
    figure = distinct(iter(texts), n)
    assert figure.n == len(grams)
    if grams:
        assert figure.value == pytest.approx(len(set(grams)) / len(grams))
    else:
        assert math.isnan(figure.value)
    metric = metric_named(f"distinct-{n}")
    units = [str(i) for i, _ in enumerate(texts)]
    batch = [ReplyExample(text) for text in texts]
    score: Score = metric.score(batch, subject="bot", setting="", units=units, clusters=units)
    assert str(estimate(score, metric)) == str(figure)


def test_ngrams_do_not_cross_texts() -> None:
    assert distinct(["one two", "three four"], 2).n == 2


def test_distinct_has_no_interval() -> None:
    assert math.isnan(distinct(["a b a b"], 2).low)


def test_repeated_replies_are_not_diverse() -> None:
    assert distinct(["I don't know."] * 50, 2).value == pytest.approx(2 / 100)
    assert distinct(["Ok!", "ok", "OK..."], 1).value == pytest.approx(1 / 3)


@settings(max_examples=100, deadline=None)
@given(texts_of_letters, st.integers(1, 2))
def test_entropy_is_that_of_the_ngrams_of_all_replies(texts: list[str], n: int) -> None:
    grams = [tuple(text.split()[i : i + n]) for text in texts for i in range(len(text.split()) - n + 1)]
    shares = [grams.count(gram) / len(grams) for gram in set(grams)]
    metric = metric_named(f"entropy-{n}")
    units = [str(i) for i, _ in enumerate(texts)]
    batch = [ReplyExample(text) for text in texts]
    figure = estimate(metric.score(batch, subject="bot", setting="", units=units, clusters=units), metric)
    assert figure.n == len(grams)
    assert figure.value == pytest.approx(entropy(shares) if grams else math.nan, nan_ok=True)
    assert math.isnan(figure.low)
