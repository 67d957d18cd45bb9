"""Gradient-boosted trees that choose one candidate per utterance, by LightGBM, stored as LightGBM's plain text.

The loss is a softmax over the candidates of an utterance (itself among them) rather than a binary decision for each
pair: what matters is which candidate wins, and probabilities of different utterances can be compared.
Most candidates are hopeless, and a few trees see it: the first PROBE_TREES score all candidates, the others are trained
on, and applied to, those that are left. LightGBM is imported when first needed: rules and readers work without it.
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
PROBE_TREES, HOPELESS = 30, 5.0
"""A candidate that after so many trees scores this much less than the best one of its utterance is ruled out. On the
development logs of #ubuntu that leaves ten of 27 candidates, and loses four true links in a thousand."""


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


def hopeful_rows(scores: Doubles, sizes: Ints) -> NDArray[np.bool_]:
    """The candidates that the first trees do not rule out; the last of each utterance, which is itself, always stays.

    >>> hopeful_rows(np.array([9.0, 1.0, 2.0, 5.0, 4.0]), np.array([3, 2])).tolist()
    [True, False, True, True, True]
    """
    ends = np.cumsum(sizes)
    best = np.repeat(np.maximum.reduceat(scores, ends - sizes), sizes)
    hopeful: NDArray[np.bool_] = scores >= best - HOPELESS
    hopeful[ends - 1] = True
    return hopeful


def fit_trees(
    data: LabelledCandidates,
    *,
    names: Sequence[str],
    trees: int,
    probe: bool = False,
    leaves: int,
    learning_rate: float,
    min_rows: int,
    feature_fraction: float,
    seed: int,
) -> str:
    """Train on labelled candidates; returns LightGBM's text. The same data and seed give the same text.

    With `probe`, all trees but the first PROBE_TREES are trained on what those leave.
    """
    settings = {
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
    if not probe or trees <= PROBE_TREES:
        return _boost(data, names, settings, trees)
    first = _boost(data, names, settings, PROBE_TREES)
    stays = hopeful_rows(BoostedTrees(first).scores(data.features), data.sizes) | data.labels
    sizes = np.add.reduceat(stays.astype(np.int32), np.cumsum(data.sizes) - data.sizes)
    rest = LabelledCandidates(data.features[stays], sizes, data.labels[stays])
    return _boost(rest, names, settings, trees - PROBE_TREES, after=first)


def _boost(
    data: LabelledCandidates, names: Sequence[str], settings: dict[str, Any], trees: int, *, after: str = ""
) -> str:
    """Add trees to those of a text, or start with none."""
    lightgbm = _import_lightgbm()
    labels = data.labels.astype(np.float32)
    dataset = lightgbm.Dataset(data.features, labels, feature_name=list(names), free_raw_data=False)
    before = lightgbm.Booster(model_str=after) if after else None
    booster = lightgbm.train(
        settings | {"objective": _softmax_objective(data)}, dataset, num_boost_round=trees, init_model=before
    )
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

    def scores(self, features: Floats, *, first: int | None = None) -> Doubles:
        """A score per row, by all trees or the first few; only differences among the candidates of one utterance are
        meaningful."""
        scores = self._booster.predict(features, raw_score=True, num_threads=1, num_iteration=first)
        return np.asarray(scores, np.float64)


def _import_lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ImportError:
        raise MissingExtra(
            "LightGBM, which the learned disentangler needs,", "pip install 'tertulia[chatlogs]'"
        ) from None
    return lightgbm
