"""Natural language inference: whether a premise entails or contradicts a hypothesis, by any Hugging Face classifier.

Such classifiers agree on three classes and on nothing else: order and spelling differ ("ENTAILMENT",
"entailed", "contradiction", "Contradict"). The labels are recognised by how they begin.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tertulia.core.errors import UsageError
from tertulia.models.classifiers.text_classifier import TextClassifier

_BEGINNINGS = {"entailment": "entail", "neutral": "neutral", "contradiction": "contradict"}


class EntailmentProbabilities(NamedTuple):
    """Probabilities of the three classes."""

    entailment: float
    neutral: float
    contradiction: float


class EntailmentClassifier:
    """A text classifier with the three classes of natural language inference."""

    def __init__(self, classifier: TextClassifier) -> None:
        self.classifier = classifier
        self.labels = entailment_labels(classifier.labels, classifier.name)

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[EntailmentProbabilities]:
        """For each pair the probabilities of the three classes; equal pairs are classified once."""
        pairs = list(zip(premises, hypotheses, strict=True))
        unique = sorted(set(pairs), key=lambda pair: len(pair[0]) + len(pair[1]))  # similar lengths, little padding
        rows = self.classifier.probabilities([p for p, _ in unique], [h for _, h in unique])
        by_pair = {
            pair: EntailmentProbabilities(*(row[label] for label in self.labels))
            for pair, row in zip(unique, rows, strict=True)
        }
        return [by_pair[pair] for pair in pairs]


def entailment_labels(labels: Sequence[str], name: str) -> tuple[str, ...]:
    """The classifier's own labels for entailment, neutral and contradiction.

    >>> entailment_labels(["CONTRADICTION", "Neutral", "entailed"], "x")
    ('entailed', 'Neutral', 'CONTRADICTION')
    """
    chosen = []
    for relation, beginning in _BEGINNINGS.items():
        matching = [label for label in labels if label.lower().startswith(beginning)]
        if len(matching) != 1:
            raise UsageError(
                f"The classifier {name} has no label for {relation}; its labels are {', '.join(labels)}.",
                hint="Give a natural language inference classifier with the labels entailment, neutral and"
                " contradiction (`id2label` in its config.json names them).",
            )
        chosen += matching
    return tuple(chosen)
