"""Natural language inference: whether a premise entails or contradicts a hypothesis.

By a classifier of one's own (recipe `entailment`) or any Hugging Face classifier. The latter agree on three classes and
on nothing else: order and spelling differ ("ENTAILMENT", "entailed", "contradiction", "Contradict"). The labels are
recognised by how they begin.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tertulia.artefacts.manifest import is_complete
from tertulia.core.errors import UsageError
from tertulia.models.classifiers.pair_classifier import PairClassifier
from tertulia.models.classifiers.text_classifier import TextClassifier

_BEGINNINGS = {"entailment": "entail", "neutral": "neutral", "contradiction": "contradict"}


class EntailmentProbabilities(NamedTuple):
    """Probabilities of the three classes."""

    entailment: float
    neutral: float
    contradiction: float


class PairLabeller(Protocol):
    """What labels pairs of texts: a `TextClassifier` or a `PairClassifier`."""

    name: str
    labels: tuple[str, ...]

    def probabilities(self, texts: Sequence[str], second: Sequence[str] | None = None) -> list[dict[str, float]]:
        """The probability of every label for each pair."""
        ...


class EntailmentClassifier:
    """A classifier with the three classes of natural language inference."""

    def __init__(self, classifier: PairLabeller) -> None:
        self.classifier = classifier
        self.labels = entailment_labels(classifier.labels, classifier.name)

    @classmethod
    def load(cls, name: str) -> "EntailmentClassifier":
        """From the run folder of the recipe `entailment`, or a Hugging Face classifier by folder or hub name."""
        folder = Path(name)
        return cls(PairClassifier.load(folder) if is_complete(folder) else TextClassifier.load(name))

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
