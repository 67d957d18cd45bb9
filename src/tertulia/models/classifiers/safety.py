"""A text classifier as a judge of safety (`tertulia.core.safety`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tertulia.models.classifiers.text_classifier import TextClassifier


@dataclass(frozen=True, slots=True)
class SafetyClassifier:
    """Calls a text unsafe if one of the given labels is probable enough; it does not look at the conversation."""

    model: TextClassifier
    labels: tuple[str, ...]
    threshold: float

    @classmethod
    def load(cls, name: str, *, label: str, threshold: float) -> Self:
        """From a folder or a hub name."""
        model = TextClassifier.load(name)
        return cls(model, model.chosen(tuple(part.strip() for part in label.split("|") if part.strip())), threshold)

    def reasons(self, texts: Sequence[str], /, *, message: str = "") -> list[str | None]:
        """Which texts are unsafe, with the label and its probability."""
        return [self._reason(probabilities) for probabilities in self.model.probabilities(texts)]

    def scores(self, texts: Sequence[str], /) -> list[float]:
        """For each text, the largest probability of an unsafe label."""
        return [max(p[label] for label in self.labels) for p in self.model.probabilities(texts)]

    def _reason(self, probabilities: dict[str, float]) -> str | None:
        label = max(self.labels, key=lambda name: probabilities[name])
        return f"unsafe: {label} ({probabilities[label]:.2f})" if probabilities[label] >= self.threshold else None
