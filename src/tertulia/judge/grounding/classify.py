"""Classifiers by name, and what they say about responses: labels of three kinds, and how far the evidence supports it.

A response has one of five labels, one of three (of which the middle one adds up the probabilities of hallucination,
off-topic and generic), or is attributable or not (whether its label of five is entailment).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.errors import DataError, UsageError
from tertulia.core.grounding import COARSE, COARSE_LABELS, LABELS, GroundingClassifier, GroundingInput
from tertulia.core.progress import Progress
from tertulia.judge.grounding.inputs import LabelledResponse, LabelledSet
from tertulia.judge.runs import Subject, unique_ids
from tertulia.models.classifiers.grounding import DEFAULT, load_grounding
from tertulia.models.classifiers.grounding_features import overlap

OVERLAP = "overlap"
"""Name of the registered baseline, which is shown as the baseline in any case."""
THRESHOLD = 0.8
"""Near the best on the dev splits of both releases of BEGIN; at .5 the baseline would be too easy to beat."""
CHUNK = 256
"""Responses that are classified between two reports of progress."""


class Way(NamedTuple):
    """A way to label responses."""

    name: str
    labels: tuple[str, ...]


FIVE: Final = Way("five labels", LABELS)
THREE: Final = Way("three labels", COARSE_LABELS)
TWO: Final = Way("attributable or not", ("attributable", "not attributable"))
WAYS: Final = (FIVE, THREE, TWO)


def true_label(way: Way, response: LabelledResponse) -> int:
    """The index of a response's true label."""
    if way == TWO:
        return 0 if response.supported else 1
    assert response.label is not None
    return way.labels.index(response.label if way == FIVE else COARSE[response.label])


@dataclass(frozen=True, slots=True)
class LabelPredictions:
    """What one subject says about all responses."""

    subject: Subject
    labels: dict[str, list[int]]
    """By way, the index of each response's label."""
    support: list[float]
    """How far the evidence supports each response."""
    probabilities: list[tuple[float, ...]] | None = None
    """Of the five labels; None for baselines."""


class NamedClassifier(NamedTuple):
    """A loaded classifier and what it is called in the results."""

    subject: Subject
    classifier: GroundingClassifier


def load_classifiers(specs: Sequence[str]) -> list[NamedClassifier]:
    """The classifiers, each once, with the digests of trained ones; the registered default if none is named."""
    chosen = list(dict.fromkeys(specs or (DEFAULT,)))
    names = unique_ids(Path(spec).name if Path(spec).is_dir() else spec for spec in chosen)
    loaded = []
    for name, spec in zip(names, chosen, strict=True):
        classifier = load_grounding(spec)
        about = read_about(Path(spec)) if is_complete(Path(spec)) else {}
        fingerprint = str(about.get("fingerprint", ""))
        loaded.append(NamedClassifier(Subject(name, spec, classifier.name, fingerprint), classifier))
    return loaded


def classify(named: NamedClassifier, inputs: Sequence[GroundingInput], progress: Progress) -> list[tuple[float, ...]]:
    """The probabilities of the five labels of all responses, with progress."""
    progress.step(f"Classifying by {named.subject.name}", total=len(inputs))
    rows: list[tuple[float, ...]] = []
    for start in range(0, len(inputs), CHUNK):
        part = inputs[start : start + CHUNK]
        given = named.classifier.probabilities(part)
        if len(given) != len(part) or any(len(row) != len(LABELS) for row in given):
            raise DataError(
                f"The classifier {named.subject.name!r} did not give {len(LABELS)} probabilities for every response.",
                hint="`GroundingClassifier.probabilities` returns one tuple per input, in the order of LABELS.",
            )
        rows += given
        progress.advance(len(part))
    return rows


def predictions(subject: Subject, probabilities: Sequence[tuple[float, ...]]) -> LabelPredictions:
    """Labels of all three kinds from the probabilities of five."""
    five = [row.index(max(row)) for row in probabilities]
    three = [_coarse(row) for row in probabilities]
    labels = {FIVE.name: five, THREE.name: three, TWO.name: [int(label != 0) for label in five]}
    return LabelPredictions(subject, labels, [row[0] for row in probabilities], list(probabilities))


def _coarse(row: Sequence[float]) -> int:
    """The most probable of three labels.

    >>> COARSE_LABELS[_coarse((0.4, 0.3, 0.2, 0.1, 0.0))]
    'neutral'
    """
    sums = [sum(p for p, label in zip(row, LABELS, strict=True) if COARSE[label] == coarse) for coarse in COARSE_LABELS]
    return sums.index(max(sums))


def overlap_baseline(shares: Sequence[float], threshold: float) -> LabelPredictions:
    """Supported from some overlap on; everything else is called hallucination, or neutral."""
    labels = [int(share < threshold) for share in shares]
    name = f"word overlap from {threshold:.2f}".replace("0.", ".")
    subject = Subject(name, OVERLAP, f"baseline, threshold {threshold:.4g}")
    return LabelPredictions(subject, {way.name: labels for way in WAYS}, list(shares))


def majority_baseline(responses: Sequence[LabelledResponse], ways: Sequence[Way]) -> LabelPredictions:
    """Always the most frequent label of the judged responses, which no classifier can know."""
    labels = {}
    for way in ways:
        counts = Counter(true_label(way, one) for one in responses)
        most = max(counts, key=lambda label: (counts[label], -label))
        labels[way.name] = [most] * len(responses)
    return LabelPredictions(Subject("always the most frequent", "", "baseline"), labels, [0.0] * len(responses))


def overlap_shares(inputs: Sequence[GroundingInput]) -> list[float]:
    """How much of each response's content its evidence has."""
    return [overlap(one) for one in inputs]


def choose_threshold(tuning: LabelledSet, judged: LabelledSet) -> float:
    """The overlap from which most responses are labelled correctly as attributable or not, on other responses."""
    shared = {one.input for one in tuning.responses} & {one.input for one in judged.responses}
    if shared:
        raise UsageError(
            f"{len(shared)} responses are both judged and tuned on: a threshold chosen on them would flatter overlap.",
            hint="Give --tune another file, such as the dev split when test is judged.",
        )
    shares = overlap_shares([one.input for one in tuning.responses])
    supported = [one.supported for one in tuning.responses]
    return best_threshold(shares, supported)


def best_threshold(shares: Sequence[float], supported: Sequence[bool]) -> float:
    """The middle between two overlaps that separates best; the lowest of equally good ones.

    >>> best_threshold([0.1, 0.4, 0.6, 0.9], [False, False, True, True])
    0.5
    """
    ordered = sorted(set(shares))
    cuts = [0.0, *((low + high) / 2 for low, high in pairwise(ordered)), 1.0]
    pairs = sorted(zip(shares, supported, strict=True))
    right = sum(supported)  # at threshold 0 everything is called supported
    best, most, i = 0.0, right, 0
    for cut in cuts[1:]:
        while i < len(pairs) and pairs[i][0] < cut:
            right += -1 if pairs[i][1] else 1
            i += 1
        if right > most:
            best, most = cut, right
    return best
