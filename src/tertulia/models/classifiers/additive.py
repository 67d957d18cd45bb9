"""An additive model: a curve for every feature, added up. Small, fast, and every decision is a sum that can be shown.

A curve is piecewise linear between the quantiles of its feature. Where more of a feature can only speak for a label, or
only against it (more overlap never makes support less likely), the curve is constrained to rise or to fall: silver data
teaches less nonsense that way. One output is a logistic regression, several are a softmax. The model is a JSON object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.dialogue import Json

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AdditiveModel:
    """Curves over named features."""

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    knots: tuple[tuple[float, ...], ...]
    """Of each feature, where its curve may bend; one knot or none for a feature that is not used."""
    slopes: Floats  # (outputs, ramps): how far a curve rises from each knot to the next
    intercepts: Floats  # (outputs,)

    def logits(self, values: NDArray[Any]) -> Floats:
        """Of rows of features (n, features): (n, outputs)."""
        return np.asarray(ramps_of(values, self.knots) @ self.slopes.T + self.intercepts, dtype=np.float64)

    def probabilities(self, values: NDArray[Any]) -> Floats:
        """Softmax of the outputs, or of a single one the logistic function: (n, outputs)."""
        return squash(self.logits(values))

    def contributions(self, values: NDArray[Any], output: str) -> dict[str, float]:
        """What each feature of one row adds to the logit of an output, compared with the lowest knot of its curve."""
        slopes = self.slopes[self.outputs.index(output)]
        added = (ramps_of(np.asarray(values).reshape(1, -1), self.knots)[0] * slopes).tolist()
        parts, start = {}, 0
        for name, knots in zip(self.features, self.knots, strict=True):
            size = max(0, len(knots) - 1)
            parts[name] = float(sum(added[start : start + size]))
            start += size
        return parts

    def extended(self, other: "AdditiveModel", *, intercepts: bool = False) -> "AdditiveModel":
        """This model with the curves of another one for features that it does not use, its intercepts only on demand.

        Without them the model says of rows at the lowest knots what it said before.
        """
        knots, columns, start = [], [], [0, 0]
        for mine, its in zip(self.knots, other.knots, strict=True):
            assert not (mine and its), "both models use the feature"
            knots.append(mine or its)
            for which, (model, own) in enumerate(((self, mine), (other, its))):
                size = max(0, len(own) - 1)
                columns.append(model.slopes[:, start[which] : start[which] + size])
                start[which] += size
        both = self.intercepts + other.intercepts if intercepts else self.intercepts
        return replace(self, knots=tuple(knots), slopes=np.concatenate(columns, axis=1), intercepts=both)

    def as_json(self) -> dict[str, Json]:
        """For a file that people can read: for each used feature its knots and, for each output, its curve."""
        curves, start = {}, 0
        for name, knots in zip(self.features, self.knots, strict=True):
            size = max(0, len(knots) - 1)
            if size:
                part = self.slopes[:, start : start + size]
                curves[name] = {
                    "knots": [round(k, 5) for k in knots],
                    **{out: _rounded(row) for out, row in zip(self.outputs, part, strict=True)},
                }
            start += size
        intercepts = dict(zip(self.outputs, _rounded(self.intercepts), strict=True))
        return {"outputs": list(self.outputs), "intercepts": intercepts, "curves": curves}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], features: Sequence[str]) -> "AdditiveModel":
        """What `as_json` wrote; features that it does not name are not used."""
        outputs, curves = tuple(value["outputs"]), value["curves"]
        if unknown := sorted(set(curves) - set(features)):
            raise ValueError(f"unknown feature {unknown[0]!r}")
        knots = tuple(tuple(curves[name]["knots"]) if name in curves else () for name in features)
        rows = [[s for name in features if name in curves for s in curves[name][output]] for output in outputs]
        width = sum(max(0, len(own) - 1) for own in knots)
        slopes = np.array(rows, dtype=np.float64).reshape(len(outputs), width)
        return cls(tuple(features), outputs, knots, slopes, np.array([value["intercepts"][o] for o in outputs], float))


def ramps_of(values: NDArray[Any], knots: Sequence[tuple[float, ...]]) -> Floats:
    """For each knot but the last, how far the feature has come from it to the next, between 0 and 1: (n, ramps)."""
    columns = [
        np.clip((values[:, i].astype(np.float64) - low) / (high - low), 0, 1)
        for i, own in enumerate(knots)
        for low, high in pairwise(own)
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))


def squash(logits: Floats) -> Floats:
    """Softmax of the columns, or of a single one the logistic function."""
    if logits.shape[1] == 1:
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -40, 40))))
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), 4) + 0.0 for value in values]
