"""Linear models of people's ratings, for few subjects: least squares, ridge and ranks, and predictions left out.

A model is fitted on rows of features (one row per conversation) and is meant for subjects that it has never seen, so
everything is judged by leaving whole groups (bots) out. Three methods share one form, y = l0 + sum l_i x_i:

- `ols`: least squares, as in Ghandeharioun et al. (2019). Coefficients have intervals by the usual formula and by
  cluster-robust errors (Liang and Zeger 1986, with the correction G / (G - 1)).
- `ridge`: least squares with a penalty on the squared coefficients of standardised features (Hoerl and Kennard 1970).
  The penalty sets the direction alone; its length is fitted again, so that models with other penalties predict on the
  same scale. That is continuum regression (Sundberg 1993): from least squares, without a penalty, to the first
  component of partial least squares, where every feature has the weight of its own covariance with the ratings.
- `rank`: ridge on ranks. Features and ratings are replaced by the share of the training rows below them; predictions
  are such shares too. An outlier counts as little as its neighbour, and so does the level of a left-out group: all
  predictions are relative to the middle, 0.5.

The penalty is chosen by leaving groups out within the training rows alone (`choose_penalty`); with a single training
group, by leaving out fifths of its clusters. A missing feature takes the training mean.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import Codes, Floats, cluster_codes, cluster_covariance, t_interval

FitMethod = Literal["ols", "ridge", "rank"]
FIT_METHODS: tuple[FitMethod, ...] = ("ols", "ridge", "rank")
PENALTIES = tuple(float(10**e) for e in np.arange(-1, 4.01, 0.5))
"""Penalties to choose from, per row of training data times 100: from hardly any to nearly all."""
COEFFICIENT_LEVEL = 0.90
"""Level of the intervals of coefficients (Ghandeharioun et al. 2019)."""
INNER_FOLDS = 5


class Coefficient(NamedTuple):
    """A coefficient with its intervals by the formula of least squares, and by cluster-robust errors."""

    formula: Estimate
    robust: Estimate


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A fitted model with what is needed to apply it, and to see where it should not be applied."""

    method: FitMethod
    features: tuple[str, ...]
    intercept: float
    coefficients: tuple[float, ...]
    """Of the features as they are; of their ranks for `rank`."""
    means: tuple[float, ...]
    scales: tuple[float, ...]
    """Standard deviations; 1 for a constant feature."""
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    """The range of each feature in the training data."""
    precision: tuple[tuple[float, ...], ...]
    """Inverse covariance of the standardised features, for Mahalanobis distances."""
    penalty: float
    rows: int
    quantiles: tuple[tuple[float, ...], ...] = ()
    """For `rank`: the sorted training values of each feature."""

    def predict(self, rows: Floats) -> Floats:
        """One value per row; missing features are at their training means."""
        x = self._filled(rows)
        if self.method == "rank":
            x = np.column_stack([shares_below(x[:, i], np.array(q)) for i, q in enumerate(self.quantiles)])
        return np.asarray(self.intercept + x @ np.array(self.coefficients))

    def outside(self, rows: Floats) -> list[str]:
        """Features whose mean over the rows lies outside of their range in the training data."""
        with np.errstate(invalid="ignore"):
            mean = self._filled(rows).mean(axis=0)
        return [f for f, m, a, b in zip(self.features, mean, self.lows, self.highs, strict=True) if not a <= m <= b]

    def distance(self, rows: Floats) -> float:
        """The Mahalanobis distance of the mean of the rows from the training mean."""
        z = (self._filled(rows).mean(axis=0) - np.array(self.means)) / np.array(self.scales)
        return float(math.sqrt(max(0.0, z @ np.array(self.precision) @ z)))

    def max_distance(self, share: float = 0.99) -> float:
        """What this share of single training rows would stay below, if they were normal (chi distribution)."""
        return float(math.sqrt(scipy.special.gammaincinv(len(self.features) / 2, share) * 2))

    def _filled(self, rows: Floats) -> Floats:
        return np.where(np.isnan(rows), np.array(self.means), rows)

    def as_json(self) -> dict[str, Json]:
        """As it is saved."""
        lists = ("features", "coefficients", "means", "scales", "lows", "highs")
        return {
            "method": self.method,
            "intercept": self.intercept,
            "penalty": self.penalty,
            "rows": self.rows,
            **{name: list(getattr(self, name)) for name in lists},
            "precision": [list(row) for row in self.precision],
            "quantiles": [list(row) for row in self.quantiles],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Json]) -> "LinearModel":
        """What `as_json` wrote; a record with other members is a TypeError."""
        nested = {name: tuple(map(tuple, record[name])) for name in ("precision", "quantiles")}
        flat = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
        return cls(**(flat | nested))


def fit(
    rows: Floats,
    ratings: Floats,
    features: Sequence[str],
    groups: Sequence[Hashable],
    *,
    method: FitMethod = "ols",
    clusters: Sequence[Hashable] | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> LinearModel:
    """A model of the ratings; for `ridge` and `rank` the penalty is chosen by leaving groups out of these rows."""
    penalty = 0.0
    if method != "ols":
        penalty = choose_penalty(rows, ratings, groups, method=method, clusters=clusters, penalties=penalties)
    return _fit(rows, ratings, tuple(features), method, penalty)


def choose_penalty(
    rows: Floats,
    ratings: Floats,
    groups: Sequence[Hashable],
    *,
    method: FitMethod = "ridge",
    clusters: Sequence[Hashable] | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> float:
    """The penalty with the least squared error of left-out rows, each left-out group centred.

    Centring makes the choice a matter of how well rows are told apart within an unseen group: how good an unseen group
    is on the whole cannot be learnt from two or three of them.
    """
    folds = _inner_folds(groups, clusters)
    best, least = penalties[-1], math.inf
    for penalty in penalties:
        error = 0.0
        for fold in np.unique(folds):
            inside, outside = folds != fold, folds == fold
            model = _fit(rows[inside], ratings[inside], tuple(map(str, range(rows.shape[1]))), method, penalty)
            truth = shares_below(ratings[outside], np.sort(ratings[inside])) if method == "rank" else ratings[outside]
            miss = model.predict(rows[outside]) - truth
            error += float(((miss - miss.mean()) ** 2).sum())
        if error < least - 1e-12:
            best, least = penalty, error
    return best


def predict_left_out(
    rows: Floats,
    ratings: Floats,
    features: Sequence[str],
    groups: Sequence[Hashable],
    *,
    method: FitMethod = "ols",
    clusters: Sequence[Hashable] | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> tuple[Floats, dict[Hashable, LinearModel]]:
    """The prediction of each row by a model that was fitted without its group, and these models by group."""
    codes, names = cluster_codes(groups)
    if len(names) < 2:
        raise ValueError("leaving groups out needs at least two groups")
    predictions, models = np.full(len(rows), np.nan), {}
    for code, name in enumerate(names):
        outside = codes == code
        inside = np.flatnonzero(~outside & ~np.isnan(ratings)).tolist()
        own_clusters = None if clusters is None else [clusters[i] for i in inside]
        models[name] = fit(
            rows[inside],
            ratings[inside],
            features,
            [groups[i] for i in inside],
            method=method,
            clusters=own_clusters,
            penalties=penalties,
        )
        predictions[outside] = models[name].predict(rows[outside])
    return predictions, models


def ols_coefficients(
    rows: Floats,
    ratings: Floats,
    features: Sequence[str],
    clusters: Sequence[Hashable],
    *,
    level: float = COEFFICIENT_LEVEL,
) -> dict[str, Coefficient]:
    """The coefficients of least squares by feature, the intercept first, with both intervals."""
    means = _means(rows)
    design = np.column_stack([np.ones(len(rows)), np.where(np.isnan(rows), means, rows)])
    n = len(design)
    inverse = np.linalg.pinv(design.T @ design)
    beta = inverse @ design.T @ ratings
    residuals = ratings - design @ beta
    degrees = n - int(np.linalg.matrix_rank(design))
    codes, labels = cluster_codes(clusters)
    names = ("intercept", *features)
    if degrees <= 0:
        unknown = [Estimate(float(b), n=n, level=level) for b in beta]
        return {name: Coefficient(e, e) for name, e in zip(names, unknown, strict=True)}
    formula = np.diag(inverse) * float(residuals @ residuals) / degrees
    robust = np.diag(cluster_covariance(residuals[:, None] * (design @ inverse), codes))
    result = {}
    for i, name in enumerate(names):
        value = float(beta[i])
        ends = t_interval(value, float(formula[i]), degrees, level=level)
        more = t_interval(value, float(robust[i]), max(len(labels) - 1, 1), level=level)
        result[name] = Coefficient(
            Estimate(value, *ends, n=n, level=level), Estimate(value, *more, n=len(labels), level=level)
        )
    return result


def shares_below(values: Floats, ordered: Floats) -> Floats:
    """For each value the share of ordered training values below it, equal ones counting half.

    >>> shares_below(np.array([0.0, 2.0, 9.0]), np.array([1.0, 2.0, 2.0, 3.0]))
    array([0. , 0.5, 1. ])
    """
    below, up_to = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return np.asarray((below + up_to) / (2 * max(len(ordered), 1)), dtype=np.float64)


def _fit(rows: Floats, ratings: Floats, features: tuple[str, ...], method: FitMethod, penalty: float) -> LinearModel:
    means = _means(rows)
    filled = np.where(np.isnan(rows), means, rows)
    scales = _scales(filled)
    quantiles = [np.sort(column) for column in filled.T] if method == "rank" else []
    x, y, centre = filled, ratings, float(ratings.mean())
    if method == "rank":
        x = np.column_stack([shares_below(column, q) for column, q in zip(filled.T, quantiles, strict=True)])
        y, centre = shares_below(ratings, np.sort(ratings)), 0.5
    spread = _scales(x)
    z = (x - x.mean(axis=0)) / spread
    if penalty:
        weight = penalty * len(z) / 100
        beta = np.linalg.solve(z.T @ z + weight * np.eye(z.shape[1]), z.T @ (y - centre))
        shrunk = z @ beta
        length = float(shrunk @ shrunk)
        beta = beta * (float(shrunk @ (y - centre)) / length if length > 0 else 1.0) / spread
    else:
        beta = np.linalg.lstsq(z, y - centre, rcond=None)[0] / spread
    # For ranks, the middle of a feature is 0.5 by definition, whatever the ties.
    intercept = centre - float(beta @ (np.full(len(beta), 0.5) if method == "rank" else x.mean(axis=0)))
    standard = (filled - means) / scales
    covariance = standard.T @ standard / max(len(standard) - 1, 1)
    precision = np.linalg.pinv(covariance + 1e-6 * np.eye(len(covariance)))
    return LinearModel(
        method,
        features,
        intercept,
        tuple(beta.tolist()),
        tuple(means.tolist()),
        tuple(scales.tolist()),
        tuple(filled.min(axis=0).tolist()),
        tuple(filled.max(axis=0).tolist()),
        tuple(map(tuple, precision.tolist())),
        penalty,
        len(rows),
        tuple(tuple(q.tolist()) for q in quantiles),
    )


def _means(rows: Floats) -> Floats:
    """Means of columns without their missing values; zero for a column that has no values."""
    known = ~np.isnan(rows)
    return np.asarray(np.where(known, rows, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _scales(rows: Floats) -> Floats:
    deviation = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.ones(rows.shape[1])
    size = np.maximum(np.abs(rows).max(axis=0, initial=0.0), 1e-300)
    return np.where(deviation > 1e-12 * size, deviation, 1.0)


def _inner_folds(groups: Sequence[Hashable], clusters: Sequence[Hashable] | None) -> Codes:
    """Groups as folds; of a single group, fifths of its clusters."""
    codes, names = cluster_codes(groups)
    if len(names) > 1:
        return codes
    units, _ = cluster_codes(list(range(len(groups))) if clusters is None else clusters)
    return np.asarray(units % INNER_FOLDS, dtype=np.int64)
