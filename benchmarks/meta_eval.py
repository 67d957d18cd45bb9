"""How well metrics agree with people on public ratings, and whether combinations of them agree better.

    python benchmarks/meta_eval.py --data FOLDER [--quick] [--language-model [--bfloat16]] [--out FOLDER] [--sets fed]

FOLDER has fed_data.json (FED), pc_usr_data.json (USR) and gupta_ratings.csv (Gupta et al.). Every metric of replies and
conversations is held against the overall rating by `judge meta`; correlations are Spearman's over all units of all
systems, intervals draw whole conversations.

The combinations are the hybrid metric of `judge hybrid`, leave-system-out: each of FED's three systems (Meena, Mitsuku,
people) is predicted by a model that was fitted on the other two, penalties chosen by leaving one of these out in turn,
and the Spearman is that of all out-of-fold predictions with the mean ratings (125 dialogues, 375 replies).
That figure owes much to differences between systems; the Spearman within each system stands beside it. All feature sets
and all methods are printed, also those that fail. FED's own metric has .209 on the overall quality of replies (Mehri
and Eskenazi 2020). --language-model adds the metrics that need one, which takes half an hour of CPU time, in half
precision a quarter; likelihoods are kept in the folder of --out, and a stopped run resumes from them.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from common import finish
from tertulia.judge.correlation_tables import AGREEMENT, read_rows
from tertulia.judge.human_ratings import RatedUnit, aspects_of, read_run
from tertulia.judge.hybrid import HybridData, hybrid_data
from tertulia.judge.meta import MetaConfig, match_values, named_metrics, run_meta, values_by_metric
from tertulia.judge.reply_resources import language_model
from tertulia.judge.report import save_judged
from tertulia.judge.runs import JudgedRun, load_run
from tertulia.metrics.conversation import CONVERSATION_METRICS
from tertulia.metrics.correlation import correlate
from tertulia.metrics.regression import FIT_METHODS, predict_left_out

SETS = {"fed": "fed_data.json", "usr": "pc_usr_data.json", "gupta": "gupta_ratings.csv"}
PUBLISHED_FED = 0.209
"""Spearman of the FED metric with the overall quality of replies, in its paper."""
QUICK = ("question score", "words elicited", "sentiment", "sentiment coherence", "f1", "words per reply")
REPLY_FEATURES = ("relatedness", "genericness", "specificity by idf")


def main() -> None:
    """Measure, print, finish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the three files")
    parser.add_argument("--out", type=Path, help="folder for the judged runs (default: a temporary one)")
    parser.add_argument("--language-model", action="store_true", help="also metrics that need a language model")
    parser.add_argument("--bfloat16", action="store_true", help="the language model in half precision")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--quick", action="store_true", help="few metrics, few resamples")
    options = parser.parse_args()
    start, figures = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        for name in options.sets:
            run = judged(name, options.data / SETS[name], out / name, options)
            figures |= print_metrics(name, run)
            figures |= print_combinations(name, run, resamples=200 if options.quick else 1000)
    figures["seconds"] = time.perf_counter() - start
    settings = {name: getattr(options, name) for name in ("quick", "language_model", "bfloat16", "sets")}
    known = {name: value for name, value in figures.items() if not np.isnan(value)}
    finish("meta_eval", known, {**settings, "aspect": "overall"})


def judged(name: str, file: Path, folder: Path, options: argparse.Namespace) -> JudgedRun:
    """`judge meta` on one set; an existing run is read."""
    if (folder / "manifest.json").exists():
        return load_run(folder)
    config = MetaConfig(file=file, format=name, aspects=("overall",), so_far=name == "fed", resamples=1000)
    ratings = run_meta(config.model_copy(update={"level": ("system",)}))
    every = named_metrics(("all",), read_run(ratings), so_far=name == "fed")
    chosen = [m.name for m in every if options.language_model or "language_model" not in m.needs]
    if options.quick:
        chosen = [metric for metric in chosen if metric in QUICK]
    update = {"metrics": tuple(chosen), "resamples": 200 if options.quick else 1000}
    loaded = {}
    if options.language_model:
        scorer = language_model("")
        if options.bfloat16:
            scorer.model.to(torch.bfloat16)
        scorer.remember_in(folder.with_name("likelihoods"))
        loaded["language_model"] = scorer
    run = run_meta(config.model_copy(update=update), loaded=loaded)
    save_judged(run, folder)
    return load_run(folder)


def print_metrics(name: str, run: JudgedRun) -> dict[str, float]:
    """The table of one set, best metrics first."""
    figures = {}
    for level in ("turn", "dialogue"):
        rows = [
            r
            for r in read_rows(run)
            if r.level == level and r.correlation.kind == "spearman" and r.correlation.estimate.n
        ]
        rows.sort(key=lambda row: -abs(np.nan_to_num(row.correlation.estimate.value)))
        ceilings = {
            r["aspect"]: r["ceiling"]["spearman"]["value"] for r in run.details[AGREEMENT] if r["level"] == level
        }
        if not rows and not ceilings:
            continue
        print(f"\n{name}, {level} level, overall rating: Spearman (human ceiling {list(ceilings.values())})")
        for row in rows:
            print(f"  {row.metric:42} {row.correlation.estimate}  p = {row.correlation.p:.4f}")
            figures[f"{name} {level} {row.metric}"] = row.correlation.estimate.value
        figures |= {f"{name} {level} ceiling": value for value in ceilings.values() if value is not None}
    return figures


def print_combinations(name: str, run: JudgedRun, *, resamples: int) -> dict[str, float]:
    """Hybrid metrics of dialogues and replies, leave-system-out."""
    ratings = read_run(run)
    values = {metric: v for (_, metric), v in values_by_metric(run).items()}
    figures = {}
    for level, rated in (("dialogue", ratings.conversations), ("turn", ratings.replies)):
        if rated:
            figures |= print_level(name, level, rated, values, resamples)
    return figures


def print_level(
    name: str,
    level: str,
    rated: Sequence[RatedUnit],
    values: Mapping[str, Mapping[tuple[str, str], float]],
    resamples: int,
) -> dict[str, float]:
    """Every feature set and method of a level, and the best single metric."""
    columns = {metric: own for metric, v in values.items() if len(set((own := match_values(rated, v)).values())) > 1}
    eleven = [metric for metric in columns if metric.removesuffix(", so far") in CONVERSATION_METRICS]
    reply = [metric for metric in REPLY_FEATURES if metric in columns]
    sets = {"the paper's eleven": eleven}
    if level == "turn":
        sets = {"the paper's eleven, so far": eleven, "reply metrics": reply, "both": eleven + reply if eleven else []}
    sets["all"] = list(columns)
    figures, aspect = {}, next(aspect for aspect in aspects_of(rated) if "overall" in aspect)
    print(f"\n{name}, {level} level: combinations, leave-system-out; within: Spearman within each left-out system")
    for title, names in sets.items():
        if not names:
            continue
        data = hybrid_data(rated, aspect, columns, features=names)
        for method in FIT_METHODS:
            predicted, _ = predict_left_out(
                data.rows, data.ratings, data.features, data.bots, method=method, clusters=data.clusters
            )
            pooled = correlate(predicted, data.ratings, clusters=data.clusters, resamples=resamples)
            print(f"  {title:28} {method:6} {pooled.estimate}  within {within(data, predicted)}")
            figures[f"{name} {level} hybrid {method}, {title}"] = pooled.estimate.value
    single = {
        metric: correlate([own.get(one.unit, np.nan) for one in rated], hybrid_ratings(rated, aspect), resamples=100)
        for metric, own in columns.items()
    }
    best = max(single, key=lambda metric: np.nan_to_num(abs(single[metric].estimate.value)))
    print(f"  best single metric: {best} {single[best].estimate.value:.3f}")
    if (name, level) == ("fed", "turn"):
        print(f"  published FED metric: {PUBLISHED_FED}")
    return figures | {f"{name} {level} best single metric": abs(single[best].estimate.value)}


def hybrid_ratings(rated: Sequence[RatedUnit], aspect: str) -> list[float]:
    return [float(np.nanmean(one.ratings[aspect])) for one in rated]


def within(data: HybridData, predicted: np.ndarray) -> str:
    parts = []
    for bot in dict.fromkeys(data.bots):
        own = [i for i, name in enumerate(data.bots) if name == bot]
        value = correlate(predicted[own], data.ratings[own], resamples=100).estimate.value
        parts.append(f"{bot} {value:.2f}")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
