"""Entailment by any classifier: labels in any spelling and order, pairs in any order."""

from typing import Any

import pytest
import torch

from tertulia.core.errors import UsageError
from tertulia.models.classifiers.entailment import EntailmentClassifier, entailment_labels
from tertulia.models.classifiers.text_classifier import TextClassifier


def test_probabilities_are_those_of_the_pair_under_the_right_names(tiny_models: Any) -> None:
    classifier = TextClassifier.load(str(tiny_models.make_classifier("nli", ["CONTRADICTION", "entailed", "Neutral"])))
    model = EntailmentClassifier(classifier)
    premises = ["i love cats", "i love dogs i love dogs", "i love cats"]
    hypotheses = ["i hate cats", "i love cats", "i hate cats"]
    judged = model.probabilities(premises, hypotheses)
    for premise, hypothesis, row in zip(premises, hypotheses, judged, strict=True):
        inputs = classifier.tokenizer(premise, hypothesis, return_tensors="pt")
        with torch.inference_mode():
            contradiction, entailment, neutral = classifier.model(**inputs).logits.softmax(-1)[0].tolist()
        assert row == pytest.approx((entailment, neutral, contradiction), abs=1e-5)
    assert judged[0] != pytest.approx(model.probabilities(["i hate cats"], ["i love cats"])[0], abs=1e-3)
    assert model.probabilities([], []) == []


@pytest.mark.parametrize("labels", [("LABEL_0", "LABEL_1", "LABEL_2"), ("entailment", "not_entailment")])
def test_a_classifier_without_the_three_labels_is_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="has no label for") as error:
        entailment_labels(labels, "some/model")
    assert "some/model" in error.value.message
    assert "id2label" in error.value.hint
