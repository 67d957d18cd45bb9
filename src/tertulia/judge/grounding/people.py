"""How far classifiers agree with people, beside how far people agree with each other.

Krippendorff's alpha of people among themselves is what can be reached. A classifier is compared with single people
(each judgement beside the classifier's: the comparable figure) and with the label of most people, which is less noisy.
"""

from collections.abc import Sequence

from tertulia.core.dialogue import Json
from tertulia.core.grounding import COARSE, LABELS
from tertulia.corpus.readers.base import content_id
from tertulia.judge.document import short
from tertulia.judge.grounding.classify import FIVE, THREE, WAYS, LabelPredictions, Way, true_label
from tertulia.judge.grounding.export import PersonLabel
from tertulia.judge.grounding.inputs import LabelledSet
from tertulia.metrics.agreement import UnitRating, krippendorff_alpha, percent_agreement

HEAD = ("labels", "who", "alpha", "agreement", "alpha with most people", "responses")


def agreement_table(given: LabelledSet, subjects: Sequence[LabelPredictions]) -> dict[str, Json]:
    """Alpha and percent agreement of people with people, and of each subject with people."""
    rows = [row for way in WAYS for row in _rows(way, given, subjects)]
    notes = [
        "Krippendorff's alpha (nominal), 95 % intervals by bootstrap over passages. People: among themselves, over"
        " responses that several people labelled. Others: with single people, and with the label of most people, over"
        " responses that have one."
    ]
    return {"title": "Agreement with people", "head": list(HEAD), "rows": rows, "notes": notes}


def _rows(way: Way, given: LabelledSet, subjects: Sequence[LabelPredictions]) -> list[list[str]]:
    clusters = {one.unit: content_id(one.input.evidence) for one in given.people}
    people = [UnitRating(one.unit, one.rater, _label(way, one)) for one in given.people]
    alpha = krippendorff_alpha(people, clusters=clusters)
    agreement = percent_agreement(people, clusters=clusters)
    rows = [[way.name, "people among themselves", short(alpha), short(agreement), "", str(alpha.n)]]
    majority = {one.unit: true_label(way, one) for one in given.responses}
    for subject in (one for one in subjects if one.subject.kind != "baseline"):  # not the constant one
        said = dict(zip(majority, subject.labels[way.name], strict=True))
        single, most = [], []
        for i, one in enumerate(given.people):
            if one.unit in said:
                unit = f"{one.unit} {i}"
                clusters[unit] = clusters[one.unit]
                single += [UnitRating(unit, "person", _label(way, one)), UnitRating(unit, "classifier", said[one.unit])]
        for unit, label in said.items():
            most += [UnitRating(unit, "people", majority[unit]), UnitRating(unit, "classifier", label)]
        alpha, agreement = krippendorff_alpha(single, clusters=clusters), percent_agreement(single, clusters=clusters)
        with_most = krippendorff_alpha(most, clusters=clusters)
        name = subject.subject.name
        rows.append([way.name, name, short(alpha), short(agreement), short(with_most), str(with_most.n)])
    return rows


def _label(way: Way, one: PersonLabel) -> int:
    """A person's label as an index."""
    if way == FIVE:
        return LABELS.index(one.label)
    return way.labels.index(COARSE[one.label]) if way == THREE else int(one.label != "entailment")
