"""What classifiers get wrong, to read: examples of every true and predicted label, as in BEGIN's error analysis.

Of each confusion the errors are shown that the classifier is surest of: they teach most.
"""

from collections.abc import Iterator, Sequence

from tertulia.core.dialogue import Json
from tertulia.core.grounding import LABELS, GroundingInput
from tertulia.judge.grounding.classify import FIVE, TWO, LabelPredictions, NamedClassifier, true_label
from tertulia.judge.grounding.inputs import LabelledResponse
from tertulia.models.classifiers.grounding import grounding_verdicts

HEAD = (
    "true label",
    "predicted",
    "errors",
    "sure",
    "overlap",
    "evidence",
    "turn before",
    "response",
    "unsupported words",
)
MAX_TEXT = 400
"""Longest text of an example, in characters."""


def error_tables(
    explained: Sequence[tuple[LabelPredictions, NamedClassifier]],
    responses: Sequence[LabelledResponse],
    shares: Sequence[float],
    *,
    count: int,
) -> list[dict[str, Json]]:
    """One table per classifier, the most frequent confusions first, as they are saved with a run."""
    tables = []
    for subject, named in explained if count else ():
        rows = [list(row) for row in _rows(subject, named, responses, shares, count)]
        if rows:
            title = f"What {subject.subject.name} gets wrong"
            note = f"Of each confusion the {count} errors that it is surest of."
            tables.append({"title": title, "head": list(HEAD), "rows": rows, "notes": [note], "detail": True})
    return tables


def _rows(
    subject: LabelPredictions,
    named: NamedClassifier,
    responses: Sequence[LabelledResponse],
    shares: Sequence[float],
    count: int,
) -> Iterator[tuple[str, ...]]:
    confused: dict[tuple[str, str], list[int]] = {}
    five = subject.labels[FIVE.name]
    for i, one in enumerate(responses):
        way = TWO if one.label is None else FIVE
        if subject.labels[way.name][i] != true_label(way, one):
            confused.setdefault((one.written, LABELS[five[i]]), []).append(i)
    for (true, predicted), members in sorted(confused.items(), key=lambda pair: -len(pair[1])):
        surest = sorted(members, key=lambda i: -_sure(subject, i))[:count]
        for i in surest:
            given = responses[i].input
            yield (
                true,
                predicted,
                str(len(members)),
                f"{_sure(subject, i):.2f}",
                f"{shares[i]:.2f}",
                _short(given.evidence),
                _short(given.previous),
                _short(given.response),
                unsupported(named, given),
            )


def _sure(subject: LabelPredictions, i: int) -> float:
    """How probable the predicted label is; of the baseline, how far the overlap is from its threshold's other side."""
    if subject.probabilities is not None:
        return max(subject.probabilities[i])
    share = subject.support[i]
    return share if subject.labels[TWO.name][i] == 0 else 1 - share


def unsupported(named: NamedClassifier, given: GroundingInput) -> str:
    """The words of a response that decided against it."""
    (verdict,) = grounding_verdicts(named.classifier, [given])
    spans = [span for sentence in verdict.sentences for span in sentence.unsupported]
    return ", ".join(given.response[start:end] for start, end in spans)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
