"""The grounding filter: what it drops and why, and that it leaves conversations without evidence alone."""

from collections.abc import Sequence

import pytest

from tertulia.core.dialogue import Dialogue, Evidence, Turn
from tertulia.core.errors import ConfigError, UnknownName
from tertulia.core.grounding import GroundingInput
from tertulia.core.reply import Ask, Candidate
from tertulia.talk.filters.base import apply_filters, choose, make_filters
from tertulia.talk.filters.grounded import GroundedFilter

PASSAGES = (Evidence("The club was founded in 1982 by two sisters."), Evidence("Its colours are red and blue."))
ASK = Ask(Dialogue("d", (Turn("ana", "When was it founded?"),), evidence=PASSAGES), "bot")
TRUE, FALSE, MIXED = "The club was founded in 1982.", "Monks opened it in 1985.", "Its colours are red, green and gold."


class Scripted:
    """Gives each response the probabilities that a table says, and counts its calls."""

    name = "scripted"

    def __init__(self, rows: dict[str, tuple[float, ...]]) -> None:
        self.rows, self.batches = rows, list[list[GroundingInput]]()

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        self.batches.append(list(inputs))
        return [self.rows[one.response] for one in inputs]


def with_classifier(rows: dict[str, tuple[float, ...]], **options: object) -> tuple[GroundedFilter, Scripted]:
    made, scripted = GroundedFilter(classifier="overlap", **options), Scripted(rows)  # type: ignore[arg-type]
    made._classifier = scripted
    return made, scripted


def test_reasons_name_the_label_and_the_words() -> None:
    filters = make_filters("grounded:classifier=overlap")
    candidates = [Candidate(FALSE, -1.0), Candidate(TRUE, -2.0)]
    filtered = apply_filters(filters, ASK, candidates)
    reason = "hallucination: 'Monks opened' and '1985' are not in the evidence"
    assert [one.candidate.dropped for one in filtered] == [reason, None]
    assert choose(filtered, fallback="")[:2] == (1, TRUE)
    assert choose(filtered[:1], fallback="").note == f"every candidate was dropped: used the least bad one ({reason})"


def test_without_evidence_nothing_is_dropped_or_even_classified() -> None:
    made, scripted = with_classifier({})
    for evidence in ((), (Evidence("  "),)):
        ask = Ask(Dialogue("d", ASK.dialogue.turns, evidence=evidence), "bot")
        assert made.many(ask, [FALSE, TRUE]) == [None, None]
    assert scripted.batches == []


def test_one_batch_reads_all_passages_the_message_and_every_candidate() -> None:
    made, scripted = with_classifier({TRUE: (0.9, 0.1, 0, 0, 0), FALSE: (0.1, 0.2, 0, 0, 0.7)})
    reasons = made.many(ASK, [TRUE, FALSE])
    assert reasons == [None, "contradiction: 'Monks opened' and '1985' are not in the evidence"]
    (batch,) = scripted.batches
    evidence = "The club was founded in 1982 by two sisters.\nIts colours are red and blue."
    assert batch == [GroundingInput(evidence, "When was it founded?", text) for text in (TRUE, FALSE)]


def test_labels_can_be_allowed_and_support_demanded() -> None:
    rows = {"Ok.": (0.1, 0.1, 0.1, 0.6, 0.1), TRUE: (0.6, 0.3, 0.0, 0.1, 0.0), FALSE: (0.3, 0.6, 0.1, 0.0, 0.0)}
    texts = list(rows)

    def kept(**options: object) -> list[bool]:
        return [reason is None for reason in with_classifier(rows, **options)[0].many(ASK, texts)]

    assert kept() == [True, True, False]
    assert kept(allow="entailment") == [False, True, False]
    assert kept(allow="entailment|Off Topic|hallucinated") == [False, True, True]
    assert kept(threshold=0.7) == [True, False, False]
    assert kept(threshold=0.25) == [True, True, True]
    strict, _ = with_classifier(rows, threshold=0.7, allow="entailment")
    assert strict.many(ASK, texts)[:2] == [
        "generic: could follow almost anything",
        "hallucination: on topic, but the evidence does not support it",
    ]


def test_wrong_options_fail_at_once() -> None:
    with pytest.raises(UnknownName, match="overlpa"):
        make_filters("grounded:classifier=overlpa")
    with pytest.raises(UnknownName, match="grounding label"):
        make_filters("grounded:allow=entailment|nonsense")
    with pytest.raises(ConfigError, match="threshold"):
        make_filters("grounded:threshold=2")
