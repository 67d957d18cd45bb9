"""Small classifiers of rules, registered for the time of a test."""

from collections.abc import Sequence

import pytest

from tertulia.core.grounding import LABELS, GroundingInput
from tertulia.core.registry import Row
from tertulia.models.classifiers.grounding import GROUNDING
from tertulia.models.classifiers.grounding_features import overlap


class MarkClassifier:
    """Reads the label at the end of the response, as in "It is blue. [generic]"; without one it is a hallucination."""

    name = "marks"

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        said = [next((i for i, label in enumerate(LABELS) if f"[{label}]" in one.response), 1) for one in inputs]
        return [tuple(0.8 if i == label else 0.05 for i in range(5)) for label in said]


class QuestionClassifier:
    """Questions are generic; the rest is as supported as its overlap says."""

    name = "questions"

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        rows: list[tuple[float, ...]] = []
        for one in inputs:
            share = overlap(one)
            asks = one.response.rstrip().endswith("?")
            rows.append((0.1, 0.1, 0.1, 0.7, 0.0) if asks else (share, 1 - share, 0.0, 0.0, 0.0))
        return rows


class ShortClassifier:
    """Gives too few probabilities, as a plugin with a mistake might."""

    name = "short"

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        return [(0.5, 0.5)] * len(inputs)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifiers of this module, by name."""
    for kind in (MarkClassifier, QuestionClassifier, ShortClassifier):
        row = Row(kind.name, f"{__name__}:{kind.__name__}", "for a test")
        monkeypatch.setitem(GROUNDING._rows, kind.name, row)
