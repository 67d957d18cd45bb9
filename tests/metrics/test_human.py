"""Metrics of people's labels: values from labels and votes."""

from tertulia.metrics.metric import Metric
from tertulia.metrics.preference import PairwiseVote
from tertulia.metrics.ratings import SsaLabel
from tertulia.metrics.registry import METRICS, metric_named

SSA_LABELS = [
    SsaLabel("bot", "c", "ann", sensible, specific)
    for sensible, specific in ((True, True), (True, False), (False, True), (False, False))
]


def values(name: str, batch: list[object]) -> list[float]:
    units = [str(i) for i in range(len(batch))]
    return list(metric_named(name).score(batch, subject="bot", setting="", units=units, clusters=units).values)


def test_what_makes_no_sense_is_not_specific() -> None:
    assert values("sensibleness", [*SSA_LABELS]) == [1, 1, 0, 0]
    assert values("specificity", [*SSA_LABELS]) == [1, 0, 0, 0]
    assert values("SSA", [*SSA_LABELS]) == [1, 0.5, 0, 0]


def test_wins_are_those_of_the_first_and_ties_count_for_neither() -> None:
    votes = [PairwiseVote("a", "b", winner, "c", "ann") for winner in ("first", "second", "tie")]  # type: ignore[arg-type]
    assert values("wins", [*votes]) == [1, 0, 0]
    assert values("ties", [*votes]) == [0, 0, 1]


def test_all_of_them_are_means_of_ratings() -> None:
    rows = [row.name for row in METRICS.rows() if row.target.startswith("tertulia.metrics.human:")]
    metrics = [metric_named(name) for name in rows]
    assert len(metrics) == 11
    assert all(isinstance(m, Metric) and (m.unit, m.reduction) == ("rating", "mean") for m in metrics)
    assert values("rating", [3, 4.5]) == [3, 4.5]
