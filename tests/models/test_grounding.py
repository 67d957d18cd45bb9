"""Verdicts on sentences and words of a response."""

import pytest

from tertulia.core.errors import UnknownName
from tertulia.core.grounding import GroundingInput
from tertulia.models.classifiers.grounding import grounding_verdicts, load_grounding

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


@pytest.mark.parametrize("response", ["", " \n ", "...", "🙂"])
def test_responses_without_words_have_a_verdict(response: str) -> None:
    verdicts = grounding_verdicts(load_grounding(), [GroundingInput("", "", response)] * 2)
    assert len(verdicts) == 2
    assert sum(verdicts[0].probabilities) == pytest.approx(1)


def test_an_unknown_name_suggests_the_close_ones() -> None:
    with pytest.raises(UnknownName, match="overlop"):
        load_grounding("overlop")
