"""Additive models: the curves that made the data are found, constraints hold, JSON keeps everything."""

import numpy as np
import pytest

from tertulia.models.classifiers.additive import AdditiveModel
from tertulia.models.classifiers.additive_fit import fit_additive

FEATURES = ("up", "down", "noise", "unused")


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.uniform(size=(4000, 4))
    odds = 6 * values[:, 0] - 4 * values[:, 1] - 1
    return values, (rng.uniform(size=4000) < 1 / (1 + np.exp(-odds))).astype(np.int64)


def fit(**signs: int) -> AdditiveModel:
    values, labels = data()
    return fit_additive(
        values, labels, np.ones(len(labels)), features=FEATURES, outputs=["yes"], signs=signs, penalty=1e-4
    )


def test_the_curves_behind_the_data_are_found() -> None:
    model = fit(up=1, down=-1, noise=0)
    values, _ = data(seed=1)
    truth = 6 * values[:, 0] - 4 * values[:, 1] - 1
    estimated = model.logits(values)[:, 0]
    assert np.corrcoef(truth, estimated)[0, 1] > 0.98
    assert np.abs(truth - estimated).mean() < 0.4
    parts = model.contributions(values[0], "yes")
    assert set(parts) == set(FEATURES)
    assert parts["unused"] == 0
    assert sum(parts.values()) + model.intercepts[0] == pytest.approx(estimated[0])


def test_a_curve_of_the_wrong_sign_stays_flat() -> None:
    model = fit(up=-1, down=1, noise=0)
    values, _ = data(seed=2)
    flat = model.logits(np.where([True, True, False, False], values, 0.5))
    assert np.ptp(flat) < 1e-9


def test_several_outputs_are_a_softmax_and_weights_count() -> None:
    rng = np.random.default_rng(3)
    values = rng.uniform(size=(900, 4))
    labels = np.minimum(2, (values[:, 0] * 3).astype(np.int64))
    model = fit_additive(
        values, labels, np.ones(900), features=FEATURES, outputs=["a", "b", "c"], signs={"up": 0}, penalty=1e-4
    )
    assert (model.probabilities(values).argmax(1) == labels).mean() > 0.9
    assert model.probabilities(values).sum(1) == pytest.approx(np.ones(900))
    heavy = fit_additive(
        values, labels, np.where(labels == 2, 50.0, 1.0), features=FEATURES, outputs=["a", "b", "c"],
        signs={"noise": 0}, penalty=1e-4,
    )  # fmt: skip
    assert set(heavy.probabilities(values).argmax(1)) == {2}


def test_json_keeps_the_model_and_names_unknown_features() -> None:
    model = fit(up=1, down=-1, noise=0)
    again = AdditiveModel.from_json(model.as_json(), FEATURES)
    values, _ = data(seed=4)
    assert again.logits(values) == pytest.approx(model.logits(values), abs=1e-2)
    moved = AdditiveModel.from_json(model.as_json(), ("extra", *reversed(FEATURES)))
    swapped = np.concatenate([np.zeros((len(values), 1)), values[:, ::-1]], axis=1)
    assert moved.logits(swapped) == pytest.approx(again.logits(values))
    with pytest.raises(ValueError, match="unknown feature 'down'"):
        AdditiveModel.from_json(model.as_json(), ("up", "noise", "unused"))


def test_a_model_extended_is_the_sum_of_both() -> None:
    one, other = fit(up=1), fit(down=-1)
    values, _ = data(seed=5)
    both = one.extended(other)
    assert both.logits(values) == pytest.approx(one.logits(values) + other.logits(values) - other.intercepts)
