"""The grounding filter: drops candidates that the evidence of the conversation does not support.

A grounding classifier (`tertulia.models.classifiers.grounding`) reads the evidence of the ask, the message, and each
candidate. All candidates of an ask are one batch. Without evidence nothing can be checked, and nothing is dropped.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator

from tertulia.core.config import Config
from tertulia.core.errors import UnknownName
from tertulia.core.grounding import LABELS, SUMMARIES, GroundingInput, GroundingVerdict, most_likely, parse_label
from tertulia.core.reply import Ask

if TYPE_CHECKING:
    from tertulia.core.grounding import GroundingClassifier

MAX_QUOTED = 60
"""Characters of a candidate's words that a reason quotes."""


class GroundedFilter(Config):
    """Drops a candidate whose grounding label is not allowed.

    >>> from tertulia.core.dialogue import Dialogue, Evidence
    >>> ask = Ask(Dialogue("d", (), evidence=(Evidence("The club was founded in 1982."),)))
    >>> GroundedFilter(classifier="overlap")(ask, "It was founded by monks in 1985.")
    "hallucination: 'monks' and '1985' are not in the evidence"
    >>> GroundedFilter(classifier="overlap")(ask, "The club was founded in 1982.")
    """

    classifier: str = ""
    """Name of the grounding classifier; by default the best that needs no training."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Keep a candidate from this probability of support on, whatever its label; by default the label alone decides."""
    allow: str = "entailment|generic"
    """Labels to keep, separated by "|": entailment, hallucination, off-topic, generic, contradiction."""
    weight: ClassVar[float] = 2.0
    by_sentence: ClassVar[Literal[True]] = True
    _classifier: "GroundingClassifier" = PrivateAttr()

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, allow: str) -> str:
        labels = [part.strip() for part in allow.split("|") if part.strip()]
        for label in labels:
            if parse_label(label) is None:
                raise UnknownName("grounding label", label, LABELS)
        return "|".join(str(parse_label(label)) for label in labels)

    def model_post_init(self, context: Any, /) -> None:
        """Load the classifier now, so that a wrong name fails immediately."""
        from tertulia.models.classifiers.grounding import load_grounding  # some classifiers import torch: takes seconds

        self._classifier = load_grounding(self.classifier) if self.classifier else load_grounding()

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        return self.many(ask, [text])[0]

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The reason to drop each candidate, or None to keep it."""
        from tertulia.models.classifiers.grounding import grounding_verdicts

        evidence = "\n".join(passage.text for passage in ask.dialogue.evidence)
        if not evidence.strip():
            return [None] * len(texts)
        inputs = [GroundingInput(evidence, ask.last, text) for text in texts]
        verdicts = grounding_verdicts(self._classifier, inputs)
        return [self._reason(text, verdict) for text, verdict in zip(texts, verdicts, strict=True)]

    def _reason(self, text: str, verdict: GroundingVerdict) -> str | None:
        if self.threshold is not None and verdict.support >= self.threshold:
            return None
        if verdict.label in self.allow.split("|") and (self.threshold is None or verdict.label != "entailment"):
            return None
        # With a threshold, "supported" may not be enough: name what it would be otherwise.
        label = verdict.label
        if label == "entailment":
            label = most_likely((0.0, *verdict.probabilities[1:]))
        words = [text[start:end] for sentence in verdict.sentences for start, end in sentence.unsupported]
        return f"{label}: {_quote(words)}" if words else f"{label}: {SUMMARIES[label]}"


def _quote(words: Sequence[str]) -> str:
    """Words of a candidate in a sentence of their own, as many as fit.

    >>> _quote(["1985"]), _quote(["monks", "1985"])
    ("'1985' is not in the evidence", "'monks' and '1985' are not in the evidence")
    """
    shown: list[str] = []
    for word in dict.fromkeys(words):
        if shown and sum(map(len, shown)) + len(word) > MAX_QUOTED:
            break
        shown.append(f"'{word[:MAX_QUOTED]}'")
    joined = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{joined} {'is' if len(shown) == 1 else 'are'} not in the evidence"
