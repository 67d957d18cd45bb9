import math

import pytest

from tertulia.core.score import Score


def test_a_score_keeps_one_value_per_unit() -> None:
    score = Score("bot", "own", "mrr", ("a", "b"), (1.0, math.nan), ("d", "d"))
    assert score.key == ("bot", "own", "mrr")
    assert score.weights == ()


@pytest.mark.parametrize(
    ("values", "clusters", "weights"),
    [((1.0,), ("d", "d"), ()), ((1.0, 2.0), ("d",), ()), ((1.0, 2.0), ("d", "d"), (1.0,))],
)
def test_parallel_tuples_must_have_the_same_length(
    values: tuple[float, ...], clusters: tuple[str, ...], weights: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="same length"):
        Score("bot", "", "mrr", ("a", "b"), values, clusters, weights)


def test_a_unit_occurs_once() -> None:
    with pytest.raises(ValueError, match="occurs twice"):
        Score("bot", "", "mrr", ("a", "a"), (1.0, 2.0), ("d", "d"))
