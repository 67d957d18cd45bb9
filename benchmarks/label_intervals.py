"""Whether 95 % intervals of a classifier's figures contain the truth in 95 % of labelled sets.

Sets are simulated: passages with one to six responses, passages of different difficulty, a classifier that guesses
where it does not know. The truth is the figure of a very large set. Rare labels are what is hard: of the rarest one
there are about three cases in a small set, as there are five contradictions in BEGIN's dev split.
"""

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from common import finish
from tertulia.core.score import Score
from tertulia.metrics import classification as c
from tertulia.metrics.classification import ClassVerdict, LabelVerdict, ScoredVerdict
from tertulia.metrics.metric import Metric
from tertulia.metrics.significance import estimate

SHARES = {
    "rare": (0.34, 0.32, 0.06, 0.27, 0.01),
    "few": (0.34, 0.31, 0.06, 0.26, 0.03),
    "even": (0.2, 0.2, 0.2, 0.2, 0.2),
}
LARGE = 200_000
Labels = NDArray[np.int64]


def simulate(
    rng: np.random.Generator, passages: int, shares: tuple[float, ...]
) -> tuple[Labels, Labels, Labels, NDArray[np.float64]]:
    """Passages, true and predicted labels, and scores for the first label."""
    codes = np.repeat(np.arange(passages), rng.integers(1, 7, passages))
    ease = rng.normal(0, 1, passages)[codes]
    true = rng.choice(5, len(codes), p=shares)
    predicted = np.where(rng.random(len(codes)) < expit(0.3 + ease), true, rng.choice(5, len(codes), p=shares))
    return codes, true, predicted, 1.2 * (true == 0) * (ease > -1) + rng.normal(0, 1, len(codes))


def scores(codes: Labels, true: Labels, predicted: Labels, support: NDArray[np.float64]) -> dict[Metric, Score]:
    """The scores of one set, by metric; figures of one label are those of the rarest."""
    pairs = [LabelVerdict(int(a), int(b)) for a, b in zip(true, predicted, strict=True)]
    rarest = [ClassVerdict(one.true == 4, one.predicted == 4) for one in pairs]
    scored = [ScoredVerdict(bool(a == 0), float(x)) for a, x in zip(true, support, strict=True)]
    batches: dict[Metric, list[object]] = {
        c.ACCURACY: [*pairs],
        c.MACRO_F1: [*pairs],
        c.ROC_AUC: [*scored],
        c.F1: [*rarest],
    }
    units, clusters = [str(i) for i in range(len(codes))], [str(code) for code in codes]
    return {
        metric: metric.score(batch, subject="classifier", setting="", units=units, clusters=clusters)
        for metric, batch in batches.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sets")
    given = parser.parse_args()
    sets = given.sets // 10 if given.quick else given.sets
    figures: dict[str, float] = {}
    print(f"coverage of 95 % intervals in {sets} sets")
    for kind, shares in SHARES.items():
        _, true, predicted, support = simulate(np.random.default_rng(0), LARGE, shares)
        matrix = c.confusion_matrix(true.tolist(), predicted.tolist(), range(5))
        truths = {
            c.ACCURACY: c.accuracy(matrix),
            c.MACRO_F1: float(c.macro_f1(matrix)),
            c.ROC_AUC: c.roc_auc((true == 0).tolist(), support.tolist()),
            c.F1: c.class_figures(matrix)[4].f1,
        }
        for passages in (80, 250):
            covered = dict.fromkeys(truths, 0)
            for seed in range(sets):
                drawn = scores(*simulate(np.random.default_rng(1000 + seed), passages, shares))
                for metric, score in drawn.items():
                    figure = estimate(score, metric.info, resamples=given.resamples)
                    covered[metric] += figure.n == 0 or figure.low <= truths[metric] <= figure.high
            row = {metric.name: count / sets for metric, count in covered.items()}
            figures |= {f"{kind}_{passages}_{name}": share for name, share in row.items()}
            cells = ", ".join(f"{name} {share:.3f}" for name, share in row.items())
            print(f"  {kind:<5} {passages:>4} passages: {cells}", flush=True)
    finish("label_intervals", figures, {"sets": sets, "resamples": given.resamples})


if __name__ == "__main__":
    main()
