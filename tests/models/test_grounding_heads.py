"""Grounding heads: what is learned on top changes nothing of what was learned before."""

import numpy as np

from tertulia.core.grounding import LABELS, GroundingLabel
from tertulia.models.classifiers.grounding_heads import extend_heads, fit_heads

FEATURES = ("content overlap", "first person", "likelihood gain")


def test_a_second_step_adds_the_features_of_models_and_keeps_all_other_curves() -> None:
    rng = np.random.default_rng(0)
    labels: list[GroundingLabel] = [LABELS[i % 5] for i in range(500)]
    supported = np.array([label == "entailment" for label in labels])
    overlap, gain = supported * 0.4 + rng.random(500), supported * 2.0 + rng.normal(size=500)
    counted = np.stack([overlap, rng.random(500), np.zeros(500)], axis=1)
    operations = [""] * 500
    first = fit_heads(counted, labels, operations, features=FEATURES, penalty=0.03)
    values = np.stack([overlap, counted[:, 1], gain], axis=1)
    second = extend_heads(first, values[:200], labels[:200], operations[:200], features=FEATURES, penalty=0.03)
    assert first.support.knots[2] == ()
    assert len(second.support.knots[2]) > 2
    before, after = (heads.support.as_json()["curves"]["content overlap"] for heads in (first, second))  # type: ignore[index, call-overload]
    assert before == after
    low = values[:1].copy()
    high = low + np.array([[0, 0, 5.0]])
    assert second.support.logits(high)[0, 0] > second.support.logits(low)[0, 0]
    assert first.support.logits(high)[0, 0] == first.support.logits(low)[0, 0]
    right = [
        float(((heads.probabilities(values, (1.0,) * 5)[:, 0] > 0.5) == supported)[200:].mean())
        for heads in (first, second)
    ]
    assert right[1] > right[0] + 0.02
