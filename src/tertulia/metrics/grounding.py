"""What a grounding classifier says about replies whose true labels nobody knows: shares of BEGIN's labels.

Their unit is a verdict: one reply by one classifier. The batch is a sequence of labels (Dziri et al. 2021). A reply is
attributable if its label is entailment; a generic reply claims nothing, so the share of attributable replies is also
given among the others.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tertulia.core.grounding import LABELS, SUMMARIES, GroundingLabel
from tertulia.metrics.metric import Metric

_CITATION = "Dziri et al. 2021"
_BETTER: Final[dict[GroundingLabel, bool | None]] = {
    "entailment": True,
    "hallucination": False,
    "off-topic": False,
    "generic": None,
    "contradiction": False,
}


def _share(label: GroundingLabel) -> Callable[[Sequence[GroundingLabel]], tuple[list[float], list[float]]]:
    def compute(batch: Sequence[GroundingLabel]) -> tuple[list[float], list[float]]:
        return [float(one == label) for one in batch], [1.0] * len(batch)

    return compute


def _claims(batch: Sequence[GroundingLabel]) -> tuple[list[float], list[float]]:
    """Supported replies among those that claim something.

    >>> _claims(["entailment", "generic", "hallucination"])
    ([1.0, 0.0, 0.0], [1.0, 0.0, 1.0])
    """
    return [float(one == "entailment") for one in batch], [float(one != "generic") for one in batch]


def _row(label: GroundingLabel) -> Metric:
    summary = f"share of replies that a classifier labels {label}: {SUMMARIES[label]}"
    return Metric(f"grounding: {label}", "verdict", "share", summary, _CITATION, _BETTER[label], compute=_share(label))


LABEL_SHARES: Final = {label: _row(label) for label in LABELS}
ENTAILMENT, HALLUCINATION, OFF_TOPIC, GENERIC, CONTRADICTION = LABEL_SHARES.values()
CLAIMS = Metric(
    "grounding: attributable claims",
    "verdict",
    "share",
    "share of supported replies among those that a classifier does not label generic",
    _CITATION,
    compute=_claims,
)
