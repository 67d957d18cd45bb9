"""Figures of classifiers against scikit-learn, and their intervals against naive bootstraps and known truths."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn import metrics as sk

from tertulia.core.score import Score
from tertulia.metrics import classification as c
from tertulia.metrics.classification import ClassVerdict, LabelVerdict, ScoredVerdict
from tertulia.metrics.grounding import CLAIMS, LABEL_SHARES
from tertulia.metrics.intervals import wilson_interval
from tertulia.metrics.metric import Metric
from tertulia.metrics.significance import compare, compare_all_units, difference_p, estimate, estimates

RNG = np.random.default_rng(3)
TRUE = RNG.integers(0, 5, 200)
PREDICTED = np.minimum(np.where(RNG.random(200) < 0.5, TRUE, RNG.integers(0, 4, 200)), 3)  # 4 is never predicted
SCORES = np.round(RNG.random(200) * 0.6 + 0.4 * (TRUE == 0), 1)  # one digit: many ties


def score(metric: Metric, batch: Sequence[object], *, subject: str = "a", clusters: Sequence[object] = ()) -> Score:
    units = [f"u{i}" for i in range(len(batch))]
    return metric.score(batch, subject=subject, setting="", units=units, clusters=[str(x) for x in clusters or units])


def verdicts(true: Sequence[int], predicted: Sequence[int]) -> list[LabelVerdict]:
    return [LabelVerdict(int(a), int(b)) for a, b in zip(true, predicted, strict=True)]


def test_figures_are_those_of_scikit_learn() -> None:
    matrix = c.confusion_matrix(TRUE.tolist(), PREDICTED.tolist(), range(5))
    assert matrix.tolist() == sk.confusion_matrix(TRUE, PREDICTED).tolist()
    assert c.accuracy(matrix) == pytest.approx(sk.accuracy_score(TRUE, PREDICTED))
    assert c.macro_f1(matrix) == pytest.approx(sk.f1_score(TRUE, PREDICTED, average="macro"))
    expected = sk.precision_recall_fscore_support(TRUE, PREDICTED, zero_division=np.nan)
    got = np.array(c.class_figures(matrix)).T
    assert np.isnan(got[0, 4])
    np.testing.assert_allclose(got[[0, 1, 3]], np.array(expected)[[0, 1, 3]])
    np.testing.assert_allclose(got[2], sk.f1_score(TRUE, PREDICTED, average=None))
    assert c.roc_auc(TRUE == 0, SCORES) == pytest.approx(sk.roc_auc_score(TRUE == 0, SCORES))


def test_without_data_figures_are_nan() -> None:
    empty = c.confusion_matrix([], [], "ab")
    assert math.isnan(c.accuracy(empty))
    assert math.isnan(c.macro_f1(empty))
    assert math.isnan(c.roc_auc([True, True], [0.1, 0.2]))
    assert math.isnan(c.roc_auc([], []))
    for metric in (c.ACCURACY, c.PRECISION, c.F1, c.MACRO_F1, c.ROC_AUC, CLAIMS):
        figure = estimate(score(metric, []), metric.info)
        assert (figure.n, math.isnan(figure.value), math.isnan(figure.low)) == (0, True, True)


def test_scores_are_reduced_to_the_figures_of_the_whole_set() -> None:
    label = 2
    one = [ClassVerdict(bool(a == label), bool(b == label)) for a, b in zip(TRUE, PREDICTED, strict=True)]
    scored = [ScoredVerdict(bool(a == 0), float(s)) for a, s in zip(TRUE, SCORES, strict=True)]
    batches: dict[Metric, Sequence[object]] = {
        c.ACCURACY: verdicts(TRUE, PREDICTED),
        c.MACRO_F1: verdicts(TRUE, PREDICTED),
        c.PRECISION: one,
        c.RECALL: one,
        c.F1: one,
        c.ROC_AUC: scored,
    }
    scores = [score(metric, batch) for metric, batch in batches.items()]
    figures = estimates(scores, {metric.name: metric.info for metric in batches})
    true, predicted = (np.array([getattr(v, side) for v in one]) for side in ("true", "predicted"))
    expected = [
        sk.accuracy_score(TRUE, PREDICTED),
        sk.f1_score(TRUE, PREDICTED, average="macro"),
        sk.precision_score(true, predicted),
        sk.recall_score(true, predicted),
        sk.f1_score(true, predicted),
        sk.roc_auc_score(TRUE == 0, SCORES),
    ]
    assert [f.value for f in figures] == pytest.approx(expected)
    assert [f.n for f in figures] == [200, 200, predicted.sum(), true.sum(), (true | predicted).sum(), 200]
    assert all(f.low < f.value < f.high for f in figures)


@pytest.mark.parametrize("metric", [c.MACRO_F1, c.ROC_AUC], ids=lambda metric: metric.name)
def test_intervals_are_those_of_a_naive_bootstrap_over_passages(metric: Metric) -> None:
    passages = RNG.integers(0, 40, 200)
    if metric is c.ROC_AUC:
        batch: list[object] = [ScoredVerdict(bool(a == 0), float(s)) for a, s in zip(TRUE, SCORES, strict=True)]
    else:
        batch = list(verdicts(TRUE, PREDICTED))
    figure = estimate(score(metric, batch, clusters=passages.tolist()), metric.info)
    rng, drawn = np.random.default_rng(9), []
    for _ in range(1000):
        rows = np.concatenate([np.flatnonzero(passages == p) for p in rng.integers(0, 40, 40)])
        if metric is c.ROC_AUC:
            drawn.append(c.roc_auc(TRUE[rows] == 0, SCORES[rows]))
        else:
            drawn.append(float(c.macro_f1(c.confusion_matrix(TRUE[rows].tolist(), PREDICTED[rows].tolist(), range(5)))))
    np.testing.assert_allclose((figure.low, figure.high), np.quantile(drawn, (0.025, 0.975)), atol=0.015)


def test_no_interval_collapses_where_everything_is_right_or_wrong() -> None:
    right, wrong = verdicts([0, 1] * 10, [0, 1] * 10), verdicts([0, 1] * 10, [1, 0] * 10)
    whole = [estimate(score(c.ACCURACY, batch), c.ACCURACY.info) for batch in (right, wrong)]
    for figure, share in zip(whole, (1.0, 0.0), strict=True):
        assert (figure.low, figure.high) == pytest.approx(wilson_interval(share, 20))
    for metric in (c.MACRO_F1, c.F1, c.ROC_AUC):
        if metric is c.ROC_AUC:
            both: list[list[object]] = [[ScoredVerdict(bool(i % 2), s * (i % 2)) for i in range(20)] for s in (1, -1)]
        elif metric is c.F1:
            both = [[ClassVerdict(True, said)] * 20 for said in (True, False)]
        else:
            both = [list(right), list(wrong)]
        high, low = (estimate(score(metric, batch), metric.info) for batch in both)
        assert (high.value, high.high, low.value, low.low) == pytest.approx((1, 1, 0, 0))
        assert 0.5 < high.low < 0.99
        assert 0.01 < low.high < 0.5


def test_repeated_passages_make_intervals_wider() -> None:
    labels = [i % 3 for i in range(60)]
    said = [label if i % 4 else (label + 1) % 3 for i, label in enumerate(labels)]
    once = verdicts(labels, said)
    fourfold = [one for one in once for _ in range(4)]
    passages = [i for i in range(60) for _ in range(4)]
    for metric in (c.ACCURACY, c.MACRO_F1):
        alone = estimate(score(metric, once), metric.info)
        repeated = estimate(score(metric, fourfold, clusters=passages), metric.info)
        assert repeated.value == pytest.approx(alone.value)
        assert (repeated.low, repeated.high) == pytest.approx((alone.low, alone.high), abs=0.02)


def test_two_classifiers_are_compared_on_the_same_responses() -> None:
    better = np.where(RNG.random(200) < 0.5, TRUE, PREDICTED)
    one = score(c.MACRO_F1, verdicts(TRUE, better), subject="better")
    two = score(c.MACRO_F1, verdicts(TRUE, PREDICTED), subject="base")
    compared = compare(one, two, c.MACRO_F1.info)
    assert compared is not None
    expected = sk.f1_score(TRUE, better, average="macro") - sk.f1_score(TRUE, PREDICTED, average="macro")
    assert compared.estimate.value == pytest.approx(expected)
    assert (compared.estimate.n, compared.estimate.low > 0) == (200, True)
    assert compared.p_value < 0.01
    assert difference_p(two, two, c.MACRO_F1.info) == 1.0
    apart = compare_all_units(one, two, c.MACRO_F1.info)
    assert apart is not None
    assert apart.estimate.value == pytest.approx(expected)


def test_p_values_of_equally_good_classifiers_are_evenly_spread() -> None:
    below = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        true = rng.integers(0, 3, 60)
        first, second = (np.where(rng.random(60) < 0.6, true, rng.integers(0, 3, 60)) for _ in range(2))
        scores = [score(c.MACRO_F1, verdicts(true, said), subject=str(k)) for k, said in enumerate((first, second))]
        below += difference_p(*scores, c.MACRO_F1.info) < 0.1
    assert 8 <= below <= 34  # 20 expected


def test_a_missing_verdict_is_left_out() -> None:
    batch = [ScoredVerdict(True, 0.9), ScoredVerdict(False, math.nan), ScoredVerdict(False, 0.1)]
    figure = estimate(score(c.ROC_AUC, batch), c.ROC_AUC.info)
    assert (figure.value, figure.n) == (1.0, 2)


def test_shares_of_labels_add_up_and_generic_replies_claim_nothing() -> None:
    labels = ["entailment", "generic", "generic", "hallucination", "entailment"]
    shares = [estimate(score(metric, labels), metric.info).value for metric in LABEL_SHARES.values()]
    assert shares == pytest.approx([0.4, 0.2, 0, 0.4, 0])
    claims = estimate(score(CLAIMS, labels), CLAIMS.info)
    assert (claims.value, claims.n) == (pytest.approx(2 / 3), 3)
