"""BEGIN's taxonomy (Dziri et al. 2021): how a response relates to the evidence it should rest on.

Five labels; `COARSE` maps them to the three of natural language inference. The second release of BEGIN (2022) has three
other labels, of which only "fully attributable" says that the evidence supports the response.
"""

from typing import Final, Literal, get_args

from tertulia.core.errors import DataError

GroundingLabel = Literal["entailment", "hallucination", "off-topic", "generic", "contradiction"]
CoarseLabel = Literal["entailment", "neutral", "contradiction"]

LABELS: Final[tuple[GroundingLabel, ...]] = get_args(GroundingLabel)
COARSE_LABELS: Final[tuple[CoarseLabel, ...]] = get_args(CoarseLabel)
COARSE: Final[dict[GroundingLabel, CoarseLabel]] = {
    "entailment": "entailment",
    "hallucination": "neutral",
    "off-topic": "neutral",
    "generic": "neutral",
    "contradiction": "contradiction",
}
SUMMARIES: Final[dict[GroundingLabel, str]] = {
    "entailment": "supported by the evidence",
    "hallucination": "on topic, but the evidence does not support it",
    "off-topic": "about something else than the evidence",
    "generic": "could follow almost anything",
    "contradiction": "contradicts the evidence",
}
_ATTRIBUTABLE: Final = {"fully attributable": True, "not fully attributable": False, "not attributable": False}
_SPELLINGS: Final[dict[str, GroundingLabel]] = {
    "faithful": "entailment",
    "hallucinated": "hallucination",
    "off topic": "off-topic",
    "offtopic": "off-topic",
}


def parse_label(text: str) -> GroundingLabel | None:
    """One of the five labels, in the spellings of published files; None if it is none of them.

    >>> parse_label("Off Topic"), parse_label("Fully attributable")
    ('off-topic', None)
    """
    name = text.strip().lower().replace("_", "-")
    if name in LABELS:
        return next(label for label in LABELS if label == name)
    return _SPELLINGS.get(name.replace("-", " "))


def attributable(text: str) -> bool:
    """Whether a label, of five or of the second release's three, says that the evidence supports the response.

    >>> attributable("entailment"), attributable("Not fully attributable"), attributable("Generic")
    (True, False, False)
    """
    if (label := parse_label(text)) is not None:
        return label == "entailment"
    try:
        return _ATTRIBUTABLE[text.strip().lower()]
    except KeyError:
        expected = ", ".join((*LABELS, *_ATTRIBUTABLE))
        raise DataError(f"Unknown grounding label {text!r}.", hint=f"Expected one of: {expected}.") from None
