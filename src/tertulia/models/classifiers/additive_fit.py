"""Fitting additive models: penalised maximum likelihood, some curves constrained to rise or to fall."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from tertulia.models.classifiers.additive import AdditiveModel, Floats, ramps_of, squash

MAX_KNOTS = 7
"""Knots of a curve at most."""


def fit_additive(
    values: NDArray[Any],
    labels: NDArray[np.int64],
    weights: NDArray[Any],
    *,
    features: Sequence[str],
    outputs: Sequence[str],
    signs: Mapping[str, int],
    penalty: float = 0.01,
    offset: NDArray[Any] | None = None,
) -> AdditiveModel:
    """Fit the curves by penalised maximum likelihood; an `offset` (n, outputs) is added to the logits.

    `signs` names the features that are used: 1 for curves that may only rise with the first output, -1 for those that
    may only fall, 0 for free ones. Labels are indices of outputs; with one output they are 0 and 1.
    """
    knots = tuple(_knots(values[:, i]) if name in signs else () for i, name in enumerate(features))
    ramps = ramps_of(values, knots)
    count, width = len(outputs), ramps.shape[1]
    targets = labels.reshape(-1, 1).astype(float) if count == 1 else np.eye(count)[labels]
    shares = (weights / weights.sum()).reshape(-1, 1)
    given = np.zeros((len(values), count)) if offset is None else offset

    def loss(flat: Floats) -> tuple[float, Floats]:
        slopes, intercepts = flat[: count * width].reshape(count, width), flat[count * width :]
        predicted = squash(ramps @ slopes.T + intercepts + given)
        if count == 1:
            likelihoods = np.where(targets > 0, predicted, 1 - predicted)
        else:
            likelihoods = (predicted * targets).sum(1, keepdims=True)
        difference = (predicted - targets) * shares
        gradient = np.concatenate([(difference.T @ ramps + 2 * penalty * slopes / width).ravel(), difference.sum(0)])
        return float(-(np.log(likelihoods + 1e-12) * shares).sum() + penalty * (slopes**2).sum() / width), gradient

    bounds = _bounds(features, knots, signs, count)
    start = np.zeros(count * (width + 1))
    best = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 400})
    slopes, intercepts = best.x[: count * width].reshape(count, width), best.x[count * width :]
    return AdditiveModel(tuple(features), tuple(outputs), knots, slopes, intercepts)


def _bounds(
    features: Sequence[str], knots: Sequence[tuple[float, ...]], signs: Mapping[str, int], count: int
) -> list[tuple[float | None, float | None]]:
    first: list[tuple[float | None, float | None]] = []
    for name, own in zip(features, knots, strict=True):
        sign = signs.get(name, 0)
        bound = (0.0, None) if sign > 0 else (None, 0.0) if sign < 0 else (None, None)
        first += [bound] * max(0, len(own) - 1)
    return [*first, *([(None, None)] * (len(first) * (count - 1) + count))]


def _knots(values: NDArray[Any]) -> tuple[float, ...]:
    """Quantiles of a feature, each once; of a feature that never changes, none."""
    quantiles = np.quantile(values.astype(np.float64), np.linspace(0.01, 0.99, MAX_KNOTS), method="nearest")
    ends = [float(values.min())] if values.min() < quantiles[0] - 1e-6 else []
    knots = sorted({round(float(k), 5) for k in (*ends, *quantiles)})
    return tuple(knots) if len(knots) > 1 else ()
