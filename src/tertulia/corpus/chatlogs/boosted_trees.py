"""Gradient-boosted trees that choose one candidate per utterance, by LightGBM, stored as LightGBM's plain text.

The loss is a softmax over the candidates of an utterance (itself among them) rather than a binary decision for each
pair: what matters is which candidate wins, and probabilities of different utterances can be compared.
LightGBM is imported when first needed: rules and readers work without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import DataError, MissingExtra
from tertulia.corpus.chatlogs.encoded_log import Floats, Ints

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelledCandidates:
    """The candidates of many utterances in one table; the rows of an utterance are consecutive."""

    features: Floats
    """(rows, features)"""
    sizes: Ints
    """(utterances,): how many rows each utterance has."""
    labels: NDArray[np.bool_]
    """(rows,): which candidates are gold links; every utterance has at least one."""


def softmax(scores: Doubles, sizes: Ints) -> Doubles:
    """Softmax within each group of consecutive scores.

    >>> softmax(np.array([0.0, 0.0, 5.0]), np.array([2, 1])).tolist()
    [0.5, 0.5, 1.0]
    """
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    top = np.repeat(np.maximum.reduceat(scores, starts), sizes)
    exponentials: Doubles = np.exp(scores - top)
    exponentials /= np.repeat(np.add.reduceat(exponentials, starts), sizes)
    return exponentials


def fit_trees(
    data: LabelledCandidates,
    *,
    names: Sequence[str],
    trees: int,
    leaves: int,
    learning_rate: float,
    min_rows: int,
    feature_fraction: float,
    seed: int,
) -> str:
    """Train on labelled candidates; returns LightGBM's text. The same data and seed give the same text."""
    lightgbm = _import_lightgbm()
    settings = {
        "objective": _softmax_objective(data),
        "num_leaves": leaves,
        "learning_rate": learning_rate,
        "min_data_in_leaf": min_rows,
        "lambda_l2": 1.0,
        "feature_fraction": feature_fraction,
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
    labels = data.labels.astype(np.float32)
    dataset = lightgbm.Dataset(data.features, labels, feature_name=list(names), free_raw_data=True)
    booster = lightgbm.train(settings, dataset, num_boost_round=trees)
    return str(booster.model_to_string())


def _softmax_objective(data: LabelledCandidates) -> Any:
    """Gradient and (diagonal) Hessian of -log(sum of the probabilities of the gold candidates)."""

    def objective(scores: Doubles, _: object) -> tuple[Doubles, Doubles]:
        probs = softmax(scores, data.sizes)
        # With several gold links the model may favour any of them: the target is their own softmax, not 1/n each.
        target = softmax(np.where(data.labels, scores, -1e9), data.sizes)
        return probs - np.where(data.labels, target, 0.0), np.maximum(probs * (1 - probs), 1e-6)

    return objective


class BoostedTrees:
    """A trained ensemble of trees, from its text."""

    def __init__(self, text: str) -> None:
        try:
            self._booster = _import_lightgbm().Booster(model_str=text)
        except _import_lightgbm().basic.LightGBMError as error:
            raise DataError(f"Cannot read the model's trees ({error}).") from None
        self.text = text

    @property
    def names(self) -> tuple[str, ...]:
        """The features it was trained on."""
        return tuple(self._booster.feature_name())

    def scores(self, features: Floats) -> Doubles:
        """A score per row; only differences among the candidates of one utterance are meaningful."""
        return np.asarray(self._booster.predict(features, raw_score=True, num_threads=1), np.float64)


def _import_lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ImportError:
        raise MissingExtra(
            "LightGBM, which the learned disentangler needs,", "pip install 'tertulia[chatlogs]'"
        ) from None
    return lightgbm
