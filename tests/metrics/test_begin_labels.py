from itertools import product

import pytest

from tertulia.metrics.begin_labels import begin_label, is_cooperative, response_label
from tertulia.sample import LABELS
from tertulia.study.presets import load_preset
from tertulia.study.questions import check_answers


@pytest.mark.parametrize(
    ("answers", "label"),
    [
        ({"on_topic": 1, "why_not": "generic"}, "generic"),
        ({"on_topic": 2, "why_not": "off-topic"}, "off-topic"),
        ({"on_topic": 5, "personal": 5}, "hallucination"),
        ({"on_topic": 3, "personal": 4}, "hallucination"),
        ({"on_topic": 5, "personal": 1, "informs": 1}, "hallucination"),
        ({"on_topic": 5, "personal": 1, "informs": 5, "contradicted": 5, "supported": 1}, "contradiction"),
        ({"on_topic": 5, "personal": 1, "informs": 5, "contradicted": 4, "supported": 4}, "contradiction"),
        ({"on_topic": 5, "personal": 3, "informs": 3, "contradicted": 3, "supported": 3}, "hallucination"),
        ({"on_topic": 5, "personal": 1, "informs": 5, "contradicted": 1, "supported": 1}, "hallucination"),
        ({"on_topic": 4, "personal": 2, "informs": 4, "contradicted": 1, "supported": 4}, "entailment"),
        ({"on_topic": 4, "personal": 2, "informs": 4, "contradicted": 3, "supported": 5}, "entailment"),
    ],
)
def test_the_label_of_a_sentence(answers: dict[str, object], label: str) -> None:
    cooperative = {} if "why_not" in answers else {"cooperative": 3}
    checked = check_answers(load_preset("begin").questions, {**answers, **cooperative}, "en")
    assert checked == {**answers, **cooperative}
    assert begin_label(checked) == label


def test_personal_sentences_are_never_entailed() -> None:
    assert begin_label({"on_topic": 5, "personal": 4, "supported": 5}) == "hallucination"
    assert begin_label({"on_topic": 5, "personal": 3, "supported": 5}) == "entailment"


def test_every_way_through_the_questions_has_a_label() -> None:
    questions = load_preset("begin").questions
    labels = set()
    scale = range(1, 6)
    for topic, why, personal, informs, against, support in product(
        scale, ("generic", "off-topic"), scale, scale, scale, scale
    ):
        answers = check_answers(
            questions,
            {
                "on_topic": topic,
                "why_not": why,
                "cooperative": 1,
                "personal": personal,
                "informs": informs,
                "contradicted": against,
                "supported": support,
            },
            "en",
        )
        labels.add(begin_label(answers))
    assert labels == {*LABELS}


def test_a_response_has_the_worst_label_of_its_sentences() -> None:
    assert response_label(["entailment", "contradiction", "hallucination"]) == "contradiction"
    assert response_label(["generic", "hallucination", "entailment"]) == "hallucination"
    assert response_label(["generic", "off-topic"]) == "off-topic"
    assert response_label(["generic", "generic"]) == "generic"
    with pytest.raises(ValueError, match="at least one sentence"):
        response_label([])


def test_cooperativeness_is_asked_of_sentences_on_the_topic() -> None:
    assert is_cooperative({"on_topic": 5, "cooperative": 4})
    assert not is_cooperative({"on_topic": 5, "cooperative": 3})
    assert not is_cooperative({"on_topic": 1, "why_not": "generic"})
