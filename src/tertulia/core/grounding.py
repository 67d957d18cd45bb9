"""BEGIN's taxonomy (Dziri et al. 2021): how a response relates to the evidence it should rest on.

Five labels; `COARSE` maps them to the three of natural language inference. The second release of BEGIN (2022) has three
other labels, of which only "fully attributable" says that the evidence supports the response.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, get_args

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


class GroundingInput(NamedTuple):
    """What a grounding classifier reads."""

    evidence: str
    previous: str
    """The turn before the response; may be empty."""
    response: str


class Span(NamedTuple):
    """A part of a text: the indices of its first character and of the one after its last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SentenceVerdict:
    """How one sentence of a response relates to the evidence."""

    span: Span
    """Where the sentence is in the response."""
    label: GroundingLabel
    probabilities: tuple[float, ...]
    """In the order of `LABELS`."""
    unsupported: tuple[Span, ...] = ()
    """The words that decided against it, as parts of the response: none if the sentence is supported."""


@dataclass(frozen=True, slots=True)
class GroundingVerdict:
    """How a response relates to its evidence, as a whole and sentence by sentence."""

    label: GroundingLabel
    probabilities: tuple[float, ...]
    """In the order of `LABELS`."""
    sentences: tuple[SentenceVerdict, ...]

    @property
    def support(self) -> float:
        """The probability that the evidence supports the response."""
        return self.probabilities[0]


class GroundingClassifier(Protocol):
    """Tells how responses relate to their evidence."""

    @property
    def name(self) -> str:
        """What verdicts are attributed to: a name of the registry, or the folder and digest of a trained model."""
        ...

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        """For each input the probabilities of `LABELS`, in their order; they add up to 1."""
        ...


def most_likely(probabilities: Sequence[float]) -> GroundingLabel:
    """The label with the largest probability.

    >>> most_likely((0.1, 0.5, 0.2, 0.1, 0.1))
    'hallucination'
    """
    return max(zip(probabilities, LABELS, strict=True), key=lambda pair: pair[0])[1]


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
