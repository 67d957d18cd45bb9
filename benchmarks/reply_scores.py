"""Do reply metrics agree with people? Spearman's correlation with human ratings of single replies, on three sets.

    python benchmarks/reply_scores.py --data ../shared/data/human_eval [--language-model] [--cache FOLDER]

FED (Mehri and Eskenazi 2020): 375 replies of Meena, Mitsuku and people, nine aspects, five raters; its authors report
.209 for their metric and "overall". USR (the same authors, 2020): 300 replies to 60 Persona-Chat contexts. Gupta et al.
(2019): 500 replies to 100 DailyDialog contexts. Ratings are means over raters; intervals are percentile bootstrap
intervals over conversations or contexts.

The follow-ups were chosen on 110 of FED's replies (the first of a shuffled list), so for FED there is also a figure on
the conversations that none of these belongs to. Scoring with a language model is slow: results are kept in --cache, and
a stopped run resumes from it.
"""

import argparse
import csv
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata

from common import finish
from tertulia.core.text import words
from tertulia.judge.replies import CHUNK
from tertulia.judge.resources import load_resources
from tertulia.metrics.follow_ups import COMPLAINTS, FOLLOW_UPS, FollowUps, follow_up_scores
from tertulia.metrics.metric import Floats, ReplyExample
from tertulia.metrics.registry import METRICS, metric_named
from tertulia.models.generators.teachers import cached
from tertulia.models.sentence_encoder import SentenceEncoder

FAST = ("words per reply", "f1", "relatedness", "specificity by idf", "genericness")
SLOW = (*(name for name in METRICS if name.startswith("follow-up")), "reply likelihood", "reply likelihood gain")
CHOSEN_ON = 110
"""Replies of FED on which the follow-ups were chosen."""
PUBLISHED = 0.209


class Rated(NamedTuple):
    """A reply with what people said about it."""

    example: ReplyExample
    cluster: str
    human: dict[str, float]


class Figure(NamedTuple):
    """A correlation with its interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}] (n = {self.n})"


def read_fed(folder: Path) -> list[Rated]:
    """Turn level only; turns of one conversation share its beginning."""
    rated = []
    for item in json.loads((folder / "fed_data.json").read_text(encoding="utf-8")):
        if "response" in item:
            turns = tuple(line.partition(": ")[2] for line in item["context"].split("\n"))
            example = ReplyExample(item["response"].partition(": ")[2], context=turns)
            cluster = f"{item['system']}: {' / '.join(turns[:3])}"
            rated.append(Rated(example, cluster, _means(item["annotations"])))
    return rated


def read_usr(folder: Path) -> list[Rated]:
    """The reference of all but the true replies is the true one."""
    rated = []
    for item in json.loads((folder / "pc_usr_data.json").read_text(encoding="utf-8")):
        turns = tuple(turn for turn in item["context"].split("\n") if turn.strip())
        persona = tuple(line.partition(": ")[2] for line in item["fact"].split("\n") if line.strip())
        truth = item["responses"][0]["response"].strip()
        for reply in item["responses"]:
            text = reply["response"].strip()
            example = ReplyExample(text, "" if text == truth else truth, turns, persona)
            ratings = {name: value for name, value in reply.items() if isinstance(value, list)}
            rated.append(Rated(example, item["context"], _means(ratings)))
    return rated


def read_gupta(folder: Path) -> list[Rated]:
    """With one reference, the original reply."""
    with (folder / "gupta_ratings.csv").open(encoding="utf-8", newline="") as file:
        return [
            Rated(
                ReplyExample(row["response"], row["prevgt"], tuple(row["context"].split("||||"))),
                row["context_id"],
                {"Overall": float(row["human_average_rating"])},
            )
            for row in csv.DictReader(file)
        ]


def _means(ratings: dict[str, list[Any]]) -> dict[str, float]:
    numbers = {name: [v for v in values if isinstance(v, int | float)] for name, values in ratings.items()}
    return {name: sum(values) / len(values) for name, values in numbers.items() if values}


READERS = {"fed": read_fed, "usr": read_usr, "gupta": read_gupta}


def spearman(values: Floats, human: Floats, clusters: Sequence[str], *, seed: int = 0, resamples: int = 1000) -> Figure:
    """Spearman's correlation where both have a value, with a percentile bootstrap interval over clusters."""
    present = ~(np.isnan(values) | np.isnan(human))
    values, human = values[present], human[present]
    names, index = np.unique(np.asarray(clusters)[present], return_inverse=True)
    if len(values) < 3:
        return Figure(float("nan"), float("nan"), float("nan"), len(values))
    members = [np.flatnonzero(index == i) for i in range(len(names))]
    rng, drawn = np.random.default_rng(seed), []
    for _ in range(resamples):
        rows = np.concatenate([members[i] for i in rng.integers(len(names), size=len(names))])
        drawn.append(_correlation(values[rows], human[rows]))
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Figure(_correlation(values, human), float(low), float(high), len(values))


def _correlation(values: Floats, human: Floats) -> float:
    ranks = rankdata(values), rankdata(human)
    if not len(values) or min(float(np.ptp(one)) for one in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def measure(names: Sequence[str], rated: Sequence[Rated], resources: dict[str, Any]) -> dict[str, Floats]:
    """The values of each metric, chunk by chunk so that follow-ups of one reply share its encoding."""
    values: dict[str, list[float]] = {name: [] for name in names}
    for start in range(0, len(rated), CHUNK):
        batch = [one.example for one in rated[start : start + CHUNK]]
        for name in names:
            values[name] += metric_named(name).measure(batch, resources)[0].tolist()
        print(f"  {min(start + CHUNK, len(rated))}/{len(rated)}", end="\r", flush=True)
    if "f1" in names:  # which is 0, not nan, without a reference
        values["f1"] = [v if one.example.reference else np.nan for v, one in zip(values["f1"], rated, strict=True)]
    return {name: np.array(column) for name, column in values.items()}


def variants(rated: Sequence[Rated], resources: dict[str, Any]) -> dict[str, Floats]:
    """What was tried beside the registered metrics."""
    vectors = cached(SentenceEncoder.load().eval().encode)
    columns: dict[str, list[float]] = {}
    for one in rated:
        example, reply = one.example, vectors([one.example.reply])[0]
        cosines = vectors(example.context[-4:]) @ reply
        own = example.context[-2::-2]
        repeats = float((vectors(own) @ reply).max()) if own else 0.0
        tried = {
            "relatedness, last turn": float(cosines[-1]),
            "relatedness, two joined": float(vectors([" ".join(example.context[-2:])])[0] @ reply),
            "relatedness, best of 4": float(cosines.max()),
            "last turn - own turns": float(cosines[-1]) - repeats,
        }
        for name, value in tried.items():
            columns.setdefault(name, []).append(value)
    values = {name: np.array(column) for name, column in columns.items()}
    if "language_model" in resources:
        batch, model = [one.example for one in rated], resources["language_model"]
        praise = FollowUps(tuple(text for one in FOLLOW_UPS.values() for text in one.positive))
        unlikely = np.array(follow_up_scores(batch, language_model=model, follow_ups=praise))
        complaints = np.array(follow_up_scores(batch, language_model=model, follow_ups=COMPLAINTS))
        values |= {"praise alone": -unlikely, "praise - complaints": complaints - unlikely}
    return values


def given_length(values: Floats, human: Floats, lengths: Floats) -> float:
    """Partial rank correlation: what remains when the number of words is known."""
    present = ~(np.isnan(values) | np.isnan(human))
    if present.sum() < 4 or np.array_equal(values, lengths):
        return float("nan")
    ranks = [rankdata(one[present]) for one in (values, human, lengths)]
    rest = [one - np.polyval(np.polyfit(ranks[2], one, 1), ranks[2]) for one in ranks[:2]]
    return float(np.corrcoef(*rest)[0, 1])


def main() -> None:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/human_eval"))
    parser.add_argument("--sets", nargs="+", default=list(READERS), choices=list(READERS))
    parser.add_argument("--quick", action="store_true", help="40 replies of each set")
    parser.add_argument("--limit", type=int, help="this many replies of each set, drawn at random")
    parser.add_argument("--language-model", action="store_true", help="also the metrics that need a language model")
    parser.add_argument("--variants", action="store_true", help="also what was tried and is not registered")
    parser.add_argument("--bfloat16", action="store_true", help="the language model in half precision")
    parser.add_argument("--cache", type=Path, help="folder of likelihoods, to resume from")
    options = parser.parse_args()
    names = (*FAST, *(SLOW if options.language_model else ()))
    resources = load_resources([metric_named(name) for name in names], {})
    if options.language_model:
        scorer = resources["language_model"]
        if options.bfloat16:
            scorer.model.to(torch.bfloat16)
        if options.cache:
            scorer.remember_in(options.cache)
    figures: dict[str, float] = {}
    for title in options.sets:
        rated = READERS[title](options.data)
        random.Random(0).shuffle(rated)
        rated = rated[: 40 if options.quick else options.limit]
        start = time.perf_counter()
        values = measure(names, rated, resources) | (variants(rated, resources) if options.variants else {})
        seconds = time.perf_counter() - start
        figures |= report(title, rated, values)
        cached = ", with what --cache had" if options.cache else ""
        print(f"{title}: {len(rated)} replies, {len(names)} metrics, {seconds:.0f} s{cached}\n")
        figures[f"{title} seconds"] = seconds
    settings = {name: value for name, value in vars(options).items() if name not in ("data", "cache")}
    finish("reply_scores", {name: value for name, value in figures.items() if not np.isnan(value)}, settings)


def report(title: str, rated: Sequence[Rated], values: dict[str, Floats]) -> dict[str, float]:
    """Print each metric with "overall" and, where there are others, the correlation with each aspect."""
    aspects = list(dict.fromkeys(name for one in rated for name in one.human))
    human = {name: np.array([one.human.get(name, np.nan) for one in rated]) for name in aspects}
    clusters = [one.cluster for one in rated]
    lengths = np.array([float(len(words(one.example.reply))) for one in rated])
    rest = ~np.isin(clusters, clusters[:CHOSEN_ON])
    held_out = title == "fed" and bool(rest.any())
    figures = {}
    print(f"{title}: {', '.join(aspects)}; {len(set(clusters))} conversations or contexts")
    for name, column in values.items():
        overall = spearman(column, human["Overall"], clusters)
        others = [_correlation(*_both(column, human[aspect])) for aspect in aspects if aspect != "Overall"]
        partial = given_length(column, human["Overall"], lengths)
        listed = " ".join(f"{value:+.2f}" for value in others)
        print(f"  {name:25} overall {overall}, given length {partial:+.3f}  others {listed}")
        figures[f"{title} {name}"] = overall.value
        figures[f"{title} {name}, given length"] = partial
        if held_out:
            figure = spearman(column[rest], human["Overall"][rest], np.asarray(clusters)[rest].tolist())
            print(f"  {'':25} held out {figure}; FED itself: {PUBLISHED}")
            figures[f"{title} {name}, held out"] = figure.value
    return figures


def _both(values: Floats, human: Floats) -> tuple[Floats, Floats]:
    present = ~(np.isnan(values) | np.isnan(human))
    return values[present], human[present]


if __name__ == "__main__":
    main()
