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
_SLOW: Final = frozenset(
    (*(name for name in SUPPORT_SIGNS if name.startswith("encoder: ")), "encoder: contradiction",
     "likelihood gain", "likelihood with evidence", "likelihood without evidence")
)  # fmt: skip
"""Features of models, which are learned on top of those that can be counted."""


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


class _Question(NamedTuple):
    """What one of the three models learns from."""

    rows: NDArray[np.bool_]
    targets: NDArray[np.int64]
    weights: Floats
    outputs: tuple[str, ...]
    signs: dict[str, int]


def fit_heads(
    values: NDArray[Any],
    labels: Sequence[GroundingLabel],
    operations: Sequence[str],
    *,
    features: Sequence[str],
    penalty: float,
) -> GroundingHeads:
    """Fit the three models to silver examples; `operations` say what made each of them."""
    support, *others = (
        _fit(question, values, features, penalty) for question in _questions(labels, operations, features)
    )
    details = _details(support, values, labels, operations, features, penalty)
    return GroundingHeads(support.extended(details) if details else support, *others)


def extend_heads(
    heads: GroundingHeads,
    values: NDArray[Any],
    labels: Sequence[GroundingLabel],
    operations: Sequence[str],
    *,
    features: Sequence[str],
    penalty: float,
) -> GroundingHeads:
    """Add the curves of features that the models do not use yet, while everything else is held fixed.

    What takes long to compute (likelihoods) is then learned from few examples, and counts from all of them.
    """
    extended = []
    for model, question in zip(
        (heads.support, heads.contradiction, heads.kind), _questions(labels, operations, features), strict=True
    ):
        used = {name for name, knots in zip(features, model.knots, strict=True) if knots}
        new = question._replace(signs={name: sign for name, sign in question.signs.items() if name in _SLOW - used})
        offset = model.logits(values[question.rows])
        extended.append(model.extended(_fit(new, values, features, penalty, offset), intercepts=True))
    return GroundingHeads(*extended)


def _questions(
    labels: Sequence[GroundingLabel], operations: Sequence[str], features: Sequence[str]
) -> tuple[_Question, _Question, _Question]:
    """Is it supported? Does it contradict? What kind of failure is it?"""
    names = np.array(labels)
    invisible, contradiction = np.isin(np.array(operations), sorted(INVISIBLE)), names == "contradiction"
    visible, failed, ones = ~invisible & ~contradiction, np.isin(names, KINDS), np.ones(len(names))
    free = {name: 0 for name in features if name not in _OF_LENGTH}
    support = {name: sign for name, sign in SUPPORT_SIGNS.items() if name in features and name not in _OF_SWAPS}
    contradicting = free | {name: sign for name, sign in CONTRADICTION_SIGNS.items() if name in features}
    supported = (names[visible] == "entailment").astype(np.int64)
    kinds = np.array([KINDS.index(name) for name in names[failed]], dtype=np.int64)
    weights = np.where(invisible[failed], INVISIBLE_WEIGHT, 1.0)
    return (
        _Question(visible, supported, ones[visible], (SUPPORTED,), support),
        _Question(ones > 0, contradiction.astype(np.int64), ones, (CONTRADICTED,), contradicting),
        _Question(failed, kinds, weights, KINDS, free),
    )


def _details(
    support: AdditiveModel,
    values: NDArray[Any],
    labels: Sequence[GroundingLabel],
    operations: Sequence[str],
    features: Sequence[str],
    penalty: float,
) -> AdditiveModel | None:
    """What exchanged numbers and names teach the features that see them; None without such features or examples."""
    names, swapped = np.array(labels), np.isin(np.array(operations), sorted(_OF_SWAPS.values()))
    signs = {name: SUPPORT_SIGNS[name] for name in _OF_SWAPS if name in features}
    if not signs or not swapped.any():
        return None
    rows = (names == "entailment") | swapped
    targets = (names[rows] == "entailment").astype(np.int64)
    question = _Question(rows, targets, np.ones(len(targets)), (SUPPORTED,), signs)
    return _fit(question, values, features, penalty, support.logits(values[rows]))


def _fit(
    question: _Question,
    values: NDArray[Any],
    features: Sequence[str],
    penalty: float,
    offset: Floats | None = None,
) -> AdditiveModel:
    from tertulia.models.classifiers.additive_fit import fit_additive  # scipy takes a while to import

    return fit_additive(
        values[question.rows],
        question.targets,
        question.weights,
        features=features,
        outputs=question.outputs,
        signs=question.signs,
        penalty=penalty,
        offset=offset,
    )


def prior_values(priors: Mapping[str, float]) -> tuple[float, ...]:
    """Priors in the order of `LABELS`; those that are not given are 1."""
    return tuple(float(priors.get(label, 1.0)) for label in LABELS)
