"""From features to BEGIN's labels in three questions, each answered by an additive model of its own.

Is the response supported? Does it contradict the evidence? If neither: is it hallucinated, off-topic or generic? The
questions are learned from different examples. Names, numbers, roles or verbs exchanged within a sentence of evidence,
and contradictions, look to any count of words like the evidence itself; as examples of "not supported" they would teach
the model to distrust overlap, the strongest sign of support there is (the ROC-AUC of support falls from .86 to .85 on
BEGIN's dev set, from .98 to .93 on one of the second release's). So they are left out of the first question, where more
overlap can only speak for support, and kept for the other two. What exchanged numbers and names do teach is learned in
a second step, by the two features that see them, while everything else is held fixed.

Silver data has as many examples of each label as of any other, and bots do not: `priors` say how often a label is to be
expected, as multiples of its odds in silver data. They shift each question by itself, so that what kind of failure is
likely does not change which responses are most likely supported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.dialogue import Json
from tertulia.core.grounding import LABELS, GroundingLabel
from tertulia.models.classifiers.additive import AdditiveModel, Floats, squash

KINDS: Final[tuple[GroundingLabel, ...]] = ("hallucination", "off-topic", "generic")
SUPPORTED, CONTRADICTED = "supported", "contradicted"
INVISIBLE: Final = frozenset(("other names", "other numbers", "exchanged roles", "another verb"))
"""Operations of silver data whose result shares nearly all its words with the evidence."""
INVISIBLE_WEIGHT = 0.2
"""What such an example counts for the kind of failure."""
_FOR_SUPPORT: Final = (
    "content overlap", "word overlap", "bigram overlap", "longest common part", "common subsequence",
    "numbers in evidence", "names in evidence", "likelihood gain", "encoder: entailment",
)  # fmt: skip
_AGAINST_SUPPORT: Final = (
    "new content words", "new content words, previous turn counted", "share of new content words", "first person",
    "share of first person", "second person", "question", "generic phrase", "negated", "negated unlike evidence",
    "numbers not in evidence", "names not in evidence", "antonym of evidence", "rarest new word",
    "copy of previous turn", "encoder: hallucination", "encoder: off-topic", "encoder: generic",
)  # fmt: skip
SUPPORT_SIGNS: Final[dict[str, int]] = dict.fromkeys(_FOR_SUPPORT, 1) | dict.fromkeys(_AGAINST_SUPPORT, -1)
"""Features that tell support, and whether more of them speaks for it."""
CONTRADICTION_SIGNS: Final = {"negated unlike evidence": 1, "antonym of evidence": 1, "encoder: contradiction": 1}
_OF_LENGTH: Final = frozenset(("evidence words", "evidence covered", "common subsequence of evidence"))
"""Features that depend on how much evidence there is, which silver data says nothing about."""


_OF_SWAPS: Final = {"numbers not in evidence": "other numbers", "names not in evidence": "other names"}
"""Features that see exchanged numbers and names, and the operations that teach what they mean."""


class Contribution(NamedTuple):
    """What one feature says about support."""

    feature: str
    value: float
    weight: float
    """What it adds to the log-odds of support."""


@dataclass(frozen=True, slots=True)
class GroundingHeads:
    """The three additive models; all read the same features."""

    support: AdditiveModel
    contradiction: AdditiveModel
    kind: AdditiveModel

    def probabilities(self, values: NDArray[Any], priors: Sequence[float]) -> Floats:
        """Of rows of features, the probabilities of `LABELS`: (n, 5)."""
        supported = squash(self.support.logits(values) + np.log(priors[0]))
        contradicted = squash(self.contradiction.logits(values) + np.log(priors[-1]))
        kinds = squash(self.kind.logits(values) + np.log(priors[1:-1]))
        left = 1 - contradicted
        return np.concatenate([supported * left, (1 - supported) * left * kinds, contradicted], axis=1)

    def explain(self, values: NDArray[Any]) -> list[Contribution]:
        """What the features of one row add to the log-odds of support, the most important first."""
        parts = self.support.contributions(values, SUPPORTED)
        row = dict(zip(self.support.features, np.asarray(values).reshape(-1).tolist(), strict=True))
        said = [Contribution(name, row[name], weight) for name, weight in parts.items() if abs(weight) > 1e-6]
        return sorted(said, key=lambda part: -abs(part.weight))

    def as_json(self) -> dict[str, Json]:
        """For the file."""
        return {name: getattr(self, name).as_json() for name in ("support", "contradiction", "kind")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], features: Sequence[str]) -> "GroundingHeads":
        """What `as_json` wrote."""
        return cls(*(AdditiveModel.from_json(value[n], features) for n in ("support", "contradiction", "kind")))


def reweigh(probabilities: NDArray[Any], priors: Sequence[float]) -> Floats:
    """Probabilities under other shares of the labels: each is multiplied by its prior, and rows add up to 1 again.

    >>> reweigh(np.array([[0.5, 0.5]]), (1.0, 3.0)).tolist()
    [[0.25, 0.75]]
    """
    weighted = probabilities * np.asarray(priors, dtype=np.float64)
    return np.asarray(weighted / weighted.sum(1, keepdims=True), dtype=np.float64)


def fit_heads(
    values: NDArray[Any],
    labels: Sequence[GroundingLabel],
    operations: Sequence[str],
    *,
    features: Sequence[str],
    penalty: float,
) -> GroundingHeads:
    """Fit the three models to silver examples; `operations` say what made each of them."""
    from tertulia.models.classifiers.additive_fit import fit_additive  # scipy takes a while to import

    names, made_by = np.array(labels), np.array(operations)
    invisible = np.isin(made_by, sorted(INVISIBLE))
    contradiction = names == "contradiction"
    free = {name: 0 for name in features if name not in _OF_LENGTH}
    ones = np.ones(len(names))
    visible = ~invisible & ~contradiction
    signs = {name: sign for name, sign in SUPPORT_SIGNS.items() if name in features}
    support = fit_additive(
        values[visible],
        (names[visible] == "entailment").astype(np.int64),
        ones[visible],
        features=features,
        outputs=[SUPPORTED],
        signs={name: sign for name, sign in signs.items() if name not in _OF_SWAPS},
        penalty=penalty,
    )
    swapped = (names == "entailment") | np.isin(made_by, sorted(_OF_SWAPS.values()))
    if any(name in features for name in _OF_SWAPS) and np.isin(made_by[swapped], sorted(INVISIBLE)).any():
        details = fit_additive(
            values[swapped],
            (names[swapped] == "entailment").astype(np.int64),
            ones[swapped],
            features=features,
            outputs=[SUPPORTED],
            signs={name: sign for name, sign in signs.items() if name in _OF_SWAPS},
            penalty=penalty,
            offset=support.logits(values[swapped]),
        )
        support = support.extended(details)
    contradicted = fit_additive(
        values,
        contradiction.astype(np.int64),
        ones,
        features=features,
        outputs=[CONTRADICTED],
        signs=free | {name: sign for name, sign in CONTRADICTION_SIGNS.items() if name in features},
        penalty=penalty,
    )
    failed = np.isin(names, KINDS)
    kind = fit_additive(
        values[failed],
        np.array([KINDS.index(name) for name in names[failed]]),
        np.where(invisible[failed], INVISIBLE_WEIGHT, 1.0),
        features=features,
        outputs=KINDS,
        signs=free,
        penalty=penalty,
    )
    return GroundingHeads(support, contradicted, kind)


def prior_values(priors: Mapping[str, float]) -> tuple[float, ...]:
    """Priors in the order of `LABELS`; those that are not given are 1."""
    return tuple(float(priors.get(label, 1.0)) for label in LABELS)
