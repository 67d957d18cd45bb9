"""A judge of unsafe text that was trained for it: any Hugging Face model for text classification."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tertulia.core.reply import Ask
from tertulia.models.text_classifier import TextClassifier


@dataclass(frozen=True, slots=True)
class Classifier:
    """Calls a text unsafe where one of the labels is probable enough."""

    model: TextClassifier
    labels: tuple[str, ...]
    threshold: float

    @classmethod
    def load(cls, name: str, *, label: str, threshold: float) -> Self:
        """From a folder or a hub name."""
        model = TextClassifier.load(name)
        return cls(model, model.chosen(tuple(part.strip() for part in label.split("|") if part.strip())), threshold)

    def reasons(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """Which texts are unsafe; the conversation is not looked at."""
        return [self._reason(found) for found in self.model.probabilities(texts)]

    def _reason(self, found: dict[str, float]) -> str | None:
        label = max(self.labels, key=lambda name: found[name])
        return f"unsafe: {label} ({found[label]:.2f})" if found[label] >= self.threshold else None
