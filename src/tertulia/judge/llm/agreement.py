"""How far a judge can be trusted: its agreement with people, its bias for each bot, for positions and for long replies.

A judge's figures are never shown alone. With people's labels they stand beside agreement on the same units: alpha
between the judge and the majority of people, with the alpha of people among themselves, which is what can be reached;
accuracy and Cohen's kappa for yes or no, correlations for scales; the difference between judge and people for each bot.
Without people's labels the report begins with the word "unvalidated".
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.judge.document import Section, short
from tertulia.judge.llm.matching import RATING, SHARES, WINS, YES, MatchedScore, match_runs, unmatched_units
from tertulia.judge.runs import JudgedRun
from tertulia.metrics import judge_labels
from tertulia.metrics.agreement import Distance, UnitRating, krippendorff_alpha, majority_votes
from tertulia.metrics.correlation import correlate, correlations
from tertulia.metrics.judge_agreement import cohen_kappa
from tertulia.metrics.significance import bootstrap_mean

TRUST = 0.67
"""Krippendorff's lowest alpha for tentative conclusions."""


def validated(run: JudgedRun, people: JudgedRun | None) -> JudgedRun:
    """The run with its agreement with people, as scores and as tables; or with the statement that there is none."""
    model = str(run.details["judge"]["model"])
    if people is None:
        lead = f"UNVALIDATED: no people's labels were given, so nobody knows how far {model} agrees with people."
        hint = "Give some with --human RUN, the --out folder of `tertulia study report`."
        return _with_tables(run, lead, [_verdicts(run, None, lead), _lengths(run, [])], (f"{lead} {hint}",))
    matched = match_runs(run, people)
    scores = [score for one in matched for score in _bias_scores(one)]
    metrics = {name.name: name.info for name in (judge_labels.ACCURACY, judge_labels.BIAS)}
    used = {score.metric for score in scores}
    metrics = dict(run.metrics) | {name: info for name, info in metrics.items() if name in used}
    read = {(one.subject, label.unit) for one in matched for label in one.judge if not math.isnan(label.value)}
    units = len({(one.subject, label.unit) for one in matched for label in one.people} & read)
    total = len({(one.subject, label.unit) for one in matched for label in one.judge})
    lead = f"{model} as a judge, compared with people on {units} of {plural(total, 'unit')}."
    unmatched = unmatched_units(matched)
    notes = [f"Labelled by people and not among those judged: {plural(unmatched, 'unit')}."] if unmatched else []
    checked = replace(run, scores=(*run.scores, *scores), metrics=metrics)
    agreement = _agreement(matched)
    tables = [_verdicts(checked, people, lead), agreement, _biases(checked, matched), _lengths(checked, matched)]
    return _with_tables(checked, lead, tables, (lead, *notes))


def _with_tables(run: JudgedRun, lead: str, tables: Sequence[Section], notes: tuple[str, ...]) -> JudgedRun:
    shown = [table.as_json() for table in tables if table.rows]
    return replace(run, notes=(*notes, *run.notes), details={**run.details, "lead": lead, "tables": shown})


def _verdicts(run: JudgedRun, people: JudgedRun | None, title: str) -> Section:
    """The judge's figures, beside people's where there are any."""
    theirs = people.estimates() if people else {}
    aside = {judge_labels.ACCURACY.name, judge_labels.BIAS.name}
    rows = []
    for (subject, setting, metric), figure in run.estimates().items():
        if metric in aside:
            continue
        name = metric.removesuffix(" (judge)")
        own = theirs.get((subject, setting, name)) or (theirs.get((subject, setting, RATING)) if name == YES else None)
        rows.append(
            (subject, setting, name, short(figure), figure.n, *((short(own) if own else "",) if people else ()))
        )
    head = ("bot", "question", "metric", "judge", "units", *(("people (of the labelled part)",) if people else ()))
    wins = any(metric.startswith(WINS) for _, _, metric in run.estimates())
    notes = ("People's wins leave ties out; a judge's wins count ties as half.",) if wins and people else ()
    return Section(title, head, tuple(rows), notes)


def _bias_scores(one: MatchedScore) -> list[Score]:
    """Judge minus people, and for yes or no whether the judge says what most people say, by unit."""
    values = {label.unit: label for label in one.judge if not math.isnan(label.value)}
    by_unit: dict[str, list[float]] = {}
    for label in one.people:
        if label.unit in values:
            by_unit.setdefault(label.unit, []).append(label.value)
    if not by_unit:
        return []
    clusters = [str(values[unit].cluster) for unit in by_unit]
    batches = {judge_labels.BIAS: [values[unit].value - fmean(own) for unit, own in by_unit.items()]}
    if one.metric in (*SHARES, WINS):
        votes = _majority(one)
        right = [
            math.nan if (vote := votes.get(unit)) is None else float(_hard(values[unit].value) == vote)
            for unit in by_unit
        ]
        batches[judge_labels.ACCURACY] = right
    setting = f"{one.metric}: {one.setting}" if one.setting else one.metric
    return [
        metric.score(batch, subject=one.subject, setting=setting, units=list(by_unit), clusters=clusters)
        for metric, batch in batches.items()
    ]


def _hard(value: float) -> float:
    """The most probable answer of yes and no, or of a win, a tie and a loss."""
    return 0.5 if value == 0.5 else float(value > 0.5)


def _majority(one: MatchedScore) -> dict[str, float | None]:
    votes = majority_votes([UnitRating(x.unit, f"{x.rater}/{i}", x.value) for i, x in enumerate(one.people)])
    return {unit: None if value is None else float(value) for unit, value in votes.items()}  # type: ignore[arg-type]


def _questions(matched: Sequence[MatchedScore]) -> dict[str, list[MatchedScore]]:
    """By question, over all bots; of the two sides of a comparison only one."""
    groups: dict[str, list[MatchedScore]] = {}
    pairs: set[tuple[str, frozenset[str]]] = set()
    for one in matched:
        question, _, other = one.setting.partition(", against ")
        pair = (f"{one.metric}/{question}", frozenset((one.subject, other)))
        if one.people and not (other and pair in pairs):
            pairs.add(pair)
            groups.setdefault(one.name, []).append(one)
    return groups


def _agreement(matched: Sequence[MatchedScore]) -> Section:
    rows: list[tuple[object, ...]] = []
    ambiguous = 0
    for name, group in _questions(matched).items():
        nominal = group[0].metric in (*SHARES, WINS)
        judge, people, clusters, ratings = [], [], {}, []
        for one in group:
            votes, values = _majority(one), {label.unit: label for label in one.judge}
            own: dict[str, list[float]] = {}
            for i, label in enumerate(one.people):
                own.setdefault(label.unit, []).append(label.value)
                ratings.append(UnitRating(f"{one.subject}/{label.unit}", f"{label.rater}/{i}", label.value))
            for unit, labels in own.items():
                key, value = f"{one.subject}/{unit}", values[unit].value
                clusters[key] = str(values[unit].cluster)
                if math.isnan(value):
                    continue
                if nominal and votes[unit] is None:
                    ambiguous += 1
                    continue
                judge.append(UnitRating(key, "judge", _hard(value) if nominal else value))
                people.append(UnitRating(key, "people", votes[unit] if nominal else fmean(labels)))
        distance: Distance = "nominal" if nominal else "interval"
        of_units = [clusters[rating.unit] for rating in judge]
        x, y = ([float(r.value) for r in side] for side in (judge, people))  # type: ignore[arg-type]
        among = krippendorff_alpha(ratings, distance=distance, clusters=clusters)
        both = krippendorff_alpha([*judge, *people], distance=distance, clusters=clusters)
        rows.append((name, len(judge), _short(both), _short(among), *_figures(x, y, of_units, nominal=nominal)))
    notes = [
        f"Alpha: Krippendorff's; 1 is perfect, 0 is chance, and below {TRUST} no conclusions are drawn even from"
        " people. The judge is compared with the majority of people, on scales with their mean.",
        *([f"{ambiguous} units on which people are divided equally are left out."] if ambiguous else []),
    ]
    head = ("question", "units", "alpha: judge and people", "alpha: people", "accuracy", "kappa", "Spearman", "Pearson")
    return Section("Agreement with people", head, tuple(rows), tuple(notes))


def _figures(x: list[float], y: list[float], clusters: list[str], *, nominal: bool) -> tuple[str, ...]:
    """Accuracy and kappa of words, correlations of numbers."""
    if nominal:
        right = np.array([a == b for a, b in zip(x, y, strict=True)], dtype=np.float64)
        accuracy = bootstrap_mean(right, clusters, bounds=(0, 1))
        return _short(accuracy), _short(cohen_kappa(x, y, clusters)), "", ""
    both = correlations(x, y, kinds=("spearman", "pearson"), clusters=clusters)
    return "", "", *(_short(one.estimate) for one in both.values())


def _short(estimate: Estimate) -> str:
    """Of a single unit, nothing can be said."""
    return "-" if math.isnan(estimate.value) or estimate.n < 2 else short(estimate)


def _biases(run: JudgedRun, matched: Sequence[MatchedScore]) -> Section:
    """Judge minus people for each bot."""
    figures = run.estimates()
    rows = []
    for one in matched:
        setting = f"{one.metric}: {one.setting}" if one.setting else one.metric
        figure = figures.get((one.subject, setting, judge_labels.BIAS.name))
        if figure is not None and figure.n:
            low, high = one.bounds
            text = short(figure)
            rows.append((one.subject, setting, text, f"{100 * figure.value / (high - low):+.0f} %", figure.n))
    note = "An interval that excludes 0: the judge is too lenient (above) or too strict (below) with this bot."
    head = ("bot", "question", "judge minus people", "of the scale", "units")
    return Section("Bias by bot", head, tuple(rows), (note,))


def _lengths(run: JudgedRun, matched: Sequence[MatchedScore]) -> Section:
    """Whether longer replies get higher verdicts: from the judge, and from people."""
    words = {(item.subject, item.unit): item.content.get("words") for item in run.items}
    groups: dict[str, tuple[list[float], list[float], list[str]]] = {}
    for score in run.scores:
        metric = score.metric.removesuffix(" (judge)")
        if metric not in ("SSA", "rating", "share of yes", WINS):
            continue
        name = f"{metric}, {score.setting.partition(', against ')[0]}" if score.setting else metric
        x, y, clusters = groups.setdefault(name, ([], [], []))
        for unit, value, cluster in zip(score.units, score.values, score.clusters, strict=True):
            length = words.get((score.subject, unit), words.get(("", unit)))
            if isinstance(length, dict):  # of both sides of a pair: how much longer the subject is
                length = 2 * length[score.subject] - sum(length.values())
            if length is not None and not math.isnan(value):
                x.append(float(length))
                y.append(value)
                clusters.append(cluster)
    rows = []
    for name, (x, y, clusters) in groups.items():
        theirs = _people_lengths(name, matched, words)
        rows.append(
            (name, _short(correlate(x, y, clusters=clusters).estimate), theirs, f"{median(x):g}" if x else "-", len(x))
        )
    note = "Spearman's correlation of verdict and length in words (of pairs: how much longer); people's beside it."
    return Section("Length bias", ("question", "judge", "people", "median words", "units"), tuple(rows), (note,))


def _people_lengths(
    name: str, matched: Sequence[MatchedScore], words: "dict[tuple[str, str], float | dict[str, float] | None]"
) -> str:
    x, y, clusters = [], [], []
    for one in matched:
        if one.name != name:
            continue
        for label in one.people:
            length = words.get((one.subject, label.unit), words.get(("", label.unit)))
            if isinstance(length, dict):
                length = 2 * length[one.subject] - sum(length.values())
            if length is not None:
                x.append(float(length))
                y.append(label.value)
                clusters.append(str(label.cluster))
    return _short(correlate(x, y, clusters=clusters).estimate)
