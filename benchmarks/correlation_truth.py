"""Do the intervals of correlations and of R^2 cover the truth? Normal data with a known correlation.

    python benchmarks/correlation_truth.py [--quick] [--repeats 2000] [--seed 0]

Few bots are compared with people, so n is small. For Pearson's correlation: the percentile bootstrap and Fisher's
interval, of which `correlate` takes the second below 20 independent units. For R^2 of a line: the percentile bootstrap,
BCa and Fisher's. Reported: the share of nominal 95 % intervals that cover the truth, with its Monte Carlo error.
"""

import argparse
import math

import numpy as np
from scipy import stats

from common import finish
from tertulia.metrics.correlation import fisher_interval, sampled_correlations
from tertulia.metrics.intervals import LEVEL, cluster_weights, percentile_interval

Floats = np.ndarray
RESAMPLES = 1000
CASES = ((8, 0.7), (25, 0.7), (8, math.sqrt(0.93)), (12, math.sqrt(0.93)))
"""Units, and the true correlation; Meena's perplexity and SSA have an R^2 of .93."""


def bootstrap(x: Floats, y: Floats, seed: int) -> Floats:
    """Pearson's correlations of resamples."""
    weights = np.concatenate(list(cluster_weights(len(x), resamples=RESAMPLES, seed=seed)))
    return np.asarray(sampled_correlations(x, y, "pearson", weights))


def bca(x: Floats, y: Floats, seed: int) -> tuple[float, float]:
    """SciPy's bias-corrected and accelerated interval of R^2."""
    result = stats.bootstrap(
        (x, y),
        lambda a, b, axis=-1: _r2(a, b, axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="BCa",
        random_state=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _r2(x: Floats, y: Floats, axis: int) -> Floats:
    x, y = x - x.mean(axis=axis, keepdims=True), y - y.mean(axis=axis, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(axis=axis) ** 2 / ((x * x).sum(axis=axis) * (y * y).sum(axis=axis)))


def coverage(n: int, rho: float, repeats: int, seed: int) -> dict[str, float]:
    """By method: how often the truth is inside."""
    rng = np.random.default_rng(seed)
    inside: dict[str, list[bool]] = {}
    for repeat in range(repeats):
        x = rng.normal(size=n)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)
        draws = bootstrap(x, y, seed + repeat)
        value = float(np.corrcoef(x, y)[0, 1])
        fisher = fisher_interval(value, n, "pearson")
        squared = (
            (0.0 if fisher[0] < 0 < fisher[1] else min(abs(end) for end in fisher)) ** 2,
            max(abs(end) for end in fisher) ** 2,
        )
        ends = {
            "r, percentile": (rho, percentile_interval(draws, LEVEL)),
            "r, Fisher": (rho, fisher),
            "R^2, percentile": (rho**2, percentile_interval(draws**2, LEVEL)),
            "R^2, BCa": (rho**2, bca(x, y, seed + repeat)),
            "R^2, Fisher": (rho**2, squared),
        }
        for name, (truth, (low, high)) in ends.items():
            inside.setdefault(name, []).append(low <= truth <= high)
    return {name: float(np.mean(covered)) for name, covered in inside.items()}


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="100 repeats")
    args = parser.parse_args()
    repeats = 100 if args.quick else args.repeats
    figures = {}
    for n, rho in CASES:
        shares = coverage(n, rho, repeats, args.seed)
        line = ", ".join(
            f"{name} {share:.3f} +- {1.96 * math.sqrt(share * (1 - share) / repeats):.3f}"
            for name, share in shares.items()
        )
        print(f"n = {n:3}, r = {rho:.3f}: {line}")
        figures |= {f"{name}, n = {n}, r = {rho:.3f}": share for name, share in shares.items()}
    finish("correlation_truth", figures, {"repeats": repeats, "resamples": RESAMPLES, "seed": args.seed})


if __name__ == "__main__":
    main()
