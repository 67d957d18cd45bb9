"""The hybrid metric (Ghandeharioun et al. 2019): what people would say, as a linear combination of automatic metrics.

    M_H = l0 + sum l_i M_i

is fitted to people's ratings of conversations, always without the bot that it is then applied to (leave-bot-out).
Inputs are judged runs: people's ratings, metrics of the same conversations and, to see whether people can be replaced
altogether, metrics of each bot's self-play. Three ways of fitting stand beside each other (`metrics/regression.py`):
least squares as in the paper, ridge, and ridge on ranks. Whatever is chosen is chosen within the training bots.

A fitted model can be saved and applied to other bots later. It warns where a bot lies outside of what it was fitted on:
then the line is an extrapolation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tertulia.artefacts.files import fingerprint, read_json, sha256_of, write_json
from tertulia.artefacts.manifest import MANIFEST, open_folder, read_manifest, seal
from tertulia.artefacts.outputs import Force, Output
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.corpus.identity import describe_artefacts
from tertulia.judge.config import RUN_FOLDER, Strings
from tertulia.judge.correlation_tables import COEFFICIENTS, CORRELATIONS, CorrelationRow
from tertulia.judge.human_ratings import RatedConversation, RatedUnit, aspects_of, mean_rating, rating_scores, read_run
from tertulia.judge.meta import (
    Values,
    match_values,
    scores_by_system,
    system_correlations,
    unit_correlations,
    values_by_metric,
)
from tertulia.judge.runs import JudgedRun, Subject, describe_config, load_run
from tertulia.metrics.correlation import KINDS, correlations
from tertulia.metrics.human import RATING
from tertulia.metrics.intervals import Floats
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.regression import (
    FIT_METHODS,
    Coefficient,
    FitMethod,
    LinearModel,
    fit,
    ols_coefficients,
    predict_left_out,
)

KIND, FORMAT, MODEL = "hybrid-metric", 1, "model.json"
SELF_PLAY, LEFT_OUT = "self-play", "interactive"
PREFERRED = ("quality", "overall")
"""The aspect that a model is fitted to, unless it is named: one whose name contains one of these."""
CITATION = "Ghandeharioun et al. 2019"
METHODS = {"ols": "least squares, as in the paper", "ridge": "ridge", "rank": "ridge on ranks, from 0 to 1"}


class HybridConfig(Config):
    """What the metric is fitted on and applied to."""

    ratings: Path | None = None
    """Judged run with people's ratings: the report of a study, or `judge meta --out`."""
    metrics: Strings = ()
    """Judged runs with metrics of the rated conversations, one per option."""
    selfplay: Path | None = None
    """Judged run with metrics of the bots' self-play, to which the metric is applied."""
    aspect: str | None = None
    """What people rated and the metric is to predict; by default quality or overall."""
    features: Annotated[Strings, Cli("--feature")] = ()
    """Metrics to combine, one per option; by default all of --metrics that vary, and that --selfplay has too."""
    level: Literal["dialogue", "turn"] = "dialogue"
    """Whether conversations or single replies were rated."""
    method: FitMethod = "rank"
    """The method of the model that --model saves; all are reported."""
    model: Annotated[Path | None, Output("folder")] = None
    """Save the model fitted on all bots in this folder."""
    apply: Path | None = None
    """Apply the model of this folder to --selfplay or --metrics instead of fitting one."""
    resamples: int = Field(default=1000, ge=100)
    """Resamples of the bootstrap."""
    seed: int = 0
    """Random seed."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in."""
    force: Force = False


@dataclass(frozen=True, slots=True)
class HybridData:
    """Rated units with their features."""

    rated: tuple[RatedUnit, ...]
    aspect: str
    features: tuple[str, ...]
    rows: Floats
    """(units, features); nan where a metric has no value."""
    left_out: tuple[str, ...] = ()
    """Metrics that could not be features, because the run of self-play does not have them."""

    @property
    def ratings(self) -> Floats:
        """Mean over raters."""
        return np.array([mean_rating(one, self.aspect) for one in self.rated])

    @property
    def bots(self) -> list[str]:
        """Of each unit."""
        return [one.system for one in self.rated]

    @property
    def clusters(self) -> list[str]:
        """Of each unit."""
        return [one.cluster for one in self.rated]

    def columns(self) -> dict[str, Values]:
        """Features by name, values by unit."""
        units = [one.unit for one in self.rated]
        return {
            name: dict(zip(units, column, strict=True))
            for name, column in zip(self.features, self.rows.T.tolist(), strict=True)
        }


@dataclass(frozen=True, slots=True)
class HybridOutcome:
    """What was computed. Nothing is saved yet, so that it can be shown whatever happens to files."""

    run: JudgedRun
    data: HybridData | None = None
    """What it was fitted on; None if a saved model was applied."""

    def save_model(self, config: HybridConfig) -> None:
        """Save the model fitted on all bots, if the config names a folder for it."""
        if config.model is None or (data := self.data) is None:
            return
        model = fit(data.rows, data.ratings, data.features, data.bots, method=config.method, clusters=data.clusters)
        sources = _sources(config.model_copy(update={"selfplay": None}))
        save_hybrid(model, config.model, aspect=data.aspect, bots=sorted(set(data.bots)), sources=sources)


def run_hybrid(config: HybridConfig, progress: Progress | None = None) -> JudgedRun:
    """Fit and report the hybrid metric, and save its model, or apply a saved one."""
    outcome = compute_hybrid(config, progress)
    outcome.save_model(config)
    return outcome.run


def compute_hybrid(config: HybridConfig, progress: Progress | None = None) -> HybridOutcome:
    """Fit the hybrid metric, or apply a saved one."""
    progress = progress or Silent()
    if config.apply is not None:
        return HybridOutcome(apply_hybrid(config, progress))
    if config.ratings is None or not config.metrics:
        raise UsageError(
            "A hybrid metric is fitted on ratings and metrics.",
            hint="Give judged runs with --ratings RUN and --metrics RUN, or a saved model with --apply MODEL.",
        )
    progress.step("Reading")
    selfplay = load_run(config.selfplay) if config.selfplay else None
    data = read_hybrid_data(config, selfplay)
    progress.step("Fitting", total=len(FIT_METHODS))
    return HybridOutcome(judge_hybrid(data, selfplay, config, progress), data)


def read_hybrid_data(config: HybridConfig, selfplay: JudgedRun | None = None) -> HybridData:
    """Ratings and features of the units that have a rating of the aspect.

    Unless features are named, only what the run of self-play has can be one: the metric is to be applied to it.
    """
    assert config.ratings is not None
    ratings = read_run(load_run(config.ratings), name=config.ratings.name)
    units: Sequence[RatedUnit] = ratings.conversations if config.level == "dialogue" else ratings.replies
    if not units:
        other = "replies" if config.level == "dialogue" else "conversations"
        raise DataError(f"{config.ratings} rates no such units, only {other}.", hint="Choose --level.")
    aspect = choose_aspect(config.aspect, aspects_of(units))
    rated = [one for one in units if not math.isnan(mean_rating(one, aspect))]
    columns: dict[str, dict[str, float]] = {}
    for folder in config.metrics:
        for label, values in labelled_values(load_run(Path(folder))).items():
            columns[label] = {**columns.get(label, {}), **match_values(rated, values)}
    lacking: list[str] = []
    if selfplay is not None and not config.features:
        there = {name for name, values in labelled_values(selfplay).items() if _vary([*values.values()])}
        lacking = [name for name, values in columns.items() if name not in there and _vary([*values.values()])]
        columns = {name: values for name, values in columns.items() if name in there}
    return replace(hybrid_data(rated, aspect, columns, features=config.features), left_out=tuple(lacking))


def hybrid_data(
    rated: Sequence[RatedUnit], aspect: str, columns: Mapping[str, Values], *, features: Sequence[str] = ()
) -> HybridData:
    """A table of features; those that vary nowhere are left out unless they are named."""
    for name in features:
        if name not in columns:
            raise UnknownName("metric of these conversations", name, columns)
    names = features or [name for name, values in columns.items() if _vary([*values.values()])]
    if not names:
        raise DataError("None of the metrics has values for the rated conversations.", hint="Judge the same ones.")
    if len({one.system for one in rated}) < 2:
        raise DataError("The ratings are all of one bot.", hint="Leaving bots out needs two of them at least.")
    rows = np.array([[columns[name].get(one.unit, math.nan) for name in names] for one in rated], dtype=np.float64)
    return HybridData(tuple(rated), aspect, tuple(names), rows)


def _vary(values: Sequence[float]) -> bool:
    return len({value for value in values if not math.isnan(value)}) > 1


def choose_aspect(wanted: str | None, known: Sequence[str]) -> str:
    """The aspect of that name, also without its level ("overall" for "dialogue overall")."""
    if wanted is None:
        return next((aspect for part in PREFERRED for aspect in known if part in aspect), known[0])
    matching = [aspect for aspect in known if wanted in (aspect, aspect.partition(" ")[2])]
    if not matching:
        raise UnknownName("aspect", wanted, known)
    return matching[0]


def labelled_values(run: JudgedRun) -> dict[str, dict[tuple[str, str], float]]:
    """Values by metric; the setting is part of the name only if there are several."""
    values = values_by_metric(run)
    several = len({setting for setting, _ in values}) > 1
    return {f"{metric} ({setting})" if several and setting else metric: v for (setting, metric), v in values.items()}


def judge_hybrid(
    data: HybridData, selfplay: JudgedRun | None, config: HybridConfig, progress: Progress | None = None
) -> JudgedRun:
    """Fit with each bot left out, apply, and correlate with every aspect."""
    progress = progress or Silent()
    aspects, columns = aspects_of(data.rated), data.columns()
    units = [one.unit for one in data.rated]
    scores: list[Score] = [*rating_scores(data.rated)]
    played: dict[str, dict[str, float]] = _selfplay_means(selfplay, data.features) if selfplay else {}
    notes = [_note(data)]
    for method in FIT_METHODS:
        predictions, models = predict_left_out(
            data.rows, data.ratings, data.features, data.bots, method=method, clusters=data.clusters
        )
        name = f"hybrid {method}"
        columns[name] = dict(zip(units, predictions.tolist(), strict=True))
        scores += scores_by_system(name, data.rated, columns[name], LEFT_OUT)
        if selfplay is not None:
            full = fit(data.rows, data.ratings, data.features, data.bots, method=method, clusters=data.clusters)
            applied = {bot: models.get(bot, full) for bot in _bots(selfplay)}
            made, warnings = apply_models(applied, selfplay, name, SELF_PLAY)
            scores += made
            played[name] = {score.subject: _mean(score.values) for score in made}
            notes += [w for w in warnings if w not in notes]
        progress.advance()
    rows = unit_correlations(
        LEFT_OUT, data.rated, columns, aspects, resamples=config.resamples, seed=config.seed, progress=progress
    )
    rows += system_correlations(data.rated, columns, aspects, level="interactive bots")
    rows += _selfplay_correlations(data, played, aspects)
    coefficients = ols_coefficients(data.rows, data.ratings, data.features, data.clusters)
    infos = {f"hybrid {m}": hybrid_info(m) for m in FIT_METHODS}
    return JudgedRun(
        verb="hybrid",
        config=describe_config(config),
        subjects=tuple(Subject(bot) for bot in dict.fromkeys(data.bots)),
        settings=tuple(dict.fromkeys(score.setting for score in scores)),
        scores=tuple(scores),
        metrics={RATING.name: RATING.info, **infos},
        notes=tuple(notes),
        details={
            CORRELATIONS: [row.as_json() for row in rows],
            COEFFICIENTS: {name: _coefficient_json(c) for name, c in coefficients.items()},
            "aspect": data.aspect,
            "features": list(data.features),
        },
    )


def hybrid_info(method: FitMethod) -> MetricInfo:
    """What a report says about predictions of a method."""
    summary = f"people's rating predicted from automatic metrics: {METHODS[method]}"
    return MetricInfo(f"hybrid {method}", "conversation", "mean", summary, CITATION)


def apply_models(
    models: Mapping[str, LinearModel], run: JudgedRun, metric: str, setting: str
) -> tuple[list[Score], list[str]]:
    """The hybrid metric of every conversation of each bot, by the model for that bot, and warnings."""
    values = labelled_values(run)
    scores, warnings = [], []
    for bot, model in models.items():
        missing = [name for name in model.features if name not in values]
        if missing:
            raise DataError(
                f"The run to apply the hybrid metric to has no {missing[0]!r}.",
                hint=f"Measure its conversations by: {', '.join(model.features)}.",
            )
        units = list(dict.fromkeys(u for name in model.features for s, u in values[name] if s == bot))
        if not units:
            continue
        rows = np.array([[values[name].get((bot, unit), math.nan) for name in model.features] for unit in units])
        scores.append(Score(bot, setting, metric, tuple(units), tuple(model.predict(rows).tolist()), tuple(units)))
        if warning := outside_warning(bot, model, rows):
            warnings.append(warning)
    return scores, warnings


def outside_warning(bot: str, model: LinearModel, rows: Floats) -> str:
    """Whether a bot lies outside of what a model was fitted on; empty if not."""
    outside, distance, most = model.outside(rows), model.distance(rows), model.max_distance()
    reasons = [f"{', '.join(outside)} beyond the range of the training data"] if outside else []
    reasons += [f"Mahalanobis distance {distance:.1f} (limit {most:.1f})"] if distance > most else []
    return f"{bot} lies outside of what the hybrid metric was fitted on: {'; '.join(reasons)}." if reasons else ""


def apply_hybrid(config: HybridConfig, progress: Progress) -> JudgedRun:
    """A saved model on the conversations of judged runs."""
    assert config.apply is not None
    model, about = load_hybrid(config.apply)
    folders = [*([config.selfplay] if config.selfplay else []), *map(Path, config.metrics)]
    if not folders:
        raise UsageError("There is nothing to apply the model to.", hint="Give a judged run with --selfplay RUN.")
    progress.step("Applying", total=len(folders))
    scores: list[Score] = []
    warnings: list[str] = []
    name = f"hybrid {model.method}"
    for folder in folders:
        run = load_run(folder)
        setting = "" if len(folders) == 1 else folder.name
        made, warned = apply_models(dict.fromkeys(_bots(run), model), run, name, setting)
        scores, warnings = scores + made, warnings + warned
        progress.advance()
    fitted = f"The model predicts {about['aspect']}; it was fitted on {model.rows} units of {', '.join(about['bots'])}."
    return JudgedRun(
        verb="hybrid",
        config=describe_config(config),
        subjects=tuple(Subject(bot) for bot in dict.fromkeys(score.subject for score in scores)),
        settings=tuple(dict.fromkeys(score.setting for score in scores)),
        scores=tuple(scores),
        metrics={name: hybrid_info(model.method)},
        notes=(fitted, *warnings),
        details={"aspect": about["aspect"], "features": list(model.features)},
    )


def save_hybrid(
    model: LinearModel, folder: Path, *, aspect: str, bots: Sequence[str], sources: Mapping[str, str]
) -> None:
    """Write a model with its manifest; `sources` are digests of the judged runs it was fitted on."""
    open_folder(folder)
    write_json(folder / MODEL, model.as_json())
    about: dict[str, Json] = {"aspect": aspect, "bots": list(bots), "sources": dict(sources), "method": model.method}
    seal(folder, kind=KIND, format=FORMAT, files=[MODEL], about=about)


def load_hybrid(folder: Path) -> tuple[LinearModel, Mapping[str, Json]]:
    """A saved model, and what its manifest says about it."""
    manifest = read_manifest(folder, kind=KIND, format=FORMAT, remake="Fit it again with `judge hybrid --model`.")
    try:
        return LinearModel.from_json(read_json(folder / MODEL)), manifest.about
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder} is damaged ({error}).", hint="Fit it again with `judge hybrid --model`.") from None


def describe_sources(config: HybridConfig) -> dict[str, Json]:
    """Paths and digest of the judged runs that a hybrid metric was fitted on or applied to."""
    folders = {"ratings": config.ratings, "selfplay": config.selfplay}
    folders |= {f"metrics {name}": Path(name) for name in config.metrics}
    return describe_artefacts(**{role: folder for role, folder in folders.items() if folder is not None})


def _sources(config: HybridConfig) -> dict[str, str]:
    folders = [config.ratings, *map(Path, config.metrics), config.selfplay]
    return {folder.name: fingerprint([sha256_of(folder / MANIFEST)]) for folder in folders if folder is not None}


def _bots(run: JudgedRun) -> list[str]:
    return list(dict.fromkeys(score.subject for score in run.scores))


def _selfplay_means(run: JudgedRun, features: Sequence[str]) -> dict[str, dict[str, float]]:
    """Means of each feature by bot."""
    values = labelled_values(run)
    means: dict[str, dict[str, float]] = {}
    for name in features:
        for bot in _bots(run):
            means.setdefault(name, {})[bot] = _mean([v for (b, _), v in values.get(name, {}).items() if b == bot])
    return means


def _selfplay_correlations(
    data: HybridData, played: Mapping[str, Mapping[str, float]], aspects: Sequence[str]
) -> list[CorrelationRow]:
    rows = []
    bots = list(dict.fromkeys(data.bots))
    for aspect in aspects:
        truth = [_mean([mean_rating(one, aspect) for one in data.rated if one.system == bot]) for bot in bots]
        for metric, means in played.items():
            results = correlations([means.get(bot, math.nan) for bot in bots], truth)
            rows += [CorrelationRow("self-play bots", metric, aspect, results[kind]) for kind in KINDS]
    return rows


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _coefficient_json(coefficient: Coefficient) -> dict[str, Json]:
    return {"formula": coefficient.formula.as_json(), "robust": coefficient.robust.as_json()}


def _note(data: HybridData) -> str:
    kind = "conversations" if isinstance(data.rated[0], RatedConversation) else "replies"
    return (
        f"Fitted to {data.aspect!r} on {len(data.rated)} {kind} of {len(set(data.bots))} bots by {len(data.features)}"
        " metrics; every prediction is by a model that was fitted without the bot it is about. Least squares and ridge"
        " predict around the mean rating of the training bots, which is low where a good bot is left out: with few"
        " bots, compare them within a bot. Ranks have no such level."
        + (f" Not used, because self-play has no such values: {', '.join(data.left_out)}." if data.left_out else "")
    )
