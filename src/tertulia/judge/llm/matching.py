"""People's labels beside a judge's: which units of two judged runs are the same.

A unit of a study is known by its id there; a unit from anywhere else is known by its texts (`JudgeUnit.text_key`). If a
bot said the same in the same context twice, the first such unit of one run belongs to the first of the other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tertulia.core.errors import DataError
from tertulia.core.score import Score
from tertulia.judge.llm.units import unit_of_item
from tertulia.judge.runs import JudgedItem, JudgedRun, unique_ids
from tertulia.metrics.prediction_powered import HumanLabel, JudgeLabel

WINS, TIES, RATING, YES = "wins", "ties", "rating", "share of yes"
SHARES = ("sensibleness", "specificity", YES)
"""Metrics whose labels are yes or no."""
MATCHED = (*SHARES, "SSA", RATING, WINS)
"""Metrics of people that a judge has, too."""


class MatchedScore(NamedTuple):
    """What a judge and people say about one subject, by one question."""

    subject: str
    setting: str
    metric: str
    """As it is called for people."""
    judge: tuple[JudgeLabel, ...]
    people: tuple[HumanLabel, ...]
    """Units are those of the judge."""
    unmatched: int
    """Units that people labelled, and the judge did not."""
    bounds: tuple[float, float]

    @property
    def question(self) -> str:
        """The setting without the other bot of a comparison."""
        return self.setting.partition(", against ")[0]

    @property
    def name(self) -> str:
        """Metric and question in words."""
        return f"{self.metric}, {self.question}" if self.question else self.metric


def match_runs(judge: JudgedRun, people: JudgedRun) -> list[MatchedScore]:
    """Every score that both have. Of two bots in comparison, each is once the subject.

    Where people rated on a scale and the judge was asked yes or no, yes is the highest number and no the lowest.
    """
    if not people.raters:
        raise DataError(
            "The run given with --human has no ratings by people.",
            hint="Give the --out folder of `tertulia study report` or `study simulate`.",
        )
    matched = []
    for score in people.scores:
        low, high = people.details.get("bounds", {}).get(score.setting, (0.0, 1.0))
        bounds = (low, high) if score.metric == RATING else (0.0, 1.0)
        own = judge.score(score.subject, score.setting, f"{score.metric} (judge)")
        if own is None and score.metric == RATING:
            own = _on_scale(judge.score(score.subject, score.setting, f"{YES} (judge)"), bounds)
        if score.metric in MATCHED and own is not None and own.units:
            matched.append(_match(judge, own, people, score, bounds))
    if not any(one.people for one in matched):
        asked = sorted({f"{s.metric}{f' ({s.setting})' if s.setting else ''}" for s in people.scores})
        raise DataError(
            "People and the judge have no labels of the same units in common.",
            hint=f"Same question, same bot names, same texts? People's run has: {', '.join(asked[:12])}.",
        )
    return matched


def unmatched_units(matched: Sequence[MatchedScore]) -> int:
    """Units that people labelled and the judge did not; one that several questions are about counts once."""
    most: dict[str, int] = {}
    for one in matched:
        most[one.subject] = max(most.get(one.subject, 0), one.unmatched)
    return sum(most.values())


def _on_scale(score: Score | None, bounds: tuple[float, float]) -> Score | None:
    low, high = bounds
    return None if score is None else replace(score, values=tuple(low + x * (high - low) for x in score.values))


def _match(judge: JudgedRun, own: Score, people: JudgedRun, score: Score, bounds: tuple[float, float]) -> MatchedScore:
    judged = tuple(map(JudgeLabel, own.units, own.clusters, own.values))
    by_id, by_text = _judge_keys(judge, own)
    clusters = {label.unit: label.cluster for label in judged}
    items = {item.unit: item for item in people.items}
    keys = _study_keys(score, items)
    target = {study: by_id.get(study) or by_text.get(text) for study, text in keys.items()}
    labels = []
    for unit, value in _values(people, score):
        content = items[unit].content
        unit_of_judge = target.get(f"{content.get('unit')}/{content.get('target')}")
        if unit_of_judge is not None and not math.isnan(value):
            labels.append(HumanLabel(unit_of_judge, clusters[unit_of_judge], content["rater"], value))
    unmatched = sum(unit is None for unit in target.values())
    return MatchedScore(score.subject, score.setting, score.metric, judged, tuple(labels), unmatched, bounds)


def _judge_keys(judge: JudgedRun, own: Score) -> tuple[dict[str, str], dict[str, str]]:
    """Units of the judge by the id in the study, and by text."""
    items: dict[str, JudgedItem] = {}
    for item in judge.items:
        if item.subject in ("", own.subject) and item.setting in ("", own.setting):
            items[item.unit] = item
    contents = {unit: items[unit].content for unit in own.units if unit in items}
    by_id = {str(c["study_item"]): unit for unit, c in contents.items() if c.get("study_item")}
    texts = unique_ids(str(content.get("text_key")) for content in contents.values())
    return by_id, dict(zip(texts, contents, strict=True))


def _study_keys(score: Score, items: Mapping[str, JudgedItem]) -> dict[str, str]:
    """What people judged, each once: its id in the study, and its text key."""
    keys: dict[str, str] = {}
    for unit, cluster in zip(score.units, score.clusters, strict=True):
        content = items[unit].content
        name = f"{content.get('unit')}/{content.get('target')}"
        if name not in keys:
            judged = unit_of_item(items[unit], cluster, score.subject)
            keys[name] = judged.text_key if judged else ""
    return dict(zip(keys, unique_ids(keys.values()), strict=True))


def _values(people: JudgedRun, score: Score) -> Iterator[tuple[str, float]]:
    """Ratings by unit; a tie is half a win."""
    ties = people.score(score.subject, score.setting, TIES) if score.metric == WINS else None
    half = dict(zip(ties.units, ties.values, strict=True)) if ties else {}
    for unit, value in zip(score.units, score.values, strict=True):
        yield unit, value + half.get(unit, 0.0) / 2
