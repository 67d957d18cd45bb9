"""Facts that people state about themselves, in the wordings of chats."""

import pytest

from tertulia.core.fact_words import find_place, singular, terms
from tertulia.core.facts import facts


def stated(text: str) -> set[tuple[str, str, bool, int | None]]:
    return {(fact.kind, fact.value, fact.positive, fact.amount) for fact in facts(text)}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("i m a truck driver .", ("job", "truck driver", True, None)),
        ("I work as a registered nurse in Ohio.", ("job", "nurse", True, None)),
        ("i am in sales", ("job", "salesman", True, None)),
        ("i'm not a teacher", ("job", "teacher", False, None)),
        ("i am retired , thankfully", ("job", "none", True, None)),
        ("we've 2 kids", ("child", "child", True, 2)),
        ("sorry , no kids here", ("child", "child", False, None)),
        ("I'm a single mom", ("child", "child", True, None)),
        ("my two dogs bark", ("pet", "dog", True, 2)),
        ("I don't have any pets", ("pet", "any", False, None)),
        ("i am an only child", ("sibling", "sibling", False, None)),
        ("my husband cooks", ("marital", "married", True, None)),
        ("i have never been married", ("marital", "single", True, None)),
        ("i am only thirty-two years old", ("age", "32", True, 32)),
        ("I'm a 32-year-old woman with a passion", ("age", "32", True, 32)),
        ("i am 24 , what about you ?", ("age", "24", True, 24)),
        ("I live in Cleveland with my wife", ("home", "usa/ohio/cleveland", True, None)),
        ("i can't stand pizza", ("like", "pizza", False, None)),
        ("Winter is my favourite season", ("favorite", "winter", True, None)),
        ("i do not eat meat", ("meat", "meat", False, None)),
        ("my name is george", ("name", "george", True, None)),
    ],
)
def test_a_fact_is_found(text: str, fact: tuple[str, str, bool, int | None]) -> None:
    assert fact in stated(text)


@pytest.mark.parametrize(
    "text",
    [
        "do you have kids ?",
        "i used to be a chef",
        "as a kid i wanted to be a pilot",
        "if i had a dog , i would walk him",
        "i lost my wife last year",
        "my partner is a 32-year-old man",
        "",
        "?!",
    ],
)
def test_questions_wishes_and_the_past_state_nothing(text: str) -> None:
    assert stated(text) == set()


def test_facts_of_relatives_are_theirs() -> None:
    (fact,) = (fact for fact in facts("my mother is a dentist") if fact.kind == "job")
    assert (fact.holder, fact.value) == ("mother", "dentist")


def test_the_lists_have_no_value_that_is_not_its_own_spelling() -> None:
    wrong = [t for table in terms().values() for t in table.values() if table[t.value].value != t.value]
    assert not wrong
    assert singular("glasses") == "glasses"
    assert find_place(["nowhere"]) is None


def test_long_texts_are_cut() -> None:
    assert facts("i have " * 100_000 + "two dogs") == ()
