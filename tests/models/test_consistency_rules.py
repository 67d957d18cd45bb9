"""The rules: what contradicts, what goes together, and how a model joins them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tertulia.core.consistency import RelationProbabilities
from tertulia.core.errors import UsageError
from tertulia.models.classifiers.consistency import RulesFirst, load_consistency
from tertulia.models.classifiers.consistency_rules import ConsistencyRules

CONTRADICTIONS = [
    ("i am a nurse with two kids .", "i am in sales ."),
    ("i am a nurse with two kids .", "no kids"),
    ("i have 3 daughters.", "i do not have any children yet ."),
    ("i have two dogs.", "i own three dogs."),
    ("i have a cat.", "we have no pets"),
    ("i am married.", "i am single and loving it ."),
    ("i am 32 years old.", "i just turned 19 ."),
    ("i live in ohio.", "i live in los angeles ."),
    ("my favorite color is blue.", "red is my favorite color"),
    ("i love pizza.", "i can't stand pizza ."),
    ("i am a vegan.", "i had chicken . i love steak ."),
    ("i do not have a job.", "i work at a bank ."),
    ("my mother is a dentist.", "my mom is a teacher ."),
    ("i graduated from yale in 2011 with honors", "i graduated from yale in 2013 with honors"),
    ("i speak fluent spanish at home", "i do not speak fluent spanish at home"),
]
TOGETHER = [
    ("i am a nurse.", "i work at a hospital ."),
    ("i am a nurse.", "my sister is in sales ."),
    ("i am a nurse.", "i used to be a teacher ."),
    ("i am a nurse.", "what do you do for a living ?"),
    ("i have a dog.", "i have a cat ."),
    ("i like tennis.", "i love to read ."),
    ("i have a son.", "i have two kids ."),
    ("i live in ohio.", "i live in cleveland ."),
    ("i live in ohio.", "i am from texas ."),
    ("i work as a plumber .", "i am a plumber , i fix things ."),
    ("i work in a diner .", "i work at a diner and i own a cupcake business ."),
    ("", "i am a nurse ."),
]


@pytest.mark.parametrize(("premise", "hypothesis"), CONTRADICTIONS)
def test_contradictions_in_both_directions(premise: str, hypothesis: str) -> None:
    one, other = ConsistencyRules().probabilities([premise, hypothesis], [hypothesis, premise])
    assert one.contradiction > 0.5
    assert other.contradiction > 0.5
    assert sum(one) == pytest.approx(1)


@pytest.mark.parametrize(("premise", "hypothesis"), TOGETHER)
def test_what_goes_together_does_not_contradict(premise: str, hypothesis: str) -> None:
    (row,) = ConsistencyRules().probabilities([premise], [hypothesis])
    assert row.contradiction < 0.5


def test_the_same_fact_is_entailed() -> None:
    premises = ["i am a nurse.", "i have two kids.", "i don't eat meat.", "i love old westerns."]
    replies = ["i work as a nurse .", "my two kids are great .", "i am a vegetarian", "i really like old westerns !"]
    assert all(row.entailment > 0.5 for row in ConsistencyRules().probabilities(premises, replies))


class AlwaysContradicts:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[RelationProbabilities]:
        self.seen += zip(premises, hypotheses, strict=True)
        return [RelationProbabilities(0.0, 0.1, 0.9)] * len(premises)


def test_a_model_decides_what_the_rules_leave_open() -> None:
    model = AlwaysContradicts()
    rows = RulesFirst(model).probabilities(["i am a nurse."] * 2, ["i am a nurse .", "the sky is blue ."])
    assert [row.contradiction > 0.5 for row in rows] == [False, True]
    assert model.seen == [("i am a nurse.", "the sky is blue .")]


def test_names_that_are_no_classifier(tmp_path: Path) -> None:
    assert isinstance(load_consistency(""), ConsistencyRules)
    for name in ("ruls", str(tmp_path), "rules+nowhere", "hf:"):
        with pytest.raises(UsageError, match="does not name an entailment classifier") as error:
            load_consistency(name)
        assert "rules" in error.value.hint
