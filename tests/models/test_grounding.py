"""Verdicts on sentences and words of a response."""

import numpy as np
import pytest

from tertulia.core.errors import UnknownName
from tertulia.core.grounding import GroundingInput
from tertulia.models.classifiers.grounding import grounding_verdicts, load_grounding
from tertulia.models.classifiers.grounding_features import FEATURES, grounding_features
from tertulia.models.classifiers.grounding_models import packaged

EVIDENCE = "The band was founded in 1982 in Lisbon by four students."


def test_every_sentence_gets_its_own_verdict_and_the_words_that_decided() -> None:
    text = "It was founded in Lisbon.  Nine drummers quit in 1985! Founded by students."
    [verdict] = grounding_verdicts(load_grounding("overlap"), [GroundingInput(EVIDENCE, "", text)])
    parts = [text[slice(*sentence.span)] for sentence in verdict.sentences]
    assert parts == ["It was founded in Lisbon.", "Nine drummers quit in 1985!", "Founded by students."]
    assert [sentence.label for sentence in verdict.sentences] == ["entailment", "hallucination", "entailment"]
    assert [text[slice(*span)] for span in verdict.sentences[1].unsupported] == ["Nine drummers quit", "1985"]
    assert not verdict.sentences[0].unsupported
    assert verdict.support == pytest.approx(4 / 8)


@pytest.mark.parametrize("classifier", ["lexical", "overlap"])
def test_a_false_number_is_marked_in_any_sentence(classifier: str) -> None:
    evidence = f"{EVIDENCE} It sold 12,500 records."
    text = "It was founded by students. In 1985! It was founded in 1983. Wow. It sold 12500 records in 1982."
    [verdict] = grounding_verdicts(load_grounding(classifier), [GroundingInput(evidence, "When?", text)])
    marked = [[text[slice(*span)] for span in sentence.unsupported] for sentence in verdict.sentences]
    assert marked[1:3] == [["1985"], ["1983"]]
    labels = [sentence.label for sentence in verdict.sentences]
    assert labels[:3] == ["entailment", "hallucination", "hallucination"]
    assert labels[4] == "entailment"


@pytest.mark.parametrize("response", ["", " \n ", "...", "🙂"])
def test_responses_without_words_have_a_verdict(response: str) -> None:
    verdicts = grounding_verdicts(load_grounding(), [GroundingInput("", "", response)] * 2)
    assert len(verdicts) == 2
    assert sum(verdicts[0].probabilities) == pytest.approx(1)


def test_the_default_classifier_tells_the_labels_apart_and_says_why() -> None:
    classifier = load_grounding()
    assert classifier.name == "lexical"
    responses = {
        "The band was founded by four students in Lisbon.": "entailment",
        "I love that band, do you like them?": "generic",
        "The band was not founded in Lisbon.": "contradiction",
        "It was founded in 1985.": "hallucination",
    }
    inputs = [GroundingInput(EVIDENCE, "Tell me about the band.", response) for response in responses]
    verdicts = grounding_verdicts(classifier, inputs)
    assert [verdict.label for verdict in verdicts] == list(responses.values())
    text = inputs[3].response
    assert [text[slice(*span)] for span in verdicts[3].sentences[0].unsupported] == ["1985"]
    text = inputs[2].response
    assert [text[slice(*span)] for span in verdicts[2].sentences[0].unsupported] == ["not"]
    reasons = {part.feature: part.weight for part in packaged().explain(inputs[0])}
    assert reasons["content overlap"] > 0.5
    against = {part.feature: part.weight for part in packaged().explain(inputs[3])}
    assert against["numbers not in evidence"] < -0.5
    assert "numbers not in evidence" not in reasons


def test_an_explanation_adds_up_to_the_log_odds() -> None:
    one = GroundingInput(EVIDENCE, "", "Four students founded it, I think.")
    support = packaged().heads.support
    total = sum(part.weight for part in packaged().explain(one)) + support.intercepts[0]
    assert total == pytest.approx(support.logits(grounding_features([one]))[0, 0])


@pytest.mark.parametrize(
    ("evidence", "response"),
    [
        ("", "The band was founded in Lisbon."),
        ("The band is from Lisbon. " * 40_000, "The band is from Lisbon."),
        ("x" * 10**6, "x"),
        ("乐队于1982年在里斯本成立。", "它在里斯本成立。"),
        ("", ""),
    ],
)
def test_any_evidence_gives_probabilities(evidence: str, response: str) -> None:
    [row] = load_grounding().probabilities([GroundingInput(evidence, "", response)])
    assert sum(row) == pytest.approx(1)
    assert all(0 <= value <= 1 for value in row)
    if evidence.startswith("The band"):
        assert row[0] > 0.9
    if not evidence:
        assert row[0] < 0.1


def test_more_overlap_never_speaks_against_support() -> None:
    support = packaged().heads.support
    values = np.repeat(grounding_features([GroundingInput(EVIDENCE, "", "The band plays a lot.")]), 50, axis=0)
    for name in ("content overlap", "word overlap", "common subsequence"):
        rising = values.copy()
        rising[:, FEATURES.index(name)] = np.linspace(0, 1, 50)
        steps = np.diff(support.logits(rising)[:, 0])
        assert steps.min() >= -1e-9
        assert steps.sum() > 0.2


def test_an_unknown_name_suggests_the_close_ones() -> None:
    with pytest.raises(UnknownName, match="overlop"):
        load_grounding("overlop")
