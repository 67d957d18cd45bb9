"""Silver pairs of personas: balanced, seeded, each with its operation, and labelled as the facts say."""

from collections import Counter

import pytest

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.core.facts import facts
from tertulia.corpus.silver.persona import OPERATIONS, PersonaSilverConfig, negate_self, persona_pairs

PERSONAS = (
    ("i am a nurse.", "i have two kids.", "i love pizza.", "my favorite color is blue.", "i live in ohio."),
    ("i work as a truck driver.", "i'm 32 years old.", "i have a dog.", "i hate cats.", "my favorite color is red."),
    ("i am married.", "i have one brother.", "i do not eat meat.", "i like chess.", "i moved to france."),
)
TURNS = ("hi , i work as a nurse .", "my dog is old .", "i am 50 years old .", "it rains all day here in town .")


def dialogues() -> list[Dialogue]:
    turns = tuple(Turn("ab"[i % 2], text) for i, text in enumerate(TURNS))
    return [
        Dialogue(f"d{i}", turns, {"a": Persona(PERSONAS[i]), "b": Persona(PERSONAS[(i + 1) % 3], PERSONAS[i])})
        for i in range(3)
    ]


def test_pairs_are_balanced_and_say_what_made_them() -> None:
    made = persona_pairs(dialogues(), PersonaSilverConfig(per_label=40, seed=3))
    assert Counter(one.label for one in made) == {"entailment": 40, "neutral": 40, "contradiction": 40}
    assert all(one.response.meta["operation"] in OPERATIONS[one.label] for one in made)  # type: ignore[index]
    used = {one.response.meta["operation"] for one in made}
    assert used >= {"negation", "another occupation", "another age", "opposite taste", "a question about it"}
    pairs = [(one.evidence[0].text, one.response.text) for one in made]
    assert len(set(pairs)) == len(pairs)
    again = persona_pairs(dialogues(), PersonaSilverConfig(per_label=40, seed=3))
    assert again == made
    assert persona_pairs(dialogues(), PersonaSilverConfig(per_label=40, seed=4)) != made


def values(text: str, kind: str) -> set[str]:
    return {fact.value for fact in facts(text) if fact.kind == kind and fact.positive and fact.holder == "i"}


@pytest.mark.parametrize(
    ("operation", "kind"), [("another occupation", "job"), ("another home", "home"), ("another age", "age")]
)
def test_other_values_differ(operation: str, kind: str) -> None:
    made = persona_pairs(dialogues(), PersonaSilverConfig(per_label=60))
    own = [one for one in made if one.response.meta["operation"] == operation]
    assert own
    for one in own:
        assert not values(one.evidence[0].text, kind) & values(one.response.text, kind)


def test_neutral_pairs_state_no_other_value_of_an_exclusive_fact() -> None:
    made = persona_pairs(dialogues(), PersonaSilverConfig(per_label=60))
    own = [one for one in made if one.response.meta["operation"] in ("of a relative", "past or wish")]
    assert own
    assert not [one for one in own if values(one.response.text, "job") or values(one.response.text, "home")]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("I have two dogs.", "i do not have two dogs"),
        ("my car is red", "my car is not red"),
        ("i can't swim .", "i can swim"),
        ("I never smoke.", None),
        ("What a day!", None),
    ],
)
def test_negation(sentence: str, expected: str | None) -> None:
    assert negate_self(sentence) == expected


def test_the_sample_has_enough_personas_and_others_are_refused() -> None:
    made = persona_pairs(sample.dialogues("valid"), PersonaSilverConfig(per_label=20))
    assert Counter(one.label for one in made) == {"entailment": 20, "neutral": 20, "contradiction": 20}
    with pytest.raises(DataError, match="No dialogue has a persona"):
        persona_pairs([Dialogue("d", (Turn("a", "hi"),))], PersonaSilverConfig())
