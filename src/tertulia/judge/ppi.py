"""Prediction-powered figures of bots: people's labels of a random part, an automatic judge's labels of all units.

It needs two judged runs: of a study, and of a judge over the same bots and more units. People's units must be among the
judge's, and a random part of them. The first is checked, and refused if it is not so; of the second only the symptoms
can be checked: whether the judge sees a difference between units with and without labels, and whether bots have
different shares of labelled units.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tertulia.artefacts.outputs import Force
from tertulia.core.config import Config
from tertulia.core.errors import DataError
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.judge.config import RUN_FOLDER
from tertulia.judge.document import Section, short
from tertulia.judge.llm.matching import MatchedScore, match_runs, unmatched_units
from tertulia.judge.runs import JudgedItem, JudgedRun, describe_config, load_run
from tertulia.metrics.intervals import LEVEL
from tertulia.metrics.prediction_powered import (
    PredictionPowered,
    prediction_powered_mean,
    selection_difference,
)
from tertulia.metrics.registry import metric_named

VERB = "ppi"
SUSPICIOUS = 0.01
"""P-value below which labelled and unlabelled units differ too much for a random part."""


class PpiConfig(Config):
    """People's labels, the judge's labels, and where the result goes."""

    human: Path
    """The judged run of a study (`study report --out`): people's labels of a random part of the units."""
    judge: Path
    """The judged run of an automatic judge (`judge llm --out`) on all units."""
    power: float | None = Field(default=None, ge=0, le=1)
    """How much of the judge to use: 0 is people alone, 1 plain PPI. By default tuned to the narrowest interval."""
    allow_unmatched: bool = False
    """Leave out units that people labelled and the judge did not, instead of refusing them."""
    seed: int = 0
    """Random seed of the folds in which the power is tuned."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in."""
    force: Force = False


def run_ppi(config: PpiConfig) -> JudgedRun:
    """Prediction-powered figures for everything that both runs have."""
    people, judge = load_run(config.human), load_run(config.judge)
    matched = [one for one in match_runs(judge, people) if one.people]
    unmatched = unmatched_units(matched)
    if unmatched and not config.allow_unmatched:
        raise DataError(
            f"{unmatched} units that people labelled have no label of the judge, so people's units are no part of the"
            " judge's.",
            hint="Judge them too, or leave them out with --allow-unmatched if they are missing at random.",
        )
    results = [(one, _powered(one, config)) for one in matched]
    scores = tuple(_score(one, result) for one, result in results)
    return JudgedRun(
        VERB,
        describe_config(config),
        tuple(subject for subject in judge.subjects if any(s.subject == subject.name for s in scores)),
        tuple(dict.fromkeys(score.setting for score in scores)),
        scores,
        {score.metric: metric_named(score.metric).info for score in scores},
        tuple(_items(judge, scores)),
        (*_notes(results, unmatched), *_warnings(matched)),
        {
            "tables": [_table(results).as_json()],
            "estimates": [
                [*score.key, *_numbers(result.estimate)] for score, (_, result) in zip(scores, results, strict=True)
            ],
            "intervals": "over conversations and raters, prediction-powered",
            "judge": judge.details.get("judge"),
        },
    )


def _powered(one: MatchedScore, config: PpiConfig) -> PredictionPowered:
    return prediction_powered_mean(one.people, one.judge, bounds=one.bounds, power=config.power, seed=config.seed)


def _numbers(estimate: Estimate) -> list[float | int | None]:
    return list(estimate.as_json().values())


def _score(one: MatchedScore, result: PredictionPowered) -> Score:
    """Pseudo-values of all units: their mean is the estimate."""
    clusters = {label.unit: str(label.cluster) for label in one.judge}
    metric = metric_named(f"{one.metric} (prediction-powered)")
    units = list(result.values)
    return metric.score(
        list(result.values.values()),
        subject=one.subject,
        setting=one.setting,
        units=units,
        clusters=[clusters[unit] for unit in units],
    )


def _items(judge: JudgedRun, scores: Sequence[Score]) -> list[JudgedItem]:
    used = {unit for score in scores for unit in score.units}
    return [replace(item, content=dict(item.content)) for item in judge.items if item.unit in used]


def _table(results: Sequence[tuple[MatchedScore, PredictionPowered]]) -> Section:
    rows = [
        (
            one.subject,
            f"{one.metric}: {one.setting}" if one.setting else one.metric,
            short(result.people),
            short(result.estimate),
            short(result.judge),
            f"{result.power:.2f}",
            f"{result.people.n} of {result.estimate.n}",
            result.labels,
            "-" if math.isnan(result.labels_saved) else f"{result.labels_saved:.0f}",
        )
        for one, result in results
    ]
    head = (
        "bot",
        "question",
        "people alone",
        "prediction-powered",
        "judge alone",
        "power",
        "units labelled",
        "people's labels",
        "labels saved",
    )
    title = "People's verdict, estimated from a part with the help of a judge"
    return Section(title, head, tuple(rows), (f"{100 * LEVEL:.0f} % intervals over conversations and raters.",))


def _notes(results: Sequence[tuple[MatchedScore, PredictionPowered]], unmatched: int) -> list[str]:
    notes = [
        "Prediction-powered figures are unbiased if people labelled a random part of the units, whatever the judge is"
        " worth. The judge alone is as biased as it is. Labels saved: how many more labels people alone would need.",
    ]
    if clipped := [f"{one.subject} ({one.metric})" for one, result in results if result.clipped]:
        notes.append(f"Estimates outside the scale were moved to its end: {', '.join(clipped)}.")
    if unmatched:
        notes.append(f"{unmatched} units that people labelled and the judge did not are left out.")
    if all(result.people.n == result.estimate.n for _, result in results):
        notes.append("People labelled every unit: there is nothing for the judge to add.")
    return notes


def _warnings(matched: Sequence[MatchedScore]) -> list[str]:
    """Symptoms of a part that is not random."""
    warnings = []
    for one in matched:
        difference, p = selection_difference(one.people, one.judge)
        if p < SUSPICIOUS:
            direction = "higher" if difference.value > 0 else "lower"
            warnings.append(
                f"WARNING: the judge rates the units of {one.subject} that people labelled {direction} than the others"
                f" ({one.metric}, {short(difference)}, p = {p:.2g}): they may not be a random part, and then the"
                " figures are biased."
            )
    if len({label.rater for one in matched for label in one.people}) == 1:
        warnings.append("All labels are by one person: nothing is known about other raters.")
    return warnings
