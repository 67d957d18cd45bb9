"""Does `judge proxy` recover a known relation between SSA and perplexity? Simulated bots and raters.

    python benchmarks/proxy_truth.py [--quick] [--bots 12] [--repeats 200] [--seed 0]

Bots have perplexities between 8 and 25, and a chance of making sense that falls linearly with them, plus what
perplexity does not explain. Raters label turns of conversations of every bot (conversations and raters vary). Each
repeat goes through the study's SSA, both judged runs and the line. Reported: the mean slope beside the true one, and
how often the intervals of slope and R^2 cover the truth. There are two true R^2 over the population of bots: of the SSA
that is measured (`r2`, by two intervals), and of SSA without the sampling error of the study (`r2_corrected`), which is
higher.
"""

import argparse
import time

import numpy as np

from common import finish
from tertulia.core.score import Score
from tertulia.judge.proxy import ProxyConfig, proxy_points, proxy_run
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject
from tertulia.metrics.human import SSA
from tertulia.metrics.likelihood import PERPLEXITY
from tertulia.metrics.ratings import SsaLabel

SLOPE, INTERCEPT, RESIDUAL = -0.025, 1.0, 0.03
LOW, HIGH = 8.0, 25.0
CONVERSATIONS, TURNS, RATERS = 30, 7, 20
EXPLAINED = (SLOPE * (HIGH - LOW)) ** 2 / 12
TRUE_R2 = EXPLAINED / (EXPLAINED + RESIDUAL**2)


def study_run(rng: np.random.Generator, quality: np.ndarray) -> JudgedRun:
    """Labels of turns: sensible with some chance, and specific with the chance that makes SSA the quality."""
    scores, items = [], []
    bias = rng.normal(scale=0.05, size=RATERS)
    for bot, level in enumerate(quality):
        labels, units, clusters = [], [], []
        for c in range(CONVERSATIONS):
            rater = int(rng.integers(RATERS))
            chance = np.clip(level + rng.normal(scale=0.08) + bias[rater], 0.02, 0.98)
            for t in range(TURNS):
                # Sensible with chance s, and then specific with (2 q - s) / s, so that SSA is q.
                sensible_chance = min(0.98, (1 + chance) / 2)
                sensible = bool(rng.random() < sensible_chance)
                given = max(0.0, (2 * chance - sensible_chance) / sensible_chance)
                specific = sensible and bool(rng.random() < given)
                unit = f"bot{bot}/{c}/{t}"
                labels.append(SsaLabel(f"bot{bot}", f"bot{bot}/{c}", f"r{rater}", sensible, specific))
                units.append(unit)
                clusters.append(f"bot{bot}/{c}")
                items.append(JudgedItem(unit, {"rater": f"r{rater}"}))
        scores.append(SSA.score(labels, subject=f"bot{bot}", setting="", units=units, clusters=clusters))
    subjects = tuple(Subject(f"bot{bot}") for bot in range(len(quality)))
    return JudgedRun("study", {}, subjects, ("",), tuple(scores), {"SSA": SSA.info}, tuple(items))


def perplexity_run(perplexity: np.ndarray) -> JudgedRun:
    """Twenty dialogues of a hundred words each."""
    units = tuple(f"d{i}" for i in range(20))
    scores = tuple(
        Score(f"bot{bot}", "", PERPLEXITY.name, units, (100 * float(np.log(value)),) * 20, units, (100.0,) * 20)
        for bot, value in enumerate(perplexity)
    )
    subjects = tuple(Subject(score.subject) for score in scores)
    return JudgedRun("perplexity", {}, subjects, ("",), scores, {PERPLEXITY.name: PERPLEXITY.info})


def main() -> None:
    """Simulate, print, finish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bots", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 repeats")
    options = parser.parse_args()
    repeats, rng, start = (
        20 if options.quick else options.repeats,
        np.random.default_rng(options.seed),
        time.perf_counter(),
    )
    lines, errors = [], []
    config = ProxyConfig(human="study", metrics="perplexity", metric=PERPLEXITY.name, resamples=1000)
    for _ in range(repeats):
        perplexity = rng.uniform(LOW, HIGH, size=options.bots)
        quality = INTERCEPT + SLOPE * perplexity + rng.normal(scale=RESIDUAL, size=options.bots)
        human, measured = study_run(rng, quality), perplexity_run(perplexity)
        points = proxy_points(human, measured, config)
        lines.append(proxy_run(points, human, measured, config).details["proxy"]["line"])
        errors += [y.value - q for (_, y), q in zip(points.values(), quality, strict=True)]
    noisy = EXPLAINED / (EXPLAINED + RESIDUAL**2 + float(np.var(errors)))
    truths = {"slope": SLOPE, "r2": noisy, "r2_fisher": noisy, "r2_corrected": TRUE_R2}
    figures = {}
    for name, truth in truths.items():
        mean = float(np.mean([line[name]["value"] for line in lines]))
        covered = float(np.mean([line[name]["low"] <= truth <= line[name]["high"] for line in lines]))
        print(f"{name:12} mean {mean:.4f}, true {truth:.4f}; the 95 % interval covers in {covered:.1%} of {repeats}")
        figures |= {name: mean, f"true {name}": truth, f"coverage {name}": covered}
    figures["seconds"] = time.perf_counter() - start
    finish("proxy_truth", figures, {"bots": options.bots, "repeats": repeats, "seed": options.seed})


if __name__ == "__main__":
    main()
