"""Gradient-boosted trees that choose one candidate of each line, by LightGBM, kept as its plain text.

The loss is a softmax over the candidates of a line (the line itself among them), not a yes or no for each pair: what
matters is which one wins, and a line's candidates share one unit of probability, so scores of lines can be compared.
LightGBM is imported when first needed: rules and readers do without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import DataError, MissingExtra
from tertulia.corpus.rooms.view import Floats, Ints

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choices:
    """Rows of many lines in one table: the rows of a line stand together."""

    figures: Floats
    sizes: Ints
    """How many rows each line has."""
    right: NDArray[np.bool_]
    """Which rows are right; every line has at least one."""


def softmax(scores: Doubles, sizes: Ints) -> Doubles:
    """Probabilities within each line.

    >>> softmax(np.array([0.0, 0.0, 5.0]), np.array([2, 1])).tolist()
    [0.5, 0.5, 1.0]
    """
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    top = np.repeat(np.maximum.reduceat(scores, starts), sizes)
    risen: Doubles = np.exp(scores - top)
    risen /= np.repeat(np.add.reduceat(risen, starts), sizes)
    return risen


def fit(
    data: Choices, *, names: Sequence[str], trees: int, leaves: int, rate: float, min_rows: int, share: float, seed: int
) -> str:
    """Learn from choices; the model as LightGBM's text. The same data and seed give the same text."""
    lightgbm = _lightgbm()
    settings = {
        "objective": _gradient(data),
        "num_leaves": leaves,
        "learning_rate": rate,
        "min_data_in_leaf": min_rows,
        "lambda_l2": 1.0,
        "feature_fraction": share,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "max_bin": 127,
        "min_sum_hessian_in_leaf": 0.1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    table = lightgbm.Dataset(data.figures, data.right.astype(np.float32), feature_name=list(names), free_raw_data=True)
    booster = lightgbm.train(settings, table, num_boost_round=trees)
    return str(booster.model_to_string())


def _gradient(data: Choices) -> Any:
    """Slope and curve of -log(sum of the probabilities of the right candidates)."""

    def gradient(scores: Doubles, _: object) -> tuple[Doubles, Doubles]:
        given = softmax(scores, data.sizes)
        # Of several right candidates, the model may choose which to believe in: each gets its share of their sum.
        among_right = softmax(np.where(data.right, scores, -1e9), data.sizes)
        return given - np.where(data.right, among_right, 0.0), np.maximum(given * (1 - given), 1e-6)

    return gradient


class Trees:
    """A learned model, from its text."""

    def __init__(self, text: str) -> None:
        try:
            self._booster = _lightgbm().Booster(model_str=text)
        except _lightgbm().basic.LightGBMError as error:
            raise DataError(f"The model's trees cannot be read ({error}).") from None
        self.text = text

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it was learned from."""
        return tuple(self._booster.feature_name())

    def scores(self, figures: Floats) -> Doubles:
        """A score for each row; only differences within a line mean something."""
        return np.asarray(self._booster.predict(figures, raw_score=True, num_threads=1), np.float64)


def _lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ImportError:
        raise MissingExtra("LightGBM, which the learned disentangler needs,", "pip install 'tertulia[rooms]'") from None
    return lightgbm
