"""Shares of contradicting, neutral and entailed turns, by hand, with the rules and with a classifier of our own."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tertulia.core.consistency import RelationProbabilities
from tertulia.metrics.metric import ConversationExample, ReplyExample
from tertulia.metrics.registry import metric_named

NURSE = ("i am a nurse .", "i have two kids .")
TALK = ("what do you do ?", "i am a nurse .", "any kids ?", "nope .", "and pets ?", "it rains . i am in sales .")


class Words:
    """Contradiction for "sales", entailment for "nurse", by hypothesis alone."""

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[RelationProbabilities]:
        return [RelationProbabilities(float("nurse" in h), 0.0, float("sales" in h)) for h in hypotheses]


def measure(name: str, batch: Sequence[Any], entailment: Any = None) -> list[float]:
    values: list[float] = metric_named(name).measure(batch, {"entailment": entailment or Words()})[0].tolist()
    return values


def test_shares_of_turns_against_the_persona() -> None:
    talk = ConversationExample(TALK, (False, True) * 3, NURSE)
    silent = ConversationExample(TALK, (False,) * 6, NURSE)
    unknown = ConversationExample(TALK, (False, True) * 3)
    for relation, share in (("contradicting", 1 / 3), ("neutral to", 1 / 3), ("entailed by", 1 / 3)):
        first, second, third = measure(f"turns {relation} persona", [talk, silent, unknown])
        assert first == pytest.approx(share)
        assert math.isnan(second)
        assert math.isnan(third)
    assert measure("turns contradicting persona", []) == []


def test_the_first_own_turn_has_nothing_to_contradict() -> None:
    talk = ConversationExample(TALK, (False, True) * 3)
    assert measure("turns contradicting own turns", [talk]) == [0.5]  # of the second and third turn


def test_both_sides_of_self_play_have_their_own_persona_and_turns() -> None:
    turns = ("i am a nurse .", "i am in sales .", "i am a nurse .", "i am in sales .")
    personas = (("A", ("p",)), ("B", ()))
    talk = ConversationExample(turns, (True,) * 4, ("p",), ("A", "B", "A", "B"), personas)
    assert measure("turns entailed by persona", [talk]) == [1.0]  # only A has a persona
    assert measure("turns contradicting own turns", [talk]) == [0.5]


def test_replies() -> None:
    batch = [
        ReplyExample("i am in sales .", context=("hi",), persona=NURSE),
        ReplyExample("i am a nurse .", context=("i am tall .", "and ?"), persona=NURSE),
        ReplyExample("hello", context=("hi",)),
    ]
    assert measure("replies contradicting persona", batch)[:2] == [1.0, 0.0]
    assert measure("replies entailed by persona", batch)[:2] == [0.0, 1.0]
    assert math.isnan(measure("replies neutral to persona", batch)[2])
    own = measure("replies entailed by own turns", batch)
    assert [math.isnan(value) for value in own] == [True, False, True]
    assert own[1] == 1.0
