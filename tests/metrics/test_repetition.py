import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.metrics import shared_runs as runs_module
from tertulia.metrics.metric import ConversationExample, ReplyExample
from tertulia.metrics.registry import metric_named
from tertulia.metrics.shared_runs import TrainingTurns


def chat(*turns: str, both: bool = False) -> ConversationExample:
    return ConversationExample(turns, tuple(both or i % 2 == 1 for i, _ in enumerate(turns)))


def measured(name: str, *batch: object, **resources: object) -> list[float]:
    return metric_named(name).measure(batch, resources)[0].tolist()


def test_repetition_in_a_reply() -> None:
    replies = [ReplyExample("i like tea i like tea"), ReplyExample("i like tea"), ReplyExample("tea")]
    assert measured("seq-rep-2", *replies) == pytest.approx([2 / 5, 0, math.nan], nan_ok=True)
    assert measured("seq-rep-1", *replies) == pytest.approx([1 / 2, 0, 0])


def test_repetition_of_earlier_turns() -> None:
    context = ("I like tea.", "And coffee!")
    replies = [ReplyExample("You like tea and coffee", "", context), ReplyExample("I like tea")]
    assert measured("context-rep-2", *replies) == pytest.approx([2 / 4, math.nan], nan_ok=True)


def test_self_repetition_is_of_the_same_speaker() -> None:
    turns = ("I like tea", "I like cake", "You like tea", "I like cake too", "I like tea")
    assert measured("self-repetition", chat(*turns)) == pytest.approx([2 / 3])
    # A: "you like tea" repeats 1 of 2 bigrams, "i like tea" 2 of 2; B: "i like cake too" 2 of 3
    assert measured("self-repetition", chat(*turns, both=True)) == pytest.approx([(1 / 2 + 1 + 2 / 3) / 3])
    assert math.isnan(measured("self-repetition", chat("Hi!", "I like cake"))[0])


def test_parroting() -> None:
    turns = ("I like tea", "You like tea?", "yes", "I like tea a lot")
    assert measured("parroting", chat(*turns)) == pytest.approx([(1 / 2 + 0) / 2])
    assert math.isnan(measured("parroting", chat("I like tea"))[0])


@pytest.mark.parametrize(
    ("turns", "both", "circles"),
    [
        (("Why?", "I don't know.", "Really?", "I DON'T know"), False, 1),
        (("Why?", "yes", "Really?", "Yes!"), False, 0),
        (("I don't know.", "yes", "I don't know", "no"), False, 0),  # the user repeats, not the bot
        (("I don't know.", "yes", "I don't know", "no"), True, 1),
        (("I don't know.", "I don't know."), True, 0),  # different speakers: parroting, not a loop
        (("ok", "ok", "ok"), True, 1),
        (("hi", "you?", "fine", "hi", "you?"), True, 1),
        (("", "", "", ""), True, 0),
        (("hi", "you?"), False, math.nan),
    ],
)
def test_loops(turns: tuple[str, ...], both: bool, circles: float) -> None:
    assert measured("loop", chat(*turns, both=both)) == pytest.approx([circles], nan_ok=True)


conversations = st.lists(st.lists(st.sampled_from(["a", "B", "c!", ""]), max_size=7), min_size=1, max_size=6)


def runs_of(turns: list[str], n: int) -> set[tuple[str, ...]]:
    plain = [turn.lower().strip("!") for turn in turns]
    return {tuple(plain[i : i + n]) for i in range(len(plain) - n + 1) if any(plain[i : i + n])}


@given(conversations, conversations, st.integers(1, 4), st.sampled_from([0, 64]))
def test_runs_against_sets_of_tuples(chats: list[list[str]], known: list[list[str]], n: int, bitset: int) -> None:
    batch = [ConversationExample(tuple(turns), (True,) * len(turns)) for turns in chats]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_module, "BITSET", bitset)
        values, weights = metric_named(f"shared run of {n} turns").measure(batch)
    shared = [
        sum(bool(runs_of(one, n) & runs_of(other, n)) for j, other in enumerate(chats) if j != i)
        for i, one in enumerate(chats)
    ]
    assert values.tolist() == shared
    assert weights is not None
    assert weights.tolist() == [len(chats) - 1] * len(chats)
    in_training = set().union(*(runs_of(turns, n) for turns in known))
    copied = [float(bool(runs_of(turns, n) & in_training)) if runs_of(turns, n) else math.nan for turns in chats]
    training = TrainingTurns(known)
    assert measured(f"copied run of {n} turns", *batch, training_turns=training) == pytest.approx(copied, nan_ok=True)


def test_many_conversations_with_the_same_runs_are_counted_quickly() -> None:
    rng = random.Random(1)
    same = [tuple(f"turn {i % 7}" for i in range(10)) for _ in range(3000)]
    others = [tuple(str(rng.random()) for _ in range(4)) + tuple(f"turn {i}" for i in range(3)) for _ in range(3000)]
    batch = [ConversationExample(turns, (True,) * len(turns)) for turns in same + others]
    values, _ = metric_named("shared run of 3 turns").measure(batch)
    assert set(values.tolist()) == {5999}
