import itertools
import math

import numpy as np
import pytest

from tertulia.metrics.ratings import (
    SsaLabel,
    SubjectRating,
    compare_subjects,
    holm,
    mean_ratings,
    normalise_by_annotator,
    ssa,
    ssa_ratings,
)


def crossed_ratings(
    rng: np.random.Generator, subjects: dict[str, float], *, conversations: int = 40, raters: int = 15, each: int = 2
) -> list[SubjectRating]:
    """Ratings with effects of conversations and raters, each with a standard deviation of 1."""
    bias, rows = rng.normal(size=raters), []
    for subject, mean in subjects.items():
        for c in range(conversations):
            talk = rng.normal()
            for r in rng.choice(raters, each, replace=False):
                rows.append(SubjectRating(subject, f"{subject}{c}", f"r{r}", mean + talk + bias[r] + rng.normal()))
    return rows


def test_means_are_covered_for_new_conversations_and_new_raters() -> None:
    covered = []
    for trial in range(200):
        figure = mean_ratings(crossed_ratings(np.random.default_rng(trial), {"bot": 3.0}))["bot"]
        assert figure.n == 80
        covered.append(figure.low <= 3 <= figure.high)
    assert 0.90 < np.mean(covered) < 0.985


def test_the_pigeonhole_bootstrap_is_wider_than_the_robust_interval() -> None:
    widths = {"robust": 0.0, "pigeonhole": 0.0}
    for trial in range(10):
        rows = crossed_ratings(np.random.default_rng(trial), {"bot": 3.0})
        for method in widths:
            figure = mean_ratings(rows, method=method)["bot"]  # type: ignore[arg-type]
            assert figure.value == pytest.approx(np.mean([row.value for row in rows]))
            widths[method] += figure.high - figure.low
    assert 1.02 < widths["pigeonhole"] / widths["robust"] < 1.6


def test_bounded_means_stay_on_the_scale_and_do_not_collapse() -> None:
    rows = [SubjectRating("best", f"c{i}", f"r{i % 4}", 7.0) for i in range(30)]
    rows += [SubjectRating("good", f"c{i}", f"r{i % 4}", 7.0 if i else 1.0) for i in range(30)]
    figures = mean_ratings(rows, bounds=(1, 7))
    assert figures["best"].high == 7
    assert 6 < figures["best"].low < 6.8
    assert figures["good"].low < 6.8 < figures["good"].high < 7


def test_one_rater_gives_the_interval_over_conversations() -> None:
    rows = [SubjectRating("bot", f"c{i}", "ann", float(i % 5)) for i in range(20)]
    figure = mean_ratings(rows)["bot"]
    values = np.array([row.value for row in rows])
    assert figure.high - figure.value == pytest.approx(2.093 * values.std(ddof=1) / math.sqrt(20), rel=1e-3)
    alone = mean_ratings(rows[:1])["bot"]
    assert (alone.value, math.isnan(alone.low), alone.n) == (0.0, True, 1)


def test_ssa_is_the_mean_of_sensibleness_and_specificity() -> None:
    answers = [(True, True), (True, False), (False, True), (False, False), (True, True)]
    labels = [SsaLabel("bot", f"c{i}", f"r{i % 2}", *answer) for i, answer in enumerate(answers)]
    figures = ssa(labels)["bot"]
    # What is called specific without being sensible does not count.
    assert [figure.value for figure in figures] == pytest.approx([3 / 5, 2 / 5, 1 / 2])
    assert figures.ssa.n == 5
    assert mean_ratings(ssa_ratings(labels), bounds=(0, 1))["bot"] == figures.ssa
    never = ssa([label._replace(specific=False) for label in labels])["bot"]
    assert never.specificity.low == 0.0
    assert never.specificity.high > 0.1


def test_normalised_ratings_have_the_mean_and_deviation_of_a_z_score() -> None:
    rng = np.random.default_rng(0)
    rows = [SubjectRating("bot", f"c{i}", "ann", float(x)) for i, x in enumerate(rng.integers(1, 8, 12))]
    rows += [SubjectRating("bot", f"c{i}", "bob", 5.0) for i in range(10)]
    rows += [SubjectRating("bot", f"c{i}", "cat", 5.0) for i in range(9)]
    normal = normalise_by_annotator(rows)
    assert (normal.excluded_raters, normal.excluded_ratings, normal.constant_raters) == (1, 9, 1)
    values = np.array([row.value for row in normal.ratings if row.rater == "ann"])
    assert (values.mean(), values.std(ddof=1)) == (pytest.approx(0), pytest.approx(1))
    assert {row.value for row in normal.ratings if row.rater == "bob"} == {0.0}
    centred = normalise_by_annotator(rows, method="centre", min_ratings=1).ratings
    assert len(centred) == len(rows)
    expected = np.array([row.value for row in rows[:12]])
    assert [row.value for row in centred[:12]] == pytest.approx(expected - expected.mean())


def test_normalisation_removes_the_bias_of_raters() -> None:
    """A strict rater who happens to see one bot only must not make it look bad."""
    rng = np.random.default_rng(2)
    rows = crossed_ratings(rng, {"a": 3.0, "b": 3.0}, raters=4, conversations=100)
    strict = [row._replace(value=row.value - 50) if row.rater == "r0" else row for row in rows]
    normal, plain = (normalise_by_annotator(r, method="centre").ratings for r in (strict, rows))
    assert [row.value for row in normal] == pytest.approx([row.value for row in plain])


def test_comparisons_cover_and_gain_from_shared_raters() -> None:
    covered, narrower = [], []
    for trial in range(200):
        rows = crossed_ratings(np.random.default_rng(trial), {"a": 3.4, "b": 3.0}, raters=8)
        (comparison,) = compare_subjects(rows)
        covered.append(comparison.difference.low <= 0.4 <= comparison.difference.high)
        apart = [row._replace(rater=f"{row.subject}{row.rater}") for row in rows]
        wide = compare_subjects(apart)[0].difference
        narrower.append((comparison.difference.high - comparison.difference.low) < (wide.high - wide.low))
        assert (comparison.p_value < 0.05) == (not comparison.difference.low <= 0 <= comparison.difference.high)
    assert 0.91 < np.mean(covered) < 0.995
    assert np.mean(narrower) > 0.9


def test_subjects_without_any_variation_can_be_compared() -> None:
    rows = [SubjectRating(s, f"{s}{i}", f"r{i}", v) for s, v in (("a", 1.0), ("b", 0.0), ("c", 0.0)) for i in range(12)]
    different, _, equal = compare_subjects(rows)
    assert different.difference.low < different.difference.value == 1 < different.difference.high
    assert different.p_value < 0.05
    assert (equal.difference.value, equal.p_value) == (0.0, 1.0)
    assert compare_subjects(rows, bounds=(0, 1))[0].difference.high == 1  # means on this scale differ by no more


def test_holm_keeps_the_family_wise_error_and_still_finds_large_differences() -> None:
    errors, hits = 0, 0
    for trial in range(100):
        rows = crossed_ratings(np.random.default_rng(trial), dict.fromkeys("abcdef", 3.0) | {"z": 5.5})
        for comparison in compare_subjects(rows):
            assert comparison.adjusted_p >= comparison.p_value
        equal = [c.adjusted_p < 0.05 for c in compare_subjects([row for row in rows if row.subject != "z"])]
        assert len(equal) == 15
        errors += any(equal)
        hits += all(c.adjusted_p < 0.05 for c in compare_subjects(rows) if "z" in (c.subject, c.baseline))
    assert errors <= 10
    assert hits > 90


def test_holm_agrees_with_its_definition() -> None:
    rng = np.random.default_rng(4)
    for size in range(1, 9):
        p_values = (rng.random(size) ** 3).tolist()
        adjusted = holm(p_values)
        for alpha in (0.01, 0.05, 0.2):
            rejected: set[int] = set()
            for passed, i in enumerate(sorted(range(size), key=p_values.__getitem__)):
                if p_values[i] > alpha / (size - passed):
                    break
                rejected.add(i)
            assert {i for i in range(size) if adjusted[i] <= alpha} == rejected
    assert math.isnan(holm([math.nan, 0.02])[0])
    assert holm([math.nan, 0.02])[1] == 0.02


def test_named_pairs_only_and_missing_subjects() -> None:
    rows = crossed_ratings(np.random.default_rng(0), dict.fromkeys("abc", 3.0))
    comparisons = compare_subjects(rows, pairs=[("b", "a"), ("a", "nobody")])
    assert [(c.subject, c.baseline) for c in comparisons] == [("b", "a"), ("a", "nobody")]
    assert (comparisons[1].difference.n, math.isnan(comparisons[1].p_value)) == (0, True)
    assert comparisons[0].adjusted_p == comparisons[0].p_value
    reverse = next(c for c in compare_subjects(rows) if (c.subject, c.baseline) == ("a", "b"))
    assert reverse.difference.value == pytest.approx(-comparisons[0].difference.value)
    assert len(compare_subjects(rows)) == len(list(itertools.combinations("abc", 2)))
