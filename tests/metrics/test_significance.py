import math
import re
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.metrics.agreement import UnitRating, krippendorff_alpha, percent_agreement
from tertulia.metrics.intervals import wilson_interval
from tertulia.metrics.judge_agreement import cohen_kappa
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.ratings import SubjectRating, compare_subjects
from tertulia.metrics.registry import METRICS, example_name, metric_named
from tertulia.metrics.significance import (
    bootstrap_mean,
    bootstrap_means,
    by_group,
    compare,
    crossed_estimate,
    crossed_means,
    estimate,
    estimates,
    paired_difference,
    shared_units,
)

MRR, PERPLEXITY, KL, DISTINCT = (metric_named(name) for name in ("mrr", "perplexity", "KL", "distinct-2"))


def width(figure: Estimate) -> float:
    return figure.high - figure.low


def test_no_data_gives_nan() -> None:
    empty = bootstrap_mean(np.array([]))
    assert empty.n == 0
    assert math.isnan(empty.value)
    assert math.isnan(empty.low)


def test_the_interval_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).normal(3, 2, 120)
    figure = bootstrap_mean(values, resamples=5000)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert figure.value == pytest.approx(values.mean())
    assert figure.n == 120
    assert figure.low == pytest.approx(expected.low, abs=0.03)
    assert figure.high == pytest.approx(expected.high, abs=0.03)


def test_the_interval_has_its_nominal_coverage() -> None:
    source = np.random.default_rng(11)
    for level, least, most in ((0.95, 0.90, 0.985), (0.8, 0.73, 0.87)):
        covered = []
        for trial in range(250):
            figure = bootstrap_mean((source.random(80) < 0.3).astype(float), level=level, resamples=400, seed=trial)
            covered.append(figure.low <= 0.3 <= figure.high)
        assert least < np.mean(covered) < most


def test_the_clustered_interval_covers_where_the_plain_one_does_not() -> None:
    """30 dialogues of 10 strongly correlated replies."""
    source = np.random.default_rng(5)
    clusters = np.repeat(np.arange(30), 10).tolist()
    plain, clustered = [], []
    for trial in range(150):
        values = np.repeat(source.normal(size=30), 10) + 0.3 * source.normal(size=300)
        for coverage, by in ((plain, None), (clustered, clusters)):
            e = bootstrap_mean(values, by, resamples=300, seed=trial)
            coverage.append(e.low <= 0 <= e.high)
    assert np.mean(clustered) > 0.88
    assert np.mean(plain) < 0.75


def test_clustered_data_give_wider_intervals() -> None:
    source = np.random.default_rng(3)
    values = np.repeat(source.normal(size=20), 15)
    clusters = [f"dialogue {i // 15}" for i in range(300)]
    assert width(bootstrap_mean(values, clusters)) > 2.5 * width(bootstrap_mean(values))
    alone = [str(i) for i in range(300)]
    assert width(bootstrap_mean(values, alone)) == pytest.approx(width(bootstrap_mean(values)), rel=0.1)


def test_clusters_of_different_sizes_keep_the_plain_mean() -> None:
    values = np.array([1.0, 0, 0, 0, 0, 0])
    figure = bootstrap_mean(values, ["a", "b", "b", "b", "b", "b"])
    assert figure.value == pytest.approx(1 / 6)
    assert figure.low <= figure.value <= figure.high


def test_a_single_cluster_has_no_variance() -> None:
    figure = bootstrap_mean(np.array([0.0, 1.0]), ["a", "a"])
    assert (figure.value, figure.n, math.isnan(figure.low), math.isnan(figure.high)) == (0.5, 2, True, True)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(0).random(50)
    assert bootstrap_mean(values, seed=4) == bootstrap_mean(values, seed=4)
    assert bootstrap_mean(values, seed=4) != bootstrap_mean(values, seed=5)


def test_a_higher_level_gives_a_wider_interval() -> None:
    values = np.random.default_rng(0).random(50)
    half, most = bootstrap_mean(values, level=0.5), bootstrap_mean(values, level=0.99)
    assert most.low < half.low < half.value < half.high < most.high
    assert most.level == 0.99


def test_every_value_needs_a_cluster() -> None:
    with pytest.raises(ValueError, match="length"):
        bootstrap_mean(np.array([1.0, 2.0]), ["a"])


def test_large_samples_need_little_memory() -> None:
    tracemalloc.start()
    figure = bootstrap_mean(np.random.default_rng(0).random(200_000), resamples=60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert figure.low < 0.5 < figure.high
    assert peak < 100e6


def test_columns_together_give_the_same_as_alone() -> None:
    source = np.random.default_rng(2)
    columns, clusters = source.random((90, 3)), [f"d{i // 6}" for i in range(90)]
    together = bootstrap_means(columns, clusters, seed=8)
    for i, figure in enumerate(together):
        alone = bootstrap_mean(columns[:, i], clusters, seed=8)
        assert (figure.value, figure.low, figure.high) == pytest.approx((alone.value, alone.low, alone.high))
        assert figure.n == alone.n == 90


def score(
    values: list[float], clusters: list[str], *, weights: tuple[float, ...] = (), metric: str = "mrr", first: int = 0
) -> Score:
    units = tuple(f"u{i}" for i in range(first, first + len(values)))
    return Score("bot", "", metric, units, tuple(values), tuple(clusters), weights)


def naive_interval(numerators: np.ndarray, denominators: np.ndarray, clusters: list[str]) -> tuple[float, float]:
    """Draw clusters one by one and divide the sums anew: slow and obvious."""
    rng, names, ratios = np.random.default_rng(99), sorted(set(clusters)), []
    members = {name: [i for i, c in enumerate(clusters) if c == name] for name in names}
    for _ in range(3000):
        rows = [i for name in rng.choice(names, len(names)) for i in members[name]]
        ratios.append(numerators[rows].sum() / denominators[rows].sum())
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


SOURCE = np.random.default_rng(7)
VALUES, WEIGHTS = SOURCE.gamma(3, 2, 60), SOURCE.integers(3, 30, 60).astype(float)
CLUSTERS = [f"d{i // 4}" for i in range(60)]


def test_a_mean_against_a_naive_bootstrap() -> None:
    figure = estimate(score(VALUES.tolist(), CLUSTERS), MRR)
    low, high = naive_interval(VALUES, np.ones(60), CLUSTERS)
    assert (figure.value, figure.n) == (pytest.approx(VALUES.mean()), 60)
    assert (figure.low, figure.high) == pytest.approx((low, high), rel=0.05)


def test_a_ratio_and_a_perplexity_against_a_naive_bootstrap() -> None:
    weighted = {"weights": tuple(WEIGHTS.tolist())}
    ratio = estimate(score(VALUES.tolist(), CLUSTERS, metric="KL", **weighted), KL)  # type: ignore[arg-type]
    ppl = estimate(score(VALUES.tolist(), CLUSTERS, metric="perplexity", **weighted), PERPLEXITY)  # type: ignore[arg-type]
    low, high = naive_interval(VALUES, WEIGHTS, CLUSTERS)
    assert ratio.value == pytest.approx(VALUES.sum() / WEIGHTS.sum())
    assert (ratio.low, ratio.high) == pytest.approx((low, high), rel=0.05)
    assert (ppl.value, ppl.low, ppl.high) == pytest.approx(tuple(np.exp([ratio.value, ratio.low, ratio.high])))
    assert ppl.n == ratio.n == 60


def test_a_pooled_metric_has_a_value_and_no_interval() -> None:
    figure = estimate(score([2, 1], ["a", "b"], weights=(4, 2), metric="distinct-2"), DISTINCT)
    assert (figure.value, figure.n) == (0.5, 6)
    assert math.isnan(figure.low)
    one = score([2], ["a"], weights=(4,), metric="distinct-2")
    assert compare(one, one, DISTINCT) is None
    with pytest.raises(ValueError, match="cannot be compared"):
        paired_difference(one, one, DISTINCT)


def test_units_without_a_value_are_left_out() -> None:
    figure = estimate(score([1.0, math.nan, 0.0], ["a", "a", "b"]), MRR)
    assert (figure.value, figure.low, figure.high, figure.n) == (0.5, 0.0, 1.0, 2)
    empty = estimate(score([math.nan], ["a"]), MRR)
    assert (empty.n, math.isnan(empty.value), math.isnan(empty.low)) == (0, True, True)
    assert estimate(score([], []), MRR).n == 0


def test_a_weighted_metric_without_weights_is_an_error() -> None:
    with pytest.raises(ValueError, match="no weights"):
        estimate(score([1.0], ["a"], metric="perplexity"), PERPLEXITY)


def test_estimates_together_are_the_same_as_alone() -> None:
    one = score(VALUES.tolist(), CLUSTERS)
    weighted = score(VALUES.tolist(), CLUSTERS, weights=tuple(WEIGHTS.tolist()), metric="perplexity")
    part = score(VALUES[:20].tolist(), CLUSTERS[:20])
    metrics: dict[str, MetricInfo] = {"mrr": MRR, "perplexity": PERPLEXITY}
    together = estimates([one, weighted, part], metrics, seed=4)
    assert together == [estimate(s, metrics[s.metric], seed=4) for s in (one, weighted, part)]


def test_groups_partition_the_units() -> None:
    one = score([1.0, 9.0, 0.0, 1.0], ["a", "a", "b", "c"])
    groups = {"u0": "short", "u2": "short", "u3": "long", "u9": "absent"}
    (figures,) = by_group([one], {"mrr": MRR}, groups)
    assert {name: (e.value, e.n) for name, e in figures.items()} == {"short": (0.5, 2), "long": (1.0, 1)}
    assert (figures["short"].low, figures["short"].high) == (0.0, 1.0)


def test_a_paired_difference_is_more_certain_than_its_parts() -> None:
    source = np.random.default_rng(4)
    ease, alone = source.normal(size=200), [f"c{i}" for i in range(200)]
    one, other = ease + 0.3 + 0.1 * source.normal(size=200), ease + 0.1 * source.normal(size=200)
    a, b = score(one.tolist(), alone), score(other.tolist(), alone)
    figure = paired_difference(a, b, MRR)
    assert figure.value == pytest.approx(one.mean() - other.mean())
    assert figure.low < 0.3 < figure.high
    assert width(figure) < width(estimate(a, MRR)) / 3
    expected = stats.bootstrap((one - other,), np.mean, method="percentile", rng=source).confidence_interval
    assert (figure.low, figure.high) == pytest.approx((expected.low, expected.high), abs=0.005)


def test_a_comparison_uses_the_shared_units_only() -> None:
    a = score([1.0, 0.0, 1.0, 1.0], ["d0", "d0", "d1", "d1"])
    b = score([0.0, 0.0, math.nan, 5.0], ["d1", "d1", "d2", "d2"], first=2)
    assert shared_units(a, b) == ["u2", "u3"]
    figure = paired_difference(a, b, MRR)
    assert (figure.value, figure.high, figure.n) == (1.0, 1.0, 2)
    assert figure.low < 0  # of a single dialogue
    nothing_shared = paired_difference(a, score([1.0], ["x"], first=50), MRR)
    assert (nothing_shared.n, math.isnan(nothing_shared.value)) == (0, True)


def test_the_difference_of_a_score_to_itself_is_zero() -> None:
    one = score(VALUES.tolist(), CLUSTERS)
    figure = paired_difference(one, one, MRR)
    least = wilson_interval(0.0, len(set(CLUSTERS)))[1]
    assert (figure.value, figure.low, figure.high, figure.n) == (0, pytest.approx(-least), pytest.approx(least), 60)


def test_perplexities_are_compared_by_their_ratio() -> None:
    a = score([2.0, 4.0], ["x", "y"], weights=(1, 2), metric="perplexity")
    b = score([1.0, 5.0], ["x", "y"], weights=(1, 2), metric="perplexity")
    comparison = compare(a, b, PERPLEXITY)
    assert comparison is not None
    assert comparison.kind == "ratio"
    assert comparison.estimate.value == pytest.approx(1.0)
    assert (comparison.estimate.low, comparison.estimate.high) == pytest.approx((math.exp(-0.5), math.exp(1)))


def test_raters_who_rate_one_conversation_each_are_clustered_by_conversation() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(60, 1)) + np.repeat(rng.normal(size=(20, 1)), 3, axis=0)
    conversations = [f"c{i // 3}" for i in range(60)]
    (nested,) = crossed_means(values, conversations, conversations)
    (own,) = crossed_means(values, conversations, [str(i) for i in range(60)])
    assert (nested.low, nested.high) == pytest.approx((own.low, own.high), rel=0.03)
    means = values.reshape(20, 3).mean(axis=1)
    expected = stats.t.interval(0.95, 19, means.mean(), means.std(ddof=1) / math.sqrt(20))
    assert (own.low, own.high) == pytest.approx(expected, rel=0.05)


def test_crossed_means_leave_out_missing_values() -> None:
    columns = np.array([[1.0, math.nan], [0.0, math.nan], [1.0, 0.5], [math.nan, 1.0]])
    first, second = crossed_means(columns, list("aabb"), list("xyxy"))
    assert (first.value, first.n, second.value, second.n) == (pytest.approx(2 / 3), 3, 0.75, 2)
    (empty,) = crossed_means(np.empty((0, 1)), [], [])
    assert (math.isnan(empty.value), empty.n) == (True, 0)


def test_a_score_of_ratings_is_reduced_over_conversations_and_raters() -> None:
    rng = np.random.default_rng(5)
    units = tuple(f"u{i}" for i in range(60))
    raters = {unit: f"r{i % 7}" for i, unit in enumerate(units)}
    values = rng.integers(1, 8, 60) + np.array([3 * (i % 7 == 0) for i in range(60)])
    score = Score(
        "bot", "", "quality", units, (*map(float, values[:-1]), math.nan), tuple(f"c{i // 3}" for i in range(60))
    )
    quality = MetricInfo("quality", "rating")
    figure = crossed_estimate(score, quality, raters)
    assert (figure.value, figure.n) == (pytest.approx(values[:-1].mean()), 59)
    assert width(figure) > 1.2 * width(estimate(score, quality))
    with pytest.raises(ValueError, match="only means"):
        crossed_estimate(score, PERPLEXITY, raters)


def test_a_share_of_none_or_all_has_an_interval() -> None:
    clusters = ("a", "a", "b", "c", "d")
    units = tuple("12345")
    for value in (0.0, 1.0):
        score = Score("bot", "", "loop", units, (value,) * 5, clusters)
        figure = estimate(score, MetricInfo("loop", "conversation", bounded=True))
        assert (figure.low, figure.high) == pytest.approx(wilson_interval(value, 4))  # four clusters, not five units
        assert figure.high - figure.low > 0.4
    plain = estimate(Score("bot", "", "words", units, (0.0,) * 5, clusters), MetricInfo("words", "conversation"))
    assert (math.isnan(plain.low), math.isnan(plain.high)) == (True, True)  # a scale without ends


def test_no_interval_collapses_where_nothing_varies() -> None:
    """Figures, differences and agreement of five clusters that are all alike, and of a single one."""
    units = tuple("12345")

    def score(value: float, metric: str) -> Score:
        return Score("bot", "q", metric, units, (value,) * 5, units)

    least = wilson_interval(0.0, 5)[1]
    for name in ("hits@1", "f1", "bleu-2", "replies contradicting persona", "contradicts persona", "sensibleness"):
        info = metric_named(name)
        assert estimate(score(0.0, name), info).high == pytest.approx(least)
        assert estimate(score(1.0, name), info).low == pytest.approx(1 - least)
        won = compare(score(1.0, name), score(0.0, name), info)
        assert won is not None
        assert (won.estimate.low, won.estimate.high) == pytest.approx((1 - 2 * least, 1))
        same = paired_difference(score(0.0, name), score(0.0, name), info)
        assert (same.low, same.high) == pytest.approx((-least, least))
    rating = score(5.0, "rating (judge)")
    (scaled,) = estimates([rating], {"rating (judge)": MetricInfo("rating (judge)", "rating")}, scales={"q": (1, 7)})
    assert (scaled.low, scaled.high) == pytest.approx((5 - 4 * least, 5 + 2 * least))
    pairs = [UnitRating(unit, rater, unit in "12") for unit in units for rater in ("ann", "bob")]
    for agreed in (percent_agreement(pairs), krippendorff_alpha(pairs), cohen_kappa([1, 0, 1, 0, 1], [1, 0, 1, 0, 1])):
        assert (agreed.value, agreed.low, agreed.high) == pytest.approx((1, 1 - least, 1))
    rows = [SubjectRating(bot, unit, "ann", 0.0) for bot in "ab" for unit in units]
    (alike,) = compare_subjects(rows, bounds=(0, 1))
    assert (alike.difference.low, alike.difference.high) == pytest.approx((-least, least))
    assert math.isnan(compare_subjects(rows)[0].difference.low)
    single = estimate(Score("bot", "", "words", ("1", "2"), (3.0, 5.0), ("a", "a")), MetricInfo("words", "reply"))
    assert (single.value, math.isnan(single.low)) == (4.0, True)


def test_every_share_is_known_to_end_at_0_and_1() -> None:
    """Else the interval of one that is 0 or 1 throughout would be lost."""
    open_ended = []
    for row in METRICS.rows():
        metric = metric_named(example_name(row.name))
        if metric.reduction == "mean" and re.match(r"share|.*probability that|.*from 0 to 1", metric.summary):
            open_ended += [] if metric.bounded or "prediction-powered" in metric.name else [metric.name]
    assert open_ended == []
