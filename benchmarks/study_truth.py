"""Simulated studies with a known truth: do the intervals cover it, and may one peek?

    python benchmarks/study_truth.py [--quick] [--repeats 200] [--seed 0]

Twelve bots, conversations and raters drawn anew in every repeat. Raters have a bias, noise, and some are lazy: they
answer without reading in 80 % of cases. The truth is the expected rating over the populations of conversations and
raters, lazy ones included, computed by quadrature, not by the code under test. Reported: how often 95 % intervals cover
it, pooled over bots and for the bots with the lowest and highest coverage; agreement of Krippendorff's alpha with its
definition on random tables; how often the stopping rule is wrong when one looks after every value.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import optimize, special, stats

from common import finish
from tertulia.core.estimate import Estimate
from tertulia.metrics.agreement import Distance, UnitRating, krippendorff_alpha
from tertulia.metrics.preference import PairwiseVote, Winner, bradley_terry, head_to_head
from tertulia.metrics.ratings import SsaLabel, SubjectRating, compare_subjects, mean_ratings, ssa
from tertulia.metrics.sequential import SequenceMethod, confidence_sequence, stopping_decision
from tertulia.metrics.significance import bootstrap_mean

BOTS = [f"bot{i:02}" for i in range(12)]
LAZY_SHARE, LAZINESS = 0.15, 0.8
"""Share of lazy raters, and how often these answer without reading."""
TURNS, CONVERSATIONS, RATINGS = 7, 50, 2
"""Labelled turns of a conversation, conversations per bot, ratings of each conversation."""
ITEMS, VOTES = 20, 3
"""Items of each pair of bots, and votes on each."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
OUTCOMES: tuple[Winner, ...] = ("first", "second", "tie")
Floats = np.ndarray


def expect(function: Callable[[Floats], Floats], sd: float) -> float:
    """The mean of a function of a normal variable."""
    return float(WEIGHTS @ function(sd * NODES))


class Raters:
    """A sample of raters."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self.count = count
        self.bias = rng.normal(size=(count, 2))
        self.skip = np.where(rng.random(count) < LAZY_SHARE, LAZINESS, 0.0)

    def assign(self, rng: np.random.Generator, units: int, ratings: int) -> Floats:
        """Different raters for each unit (units, ratings)."""
        return rng.random((units, self.count)).argsort(axis=1)[:, :ratings]


# Sensibleness and specificity: logits = quality of the bot + conversation + rater; lazy raters tick "yes" mostly.
SENSIBLE, SPECIFIC = np.linspace(-0.5, 3.0, 12), np.linspace(-2.5, 1.5, 12)
CONVERSATION_SD, RATER_SD = 0.8, 0.6
LAZY_YES = (0.9, 0.5)


def ssa_truth() -> list[tuple[float, float, float]]:
    sd, truths = math.hypot(CONVERSATION_SD, RATER_SD), []
    for sensible, specific in zip(SENSIBLE, SPECIFIC, strict=True):
        p, q = (expect(lambda x, logit=logit: special.expit(logit + x), sd) for logit in (sensible, specific))
        shares = np.zeros(2)
        for weight, skip in ((1 - LAZY_SHARE, 0.0), (LAZY_SHARE, LAZINESS)):
            yes = (1 - skip) * p + skip * LAZY_YES[0]
            # The effects of the two questions are independent, so the probabilities multiply.
            shares += weight * np.array([yes, yes * ((1 - skip) * q + skip * LAZY_YES[1])])
        truths.append((*shares.tolist(), float(shares.mean())))
    return truths


def ssa_study(rng: np.random.Generator, raters: int) -> list[SsaLabel]:
    panel, labels = Raters(rng, raters), []
    for bot, sensible, specific in zip(BOTS, SENSIBLE, SPECIFIC, strict=True):
        who = panel.assign(rng, CONVERSATIONS, RATINGS)
        talk = rng.normal(scale=CONVERSATION_SD, size=(CONVERSATIONS, 1, 2))
        logits = np.array([sensible, specific]) + talk + RATER_SD * panel.bias[who]
        skip = panel.skip[who][..., None]
        chance = (1 - skip) * special.expit(logits) + skip * np.array(LAZY_YES)
        yes = rng.random((CONVERSATIONS, RATINGS, TURNS, 2)) < chance[:, :, None]
        for c, r, t in np.ndindex(CONVERSATIONS, RATINGS, TURNS):
            labels.append(SsaLabel(bot, f"{bot}.{c}", f"r{who[c, r]}", bool(yes[c, r, t, 0]), bool(yes[c, r, t, 1])))
    return labels


# Likert: a latent rating, rounded to 1..7; lazy raters take the middle.
QUALITY = np.linspace(2.2, 6.2, 12)
LIKERT_SD = {"conversation": 0.8, "rater": 0.7, "residual": 1.0}


def likert_truth(quality: float) -> float:
    sd = math.sqrt(sum(x**2 for x in LIKERT_SD.values()))
    mean = 1 + sum(stats.norm.sf((cut - quality) / sd) for cut in np.arange(1.5, 7))
    lazy = LAZY_SHARE * LAZINESS
    return float((1 - lazy) * mean + lazy * 4)


def likert_study(rng: np.random.Generator, raters: int, qualities: Floats) -> list[SubjectRating]:
    panel, ratings = Raters(rng, raters), []
    for bot, quality in zip(BOTS, qualities, strict=True):
        who = panel.assign(rng, CONVERSATIONS, RATINGS)
        latent = quality + rng.normal(scale=LIKERT_SD["conversation"], size=(CONVERSATIONS, 1))
        latent = (
            latent + LIKERT_SD["rater"] * panel.bias[who, 0] + rng.normal(scale=LIKERT_SD["residual"], size=who.shape)
        )
        values = np.where(rng.random(who.shape) < panel.skip[who], 4, np.clip(np.round(latent), 1, 7))
        for c, r in np.ndindex(who.shape):
            ratings.append(SubjectRating(bot, f"{bot}.{c}", f"r{who[c, r]}", float(values[c, r])))
    return ratings


# Votes: Davidson's model given the item; lazy raters vote at random.
THETA, ITEM_SD, NU = np.linspace(-1.5, 1.5, 12), 0.8, 0.6


def vote_chances(difference: Floats) -> Floats:
    """(..., win, loss, tie)."""
    odds = np.stack([np.exp(difference / 2), np.exp(-difference / 2), np.full_like(difference, NU)], axis=-1)
    return odds / odds.sum(axis=-1, keepdims=True)


def vote_truth(i: int, j: int) -> Floats:
    lazy = LAZY_SHARE * LAZINESS
    return (1 - lazy) * (WEIGHTS @ vote_chances(THETA[i] - THETA[j] + ITEM_SD * NODES)) + lazy / 3


def strength_truth() -> Floats:
    """The strengths whose model is closest to the expected shares of all pairs (a general maximiser, no prior)."""
    pairs = np.array(list(itertools.combinations(range(12), 2)))
    shares = np.array([vote_truth(i, j) for i, j in pairs])

    def loss(parameters: Floats) -> float:
        theta = parameters[:12] - parameters[:12].mean()
        a, b = theta[pairs[:, 0]], theta[pairs[:, 1]]
        utility = np.stack([a, b, parameters[12] + (a + b) / 2], axis=1)
        return float(-(shares * special.log_softmax(utility, axis=1)).sum())

    best = optimize.minimize(loss, np.zeros(13), method="BFGS", options={"gtol": 1e-7}).x[:12]
    return best - best.mean()


def vote_study(rng: np.random.Generator, raters: int) -> list[PairwiseVote]:
    panel, votes = Raters(rng, raters), []
    for i, j in itertools.combinations(range(12), 2):
        who = panel.assign(rng, ITEMS, VOTES)
        chance = vote_chances(THETA[i] - THETA[j] + rng.normal(scale=ITEM_SD, size=ITEMS))
        skip = panel.skip[who][..., None]
        steps = np.cumsum((1 - skip) * chance[:, None] + skip / 3, axis=2)
        winners = (rng.random((*who.shape, 1)) > steps[..., :2]).sum(axis=2)
        for c, r in np.ndindex(who.shape):
            vote = PairwiseVote(BOTS[i], BOTS[j], OUTCOMES[winners[c, r]], f"{i}-{j}.{c}", f"r{who[c, r]}")
            votes.append(vote)
    return votes


class Coverage:
    """How often intervals cover the truth, by figure and bot."""

    def __init__(self) -> None:
        self.hits: dict[str, dict[str, list[bool]]] = {}
        self.widths: dict[str, list[float]] = {}

    def add(self, figure: str, bot: str, estimate: Estimate, truth: float) -> None:
        hit = estimate.low <= truth <= estimate.high
        self.hits.setdefault(figure, {}).setdefault(bot, []).append(hit)
        self.widths.setdefault(figure, []).append(estimate.high - estimate.low)

    def figures(self) -> Iterator[tuple[str, float, float, float, float]]:
        """Name, pooled coverage, lowest and highest of a bot, mean width."""
        for name, bots in self.hits.items():
            each = [float(np.mean(hits)) for hits in bots.values()]
            yield name, float(np.mean(each)), min(each), max(each), float(np.mean(self.widths[name]))


def run_ratings(coverage: Coverage, rng: np.random.Generator, repeats: int, raters: int, *, compared: bool) -> None:
    """SSA and Likert studies; with `compared`, also by intervals that we advise against."""
    truths, likert = ssa_truth(), [likert_truth(quality) for quality in QUALITY]
    name = f"{raters} raters"
    for repeat in range(repeats):
        figures = ssa(ssa_study(rng, raters))
        for bot, truth in zip(BOTS, truths, strict=True):
            for part, estimate, value in zip(("sensibleness", "specificity", "ssa"), figures[bot], truth, strict=True):
                coverage.add(f"{part}, {name}", bot, estimate, value)
        ratings = likert_study(rng, raters, QUALITY)
        for bot, estimate in mean_ratings(ratings, bounds=(1, 7)).items():
            coverage.add(f"likert, {name}", bot, estimate, likert[BOTS.index(bot)])
        for comparison in compare_subjects(ratings, pairs=list(itertools.pairwise(BOTS))):
            truth = likert[BOTS.index(comparison.subject)] - likert[BOTS.index(comparison.baseline)]
            coverage.add(f"likert difference, {name}", comparison.subject, comparison.difference, truth)
        if compared:
            add_alternatives(coverage, ratings, likert, name, repeat)


def add_alternatives(
    coverage: Coverage, ratings: Sequence[SubjectRating], truths: Sequence[float], name: str, seed: int
) -> None:
    for bot, estimate in mean_ratings(ratings, method="pigeonhole", seed=seed).items():
        coverage.add(f"likert by pigeonhole bootstrap, {name}", bot, estimate, truths[BOTS.index(bot)])
    for bot, truth in zip(BOTS, truths, strict=True):
        rows = [row for row in ratings if row.subject == bot]
        values, clusters = np.array([row.value for row in rows]), [row.conversation for row in rows]
        estimate = bootstrap_mean(values, clusters, resamples=500, seed=seed)
        coverage.add(f"likert by conversations only, {name}", bot, estimate, truth)


def run_votes(coverage: Coverage, rng: np.random.Generator, repeats: int, raters: int) -> None:
    strengths, name = strength_truth(), f"{raters} raters"
    for repeat in range(repeats):
        votes = vote_study(rng, raters)
        for i in range(1, 12):
            result = head_to_head(votes, BOTS[i], BOTS[0], level=0.95)
            truth = vote_truth(i, 0)
            coverage.add(f"win rate, {name}", BOTS[i], result.win, truth[0])
            coverage.add(f"margin, {name}", BOTS[i], result.margin, truth[0] - truth[1])
        for interval in ("robust", "bootstrap", "information"):
            fit = bradley_terry(votes, interval=interval, resamples=300, seed=repeat)
            for bot, estimate in fit.strengths.items():
                coverage.add(f"bradley-terry {interval}, {name}", bot, estimate, strengths[BOTS.index(bot)])
            for bot, rank in fit.ranks.items():
                figure = Estimate(rank.rank, rank.best, rank.worst)
                coverage.add(f"rank {interval}, {name}", bot, figure, 12 - BOTS.index(bot))


def family_wise_error(rng: np.random.Generator, repeats: int, raters: int) -> float:
    """How often Holm's correction lets any of 66 comparisons of equal bots pass."""
    errors = 0
    for _ in range(repeats):
        comparisons = compare_subjects(likert_study(rng, raters, np.full(12, 4.5)))
        errors += any(comparison.adjusted_p < 0.05 for comparison in comparisons)
    return errors / repeats


def naive_alpha(ratings: Sequence[UnitRating], distance: Distance) -> float:
    """The definition, by a loop over all pairs of pairable values."""
    by_unit: dict[str, list[float]] = {}
    for rating in ratings:
        by_unit.setdefault(rating.unit, []).append(float(rating.value))  # type: ignore[arg-type]
    units = [values for values in by_unit.values() if len(values) > 1]
    pooled = [value for values in units for value in values]

    def d(a: float, b: float) -> float:
        if distance == "nominal":
            return float(a != b)
        if distance == "interval":
            return (a - b) ** 2
        between = sum(min(a, b) <= value <= max(a, b) for value in pooled)
        return (between - (pooled.count(a) + pooled.count(b)) / 2) ** 2

    observed = sum(d(a, b) / (len(values) - 1) for values in units for a, b in itertools.permutations(values, 2))
    expected = sum(d(a, b) for a, b in itertools.permutations(pooled, 2))
    return 1 - (len(pooled) - 1) * observed / expected if expected else math.nan


def alpha_error(rng: np.random.Generator, tables: int) -> tuple[float, int]:
    """The largest difference between alpha and its definition, and how many tables had an alpha."""
    worst, defined = 0.0, 0
    for table in range(tables):
        units, raters, values = rng.integers(2, 9), rng.integers(2, 6), rng.integers(2, 6)
        centre, agree = rng.integers(0, values, units), rng.random()
        rows = [
            UnitRating(str(u), str(r), int(centre[u] if rng.random() < agree else rng.integers(values)))
            for u, r in np.ndindex(units, raters)
            if rng.random() < 0.8
        ]
        distance: Distance = ("nominal", "ordinal", "interval")[table % 3]  # type: ignore[assignment]
        expected, value = naive_alpha(rows, distance), krippendorff_alpha(rows, distance=distance, resamples=0).value
        if math.isnan(expected) != math.isnan(value):
            worst = math.inf
        elif not math.isnan(expected):
            worst, defined = max(worst, abs(value - expected)), defined + 1
    return worst, defined


def alpha_seconds() -> float:
    """Time for one alpha of 10,000 units by 5 raters."""
    values = np.random.default_rng(0).integers(1, 8, (10_000, 5))
    rows = [UnitRating(f"u{u}", f"r{r}", int(values[u, r])) for u, r in np.ndindex(values.shape)]
    times = []
    for distance in ("nominal", "ordinal", "interval"):
        started = time.perf_counter()
        krippendorff_alpha(rows, distance=distance, resamples=0)
        times.append(time.perf_counter() - started)
    return max(times)


def peeking_errors(rng: np.random.Generator, runs: int, length: int) -> dict[str, float]:
    """How often one who looks after every value wrongly excludes the truth, and how soon a real difference shows."""
    errors: dict[str, list[bool]] = {}
    methods: tuple[SequenceMethod, ...] = ("betting", "empirical-bernstein", "normal-mixture")
    for _ in range(runs):
        votes = rng.choice([-1.0, 0.0, 1.0], p=[0.35, 0.3, 0.35], size=length)
        shares = (rng.random(length) < 0.1).astype(float)
        for method in methods:
            stopped = stopping_decision(confidence_sequence(votes, bounds=(-1, 1), method=method))
            errors.setdefault(f"peeking_error_votes_{method}", []).append(stopped.stop)
            missed = stopping_decision(confidence_sequence(shares, method=method), exclude=0.1)
            errors.setdefault(f"peeking_error_share_{method}", []).append(missed.stop)
        n = np.arange(1, length + 1)
        mean, square = np.cumsum(votes) / n, np.cumsum(votes**2) / n
        z = np.abs(mean) * np.sqrt(n) / np.sqrt(np.maximum(square - mean**2, 1e-9))
        errors.setdefault("peeking_error_votes_fixed_n", []).append(bool((z[19:] > 1.96).any()))
    figures = {name.replace("-", "_"): float(np.mean(each)) for name, each in errors.items()}
    stops: dict[str, list[int]] = {}
    for _ in range(max(runs // 10, 5)):
        votes = rng.choice([-1.0, 0.0, 1.0], p=[0.25, 0.3, 0.45], size=1500)
        for method in methods:
            decision = stopping_decision(confidence_sequence(votes, bounds=(-1, 1), method=method))
            stops.setdefault(f"stops_after_{method.replace('-', '_')}", []).append(decision.n)
    figures |= {name: float(np.median(each)) for name, each in stops.items()}
    return figures


def main() -> None:
    """Run the simulations, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200, help="simulated studies of each kind (default: 200)")
    parser.add_argument("--runs", type=int, default=1000, help="simulated sequences for peeking (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 studies, 50 sequences, 100 tables")
    args = parser.parse_args()
    repeats, runs, tables = (20, 50, 100) if args.quick else (args.repeats, args.runs, 1000)
    rng, coverage, figures = np.random.default_rng(args.seed), Coverage(), {}
    figures["alpha_max_error"], figures["alpha_tables"] = alpha_error(rng, tables)
    figures["alpha_seconds_10k_units"] = alpha_seconds()
    print(f"alpha: largest error {figures['alpha_max_error']:.1e} on {figures['alpha_tables']} tables", flush=True)
    run_ratings(coverage, rng, repeats, 30, compared=True)
    run_ratings(coverage, rng, repeats, 10, compared=False)
    run_votes(coverage, rng, repeats, 30)
    figures["family_wise_error"] = family_wise_error(rng, repeats, 30)
    print(f"{'coverage of 95 % intervals':<52}{'all bots':>9}{'lowest':>9}{'highest':>9}{'width':>9}")
    for name, pooled, lowest, highest, width in coverage.figures():
        print(f"{name:<52}{pooled:>9.3f}{lowest:>9.3f}{highest:>9.3f}{width:>9.3f}", flush=True)
        key = name.replace(", ", "_").replace("-", "_").replace(" ", "_")
        figures |= {key: pooled, f"{key}_lowest": lowest, f"{key}_highest": highest}
    figures |= peeking_errors(rng, runs, 500)
    for name, value in figures.items():
        if name.startswith(("peeking", "stops", "family")):
            print(f"{name.replace('_', ' '):<52}{value:>9.3f}")
    finish("study_truth", figures, {"repeats": repeats, "runs": runs, "seed": args.seed, "quick": args.quick})


if __name__ == "__main__":
    main()
