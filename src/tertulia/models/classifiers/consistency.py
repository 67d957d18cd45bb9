"""Consistency classifiers by name: the built-in rules, a trained model of natural language inference, or both.

`rules` works everywhere and at once. A trained model sees more and is slower; in `rules+MODEL` the rules decide what
they know, and the model the rest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tertulia.artefacts.manifest import is_complete
from tertulia.core.consistency import ConsistencyClassifier, HasRelations
from tertulia.core.errors import UsageError
from tertulia.models.classifiers.consistency_rules import ConsistencyRules

DEFAULT = "rules"
DECIDED = 0.6
"""Probability from which the rules decide; what they find just possible is left to a model."""
REMEMBERED = 20_000
"""Pairs whose probabilities are kept: a filter asks about the same ones twice, and again with the next message."""


class RulesFirst:
    """The rules where they find a relation, else a model."""

    def __init__(self, model: ConsistencyClassifier) -> None:
        self.rules, self.model = ConsistencyRules(), model

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[HasRelations]:
        """For each pair the probabilities of the three classes; the model sees only what the rules do not decide."""
        rows: list[HasRelations] = []
        rows += self.rules.probabilities(premises, hypotheses)
        open_pairs = [i for i, row in enumerate(rows) if max(row.contradiction, row.entailment) < DECIDED]
        judged = self.model.probabilities([premises[i] for i in open_pairs], [hypotheses[i] for i in open_pairs])
        for i, row in zip(open_pairs, judged, strict=True):
            rows[i] = row
        return rows


class Remembering:
    """A model that is asked about a pair once."""

    def __init__(self, model: ConsistencyClassifier, *, size: int = REMEMBERED) -> None:
        self.model, self.size = model, size
        self._rows: dict[tuple[str, str], HasRelations] = {}

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[HasRelations]:
        """For each pair the probabilities of the three classes."""
        pairs = list(zip(premises, hypotheses, strict=True))
        rows = dict(self._rows)  # a copy: another thread may forget while this one reads
        new = [pair for pair in dict.fromkeys(pairs) if pair not in rows]
        rows |= zip(new, self.model.probabilities([p for p, _ in new], [h for _, h in new]) if new else (), strict=True)
        self._rows = rows if len(rows) <= self.size else {}
        return [rows[pair] for pair in pairs]


class ConsistencyParts(NamedTuple):
    """The rules and the trained model that a name stands for; one of them may be missing."""

    rules: ConsistencyRules | None
    model: ConsistencyClassifier | None


def load_parts(name: str = DEFAULT) -> ConsistencyParts:
    """What a name stands for, in parts: rules cost nothing, and a model should be asked about as little as possible."""
    first, plus, rest = (name or DEFAULT).partition("+")
    if first != DEFAULT:
        return ConsistencyParts(None, Remembering(_load_model(name)))
    return ConsistencyParts(ConsistencyRules(), Remembering(_load_model(rest)) if plus else None)


def load_consistency(name: str = DEFAULT) -> ConsistencyClassifier:
    """`rules`, the run folder of the recipe `entailment`, `hf:NAME_OR_FOLDER`, or `rules+` one of the latter two."""
    rules, model = load_parts(name)
    if rules is not None and model is not None:
        return RulesFirst(model)
    classifier = model or rules
    assert classifier is not None
    return classifier


def _load_model(name: str) -> ConsistencyClassifier:
    kind, _, hub_name = name.partition(":")
    if not is_complete(Path(name)) and (kind != "hf" or not hub_name):
        raise UsageError(
            f"{name!r} does not name an entailment classifier.",
            hint="Give `rules`, the run folder of `tertulia train configs/entailment.toml`, a Hugging Face classifier"
            " with the labels entailment, neutral and contradiction (hf:NAME_OR_FOLDER), or rules+ one of the two.",
        )
    from tertulia.models.classifiers.entailment import EntailmentClassifier  # transformers takes seconds to import

    return EntailmentClassifier.load(name if is_complete(Path(name)) else hub_name)
