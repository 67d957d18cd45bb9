"""Verdicts on utterances: which sentence decides, and what an answer states together with its question."""

from collections.abc import Sequence

import pytest

from tertulia.core.consistency import (
    NEUTRAL,
    Claim,
    RelationProbabilities,
    answer_statement,
    asked_kinds,
    consistency_verdicts,
    statements,
)


class Table:
    """Probabilities by pair; all others are neutral."""

    def __init__(self, rows: dict[tuple[str, str], tuple[float, float, float]]) -> None:
        self.rows, self.calls = rows, 0

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[RelationProbabilities]:
        self.calls += 1
        pairs = zip(premises, hypotheses, strict=True)
        return [RelationProbabilities(*self.rows.get(pair, (0.0, 1.0, 0.0))) for pair in pairs]


def test_the_worst_sentence_decides_and_all_utterances_are_one_batch() -> None:
    table = Table({("p", "One."): (0.9, 0.1, 0.0), ("q", "Two."): (0.1, 0.2, 0.7), ("q", "Three."): (0.4, 0.3, 0.3)})
    said = [Claim("One. Two.", ("p", "q")), Claim("One.", ("p", "q")), Claim("Three.", ("q",))]
    first, second, third = consistency_verdicts(table, said)
    assert first == ("contradiction", 0.7, "q", "Two.")
    assert second == ("entailment", 0.9, "p", "One.")
    assert third[0] == "neutral"
    assert table.calls == 1
    assert consistency_verdicts(table, said[:1], threshold=0.8)[0].relation == "entailment"


def test_nothing_to_compare_is_neutral() -> None:
    table = Table({})
    assert (
        consistency_verdicts(table, [Claim("Hi.", ()), Claim("And you?", ("p",)), Claim("", ("p",))]) == [NEUTRAL] * 3
    )
    assert table.calls == 0


@pytest.mark.parametrize(
    ("question", "answer", "statement"),
    [
        ("do you have any pets ?", "no , i wish", "i do not have pets"),
        ("Are you married?", "Yes!", "i am married"),
        ("are you married ?", "i am not .", "i am not married"),
        ("do you like tea ?", "i am a nurse", None),
        ("any kids ?", "nope", "i do not have kids"),
        ("what do you do for a living ?", "in sales , you ?", "i work in sales"),
        ("where do you live ?", "in ohio", "i live in ohio"),
        ("what's your favorite color ?", "blue", "my favorite color is blue"),
        ("what is your job ?", "i bake bread", None),
        ("i have a dog .", "yes", None),
    ],
)
def test_answers_as_statements(question: str, answer: str, statement: str | None) -> None:
    assert answer_statement(question, answer) == statement


def test_statements_are_without_questions() -> None:
    assert statements("i am 24 , and you ? i like tea .") == ["i am 24", "i like tea ."]
    assert statements("how are you ?", "do you have kids ?") == []


def test_what_is_asked_for() -> None:
    assert asked_kinds("hi ! what do you do for a living ?") == {"job"}
    assert asked_kinds("my dog is old .") == frozenset()
