"""Does a metric stand for people? Their scores of bots against the metric, as Meena's figures of SSA and perplexity.

Bots are matched by name between a judged run with people's scores and one with the metric. A line is fitted through
them, and R^2 says how much of the differences between bots it explains, with an interval over bots. The interval is for
other bots of the same kind; five bots of one family say little about a sixth of another.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy
from pydantic import Field

from tertulia.artefacts.outputs import Force
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.judge.config import RUN_FOLDER
from tertulia.judge.correlation_tables import PROXY
from tertulia.judge.runs import JudgedRun, Subject, describe_config, load_run
from tertulia.metrics.correlation import KINDS, correlations
from tertulia.metrics.line import LineFit, fit_line
from tertulia.metrics.metric import MetricInfo

MEENA_POINTS: Mapping[str, tuple[float, float]] = {"Meena base": (10.2, 0.72), "Meena full": (10.2, 0.79)}
"""Adiwardana et al. 2020: perplexity per token and interactive SSA; the full version only decodes differently."""
MEENA_R2 = {"interactive SSA": 0.93, "static SSA": 0.94, "sensibleness": 0.93, "specificity": 0.94}
"""Adiwardana et al. 2020: R^2 of human scores and perplexity."""
MIN_BOTS = 3


class ProxyConfig(Config):
    """Whose scores are held against which metric."""

    human: Annotated[Path, Cli(argument=True)]
    """Judged run with people's scores, such as the report of a study."""
    metrics: Annotated[Path, Cli(argument=True)]
    """Judged run with the metric of the same bots, such as one of `judge perplexity`."""
    score: str = "SSA"
    """What people say: SSA, sensibleness, specificity, or a question of the study."""
    metric: str = "perplexity"
    """The metric that is to stand for it."""
    setting: str | None = None
    """The setting of the metric, if it was measured in several."""
    names: dict[str, str] = Field(default_factory=dict)
    """Bots that are called differently in the two runs: name of the first run=name of the second."""
    resamples: int = Field(default=2000, ge=100)
    """Resamples of the bootstrap."""
    seed: int = 0
    """Random seed."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in, with the plot."""
    force: Force = False


def run_proxy(config: ProxyConfig) -> JudgedRun:
    """Match bots, fit the line, and keep both runs' scores."""
    human, measured = load_run(config.human), load_run(config.metrics)
    return proxy_run(proxy_points(human, measured, config), human, measured, config)


def proxy_points(human: JudgedRun, measured: JudgedRun, config: ProxyConfig) -> dict[str, tuple[Estimate, Estimate]]:
    """The metric and people's score of each bot that both runs have."""
    truth = _human_figures(human, config.score)
    figures = _metric_figures(measured, config)
    pairs = {bot: config.names.get(bot, bot) for bot in truth}
    points = {bot: (figures[other], truth[bot]) for bot, other in pairs.items() if other in figures}
    points = {bot: pair for bot, pair in points.items() if pair[0].n and pair[1].n}
    if len(points) < MIN_BOTS:
        raise DataError(
            f"The runs have {len(points)} bots in common; a line needs {MIN_BOTS} at least.",
            hint=f"One has {', '.join(truth)}; the other {', '.join(figures)}. Match names with --names A=B.",
        )
    return points


def proxy_run(
    points: Mapping[str, tuple[Estimate, Estimate]], human: JudgedRun, measured: JudgedRun, config: ProxyConfig
) -> JudgedRun:
    """The judged run of matched bots: (metric, people's score) by bot. Its units are bots."""
    x, y = (np.array([pair[i].value for pair in points.values()]) for i in (0, 1))
    line = fit_line(x, y, resamples=config.resamples, seed=config.seed)
    related = correlations(x, y, resamples=config.resamples, seed=config.seed)
    infos = (_info(measured, config.metric), _info(human, config.score))
    scores = [
        Score(bot, "", info.name, (bot,), (pair[i].value,), (bot,), (1.0,))
        for bot, pair in points.items()
        for i, info in enumerate(infos)
    ]
    subjects = {subject.name: subject for run in (measured, human) for subject in run.subjects}
    details: dict[str, Json] = {
        "metric": config.metric,
        "score": config.score,
        "points": {bot: [e.as_json() for e in pair] for bot, pair in points.items()},
        "line": {name: getattr(line, name).as_json() for name in LineFit._fields}
        | {"r2_corrected": corrected_r2(line, [pair[1] for pair in points.values()]).as_json()},
        "correlations": [related[kind].as_json() for kind in KINDS],
        "references": {name: list(point) for name, point in _references(config).items()},
    }
    return JudgedRun(
        verb="proxy",
        config=describe_config(config),
        subjects=tuple(subjects.get(bot, Subject(bot)) for bot in points),
        settings=("",),
        scores=tuple(scores),
        metrics={info.name: info for info in infos},
        notes=tuple(_notes(config, line)),
        details={PROXY: details},
    )


def corrected_r2(line: LineFit, scores: Sequence[Estimate]) -> Estimate:
    """R^2 for people's scores without their sampling error (Spearman's 1904 correction for attenuation).

    The share of the variance between bots that is not sampling error, by the intervals of the scores, is what a perfect
    metric could explain; R^2 and the ends of Fisher's interval are divided by it, and end at 1.
    """
    values = np.array([score.value for score in scores])
    z = float(scipy.special.ndtri((1 + line.r2.level) / 2))
    errors = np.array([(score.high - score.low) / (2 * z) for score in scores])
    spread = float(values.var(ddof=1)) if len(values) > 1 else math.nan
    reliability = 1 - float(np.mean(errors**2)) / spread if spread > 0 else math.nan
    if math.isnan(reliability) or reliability <= 0:
        return Estimate(math.nan, n=line.r2.n, level=line.r2.level)
    ends = (line.r2_fisher.value, line.r2_fisher.low, line.r2_fisher.high)
    value, low, high = (min(1.0, end / reliability) for end in ends)
    return Estimate(value, low, high, line.r2.n, line.r2.level)


def _human_figures(run: JudgedRun, wanted: str) -> dict[str, Estimate]:
    """Figures by bot of the metric, or of the question, of that name."""
    rated = {key: e for key, e in run.estimates().items() if run.metrics[key[2]].unit == "rating"}
    if not rated:
        raise DataError("The first run has no scores by people.", hint="Give the report of a study first.")
    chosen = {subject: e for (subject, setting, metric), e in rated.items() if wanted in (metric, setting)}
    if not chosen:
        raise UnknownName("score by people", wanted, {setting or metric for _, setting, metric in rated})
    return chosen


def _metric_figures(run: JudgedRun, config: ProxyConfig) -> dict[str, Estimate]:
    figures = {key: e for key, e in run.estimates().items() if key[2] == config.metric}
    if not figures:
        raise UnknownName("metric of the second run", config.metric, run.metric_names())
    settings = list(dict.fromkeys(setting for _, setting, _ in figures))
    wanted = config.setting if config.setting is not None else settings[0]
    if wanted not in settings or (config.setting is None and len(settings) > 1):
        raise UsageError(
            f"{config.metric!r} was measured in {len(settings)} settings.", hint=f"--setting: {', '.join(settings)}."
        )
    return {subject: e for (subject, setting, _), e in figures.items() if setting == wanted}


def _info(run: JudgedRun, name: str) -> MetricInfo:
    """A figure of a bot is one value, however it was reduced; its interval is with the points, not by drawing it."""
    info = run.metrics.get(name) or MetricInfo(name, "rating", summary="people's answers to a question of a study")
    return MetricInfo(name, info.unit, "pooled", info.summary, info.citation, info.higher_is_better)


def _references(config: ProxyConfig) -> Mapping[str, tuple[float, float]]:
    """Published points, where the axes are those of Meena's figures."""
    return MEENA_POINTS if config.score == "SSA" and config.metric.startswith("perplexity") else {}


def _notes(config: ProxyConfig, line: LineFit) -> list[str]:
    notes = [
        f"{line.r2.n} bots. The interval of R^2 is by bootstrap over bots (BCa); beside it Fisher's, which is safer"
        " with few bots. It holds for other bots of the same kind.",
    ]
    if _references(config):
        published = ", ".join(f"{name} {value}" for name, value in MEENA_R2.items())
        notes.append(
            f"Published R^2 of perplexity (Adiwardana et al. 2020): {published}. Its perplexities are per subword of"
            " its own vocabulary and test set: compare the shape, not the position."
        )
    return notes
