"""Simulated studies with a known truth: do prediction-powered intervals cover it, and are they narrower?

    python benchmarks/ppi_truth.py [--quick] [--repeats 500] [--seed 0]

In every repeat a judge labels all units and people label a random part. Judges: good (right in about nine of ten
cases), useless (a coin), biased (says yes too often). Labels: single turns; turns that cluster in conversations, whole
conversations or single turns of them labelled by people; ratings from 1 to 7 by three raters each; votes with ties; a
very good judge and very few labels. The truth is the expected label over the population, computed by quadrature, not by
the code under test. Reported: coverage of 95 % intervals with its Monte Carlo error, mean widths of the intervals of
people alone and of the prediction-powered ones, the bias of the judge alone, and the labels saved.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from common import finish
from tertulia.metrics.prediction_powered import HumanLabel, JudgeLabel, PredictionPowered, prediction_powered_mean

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
Floats = np.ndarray
Study = tuple[Sequence[HumanLabel], Sequence[JudgeLabel]]
CONVERSATION_SD = 1.0
LOGIT = 0.6
"""Mean logit of a sensible turn."""
JUDGES = {"good": (0.93, 0.12), "useless": (0.5, 0.5), "biased": (0.97, 0.6), "nearly perfect": (0.99, 0.01)}
"""How often the judge says yes to what is sensible, and to what is not."""


class Scenario(NamedTuple):
    """A kind of study, its truth and the ends of its scale."""

    make: Callable[[np.random.Generator], Study]
    truth: float
    bounds: tuple[float, float] = (0.0, 1.0)


def expect(function: Callable[[Floats], Floats], sd: float) -> float:
    """The mean of a function of a normal variable."""
    return float(WEIGHTS @ function(sd * NODES))


def share_truth(sd: float) -> float:
    return expect(lambda x: special.expit(LOGIT + x), sd)


def judged(rng: np.random.Generator, y: Floats, judge: str) -> Floats:
    on_yes, on_no = JUDGES[judge]
    return (rng.random(y.shape) < np.where(y > 0.5, on_yes, on_no)).astype(float)


def turns(judge: str, labelled: int, units: int, sd: float = 0.0) -> Scenario:
    """Independent turns, of which people label the first ones: they come in no order."""

    def make(rng: np.random.Generator) -> Study:
        y = (rng.random(units) < special.expit(LOGIT + sd * rng.normal(size=units))).astype(float)
        f = judged(rng, y, judge)
        people = [HumanLabel(f"u{i}", i, i, y[i]) for i in range(labelled)]
        return people, [JudgeLabel(f"u{i}", i, f[i]) for i in range(units)]

    return Scenario(make, share_truth(sd))


def conversations(
    judge: str, labelled: int, count: int, size: int = 7, *, single_turns: bool = False, raters: int = 0
) -> Scenario:
    """Turns of conversations of unequal quality. People label whole conversations, or as many turns of any of them.

    With raters, every conversation is labelled by one of them, who is lenient or strict.
    """
    rater_sd = 0.5 if raters else 0.0

    def make(rng: np.random.Generator) -> Study:
        talk = CONVERSATION_SD * rng.normal(size=(count, 1))
        noise = rng.random((count, size))
        y = (noise < special.expit(LOGIT + talk)).astype(float)  # what the judge tries to tell
        f = judged(rng, y, judge)
        bias = rater_sd * rng.normal(size=max(raters, 1))
        if single_turns:
            chosen = [divmod(int(i), size) for i in rng.choice(count * size, labelled * size, replace=False)]
        else:
            chosen = [(c, t) for c in range(labelled) for t in range(size)]
        people = []
        for c, t in chosen:
            rater = c % raters if raters else c
            said = float(noise[c, t] < special.expit(LOGIT + talk[c, 0] + (bias[rater] if raters else 0.0)))
            people.append(HumanLabel(f"{c}.{t}", c, rater, said))
        return people, [JudgeLabel(f"{c}.{t}", c, f[c, t]) for c in range(count) for t in range(size)]

    return Scenario(make, share_truth(math.hypot(CONVERSATION_SD, rater_sd)))


def ratings(noise: float, labelled: int, count: int, each: int = 3) -> Scenario:
    """Conversations rated from 1 to 7 by several raters, and by a lenient judge who sees the quality with noise."""
    quality_sd, rater_sd, raters, centre = 1.0, 0.8, 40, 4.6

    def scale(x: Floats) -> Floats:
        return np.clip(np.round(x), 1, 7)

    def make(rng: np.random.Generator) -> Study:
        quality = centre + quality_sd * rng.normal(size=count)
        f = scale(quality + 0.8 + noise * rng.normal(size=count))
        bias = rater_sd * rng.normal(size=raters)
        people = []
        for c in range(labelled):
            for rater in rng.choice(raters, each, replace=False).tolist():
                people.append(HumanLabel(f"c{c}", c, rater, float(scale(quality[c] + bias[rater]))))
        return people, [JudgeLabel(f"c{c}", c, float(f[c])) for c in range(count)]

    sd = math.hypot(quality_sd, rater_sd)
    truth = 1 + sum(float(stats.norm.sf((cut - centre) / sd)) for cut in np.arange(1.5, 7))
    return Scenario(make, truth, (1.0, 7.0))


def votes(accuracy: float, labelled: int, count: int) -> Scenario:
    """Votes between two bots with ties; the judge sees the better one with this probability, else a coin decides."""
    shares = np.array([0.5, 0.3, 0.2])

    def make(rng: np.random.Generator) -> Study:
        y = rng.choice([1.0, 0.0, 0.5], size=count, p=shares)
        f = np.where(rng.random(count) < accuracy, y, rng.choice([1.0, 0.0, 0.5], size=count))
        people = [HumanLabel(f"u{i}", i, i, y[i]) for i in range(labelled)]
        return people, [JudgeLabel(f"u{i}", i, f[i]) for i in range(count)]

    return Scenario(make, 0.6)


KINDS = ("good", "useless", "biased")
SCENARIOS = {
    **{f"turns, {judge} judge": turns(judge, 100, 1000) for judge in KINDS},
    **{f"conversations, {judge} judge": conversations(judge, 40, 300) for judge in KINDS},
    "conversations, good judge, 20 raters": conversations("good", 40, 300, raters=20),
    "turns of any conversation, good judge": conversations("good", 40, 100, single_turns=True),
    "ratings 1-7, good judge": ratings(0.6, 40, 400),
    "ratings 1-7, noisy judge": ratings(4.0, 40, 400),
    "votes, good judge": votes(0.8, 80, 800),
    "15 conversations, good judge": conversations("good", 15, 300),
    "15 turns, useless judge": turns("useless", 15, 300),
    "30 turns, nearly perfect judge": turns("nearly perfect", 30, 1000),
    "10 conversations, nearly perfect judge": conversations("nearly perfect", 10, 300),
}
"""Name of each kind of study."""


def simulate(scenario: Scenario, repeats: int, rng: np.random.Generator) -> dict[str, float]:
    results: list[PredictionPowered] = []
    for repeat in range(repeats):
        people, judge = scenario.make(rng)
        results.append(prediction_powered_mean(people, judge, bounds=scenario.bounds, seed=repeat))
    powered = np.array([[r.estimate.value, r.estimate.low, r.estimate.high] for r in results])
    alone = np.array([[r.people.value, r.people.low, r.people.high] for r in results])
    truth = scenario.truth
    return {
        "coverage": float(np.mean((powered[:, 1] <= truth) & (truth <= powered[:, 2]))),
        "coverage_people": float(np.mean((alone[:, 1] <= truth) & (truth <= alone[:, 2]))),
        "width": float(np.mean(powered[:, 2] - powered[:, 1])),
        "width_people": float(np.mean(alone[:, 2] - alone[:, 1])),
        "bias": float(powered[:, 0].mean() - truth),
        "bias_judge": float(np.mean([r.judge.value for r in results]) - truth),
        "power": float(np.mean([r.power for r in results])),
        "labels": float(np.mean([r.labels for r in results])),
        "saved": float(np.nanmedian([r.labels_saved for r in results])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="50 repeats")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", help="not used: all data is simulated")
    options = parser.parse_args()
    repeats = 50 if options.quick else options.repeats
    rng = np.random.default_rng(options.seed)
    head = ("study", "coverage", "people", "width", "people", "ratio", "bias", "judge", "power", "labels", "saved")
    print(f"{head[0]:40}" + "".join(f"{name:>10}" for name in head[1:]))
    figures: dict[str, float] = {}
    for name, scenario in SCENARIOS.items():
        row = simulate(scenario, repeats, rng)
        ratio = row["width"] / row["width_people"]
        cells = (row["coverage"], row["coverage_people"], row["width"], row["width_people"], ratio, row["bias"])
        cells = (*cells, row["bias_judge"], row["power"])
        line = "".join(f"{cell:10.3f}" for cell in cells)
        print(f"{name:40}{line}{row['labels']:10.0f}{row['saved']:10.0f}", flush=True)
        key = name.replace(", ", "_").replace(" ", "_").replace("-", "_")
        figures |= {f"{key}_{figure}": row[figure] for figure in ("coverage", "width", "width_people", "saved")}
    error = math.sqrt(0.95 * 0.05 / repeats)
    print(f"95 % intervals; {repeats} studies each: the Monte Carlo error of a coverage of .95 is {error:.3f}.")
    finish("ppi_truth", figures | {"monte_carlo_error": error}, {"repeats": repeats, "seed": options.seed})


if __name__ == "__main__":
    main()
