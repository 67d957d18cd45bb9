"""Conversations to read: with the lowest and the highest values, some at random, and what goes wrong in self-play.

A mean hides what a bot is like; ten minutes of reading do not. Which units are shown follows from values and seed, so
nobody chose them.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence

from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.judge.document import Example, ExampleGroup, FigureCell, Section
from tertulia.judge.report_data import ItemIndex
from tertulia.judge.report_leaderboard import JudgedScore
from tertulia.judge.report_texts import ShownTurn
from tertulia.judge.runs import JudgedRun
from tertulia.metrics.metric import MetricInfo

EXAMPLES = 2
"""Units with the lowest values, with the highest values, and at random, for each subject and setting."""
MAX_TURNS = 40
"""Of a longer conversation, the last ones are shown."""
PATHOLOGIES = {
    "loops": re.compile(r"\bloop", re.IGNORECASE),
    "repetition": re.compile(r"repet|repeat|-rep-|parrot|\bshared run", re.IGNORECASE),
    "overlap with training": re.compile(r"overlap with|copied|copies|memori|novel|training", re.IGNORECASE),
    "contradictions of the persona": re.compile(r"contradict", re.IGNORECASE),
}
"""What self-play is known to go wrong by, and the names of metrics that measure it."""


def example_section(run: JudgedRun) -> Section:
    """Examples by the first metric that has texts; metrics of complete conversations come first."""
    index = ItemIndex(run)
    groups: dict[tuple[str, str], ExampleGroup] = {}
    ordered = sorted(run.scores, key=lambda score: _preference(run.metrics[score.metric]))
    for score in ordered:
        if score.key[:2] not in groups and (examples := tuple(_examples(run, score, index))):
            setting = f", {score.setting}" if score.setting and len(run.settings) > 1 else ""
            groups[score.key[:2]] = ExampleGroup(f"{score.subject}{setting}, by {score.metric}", examples)
    in_order = dict.fromkeys(score.key[:2] for score in run.scores)
    shown = tuple(groups[key] for key in in_order if key in groups)
    return Section("To read: lowest, highest, and at random", detail=True, examples=shown)


def _preference(info: MetricInfo) -> tuple[bool, bool]:
    return (info.unit != "conversation", info.higher_is_better is None)


def _examples(run: JudgedRun, score: Score, index: ItemIndex) -> Iterator[Example]:
    rows = zip(score.values, score.units, score.clusters, strict=True)
    known = sorted(row for row in rows if not math.isnan(row[0]))
    rng = random.Random(run.seed)
    shuffled = rng.sample(known, min(len(known), 8 * EXAMPLES))
    shown: set[str] = set()
    for label, units in (("lowest", known), ("highest", known[::-1]), ("random", shuffled)):
        count = 0
        for value, unit, cluster in units[: 50 * EXAMPLES]:
            if count == EXAMPLES:
                break
            turns = _turns(score, unit, index)
            if not turns or cluster in shown:  # two replies of one conversation read much alike
                continue
            shown.add(cluster)
            count += 1
            yield Example(f"{label.capitalize()}: {score.metric} {value:.3f}, {unit}", turns)


def _turns(score: Score, unit: str, index: ItemIndex) -> tuple[ShownTurn, ...]:
    texts = index.view(score.subject, score.setting, unit)
    return texts.turns[-MAX_TURNS:] if texts else ()


def pathology_section(
    scores: Sequence[JudgedScore],
    figures: Mapping[tuple[str, str, str], Estimate],
    numbers: Mapping[tuple[str, str, str], int],
) -> Section:
    """How often conversations go wrong in known ways, where the run has metrics of it; the worst one of each."""
    kinds: dict[str, str] = {}
    for one in scores:
        kind = next((kind for kind, name in PATHOLOGIES.items() if name.search(one.score.metric)), None)
        if kind is not None and one.info.unit != "verdict":  # a classifier's opinion of single replies
            kinds[one.score.metric] = kind
    relevant = [one for one in scores if one.score.metric in kinds]
    if not relevant:
        return Section("What goes wrong")
    metrics = list(kinds)
    rows = []
    several = any(one.score.setting for one in relevant)
    for subject, setting in dict.fromkeys(one.key[:2] for one in relevant):
        cells = (
            FigureCell(figures[key], "", numbers[key]) if (key := (subject, setting, metric)) in numbers else ""
            for metric in metrics
        )
        rows.append((subject, *((setting,) if several else ()), *cells))
    worst = tuple(group for metric in metrics if (group := _worst(metric, kinds[metric], relevant)))
    better = {metric: next(o.info.higher_is_better for o in relevant if o.score.metric == metric) for metric in metrics}
    head = ("subject", *(("setting",) if several else ()), *metrics)
    title = f"What goes wrong: {', '.join(dict.fromkeys(kinds.values()))}"
    return Section(title, head, tuple(rows), detail=True, examples=worst, better=better)


def _worst(metric: str, kind: str, scores: Sequence[JudgedScore]) -> ExampleGroup | None:
    """The worst unit of any subject, to read."""
    extreme: tuple[float, JudgedScore, str] | None = None
    for one in scores:
        if one.score.metric != metric or one.info.unit not in ("conversation", "reply"):
            continue
        sign = 1 if one.info.higher_is_better else -1
        for value, unit in zip(one.score.values, one.score.units, strict=True):
            if not math.isnan(value) and (extreme is None or sign * value < extreme[0]):
                extreme = (sign * value, one, unit)
    if extreme is None:
        return None
    signed, one, unit = extreme
    turns = _turns(one.score, unit, ItemIndex(one.run))
    value = signed if one.info.higher_is_better else -signed
    example = Example(f"{one.subject}: {metric} {value:.3f}, {unit}", turns)
    return ExampleGroup(f"Worst by {metric} ({kind})", (example,)) if turns else None
