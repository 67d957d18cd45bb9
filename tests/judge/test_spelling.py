"""The model of characters by hand, and what unknown words of each tokenizer cost."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.judge.spelling import CHARACTERS, CharacterModel, spelling_charge
from tertulia.models.tokenizer import SubwordTokenizer, WordTokenizer

WORDS = ["tea", "teas", "sea", "dog", "it"]


def test_the_interpolated_counts_by_hand() -> None:
    """Order 2, words "a" and "ab": after the start always a; after a, once the end and once b."""
    model = CharacterModel(["a", "ab"], order=2)
    uniform = 1 / CHARACTERS
    alone = {"a": (2 + 3 * uniform) / 8, "b": (1 + 3 * uniform) / 8}  # five characters of three types, ends included
    first = (2 + 1 * alone["a"]) / 3
    second = (1 + 2 * alone["b"]) / 4
    end = (2 + 3 * uniform) / 8
    end = (1 + 1 * end) / 2  # after b
    assert model.nats("ab") == pytest.approx(-math.log(first * second * end))


@pytest.mark.parametrize("history", ["", "te", "zz", "e"])
def test_probabilities_sum_to_one(history: str) -> None:
    model = CharacterModel(WORDS)
    seen = {*"".join(WORDS), "\ue001"}
    unseen = (CHARACTERS - len(seen)) * model.probability("q", history)
    assert sum(model.probability(c, history) for c in seen) + unseen == pytest.approx(1)


def test_what_each_tokenizer_is_charged_for() -> None:
    words = spelling_charge(WordTokenizer(WORDS))
    assert words is not None
    assert words("the tea, it TEA") == pytest.approx(
        CharacterModel(WORDS).nats("the") + CharacterModel(WORDS).nats(",")
    )
    assert words("tea dog") == 0
    turns = [turn.text for dialogue in sample.dialogues("train")[:40] for turn in dialogue.turns]
    subwords = SubwordTokenizer.learn(turns, size=400)
    charge = spelling_charge(subwords)
    assert charge is not None
    assert charge("tea ☃ 龍") == 0
    assert len(subwords.encode("☃龍")) >= 6, "the bytes are in the model's own likelihood"


def test_a_tokenizer_that_nothing_can_spell_is_not_charged() -> None:
    class Other:
        def __len__(self) -> int:
            return 7

        def encode(self, text: str, /) -> tuple[int, ...]:
            return (1,)

        def decode(self, ids: Sequence[int], /) -> str:
            return ""

        def save(self, folder: Path, /) -> str:
            return ""

    assert spelling_charge(Other()) is None
