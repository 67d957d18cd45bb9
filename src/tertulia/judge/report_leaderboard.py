"""Who is best by each metric, and who cannot be told apart from the best.

Every other subject is tested against the best one of its setting: on the units they share, or, if they share none, on
all units of both. Ratings by people are tested with their raters. P-values are adjusted by Holm's (1979) procedure for
the number of subjects in the column, since the best of many subjects is best partly by luck.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.judge.runs import JudgedRun
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.ratings import SubjectRating, compare_subjects, holm
from tertulia.metrics.significance import Comparison, difference_p

Mark = Literal["best", "tied", ""]
"""The best of its column; not significantly different from it; neither."""
ALPHA = 0.05
SIGNS: dict[Mark, str] = {"best": "*", "tied": "~", "": ""}
LEGEND = (
    "* best of its column and setting; ~ not significantly different from it (p > .05, Holm's correction for all"
    " subjects of the column). Figures without an interval are not tested."
)


class JudgedScore(NamedTuple):
    """A score in a report: its run, and its subject's name there, which may differ if several runs are compared."""

    run: JudgedRun
    score: Score
    subject: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Subject, setting and metric, as in the report."""
        return (self.subject, self.score.setting, self.score.metric)

    @property
    def info(self) -> MetricInfo:
        """About its metric."""
        return self.run.metrics[self.score.metric]


def scores_of(run: JudgedRun) -> list[JudgedScore]:
    """The scores of one run, under their own names."""
    return [JudgedScore(run, score, score.subject) for score in run.scores]


def standings(
    scores: Sequence[JudgedScore], figures: Mapping[tuple[str, str, str], Estimate]
) -> dict[tuple[str, str, str], Mark]:
    """The mark of every cell that has one."""
    columns: dict[tuple[str, str], list[JudgedScore]] = {}
    for one in scores:
        if not math.isnan(figures[one.key].value):
            columns.setdefault((one.score.setting, one.score.metric), []).append(one)
    badges: dict[tuple[str, str, str], Mark] = {}
    for column in columns.values():
        higher = column[0].info.higher_is_better
        if len(column) < 2 or higher is None:
            continue
        sign = 1 if higher else -1
        best = max(column, key=lambda one: sign * figures[one.key].value)
        others = [one for one in column if one is not best]
        badges[best.key] = "best"
        for one, p in zip(others, _adjusted(best, others), strict=True):
            same = figures[one.key].value == figures[best.key].value
            if same or p >= ALPHA:  # nan: it cannot be tested, so nothing is claimed
                badges[one.key] = "tied"
    return badges


def _adjusted(best: JudgedScore, others: Sequence[JudgedScore]) -> list[float]:
    raters = best.run.raters
    if raters and all(one.run is best.run for one in others):
        return _rated(best, others, raters)
    return holm([difference_p(one.score, best.score, best.info) for one in others])


def _rated(best: JudgedScore, others: Sequence[JudgedScore], raters: Mapping[str, str]) -> list[float]:
    """Of ratings by people, which depend on their conversation and on their rater."""
    rows = [
        SubjectRating(one.subject, cluster, raters[unit], value)
        for one in (best, *others)
        for unit, cluster, value in zip(one.score.units, one.score.clusters, one.score.values, strict=True)
        if not math.isnan(value)
    ]
    return [c.adjusted_p for c in compare_subjects(rows, pairs=[(one.subject, best.subject) for one in others])]


def adjust(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Comparisons with p-values adjusted by Holm's procedure over all those of the same metric."""
    given = list(comparisons)
    families: dict[str, list[int]] = {}
    for i, comparison in enumerate(given):
        families.setdefault(comparison.metric, []).append(i)
    for members in families.values():
        for i, p in zip(members, holm([given[i].p_value for i in members]), strict=True):
            given[i] = replace(given[i], adjusted_p=p)
    return given
