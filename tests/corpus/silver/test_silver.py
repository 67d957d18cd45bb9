"""Silver data: operations change what they promise, examples are balanced, seeded and say what made them."""

import random
from collections import Counter

import pytest

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Evidence, Turn
from tertulia.core.english import ANTONYMS, content_words, has_first_person
from tertulia.core.errors import DataError
from tertulia.core.grounding import COARSE, LABELS, attributable, parse_label
from tertulia.core.text import words
from tertulia.corpus.silver.generate import (
    OPERATIONS,
    SilverConfig,
    share_in,
    silver_exchanges,
)
from tertulia.corpus.silver.negation import negate
from tertulia.corpus.silver.perturb import change_names, change_numbers, change_verb, swap_roles, use_antonym
from tertulia.corpus.silver.sources import grounded_dialogue


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Skiing can be a means of transport.", "Skiing cannot be a means of transport."),
        ("It wasn't released in Japan.", "It was released in Japan."),
        ("They won't play again.", "They will play again."),
        ("The director made a sequel.", "The director did not make a sequel."),
        ("Footprints left by astronauts could last.", "Footprints left by astronauts could not last."),
        ("The film, which was shot here, stars her son.", "The film, which was shot here, does not star her son."),
        ("She has a dog and is happy.", "She does not have a dog and is happy."),
        ("Nobody came.", None),
        ("Is it old?", None),
        ("Wow!", None),
        ("", None),
    ],
)  # fmt: skip
def test_negation(sentence: str, expected: str | None) -> None:
    assert negate(sentence) == expected


def test_negating_twice_gives_the_sentence_back() -> None:
    sentences = [s for e in sample.grounded() for s in (e.evidence[0].text, e.response.text)]
    auxiliaries = [(s, n) for s in sentences if (n := negate(s)) and f"{n}".replace(" not", "", 1) == s]
    assert len(auxiliaries) > 100
    assert [negate(negated) for _, negated in auxiliaries[:50]] == [sentence for sentence, _ in auxiliaries[:50]]


def test_perturbations_change_the_sentence_or_decline() -> None:
    rng = random.Random(3)
    sentence = "In 1987 Anna Berg wrote the largest guide to Rome with Carl Maas."
    changes = {
        "names": change_names(sentence, ["Paris", "Bo Lind"], rng),
        "numbers": change_numbers(sentence, rng),
        "roles": swap_roles(sentence, rng),
        "verb": change_verb(sentence, rng),
        "antonym": use_antonym(sentence, rng),
    }
    assert None not in changes.values()
    assert sentence not in changes.values()
    assert "1987" not in str(changes["numbers"])
    assert "smallest" in str(changes["antonym"])
    assert sorted(words(str(changes["roles"]))) == sorted(words(sentence))
    for change in (change_numbers, swap_roles, change_verb, use_antonym):
        assert change("So it goes.", rng) is None
    assert all(ANTONYMS[word] != word for word in ANTONYMS)


EXHAUSTED = {"human reply, supported", "negated human reply"}
"""The sample has few replies that rest on their evidence."""


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    return [grounded_dialogue(exchange) for exchange in sample.grounded()]


def test_labels_are_balanced_and_every_example_says_what_made_it(dialogues: list[Dialogue]) -> None:
    made = silver_exchanges(dialogues, SilverConfig(per_label=60, seed=5))
    assert Counter(e.label for e in made) == dict.fromkeys(LABELS, 60)
    operations = Counter((e.label, e.response.meta["operation"]) for e in made)
    assert set(operations) == {(label, name) for label, names in OPERATIONS.items() for name in names}
    for label, names in OPERATIONS.items():
        counts = [operations[label, name] for name in names if name not in EXHAUSTED]
        assert max(counts) - min(counts) <= 1, label
    keys = {(e.evidence[0].text, e.context[0].text, e.response.text) for e in made}
    assert len(keys) == len(made)


def test_replies_that_people_labelled_are_not_presented_as_something_else(dialogues: list[Dialogue]) -> None:
    gold = {e.response.text: e.label for e in sample.grounded()}
    made = silver_exchanges(dialogues, SilverConfig(per_label=200, seed=7))
    human = [e for e in made if str(e.response.meta["operation"]).startswith("human reply")]
    assert len(human) > 50
    assert [e.id for e in human if e.label != gold[e.response.text]] == []


def test_examples_are_what_their_label_says(dialogues: list[Dialogue]) -> None:
    made = silver_exchanges(dialogues, SilverConfig(per_label=60, seed=6))
    overlap = {
        label: [share_in(e.response.text, e.evidence[0].text) for e in made if e.label == label] for label in LABELS
    }
    mean = {label: sum(shares) / len(shares) for label, shares in overlap.items()}
    assert mean["entailment"] > mean["hallucination"] > mean["off-topic"]
    assert max(overlap["off-topic"]) <= 0.2
    remarks = [e for e in made if e.response.meta["operation"] == "personal remark"]
    assert remarks
    assert all(has_first_person(e.response.text) for e in remarks)
    generic = [e for e in made if e.response.meta["operation"] == "human reply without content"]
    assert all(len(content_words(e.response.text)) <= 4 for e in generic)


def test_the_same_seed_gives_the_same_examples(dialogues: list[Dialogue]) -> None:
    one, two, other = (silver_exchanges(dialogues, SilverConfig(per_label=20, seed=seed)) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_an_operation_that_never_applies_leaves_the_others(dialogues: list[Dialogue]) -> None:
    plain = Dialogue(
        "d",
        (Turn("a", "hm"), Turn("b", "ok")),
        evidence=(Evidence("the sky above us is often blue today. the sea below us is often green today."),),
    )
    made = silver_exchanges([plain], SilverConfig(per_label=3))
    assert {e.label for e in made} == {"entailment", "hallucination", "generic", "contradiction"}  # no other topic


def test_dialogues_without_evidence_are_an_error() -> None:
    with pytest.raises(DataError, match="No dialogue has evidence"):
        silver_exchanges([Dialogue("d", (Turn("a", "hi"), Turn("b", "ho")))], SilverConfig(per_label=1))


def test_labels_of_both_releases() -> None:
    assert set(COARSE) == set(LABELS)
    assert [parse_label(text) for text in ("Hallucination", "off_topic", "nonsense")] == [
        "hallucination",
        "off-topic",
        None,
    ]
    assert [attributable(text) for text in ("Fully attributable", "entailment", "generic")] == [True, True, False]
    with pytest.raises(DataError, match="Unknown grounding label"):
        attributable("nonsense")
