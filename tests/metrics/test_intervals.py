import numpy as np
import pytest
from scipy import stats

from tertulia.metrics.intervals import cluster_codes, crossed_variance, wilson_interval


def test_two_way_variance_is_the_sum_over_pairs_that_share_a_conversation_or_a_rater() -> None:
    """Without the corrections for few clusters: the products of all pairs of ratings that are not independent."""
    rng = np.random.default_rng(3)
    conversations, raters = rng.integers(0, 30, 200), rng.integers(0, 25, 200)
    influence = rng.normal(size=200) + rng.normal(size=30)[conversations] + rng.normal(size=25)[raters]
    dependent = (conversations[:, None] == conversations) | (raters[:, None] == raters)
    expected = (np.outer(influence, influence) * dependent).sum()
    codes = [cluster_codes(labels.tolist())[0] for labels in (conversations, raters)]
    result = crossed_variance(influence[:, None], *codes)
    assert result.variance[0] == pytest.approx(expected, rel=0.06)
    assert min(len(set(c)) for c in codes) * 0.7 < result.degrees[0] < 30


def test_wilson_intervals_agree_with_scipy() -> None:
    for wins, n, level in ((0, 5, 0.9), (3, 17, 0.95), (40, 40, 0.99)):
        expected = stats.binomtest(wins, n).proportion_ci(level, method="wilson")
        assert wilson_interval(wins / n, n, level=level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_clusters_that_cancel_out_do_not_make_a_figure_certain() -> None:
    """Two conversations with the same mean, so that only single ratings vary; the sums are zero but for rounding."""
    values = np.array([0.1, 0.2, 0.3, 0.3, 0.2, 0.1])
    codes = np.array([0, 0, 0, 1, 1, 1])
    variance, degrees = crossed_variance((values - values.mean())[:, None] / len(values), codes)
    assert variance[0] == pytest.approx(values.var(ddof=1) / len(values))
    assert degrees[0] == 1
    nothing, _ = crossed_variance(np.full((6, 1), 1e-17), codes)
    assert nothing[0] >= 0
    assert crossed_variance(np.zeros((6, 1)), codes).variance[0] == 0
