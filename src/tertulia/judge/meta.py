"""Judging the judges: how well any metric agrees with people, by correlation with published or own human ratings.

Replies are correlated one by one (turn level), conversations as wholes (dialogue level), and systems by the means of
theirs (system level). Beside the correlations stand the agreement of the raters and the human ceiling: how well one
rater agrees with the mean of the others. Whole conversations are drawn for the intervals.

Values of metrics are computed here from the texts, or read from judged runs on the same units, such as those of a
judge that takes long. Without either, the run has the ratings and texts alone, in the form that other judges read.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from tertulia.artefacts.outputs import Force
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.corpus.identity import describe_artefacts
from tertulia.judge.config import RUN_FOLDER, Strings
from tertulia.judge.conversations import conversation_example
from tertulia.judge.correlation_tables import AGREEMENT, CORRELATIONS, CorrelationRow, RaterAgreement, RatingLevel
from tertulia.judge.human_ratings import (
    RatedConversation,
    RatedReply,
    RatedSet,
    RatedUnit,
    RatingFormat,
    aspects_of,
    mean_rating,
    rated_items,
    rating_scores,
    rating_table,
    read_ratings,
)
from tertulia.judge.resources import load_resources
from tertulia.judge.runs import JudgedRun, Subject, describe_config, load_run
from tertulia.metrics.agreement import UnitRating, krippendorff_alpha
from tertulia.metrics.correlation import KINDS, correlations, rater_ceiling
from tertulia.metrics.human import RATING
from tertulia.metrics.intervals import RESAMPLES
from tertulia.metrics.judge_labels import VERDICTS
from tertulia.metrics.metric import ConversationExample, Metric, MetricInfo, ReplyExample
from tertulia.metrics.registry import METRICS, metric_named

ALL = "all"
"""Instead of names: every metric whose resources have a default."""
WITH_REFERENCES = ("f1", "rouge-l", "embedding average", "embedding extrema", "embedding greedy")
"""Metrics that compare with a reference: of several, the best one counts."""
SO_FAR = ", so far"
"""Ends the names of conversation metrics that were computed up to a rated reply."""
Values = Mapping[str, float]
"""Of a metric, by unit."""


class MetaConfig(Config):
    """Which ratings, and which metrics are held against them."""

    file: Annotated[Path, Cli(argument=True)]
    """A file of human ratings, or the folder of a judged run that has some."""
    format: RatingFormat = "fed"
    """What FILE is: FED, USR or Gupta's data as published, DSTC's JSON, or a judged run."""
    metrics: Annotated[Strings, Cli("--metric")] = ()
    """Metrics of replies or conversations to compute, one per option; `all` for those that work without options."""
    scores: Strings = ()
    """Judged runs on the same units whose metrics are read, one per option."""
    aspects: Annotated[Strings, Cli("--aspect")] = ()
    """Aspects that people rated, one per option; all by default."""
    level: tuple[RatingLevel, ...] = ()
    """Levels, one per option; by default all that the ratings allow."""
    so_far: Annotated[bool, Cli("--so-far/--replies-alone")] = False
    """Also measure what was said up to each rated reply, the reply included, by the metrics of conversations."""
    resource: dict[str, str] = Field(default_factory=dict)
    """What metrics need, if not the default, such as sentences=hf:NAME or word_vectors=FILE."""
    resamples: int = Field(default=1000, ge=100)
    """Resamples of the bootstrap."""
    seed: int = 0
    """Random seed."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in: ratings, texts, the values of all metrics, and the report."""
    force: Force = False


def run_meta(
    config: MetaConfig, progress: Progress | None = None, *, loaded: Mapping[str, Any] | None = None
) -> JudgedRun:
    """Correlate metrics with the ratings in a file; `loaded` are resources that the caller has already."""
    progress, loaded = progress or Silent(), loaded or {}
    progress.step("Reading ratings")
    ratings = read_ratings(config.file, config.format)
    runs = [(Path(folder), load_run(Path(folder))) for folder in config.scores]
    metrics = named_metrics(config.metrics, ratings, so_far=config.so_far)
    missing = [metric for metric in metrics if not loaded.keys() >= set(metric.needs)]
    resources = {**load_resources(missing, config.resource), **loaded}
    computed = compute_scores(ratings, metrics, resources, progress, so_far=config.so_far)
    by_name = {metric.name: metric for metric in metrics}
    computed_names = dict.fromkeys(score.metric for score in computed)
    infos = {name: _renamed(by_name[name.removesuffix(SO_FAR)].info, name) for name in computed_names}
    given, given_infos = read_scores(ratings, runs, taken=infos)
    return judge_metrics(ratings, [*computed, *given], {**infos, **given_infos}, config, progress)


def named_metrics(names: Sequence[str], ratings: RatedSet, *, so_far: bool = False) -> list[Metric]:
    """The metrics of these names, checked before the work."""
    replies = bool(ratings.replies)
    units = {"reply": replies, "conversation": bool(ratings.conversations) or (so_far and replies)}
    if ALL in names:
        usable = [metric for row, metric in METRICS.usable() if row.name not in _NOT_BY_DEFAULT]
        known = [metric for metric in usable if isinstance(metric, Metric)]
        return [
            metric
            for metric in known
            if units.get(metric.unit) and metric.reduction == "mean" and not _WITHOUT_DEFAULT & set(metric.needs)
            if not needs_reference(metric) or any(one.references for one in ratings.replies)
        ]
    metrics = [metric_named(name) for name in dict.fromkeys(names)]
    for metric in metrics:
        if not units.get(metric.unit):
            raise UsageError(
                f"{metric.name!r} is a metric of unit {metric.unit!r}; {ratings.name} has no rated units of that kind.",
                hint=f"It has {_extent(ratings)}.",
            )
        if metric.reduction != "mean":
            raise UsageError(
                f"{metric.name!r} has no value for a single unit, so it cannot be correlated unit by unit."
            )
    return metrics


_WITHOUT_DEFAULT = frozenset(("training_turns",))
"""Resources that have no default."""
_NOT_BY_DEFAULT = ("log-probability per token", "seconds per reply")
"""Metrics of replies that are known only while they are generated."""


def compute_scores(
    ratings: RatedSet,
    metrics: Sequence[Metric],
    resources: Mapping[str, Any],
    progress: Progress,
    *,
    so_far: bool = False,
) -> list[Score]:
    """The values of metrics of all rated units, by system."""
    progress.step("Measuring", total=len(metrics))
    prepare = getattr(resources.get("word_vectors"), "prepare", None)
    if prepare is not None:
        prepare([text for one in ratings.units for text in _texts(one)])
    replies, before = [reply_example(one) for one in ratings.replies], [example_so_far(one) for one in ratings.replies]
    wholes = [conversation_example(Dialogue(one.unit, one.turns), [one.judged]) for one in ratings.conversations]
    scores: list[Score] = []

    def add(name: str, rated: Sequence[RatedUnit], values: Sequence[float]) -> None:
        scores.extend(scores_by_system(name, rated, dict(zip((one.unit for one in rated), values, strict=True))))

    for metric in metrics:
        progress.note(metric.name)
        if needs_reference(metric):
            add(metric.name, ratings.replies, _best_of_references(metric, ratings.replies, resources))
        elif metric.unit == "reply":
            add(metric.name, ratings.replies, metric.measure(replies, resources)[0].tolist())
        else:
            if wholes:
                add(metric.name, ratings.conversations, metric.measure(wholes, resources)[0].tolist())
            if so_far and replies:
                add(metric.name + SO_FAR, ratings.replies, metric.measure(before, resources)[0].tolist())
        progress.advance()
    return scores


def needs_reference(metric: Metric) -> bool:
    """Whether a metric compares a reply with a reference; a plugin's metric sees the first reference alone."""
    return metric.name in WITH_REFERENCES or metric.name.startswith("bleu-")


def reply_example(one: RatedReply, reference: str | None = None) -> ReplyExample:
    """A rated reply as metrics see it."""
    first = one.references[0] if one.references else ""
    context = tuple(turn.text for turn in one.context)
    return ReplyExample(one.response, first if reference is None else reference, context, one.persona)


def example_so_far(one: RatedReply) -> ConversationExample:
    """The conversation up to a rated reply, of whose speaker all turns are judged."""
    last = one.context[-1].speaker if one.context else ""
    speaker = next((turn.speaker for turn in one.context if turn.speaker != last), "reply")
    return conversation_example(Dialogue(one.unit, (*one.context, Turn(speaker, one.response))), [speaker])


def _texts(one: RatedUnit) -> list[str]:
    if isinstance(one, RatedReply):
        return [*(turn.text for turn in one.context), one.response, *one.references]
    return [turn.text for turn in one.turns]


def _best_of_references(metric: Metric, replies: Sequence[RatedReply], resources: Mapping[str, Any]) -> list[float]:
    """With several references the best counts; a reply without one has no value."""
    pairs = [(i, reply_example(one, reference)) for i, one in enumerate(replies) for reference in one.references]
    values = metric.measure([example for _, example in pairs], resources)[0] if pairs else np.empty(0)
    best = [math.nan] * len(replies)
    for (i, _), value in zip(pairs, values.tolist(), strict=True):
        best[i] = value if math.isnan(best[i]) else max(best[i], value)
    return best


def scores_by_system(metric: str, rated: Sequence[RatedUnit], values: Values, setting: str = "") -> list[Score]:
    """Values by unit as scores, one per system."""
    scores = []
    for system in dict.fromkeys(one.system for one in rated):
        own = [one for one in rated if one.system == system and one.unit in values]
        units, clusters = tuple(one.unit for one in own), tuple(one.cluster for one in own)
        scores.append(Score(system, setting, metric, units, tuple(values[unit] for unit in units), clusters))
    return [score for score in scores if score.units]


def read_scores(
    ratings: RatedSet, runs: Iterable[tuple[Path, JudgedRun]], *, taken: Iterable[str] = ()
) -> tuple[list[Score], dict[str, MetricInfo]]:
    """The metrics of judged runs on the rated units: matched by unit, or, for conversations, by conversation."""
    scores: list[Score] = []
    infos: dict[str, MetricInfo] = {}
    names = set(taken)
    for folder, run in runs:
        matched = 0
        for (setting, metric), values in values_by_metric(run).items():
            label = f"{metric} ({setting})" if setting else metric
            label = f"{label} [{folder.name}]" if label in names else label
            for rated in (ratings.replies, ratings.conversations):
                own = match_values(rated, values)
                if own:
                    scores += scores_by_system(label, rated, own)
                    infos[label] = _renamed(run.metrics[metric], label)
                    names.add(label)
                    matched += len(own)
        if not matched:
            raise DataError(
                f"{folder} has no units in common with the ratings.",
                hint="Judge the same replies or conversations: `judge meta --out` saves them as a judged run.",
            )
    return scores, infos


def values_by_metric(run: JudgedRun) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """By setting and metric, the value of each subject's units; people's ratings, what is known about an automatic
    judge, and metrics of whole sets are left out."""
    values: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for score in run.scores:
        info = run.metrics[score.metric]
        if (info.unit == "rating" and score.metric not in VERDICTS) or info.reduction in ("pooled", "macro-f1", "auc"):
            continue
        weights = score.weights or (1.0,) * len(score.units)
        for unit, value, weight in zip(score.units, score.values, weights, strict=True):
            single = value / weight if weight else math.nan
            single = math.exp(single) if info.reduction == "perplexity" else single
            values.setdefault((score.setting, score.metric), {})[score.subject, unit] = single
    return values


def match_values(rated: Sequence[RatedUnit], values: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Values of the rated units. Subjects need not be called alike if no unit belongs to two of them."""
    by_unit: dict[str, list[float]] = {}
    for (_, unit), value in values.items():
        by_unit.setdefault(unit, []).append(value)
    matched = {}
    for one in rated:
        names = [one.unit, f"{one.unit}/unit"]  # the second if an automatic judge rated the units of a study
        names += [one.cluster] if isinstance(one, RatedConversation) else []
        for name in names:
            if (one.system, name) in values:
                matched[one.unit] = values[one.system, name]
            elif len(by_unit.get(name, ())) == 1:
                matched[one.unit] = by_unit[name][0]
            else:
                continue
            break
    return matched


def _renamed(info: MetricInfo, name: str) -> MetricInfo:
    return replace(info.info, name=name, reduction="mean")


def judge_metrics(
    ratings: RatedSet,
    scores: Sequence[Score],
    infos: Mapping[str, MetricInfo],
    config: MetaConfig,
    progress: Progress | None = None,
) -> JudgedRun:
    """All correlations of scores of rated units with the ratings, as a judged run."""
    progress = progress or Silent()
    rows: list[CorrelationRow] = []
    agreement: list[RaterAgreement] = []
    levels: tuple[RatingLevel, ...] = config.level or ("turn", "dialogue", "system")
    sets: list[tuple[RatingLevel, Sequence[RatedUnit]]] = [
        ("turn", ratings.replies),
        ("dialogue", ratings.conversations),
    ]
    sets = [(level, rated) for level, rated in sets if rated and ({level, "system"} & set(levels))]
    wanted = {level: _aspects(config.aspects, aspects_of(rated)) for level, rated in sets}
    if not any(wanted.values()):
        known = [aspect for _, rated in sets for aspect in aspects_of(rated)]
        raise UnknownName("aspect", ", ".join(config.aspects), known)
    by_metric = _by_metric(scores)
    progress.step("Correlating", total=sum(len(wanted[level]) * len(by_metric) for level, _ in sets))
    for level, rated in sets:
        columns = {m: v for m, v in by_metric.items() if any(one.unit in v for one in rated)}
        if level in levels:
            rows += unit_correlations(
                level,
                rated,
                columns,
                wanted[level],
                resamples=config.resamples,
                seed=config.seed,
                progress=progress,
            )
            agreement += [rater_agreement(level, rated, aspect, config) for aspect in wanted[level]]
        if "system" in levels:
            rows += system_correlations(rated, columns, wanted[level])
    human = [score for _, rated in sets for score in rating_scores(rated)]
    return JudgedRun(
        verb="meta",
        config=describe_config(config),
        subjects=tuple(Subject(system) for system in ratings.systems),
        settings=tuple(dict.fromkeys(score.setting for score in (*human, *scores))),
        scores=(*human, *scores),
        metrics={RATING.name: RATING.info, **infos},
        items=tuple(rated_items(ratings.units)),
        notes=tuple(_notes(ratings)),
        details={
            CORRELATIONS: [row.as_json() for row in rows],
            AGREEMENT: [one.as_json() for one in agreement],
        },
    )


def _aspects(wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """Those of the known aspects that are wanted: by name, or by name without the level ("turn overall")."""
    if not wanted:
        return list(known)
    return [a for a in known if a in wanted or a.partition(" ")[2] in wanted]


def _by_metric(scores: Iterable[Score]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for score in scores:
        values.setdefault(score.metric, {}).update(zip(score.units, score.values, strict=True))
    return values


def unit_correlations(
    level: str,
    rated: Sequence[RatedUnit],
    columns: Mapping[str, Values],
    aspects: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[CorrelationRow]:
    """Every metric with every aspect, unit by unit."""
    clusters, rows = [one.cluster for one in rated], []
    for aspect in aspects:
        truth = [mean_rating(one, aspect) for one in rated]
        for metric, values in columns.items():
            own = [values.get(one.unit, math.nan) for one in rated]
            results = correlations(own, truth, clusters=clusters, resamples=resamples, seed=seed)
            rows += [CorrelationRow(level, metric, aspect, results[kind]) for kind in KINDS]
            if progress is not None:
                progress.advance()
    return rows


def system_correlations(
    rated: Sequence[RatedUnit], columns: Mapping[str, Values], aspects: Sequence[str], level: str = "system"
) -> list[CorrelationRow]:
    """Means of systems; with few of them, intervals are Fisher's."""
    systems, rows = list(dict.fromkeys(one.system for one in rated)), []
    for aspect in aspects:
        truth = [_mean(mean_rating(one, aspect) for one in rated if one.system == system) for system in systems]
        for metric, values in columns.items():
            own = [_mean(values.get(o.unit, math.nan) for o in rated if o.system == system) for system in systems]
            results = correlations(own, truth)
            rows += [CorrelationRow(level, metric, aspect, results[kind]) for kind in KINDS]
    return rows


def rater_agreement(level: str, rated: Sequence[RatedUnit], aspect: str, config: MetaConfig) -> RaterAgreement:
    """Alpha and ceiling of one aspect."""
    table = rating_table(rated, aspect)
    clusters = {one.unit: one.cluster for one in rated}
    labels = [
        UnitRating(one.unit, str(rater), value)
        for one, row in zip(rated, table.tolist(), strict=True)
        for rater, value in enumerate(row)
        if not math.isnan(value)
    ]
    options: dict[str, Any] = {"resamples": min(config.resamples, 500), "seed": config.seed}
    alpha = krippendorff_alpha(labels, distance="ordinal", clusters=clusters, **options)
    names = [one.cluster for one in rated]
    ceiling = {kind: rater_ceiling(table, kind, clusters=names, **options) for kind in KINDS}
    return RaterAgreement(level, aspect, len(labels) / max(len(rated), 1), alpha, ceiling)


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _extent(ratings: RatedSet) -> str:
    replies = plural(len(ratings.replies), "reply", "replies")
    return f"{replies} and {plural(len(ratings.conversations), 'conversation')}"


def _notes(ratings: RatedSet) -> list[str]:
    notes = [
        f"{ratings.name}: {_extent(ratings)} of {plural(len(ratings.systems), 'system')}; ratings are means"
        " over raters; intervals draw whole conversations (or contexts), those of systems are Fisher's.",
        *ratings.notes,
    ]
    if ratings.skipped:
        notes.append(f"Left out: {plural(ratings.skipped, 'answer')} without a number, such as N/A.")
    return notes


def describe_ratings(config: MetaConfig) -> dict[str, Json]:
    """Path and digest of the ratings."""
    return describe_artefacts(ratings=config.file)
